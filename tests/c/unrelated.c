/* One more library with static thread-locals, for a test of its own. */
__thread int unrelated_value __attribute__((tls_model("initial-exec"))) = 1;
int unrelated_count(void) { return ++unrelated_value; }
