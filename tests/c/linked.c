/* C code as programs have it: thread-locals, locales, keys, a recursive mutex, big frames. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <langinfo.h>
#include <locale.h>
#include <netinet/in.h>
#include <pthread.h>
#include <resolv.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static __thread int counter = 5;

int linked_count(void) { return ++counter; }

/* Sets a locale for the caller only. Returns whether it could. */
int linked_use_locale(void) {
    locale_t mine = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    if (mine == (locale_t)0) return 0;
    return uselocale(mine) != (locale_t)0;
}
/* 0: the caller follows the program's locale, 1: it has its own. */
int linked_has_locale(void) { return uselocale((locale_t)0) != LC_GLOBAL_LOCALE; }

double linked_parse(const char *text) { return strtod(text, NULL); }
int linked_isalpha(int c) { return isalpha(c) != 0; }
int linked_is_utf8(void) { return strcmp(nl_langinfo(CODESET), "UTF-8") == 0; }

void linked_set_errno(int value) { errno = value; }
int linked_errno(void) { return errno; }

static pthread_key_t key;
static int destroyed;
static void destroy(void *value) {
    __atomic_fetch_add(&destroyed, (int)(long)value, __ATOMIC_SEQ_CST);
    /* Destructors may set keys again, up to four rounds. */
    if ((long)value > 1) pthread_setspecific(key, (void *)((long)value - 1));
}
void linked_make_key(void) { pthread_key_create(&key, destroy); }
long linked_key(void) { return (long)pthread_getspecific(key); }
void linked_set_key(long value) { pthread_setspecific(key, (void *)value); }
int linked_destroyed(void) { return __atomic_load_n(&destroyed, __ATOMIC_SEQ_CST); }

static pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
int linked_try_lock(void) { return pthread_mutex_trylock(&mutex) == 0; }
int linked_unlock(void) { return pthread_mutex_unlock(&mutex) == 0; }

/* Rounding: 0 to nearest, 1 down, 2 up, 3 to zero. The division shows the rounding in force. */
void linked_round(int mode) {
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    fesetround(modes[mode]);
}
double linked_third(void) {
    volatile double one = 1.0, three = 3.0;
    return one / three;
}
/* The same on the x87 unit, which has a control word of its own. 1 if rounded down. */
int linked_x87_rounds_down(void) {
    volatile long double one = 1.0L, three = 3.0L;
    long double third = one / three;
    volatile double low = 0.33333333333333331;
    return third * three < one || (double)third < low;
}
int linked_inexact(void) { return fetestexcept(FE_INEXACT) != 0; }
void linked_clear_inexact(void) { feclearexcept(FE_INEXACT); }

/* Whether what libc says of the caller's stack holds an address of this frame. */
int linked_stack_is_known(void) {
    pthread_attr_t attr;
    void *low = NULL;
    size_t size = 0;
    char here;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return 0;
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_destroy(&attr);
    return (char *)low < &here && &here < (char *)low + size;
}
int linked_affinity_is_known(void) {
    cpu_set_t mine, process;
    CPU_ZERO(&mine);
    CPU_ZERO(&process);
    if (pthread_getaffinity_np(pthread_self(), sizeof mine, &mine) != 0) return 0;
    if (sched_getaffinity(0, sizeof process, &process) != 0) return 0;
    return CPU_EQUAL(&mine, &process);
}
int linked_cpu_clock_is_known(void) {
    clockid_t clock;
    struct timespec now;
    if (pthread_getcpuclockid(pthread_self(), &clock) != 0) return 0;
    return clock_gettime(clock, &now) == 0;
}
int linked_cpu(void) { return sched_getcpu(); }

/* A frame of 40 KB that is written from its far end, and no stack probe. */
__attribute__((noipa)) int linked_big_frame(int depth) {
    volatile char frame[40000];
    frame[0] = (char)depth;
    if (depth == 0) return frame[0];
    return linked_big_frame(depth - 1) + frame[0];
}

/* A frame of 130 KB that is touched in its middle only: the stack pointer is past the guard. */
__attribute__((noipa)) int linked_huge_frame(int depth) {
    volatile char frame[130000];
    frame[65000] = (char)depth;
    if (depth == 0) return frame[65000];
    return linked_huge_frame(depth - 1) + frame[65000];
}

/* Cancellation is part of a thread's state: returns the state before, and turns it off. */
int linked_disable_cancel(void) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before == PTHREAD_CANCEL_ENABLE;
}

/* Whether the caller's resolver state is in its own control block. */
int linked_resolver_is_own(void) {
    uintptr_t state = (uintptr_t)__res_state(), self = (uintptr_t)pthread_self();
    return state > self && state - self < 8192;
}
/* Changes it, and says what it was. */
int linked_resolver_ndots(void) {
    res_state state = __res_state();
    if (!(state->options & RES_INIT)) res_ninit(state);
    int before = state->ndots;
    state->ndots = 7;
    return before;
}

static void at_exit(void) { (void)!write(1, "at exit\n", 8); }
int linked_at_exit(void) { return atexit(at_exit); }

/* A key whose value outlives it: another key gets its number, and must not get its value. */
static int second_calls;
static void second(void *value) { (void)value; __atomic_fetch_add(&second_calls, 1, __ATOMIC_SEQ_CST); }
static void first(void *value) { (void)value; }
void linked_outlive_key(void) {
    pthread_key_t one, two;
    pthread_key_create(&one, first);
    pthread_setspecific(one, (void *)1);
    pthread_key_delete(one);
    pthread_key_create(&two, second);
}
int linked_second_calls(void) { return __atomic_load_n(&second_calls, __ATOMIC_SEQ_CST); }

/* Keys that are set again forever, near and far: the next owner of the slot must not see them. */
static pthread_key_t stubborn[60];
static void again(void *value) {
    long which = (long)value - 1;
    pthread_setspecific(stubborn[which], value);
}
void linked_make_stubborn(void) {
    for (int i = 0; i < 60; i++) pthread_key_create(&stubborn[i], again);
}
/* Sets all, and says how many were set before. */
int linked_set_stubborn(void) {
    int before = 0;
    for (long i = 0; i < 60; i++) {
        if (pthread_getspecific(stubborn[i])) before++;
        pthread_setspecific(stubborn[i], (void *)(i + 1));
    }
    return before;
}
