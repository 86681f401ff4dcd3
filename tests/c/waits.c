// Every kind of call that waits, each as a function that says how it ended: for the suite `preempt_calls`.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// How long each waits, in milliseconds.
enum { WAIT = 15 };
// How a call ended: right (0), EINTR, or one of these, or another errno.
enum { WRONG = 1000, EARLY = 1001 };

static const struct timespec WAIT_SPEC = {0, WAIT * 1000000L};
static const struct timeval WAIT_VAL = {0, WAIT * 1000L};

static double time_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static double now(void) {
    return time_of(CLOCK_MONOTONIC);
}

// As the kernel's ticks count it. Where a virtual machine's CPU that counts them stands still, others go on
// with an old count, and then many come at once: limits in ticks end early by the other clock.
static double now_in_ticks(void) {
    return time_of(CLOCK_MONOTONIC_COARSE);
}

static struct timespec deadline(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += WAIT_SPEC.tv_nsec;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

// What a call that must have waited for so long, and then say `expected`, did.
static int ended(int error, int expected, double wait, double least) {
    if (error == EINTR) return EINTR;
    if (error != expected) return error ? error : WRONG;
    return wait < least ? EARLY : 0;
}

// What a call that must wait for its whole time and then say `expected` did.
static int timed(double start, long result, int expected) {
    int error = result < 0 ? errno : 0;
    return ended(error, expected, now() - start, WAIT - 5);
}

// The same for a limit that the kernel counts in ticks, of up to 10 ms; `start` is in ticks too.
static int ticked(double start, long result, int expected) {
    int error = result < 0 ? errno : 0;
    return ended(error, expected, now_in_ticks() - start, WAIT - 10);
}

// Whether the system does not have such a call, or does not let containers make it.
static int is_missing(int error) {
    return error == ENOSYS || error == EPERM || error == ENOSPC;
}

// What a call that must wait for something to happen, and then return `expected`, did.
static int waited(long result, long expected) {
    if (result < 0) return errno;
    return result == expected ? 0 : WRONG;
}

// A thread that acts after a while. All its calls are repeated after EINTR.
struct later {
    pthread_t thread;
    void (*act)(struct later *);
    int fd;
    void *object;
    _Atomic int begun;
};

static void sleep_well(void) {
    struct timespec left = WAIT_SPEC;
    while (nanosleep(&left, &left) < 0) {
    }
}

static void *later_main(void *argument) {
    struct later *later = argument;
    later->act(later);
    return NULL;
}

static void begin(struct later *later, void (*act)(struct later *), int fd, void *object) {
    later->act = act;
    later->fd = fd;
    later->object = object;
    later->begun = 0;
    if (pthread_create(&later->thread, NULL, later_main, later) != 0) abort();
}

static int end(struct later *later, int outcome) {
    pthread_join(later->thread, NULL);
    return outcome;
}

static void write_later(struct later *later) {
    long word = 1;
    sleep_well();
    while (write(later->fd, &word, sizeof word) < 0 && errno == EINTR) {
    }
}

static void lock_for_a_while(struct later *later) {
    pthread_mutex_lock(later->object);
    later->begun = 1;
    sleep_well();
    pthread_mutex_unlock(later->object);
}

static void post_later(struct later *later) {
    sleep_well();
    sem_post(later->object);
}

static void semop_later(struct later *later) {
    struct sembuf up = {0, 1, 0};
    sleep_well();
    while (semop(later->fd, &up, 1) < 0 && errno == EINTR) {
    }
}

struct message {
    long type;
    char text;
};

static void msgsnd_later(struct later *later) {
    struct message message = {1, 'x'};
    sleep_well();
    while (msgsnd(later->fd, &message, 1, 0) < 0 && errno == EINTR) {
    }
}

static void flock_for_a_while(struct later *later) {
    int fd = open(later->object, O_RDWR);
    while (flock(fd, LOCK_EX) < 0) {
    }
    later->begun = 1;
    sleep_well();
    close(fd);
}

static void wait_until_begun(struct later *later) {
    while (!later->begun) sched_yield();
}

static int wait_nanosleep(void) {
    double start = now();
    return timed(start, nanosleep(&WAIT_SPEC, NULL), 0);
}

static int sleep_error(double start, int error) {
    errno = error;
    return timed(start, error ? -1 : 0, 0);
}

static int wait_clock_nanosleep(void) {
    double start = now();
    return sleep_error(start, clock_nanosleep(CLOCK_MONOTONIC, 0, &WAIT_SPEC, NULL));
}

static int wait_clock_nanosleep_until(void) {
    double start = now();
    struct timespec at = deadline(CLOCK_MONOTONIC);
    return sleep_error(start, clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL));
}

