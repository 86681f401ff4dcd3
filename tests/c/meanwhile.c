/* One more library with static thread-locals, for a test of its own. */
__thread int meanwhile_value __attribute__((tls_model("initial-exec"))) = 300;
int meanwhile_count(void) { return ++meanwhile_value; }
