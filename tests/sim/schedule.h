/*
 * Schedule: threads under virtual time. schedule.c, clock.c, socket.c and lookup.c replace the
 * files of these names in core/src/worker/wire.
 *
 * A baton lets one thread run at a time; the threads are coroutines. A thread hands it over in the
 * functions of wire/schedule.h, and in schedule_sleep_us. The tape chooses which thread runs next.
 * If all threads wait, time moves to the next happening: the end of a wait, bytes on the network, a
 * timer of the broker. So a history depends on its tape alone.
 */
#ifndef BACKHOP_TESTS_SIM_SCHEDULE_H
#define BACKHOP_TESTS_SIM_SCHEDULE_H

#include "tape.h"

#include <pthread.h>

#define SCHEDULE_BEGIN_US INT64_C(1000000000)    /* the monotonic clock when a history begins */
#define SCHEDULE_EPOCH_MS INT64_C(1700000000000) /* the wall clock then */

enum { MOST_ROUNDS = 10000 }; /* hand-overs and looks without time moving: more are a loop without end */

/* Begins a history: the caller's thread gets the baton. name: of the history, for failures.
 * choices: borrowed. */
void schedule_begin(const char *name, tape *choices);
/* Ends the history, whose other threads have ended. Returns a hash of all that was traced. */
uint64_t schedule_end(void);
/* Draws a choice of the schedule and of the network. */
unsigned schedule_draw(unsigned below);

/* Returns the seed of the next random bytes. */
uint64_t schedule_random(void);

/* Returns the virtual time since the history's begin. */
int64_t schedule_now_us(void);
int64_t schedule_now_ms(void);
/* Moves the wall clock, which then differs from the monotonic clock. */
void schedule_jump_ms(int64_t ms);
int64_t schedule_jumped_ms(void);

void schedule_sleep_us(int64_t us);
/* Returns the number of hand-overs so far. */
uint64_t schedule_switches(void);

/* 1: each history is traced. 0: none is, which saves time; the hash is then the same for all. */
extern int schedule_traces;
/* Notes what happens. A failure prints the last lines. BACKHOP_SIM_TRACE=1 prints all. */
#define trace(...)                                                                                                     \
    do {                                                                                                               \
        if (schedule_traces)                                                                                           \
            trace_line(__VA_ARGS__);                                                                                   \
    } while (0)
void trace_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the reason, the history's name and the last lines of the trace, and aborts. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define ENSURE(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            fail("%s:%d: does not hold: %s", __FILE__, __LINE__, #condition);                                          \
    } while (0)

#endif
