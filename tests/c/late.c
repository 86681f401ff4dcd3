/* A second library with static thread-locals, for the test that loads it from a thread. */
__thread int late_value __attribute__((tls_model("initial-exec"))) = 1234;
int late_count(void) { return ++late_value; }
