/* Loads a library when it is unloaded. */
#include <dlfcn.h>
#include <stddef.h>
int closing_touch(void) { return 1; }
__attribute__((destructor)) static void load(void) {
    void *handle = dlopen("libm.so.6", RTLD_NOW);
    if (handle != NULL) dlclose(handle);
}
