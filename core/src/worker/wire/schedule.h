/* Schedule: everything that makes a thread of the worker wait, start or end. A simulator links its
 * own in place of these, clock.c, socket.c and lookup.c: it then decides which thread runs, and
 * when. Internal. */
#ifndef BACKHOP_WORKER_WIRE_SCHEDULE_H
#define BACKHOP_WORKER_WIRE_SCHEDULE_H

#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* Like poll: waits until a descriptor is ready, for timeout_ms at most. */
int bh__schedule_poll(struct pollfd *polled, nfds_t count, int timeout_ms);
/* Sleeps; below 1 s. */
void bh__schedule_rest(long ns);
/* Lets other threads run. */
void bh__schedule_yield(void);

/* A condition. Makes it for the monotonic clock; returns 0 if there is no memory. */
int bh__condition_init(pthread_cond_t *self);
void bh__condition_destroy(pthread_cond_t *self);
/* Waits for a wake-up, with the mutex locked. Returns 0 after until_us (bh__monotonic_us). Can
 * return 1 without a wake-up. */
int bh__condition_wait(pthread_cond_t *self, pthread_mutex_t *mutex, int64_t until_us);
/* Wakes all threads that wait. */
void bh__condition_wake(pthread_cond_t *self);

/* Starts a thread with all signals blocked: they are for the application's threads. Returns 0 if
 * the system gives no thread. */
int bh__thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *data);
/* Waits for the end of a thread. */
void bh__thread_join(pthread_t thread);

#endif