static int wait_usleep(void) {
    double start = now();
    return timed(start, usleep(WAIT * 1000), 0);
}

static int wait_poll(void) {
    double start = now();
    return timed(start, poll(NULL, 0, WAIT), 0);
}

static int wait_ppoll(void) {
    double start = now();
    return timed(start, ppoll(NULL, 0, &WAIT_SPEC, NULL), 0);
}

static int wait_select(void) {
    double start = now();
    struct timeval left = WAIT_VAL;
    return timed(start, select(0, NULL, NULL, NULL, &left), 0);
}

static int wait_pselect(void) {
    double start = now();
    return timed(start, pselect(0, NULL, NULL, NULL, &WAIT_SPEC, NULL), 0);
}

static int wait_epoll(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event;
    double start = now();
    int outcome = timed(start, epoll_wait(epoll, &event, 1, WAIT), 0);
    close(epoll);
    return outcome;
}

static int wait_epoll_pwait2(void) {
    int epoll = epoll_create1(0);
    struct epoll_event event;
    double start = now();
    long result = syscall(SYS_epoll_pwait2, epoll, &event, 1, &WAIT_SPEC, NULL, 8);
    int outcome = result < 0 && is_missing(errno) ? 0 : timed(start, result, 0);
    close(epoll);
    return outcome;
}

static int wait_futex(void) {
    int word = 0;
    double start = now();
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &WAIT_SPEC);
    return timed(start, result, ETIMEDOUT);
}

static int wait_futex_until(void) {
    int word = 0;
    double start = now();
    struct timespec at = deadline(CLOCK_MONOTONIC);
    long result = syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL, -1);
    return timed(start, result, ETIMEDOUT);
}

static int wait_mutex(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct later later;
    begin(&later, lock_for_a_while, 0, &mutex);
    wait_until_begun(&later);
    int outcome = pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return end(&later, outcome);
}

static int wait_cond(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_condattr_t attributes;
    pthread_cond_t cond;
    // Not by the time of day, which may be set meanwhile.
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&cond, &attributes);
    double start = now();
    struct timespec at = deadline(CLOCK_MONOTONIC);
    pthread_mutex_lock(&mutex);
    int error = 0;
    while (error == 0) error = pthread_cond_timedwait(&cond, &mutex, &at);
    pthread_mutex_unlock(&mutex);
    return ended(error, ETIMEDOUT, now() - start, WAIT - 5);
}

static int wait_sem(void) {
    sem_t sem;
    struct later later;
    sem_init(&sem, 0, 0);
    begin(&later, post_later, 0, &sem);
    return end(&later, waited(sem_wait(&sem), 0));
}

static int wait_sem_until(void) {
    sem_t sem;
    sem_init(&sem, 0, 0);
    double start = now();
    // Not by the time of day, which may be set meanwhile.
    struct timespec at = deadline(CLOCK_MONOTONIC);
    return timed(start, sem_clockwait(&sem, CLOCK_MONOTONIC, &at), ETIMEDOUT);
}

static int wait_recv(void) {
    int pair[2];
    char byte;
    struct later later;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return errno;
    begin(&later, write_later, pair[1], NULL);
    int outcome = end(&later, waited(recv(pair[0], &byte, 1, 0), 1));
    close(pair[0]);
    close(pair[1]);
    return outcome;
}

static int wait_read(void) {
    int ends[2];
    char byte;
    struct later later;
    if (pipe(ends) < 0) return errno;
    begin(&later, write_later, ends[1], NULL);
    int outcome = end(&later, waited(read(ends[0], &byte, 1), 1));
    close(ends[0]);
    close(ends[1]);
    return outcome;
}

// A pair of sockets whose first end times out after a while; no thread writes.
static int limited_pair(int pair[2]) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return errno;
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &WAIT_VAL, sizeof WAIT_VAL);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &WAIT_VAL, sizeof WAIT_VAL);
    return 0;
}

static int closed(int pair[2], int outcome) {
    close(pair[0]);
    close(pair[1]);
    return outcome;
}

