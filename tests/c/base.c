/* A library whose variable another one takes for static. */
__thread int base_value = 55;
int base_count(void) { return ++base_value; }
