/* For LD_PRELOAD: a monotonic clock that runs 600 times as fast from the first look at it on. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FASTER = 600, SECOND = 1000000000 };

int clock_gettime(clockid_t clock, struct timespec *time) {
    static long long first;
    long result = syscall(SYS_clock_gettime, clock, time);
    if (result != 0 || clock != CLOCK_MONOTONIC)
        return (int)result;
    long long now = time->tv_sec * (long long)SECOND + time->tv_nsec, none = 0;
    __atomic_compare_exchange_n(&first, &none, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    now += (now - __atomic_load_n(&first, __ATOMIC_RELAXED)) * (FASTER - 1);
    time->tv_sec = now / SECOND;
    time->tv_nsec = now % SECOND;
    return 0;
}
