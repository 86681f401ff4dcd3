/* One more library with static thread-locals, for a test of its own. */
__thread int listed_value __attribute__((tls_model("initial-exec"))) = 300;
int listed_count(void) { return ++listed_value; }
