/* One more library with static thread-locals, for a test of its own. */
__thread int spaced_value __attribute__((tls_model("initial-exec"))) = 900;
int spaced_count(void) { return ++spaced_value; }
