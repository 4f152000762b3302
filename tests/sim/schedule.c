#include "schedule.h"

#include "fibers.h"
#include "network.h"
#include "pipes.h"
#include "worker/wire/schedule.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST_THREADS = 256, TRACE_LINES = 400, TRACE_ROOM = 300, STACK_BYTES = 1 << 20 };

typedef struct thread {
    ucontext_t context;
    fiber fiber;
    char *stack; /* NULL: the history's first thread, on its process's stack */
    int kept_errno;
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
} it;

/* Threads of a history are coroutines of one thread: a switch by the system takes longer than what
 * a thread does in its turn. */
static thread *self;
static char *stacks[MOST_THREADS]; /* that no thread has */
static size_t stack_count;
int schedule_traces = 1;

/* --------------------------------------------------------------------------------------- traces */

static void add_line(const char *line)
{
    for (const char *at = line; *at; at++)
        it.hash = (it.hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    snprintf(it.lines[it.line_count++ % TRACE_LINES], TRACE_ROOM, "%s", line);
    if (it.is_verbose)
        fprintf(stderr, "%s\n", line);
}

void trace_line(const char *format, ...)
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

/* ----------------------------------------------------------------------------------------- time */

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

/* ---------------------------------------------------------------------------------------- baton */

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
            polled[i].revents = pipes_look(polled[i].fd, polled[i].events);
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

/* Runs `next` until the own thread gets the baton again. */
static void switch_to(thread *next)
{
    thread *own = self;
    own->kept_errno = errno;
    self = next;
    fiber_leave(&own->fiber, &next->fiber, own->is_done);
    swapcontext(&own->context, &next->context);
    fiber_enter(&own->fiber);
    errno = own->kept_errno;
}

/* Gives the baton to a thread that can run, and waits until it comes back. */
static void hand_over(void)
{
    thread *next = choose();
    if (next == self)
        return;
    it.switches++;
    switch_to(next);
}

static void wait_until(int64_t until_us)
{
    self->until_us = until_us;
    self->has_no_limit = 0;
    hand_over();
    self->polled = NULL;
    self->condition = NULL;
    self->has_no_limit = 1;
}

void schedule_sleep_us(int64_t us)
{
    wait_until(it.now_us + us);
}

/* -------------------------------------------------------------------------------------- threads */

static thread *add_thread(void)
{
    if (it.count == MOST_THREADS)
        fail("more than %d threads", MOST_THREADS);
    thread *added = calloc(1, sizeof *added);
    if (!added)
        fail("no memory for a thread");
    added->has_no_limit = 1;
    it.threads[it.count++] = added;
    return added;
}

static char *take_stack(void)
{
    if (stack_count)
        return stacks[--stack_count];
    void *mapped = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (mapped == MAP_FAILED)
        fail("no memory for a stack");
    mprotect(mapped, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE); /* a stack that is too small fails at once */
    return mapped;
}

static void begin_thread(void)
{
    fiber_enter(&self->fiber);
    self->run(self->data);
    self->is_done = 1;
    hand_over(); /* does not return */
}

int bh__thread_start(pthread_t *out, size_t stack_bytes, void *(*run)(void *), void *data)
{
    (void)stack_bytes;
    thread *started = add_thread();
    started->run = run;
    started->data = data;
    started->stack = take_stack();
    fiber_make(&started->fiber, started->stack, STACK_BYTES);
    getcontext(&started->context);
    started->context.uc_stack.ss_sp = started->stack;
    started->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&started->context, begin_thread, 0);
    *out = (pthread_t)it.count; /* its index, and 1 */
    schedule_sleep_us(0);
    return 1;
}

void bh__thread_join(pthread_t id)
{
    ENSURE(id > 0 && id <= it.count);
    self->joined = it.threads[id - 1];
    if (!self->joined->is_done)
        hand_over();
    self->joined = NULL;
}

void schedule_begin(const char *name, tape *choices)
{
    /* Bodies of 140 KB would otherwise be mapped and unmapped each time. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_ARENA_MAX, 1); /* one thread runs at a time */
    it.name = name;
    it.choices = choices;
    it.now_us = it.jumped_ms = 0;
    it.count = it.last = it.line_count = 0;
    it.rounds = 0;
    it.switches = it.randoms = 0;
    it.hash = UINT64_C(0xcbf29ce484222325);
    it.is_verbose = getenv("BACKHOP_SIM_TRACE") != NULL;
    self = add_thread();
    fiber_make(&self->fiber, NULL, 0);
}

uint64_t schedule_end(void)
{
    for (size_t i = 0; i < it.count; i++) {
        if (it.threads[i] != self && !it.threads[i]->is_done)
            fail("a thread has not ended");
        fiber_free(&it.threads[i]->fiber);
        if (it.threads[i]->stack)
            stacks[stack_count++] = it.threads[i]->stack;
        free(it.threads[i]);
    }
    it.count = 0;
    self = NULL;
    return it.hash;
}

/* ---------------------------------------------------------------------------------------- waits */

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
    hand_over();
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
