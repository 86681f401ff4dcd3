/* A program that loads the library named by its argument and runs its goroutines. Exits with what
   these return, and with 4 if the library cannot be loaded. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments) {
    void *library = dlopen(count > 1 ? arguments[1] : NULL, RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 4;
    }
    int (*run)(void) = (int (*)(void))dlsym(library, "gosched_tests_run_goroutines");
    return run == NULL ? 4 : run();
}
