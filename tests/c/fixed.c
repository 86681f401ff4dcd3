/* A library whose thread-locals are static: initial-exec. */
__thread int fixed_value __attribute__((tls_model("initial-exec"))) = 77;
__thread long fixed_more[16] __attribute__((tls_model("initial-exec")));
static int constructor_saw;
__attribute__((constructor)) static void look(void) { constructor_saw = fixed_value; }
int fixed_count(void) { fixed_more[3]++; return ++fixed_value; }
void *fixed_address(void) { return &fixed_value; }
int fixed_constructor_saw(void) { return constructor_saw; }
