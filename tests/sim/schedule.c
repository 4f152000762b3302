#include "schedule.h"

#include "network.h"
#include "worker/wire/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 256, TRACE_LINES = 400, TRACE_ROOM = 300 };

typedef struct thread {
    pthread_t id;
    pthread_cond_t turn;
    void *(*run)(void *);
    void *data;
    int is_done;
    /* It waits for the first of these that is set, or for until_us. */
    int64_t until_us;
    struct pollfd *polled;
    nfds_t polled_count;
    pthread_cond_t *condition; /* NULL after a wake-up */
    struct thread *joined;
    int has_no_limit;
} thread;

static struct {
    pthread_mutex_t mutex; /* of `current` */
    thread *current;
    thread *threads[MOST_THREADS];
    size_t count;
    size_t last; /* index of the thread that ran last */
    const char *name;
    tape *choices;
    int64_t now_us;
    int64_t jumped_ms;
    unsigned rounds;
    uint64_t switches;
    uint64_t hash;
    uint64_t randoms;
    int is_verbose;
    char lines[TRACE_LINES][TRACE_ROOM];
    size_t line_count;
} it = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local thread *self;

/* ------------------------------------------------------------------------------------------------------------ traces */

static void add_line(const char *line)
{
    for (const char *at = line; *at; at++)
        it.hash = (it.hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    snprintf(it.lines[it.line_count++ % TRACE_LINES], TRACE_ROOM, "%s", line);
    if (it.is_verbose)
        fprintf(stderr, "%s\n", line);
}

void trace(const char *format, ...)
{
    char line[TRACE_ROOM];
    int size = snprintf(line, sizeof line, "%10.3f ", (double)it.now_us / 1000);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + size, sizeof line - (size_t)size, format, arguments);
    va_end(arguments);
    add_line(line);
}

_Noreturn void fail(const char *format, ...)
{
    if (!it.is_verbose)
        for (size_t i = it.line_count < TRACE_LINES ? 0 : it.line_count - TRACE_LINES; i < it.line_count; i++)
            fprintf(stderr, "%s\n", it.lines[i % TRACE_LINES]);
    fprintf(stderr, "%s, at %.3f ms: ", it.name, (double)it.now_us / 1000);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    abort();
}

/* -------------------------------------------------------------------------------------------------------------- time */

int64_t schedule_now_us(void)
{
    return it.now_us;
}

int64_t schedule_now_ms(void)
{
    return it.now_us / 1000;
}

int64_t schedule_jumped_ms(void)
{
    return it.jumped_ms;
}

void schedule_jump_ms(int64_t ms)
{
    it.jumped_ms += ms;
}

unsigned schedule_draw(unsigned below)
{
    return tape_draw(it.choices, below);
}

uint64_t schedule_random(void)
{
    return ++it.randoms;
}

uint64_t schedule_switches(void)
{
    return it.switches;
}

/* ------------------------------------------------------------------------------------------------------------- baton */

/* Marks ready descriptors; returns the number of descriptors. */
static int look(struct pollfd *polled, nfds_t count)
{
    int ready = 0;
    for (nfds_t i = 0; i < count; i++) {
        polled[i].revents = 0;
        if (polled[i].fd < 0)
            continue;
        if (network_has(polled[i].fd))
            polled[i].revents = network_look(polled[i].fd, polled[i].events);
        else
            poll(&polled[i], 1, 0);
        ready += polled[i].revents != 0;
    }
    return ready;
}

static int is_ready(thread *each)
{
    if (each->is_done)
        return 0;
    if (each->joined)
        return each->joined->is_done;
    if (!each->has_no_limit && each->until_us <= it.now_us)
        return 1;
    if (each->polled)
        return look(each->polled, each->polled_count) > 0;
    return !each->condition && each->has_no_limit;
}

static void fail_rounds(void)
{
    for (size_t i = 0; i < it.count; i++) {
        const thread *each = it.threads[i];
        if (each->is_done)
            continue;
        trace("thread %zu: until %.3f ms%s, condition %d, joins %d", i, (double)each->until_us / 1000,
              each->has_no_limit ? " (no limit)" : "", each->condition != NULL, each->joined != NULL);
        for (nfds_t j = 0; each->polled && j < each->polled_count; j++)
            trace("    polls %d for %d, has %d", each->polled[j].fd >= FIRST_FD ? each->polled[j].fd - FIRST_FD : -1,
                  each->polled[j].events, each->polled[j].revents);
    }
    fail("%d rounds and time did not move", MOST_ROUNDS);
}

/* Returns a thread that can run, and lets time pass until there is one. */
static thread *choose(void)
{
    for (;;) {
        thread *ready[MOST_THREADS];
        unsigned count = 0;
        network_run();
        for (size_t i = 1; i <= it.count; i++) {
            thread *each = it.threads[(it.last + i) % it.count];
            if (is_ready(each))
                ready[count++] = each;
        }
        if (++it.rounds > MOST_ROUNDS)
            fail_rounds();
        if (count) {
            thread *chosen = ready[count > 1 ? schedule_draw(count) : 0];
            while (it.threads[it.last] != chosen)
                it.last = (it.last + 1) % it.count;
            return chosen;
        }
        int64_t next_us = network_next_us();
        for (size_t i = 0; i < it.count; i++)
            if (!it.threads[i]->is_done && !it.threads[i]->has_no_limit && it.threads[i]->until_us < next_us)
                next_us = it.threads[i]->until_us;
        if (next_us == INT64_MAX)
            fail("all threads wait for ever");
        if (next_us > it.now_us) {
            it.now_us = next_us;
            it.rounds = 0;
        }
    }
}

