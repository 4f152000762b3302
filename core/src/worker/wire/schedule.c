#include "worker/wire/schedule.h"

#include <sched.h>
#include <signal.h>
#include <time.h>

int bh__schedule_poll(struct pollfd *polled, nfds_t count, int timeout_ms)
{
    return poll(polled, count, timeout_ms);
}

void bh__schedule_rest(long ns)
{
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

void bh__schedule_yield(void)
{
    sched_yield();
}

int bh__condition_init(pthread_cond_t *self)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return 0;
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int is_made = pthread_cond_init(self, &monotonic) == 0;
    pthread_condattr_destroy(&monotonic);
    return is_made;
}

void bh__condition_destroy(pthread_cond_t *self)
{
    pthread_cond_destroy(self);
}

int bh__condition_wait(pthread_cond_t *self, pthread_mutex_t *mutex, int64_t until_us)
{
    struct timespec until = {(time_t)(until_us / 1000000), (long)(until_us % 1000000 * 1000)};
    return pthread_cond_timedwait(self, mutex, &until) == 0;
}

void bh__condition_wake(pthread_cond_t *self)
{
    pthread_cond_broadcast(self);
}

int bh__thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *data)
{
    sigset_t all, kept;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return 0;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    pthread_sigmask(SIG_SETMASK, &all, &kept);
    int is_started = pthread_create(out, &attributes, run, data) == 0;
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    pthread_attr_destroy(&attributes);
    return is_started;
}

void bh__thread_join(pthread_t thread)
{
    pthread_join(thread, NULL);
}