static int wait_recv_limited(void) {
    int pair[2];
    char byte;
    if (limited_pair(pair)) return errno;
    double start = now_in_ticks();
    return closed(pair, ticked(start, recv(pair[0], &byte, 1, 0), EAGAIN));
}

static int wait_read_limited(void) {
    int pair[2];
    char byte;
    if (limited_pair(pair)) return errno;
    double start = now_in_ticks();
    return closed(pair, ticked(start, read(pair[0], &byte, 1), EAGAIN));
}

static int wait_send_limited(void) {
    int pair[2];
    static const char big[1 << 16];
    if (limited_pair(pair)) return errno;
    while (send(pair[0], big, sizeof big, MSG_DONTWAIT) > 0) {
    }
    double start = now_in_ticks();
    return closed(pair, ticked(start, send(pair[0], big, sizeof big, 0), EAGAIN));
}

static int listener(struct sockaddr_in *address) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *address;
    memset(address, 0, sizeof *address);
    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (void *)address, sizeof *address) < 0) abort();
    if (listen(listener, 0) < 0) abort();
    getsockname(listener, (void *)address, &length);
    return listener;
}

static int wait_accept(void) {
    struct sockaddr_in address;
    int fd = listener(&address);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &WAIT_VAL, sizeof WAIT_VAL);
    double start = now_in_ticks();
    int outcome = ticked(start, accept(fd, NULL, NULL), EAGAIN);
    close(fd);
    return outcome;
}

static int wait_connect(void) {
    struct sockaddr_in address;
    int fd = listener(&address), full[3];
    for (int i = 0; i < 3; i++) {
        full[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(full[i], (void *)&address, sizeof address);
    }
    int last = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(last, SOL_SOCKET, SO_SNDTIMEO, &WAIT_VAL, sizeof WAIT_VAL);
    double start = now_in_ticks();
    int result = connect(last, (void *)&address, sizeof address);
    // A system with room for more connects at once: that is no wait, and nothing to complain of.
    int outcome = result == 0 ? 0 : ticked(start, result, EINPROGRESS);
    for (int i = 0; i < 3; i++) close(full[i]);
    close(last);
    close(fd);
    return outcome;
}

static int wait_semtimedop(void) {
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    if (id < 0) return is_missing(errno) ? 0 : errno;
    double start = now_in_ticks();
    int outcome = ticked(start, semtimedop(id, &down, 1, &WAIT_SPEC), EAGAIN);
    semctl(id, 0, IPC_RMID);
    return outcome;
}

static int wait_semop(void) {
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf down = {0, -1, 0};
    struct later later;
    if (id < 0) return is_missing(errno) ? 0 : errno;
    begin(&later, semop_later, id, NULL);
    int outcome = end(&later, waited(semop(id, &down, 1), 0));
    semctl(id, 0, IPC_RMID);
    return outcome;
}

static int wait_msgrcv(void) {
    int id = msgget(IPC_PRIVATE, 0600);
    struct message message;
    struct later later;
    if (id < 0) return is_missing(errno) ? 0 : errno;
    begin(&later, msgsnd_later, id, NULL);
    int outcome = end(&later, waited(msgrcv(id, &message, 1, 0, 0), 1));
    msgctl(id, IPC_RMID, NULL);
    return outcome;
}

static pid_t sleeping_child(void) {
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        sleep_well();
        _exit(7);
    }
    return child;
}

static int wait_waitpid(void) {
    pid_t child = sleeping_child();
    int status = 0;
    if (child < 0) return errno;
    int outcome = waited(waitpid(child, &status, 0), child);
    while (outcome == EINTR && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return WRONG;
    return outcome;
}

static int wait_waitid(void) {
    pid_t child = sleeping_child();
    siginfo_t info;
    if (child < 0) return errno;
    int outcome = waited(waitid(P_PID, child, &info, WEXITED), 0);
    while (outcome == EINTR && waitid(P_PID, child, &info, WEXITED) < 0 && errno == EINTR) {
    }
    return outcome;
}

static int temporary(char *name) {
    strcpy(name, "/tmp/gosched-waits-XXXXXX");
    return mkstemp(name);
}

static int wait_flock(void) {
    char name[32];
    int fd = temporary(name);
    struct later later;
    if (fd < 0) return errno;
    begin(&later, flock_for_a_while, 0, name);
    wait_until_begun(&later);
    int outcome = end(&later, waited(flock(fd, LOCK_EX), 0));
    unlink(name);
    close(fd);
    return outcome;
}

static int wait_fcntl(void) {
    char name[32];
    int fd = temporary(name);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0) return errno;
    _Atomic int *begun =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        int own = open(name, O_RDWR);
        while (fcntl(own, F_SETLKW, &lock) < 0) {
        }
        *begun = 1;
        sleep_well();
        _exit(0);
    }
    while (child > 0 && !*begun) usleep(100);
    int outcome = child < 0 ? errno : waited(fcntl(fd, F_SETLKW, &lock), 0);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    munmap((void *)begun, 4096);
    unlink(name);
    close(fd);
    return outcome;
}

