/* One more library with static thread-locals, for a test of its own. */
__thread int again_value __attribute__((tls_model("initial-exec"))) = 42;
int again_count(void) { return ++again_value; }
