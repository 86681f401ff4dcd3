/* Takes the variable of `base` for static. */
extern __thread int base_value __attribute__((tls_model("initial-exec")));
int dependent_count(void) { return ++base_value; }