static void await_turn(thread *own)
{
    pthread_mutex_lock(&it.mutex);
    while (it.current != own)
        pthread_cond_wait(&own->turn, &it.mutex);
    pthread_mutex_unlock(&it.mutex);
}

/* Gives the baton to a thread that can run. Returns 1 if it is the own one. */
static int hand_over(void)
{
    thread *next = choose();
    it.switches += next != self;
    pthread_mutex_lock(&it.mutex);
    it.current = next;
    pthread_cond_signal(&next->turn);
    pthread_mutex_unlock(&it.mutex);
    return next == self;
}

static void wait_until(int64_t until_us)
{
    self->until_us = until_us;
    self->has_no_limit = 0;
    if (!hand_over())
        await_turn(self);
    self->polled = NULL;
    self->condition = NULL;
    self->has_no_limit = 1;
}

void schedule_sleep_us(int64_t us)
{
    wait_until(it.now_us + us);
}

/* ----------------------------------------------------------------------------------------------------------- threads */

static thread *add_thread(void)
{
    if (it.count == MOST_THREADS)
        fail("more than %d threads", MOST_THREADS);
    thread *added = calloc(1, sizeof *added);
    if (!added || pthread_cond_init(&added->turn, NULL) != 0)
        fail("no memory for a thread");
    added->has_no_limit = 1;
    it.threads[it.count++] = added;
    return added;
}

static void *begin_thread(void *data)
{
    self = data;
    await_turn(self);
    void *result = self->run(self->data);
    self->is_done = 1;
    hand_over();
    return result;
}

int bh__thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *data)
{
    (void)stack_bytes;
    thread *started = add_thread();
    started->run = run;
    started->data = data;
    if (pthread_create(&started->id, NULL, begin_thread, started) != 0)
        fail("the system gives no thread");
    *out = started->id;
    schedule_sleep_us(0);
    return 1;
}

void bh__thread_join(pthread_t id)
{
    for (size_t i = 0; i < it.count; i++)
        if (it.threads[i] != self && pthread_equal(it.threads[i]->id, id) && it.threads[i]->run) {
            self->joined = it.threads[i];
            if (!self->joined->is_done && !hand_over())
                await_turn(self);
            self->joined->run = NULL; /* the system may use the id again */
            self->joined = NULL;
        }
    pthread_join(id, NULL);
}

void schedule_begin(const char *name, tape *choices)
{
    it.name = name;
    it.choices = choices;
    it.now_us = it.jumped_ms = 0;
    it.count = it.last = it.line_count = 0;
    it.rounds = 0;
    it.switches = it.randoms = 0;
    it.hash = UINT64_C(0xcbf29ce484222325);
    it.is_verbose = getenv("BACKHOP_SIM_TRACE") != NULL;
    it.current = self = add_thread();
    self->id = pthread_self();
}

uint64_t schedule_end(void)
{
    for (size_t i = 0; i < it.count; i++) {
        if (it.threads[i] != self && !it.threads[i]->is_done)
            fail("a thread has not ended");
        pthread_cond_destroy(&it.threads[i]->turn);
        free(it.threads[i]);
    }
    it.count = 0;
    it.current = self = NULL;
    return it.hash;
}

/* ------------------------------------------------------------------------------------------------------------- waits */

int bh__schedule_poll(struct pollfd *polled, nfds_t count, int timeout_ms)
{
    self->polled = polled;
    self->polled_count = count;
    wait_until(timeout_ms < 0 ? INT64_MAX : it.now_us + (int64_t)timeout_ms * 1000);
    return look(polled, count);
}

void bh__schedule_rest(long ns)
{
    schedule_sleep_us(ns / 1000);
}

void bh__schedule_yield(void)
{
    schedule_sleep_us(0);
}

int bh__condition_init(pthread_cond_t *condition)
{
    return pthread_cond_init(condition, NULL) == 0;
}

void bh__condition_destroy(pthread_cond_t *condition)
{
    pthread_cond_destroy(condition);
}

int bh__condition_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, int64_t until_us)
{
    self->condition = condition;
    int64_t end_us = until_us - SCHEDULE_BEGIN_US;
    pthread_mutex_unlock(mutex);
    self->has_no_limit = 0;
    self->until_us = end_us;
    if (!hand_over())
        await_turn(self);
    int is_woken = !self->condition;
    self->condition = NULL;
    self->has_no_limit = 1;
    pthread_mutex_lock(mutex);
    return is_woken || end_us > it.now_us;
}

void bh__condition_wake(pthread_cond_t *condition)
{
    for (size_t i = 0; i < it.count; i++)
        if (it.threads[i]->condition == condition) {
            it.threads[i]->condition = NULL;
            it.threads[i]->until_us = it.now_us;
        }
}
