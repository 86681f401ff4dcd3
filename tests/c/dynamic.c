/* A library whose thread-locals are allocated when first used. */
__thread int dynamic_value = 41;
__thread char dynamic_more[4096];
int dynamic_count(void) { dynamic_more[100]++; return ++dynamic_value; }
void *dynamic_address(void) { return &dynamic_value; }