static int wait_eventfd(void) {
    int fd = eventfd(0, 0);
    long word = 0;
    struct later later;
    if (fd < 0) return errno;
    begin(&later, write_later, fd, NULL);
    int outcome = end(&later, waited(read(fd, &word, sizeof word), sizeof word));
    close(fd);
    return outcome;
}

static int wait_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    double start = now();
    return timed(start, sigtimedwait(&set, NULL, &WAIT_SPEC), EAGAIN);
}

static int wait_poll_forever(void) {
    int ends[2];
    struct later later;
    if (pipe(ends) < 0) return errno;
    struct pollfd wanted = {ends[0], POLLIN, 0};
    begin(&later, write_later, ends[1], NULL);
    return closed(ends, end(&later, waited(poll(&wanted, 1, -1), 1)));
}

static int wait_epoll_forever(void) {
    int ends[2], epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    struct later later;
    if (pipe(ends) < 0) return errno;
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    begin(&later, write_later, ends[1], NULL);
    int outcome = closed(ends, end(&later, waited(epoll_wait(epoll, &event, 1, -1), 1)));
    close(epoll);
    return outcome;
}

static int wait_system(void) {
    int status = system("exec sleep 0.015");
    return status == 0 ? 0 : status < 0 ? errno : WRONG;
}

// A signal makes it return less.
static int wait_getrandom(void) {
    enum { BYTES = 1 << 22 };
    char *bytes = malloc(BYTES);
    long result = getrandom(bytes, BYTES, 0);
    free(bytes);
    return result < 0 ? errno : result < BYTES ? EINTR : 0;
}

static const struct {
    const char *name;
    int (*wait)(void);
} KINDS[] = {
    {"nanosleep", wait_nanosleep},
    {"clock_nanosleep", wait_clock_nanosleep},
    {"clock_nanosleep until", wait_clock_nanosleep_until},
    {"usleep", wait_usleep},
    {"poll", wait_poll},
    {"ppoll", wait_ppoll},
    {"select", wait_select},
    {"pselect", wait_pselect},
    {"epoll_wait", wait_epoll},
    {"epoll_pwait2", wait_epoll_pwait2},
    {"futex", wait_futex},
    {"futex until", wait_futex_until},
    {"pthread_mutex_lock", wait_mutex},
    {"pthread_cond_timedwait", wait_cond},
    {"sem_wait", wait_sem},
    {"sem_timedwait", wait_sem_until},
    {"recv", wait_recv},
    {"read", wait_read},
    {"recv with a limit", wait_recv_limited},
    {"read with a limit", wait_read_limited},
    {"send with a limit", wait_send_limited},
    {"accept with a limit", wait_accept},
    {"connect with a limit", wait_connect},
    {"semtimedop", wait_semtimedop},
    {"semop", wait_semop},
    {"msgrcv", wait_msgrcv},
    {"waitpid", wait_waitpid},
    {"waitid", wait_waitid},
    {"flock", wait_flock},
    {"fcntl", wait_fcntl},
    {"read of an eventfd", wait_eventfd},
    {"sigtimedwait", wait_sigtimedwait},
    {"poll forever", wait_poll_forever},
    {"epoll_wait forever", wait_epoll_forever},
    {"system", wait_system},
    {"getrandom", wait_getrandom},
};

// The name of a kind; NULL after the last.
const char *waits_name(int kind) {
    return kind < (int)(sizeof KINDS / sizeof *KINDS) ? KINDS[kind].name : NULL;
}

// Waits in this way: 0, EINTR, 1000 (a wrong result), 1001 (it ended too early), or another errno.
int waits_run(int kind) {
    return KINDS[kind].wait();
}
