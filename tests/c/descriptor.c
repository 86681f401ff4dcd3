/* Thread-locals reached by descriptors (-mtls-dialect=gnu2): placed statically if there is room, and
   not marked as such. */
__thread int descriptor_value = 77;
int descriptor_count(void) { return ++descriptor_value; }
