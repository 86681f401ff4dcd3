/* An allocator, for LD_PRELOAD, that keeps its state for each thread under a pthread key, as jemalloc
   and tcmalloc do: the first call on a thread sets the key, and so does the first call after the key's
   destructor. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

struct state {
    pthread_t owner;
};

static pthread_key_t key;
static atomic_int has_key;
static atomic_long made, destroyed, strangers;

static void destroy(void *state) {
    destroyed++;
    if (!pthread_equal(((struct state *)state)->owner, pthread_self()))
        strangers++;
    __libc_free(state);
}

__attribute__((constructor)) static void create_key(void) {
    pthread_key_create(&key, destroy);
    has_key = 1;
}

/* Before any other call: the state of the calling thread. */
static void touch(void) {
    if (!has_key)
        return;
    struct state *state = pthread_getspecific(key);
    if (state == NULL) {
        state = __libc_malloc(sizeof *state);
        state->owner = pthread_self();
        pthread_setspecific(key, state);
        made++;
    } else if (!pthread_equal(state->owner, pthread_self())) {
        strangers++;
    }
}

void *malloc(size_t size) { touch(); return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { touch(); return __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { touch(); return __libc_realloc(old, size); }
void *memalign(size_t align, size_t size) { touch(); return __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { touch(); return __libc_memalign(align, size); }
int posix_memalign(void **to, size_t align, size_t size) {
    touch();
    *to = __libc_memalign(align, size);
    return *to == NULL ? 12 : 0;
}
void free(void *old) { touch(); __libc_free(old); }

/* States that were made, states that were destroyed, and states seen by another thread than their
   owner. */
long keyed_malloc_made(void) { return made; }
long keyed_malloc_destroyed(void) { return destroyed; }
long keyed_malloc_strangers(void) { return strangers; }
