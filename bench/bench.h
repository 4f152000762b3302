/*
 * Bench: the functions that the benchmarks with a broker share. If the broker refuses something, or
 * a count is wrong, the program ends with a sentence and a failure.
 */
#ifndef BACKHOP_BENCH_H
#define BACKHOP_BENCH_H

#include "worker/librabbitmq.h"

#include <backhop/adapter.h>
#include <backhop/breaker.h>

#define BENCH_NAMESPACE "backhop.bench"
#define BENCH_QUEUE "backhop.bench.work"
#define BENCH_ERROR "507 queue is full"
/* BENCH_ATTEMPTS: message i has failed i % BENCH_ATTEMPTS times before, so that delays are
 * mixed. */
enum { BENCH_BODY = 256, BENCH_PREFETCH = 1000, BENCH_ATTEMPTS = 7, BENCH_CHANNEL = 1 };

/* The task of a contender. */
typedef enum bench_task {
    BENCH_CONSUME, /* acknowledge each */
    BENCH_RETRY,   /* each fails: a copy waits, confirmed, then the original is acknowledged */
    BENCH_LATENESS /* each fails once, and is acknowledged when it comes back */
} bench_task;

/* The exchanges and queues that are declared for it, and the policy. */
typedef enum bench_setup {
    BENCH_RATES,    /* the ladder; failed messages wait so long that none comes back */
    BENCH_LADDER,   /* delays from 0.5 s to 20 s, jitter spread 0.2 */
    BENCH_ONE_QUEUE /* the same delays, as expirations of messages in one wait queue */
} bench_setup;

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bench_need(bh_status status);
double bench_now_ms(void);  /* monotonic */
double bench_used_ms(void); /* processor time of this process */
void bench_pause_ms(double ms);
/* From a command line. */
bench_task bench_task_of(const char *name);
int bench_count_of(const char *digits);

void bench_make(bench_setup setup, bh_policy **policy, bh_topology **topology);
bh_breaker *bench_breaker(void); /* with the default settings */

const char *bench_url(void);
/* Connected, with BENCH_CHANNEL open. */
amqp_connection_state_t bench_connect(void);
/* Does so too, and consumes BENCH_QUEUE. */
amqp_connection_state_t bench_consuming(void);
void bench_disconnect(amqp_connection_state_t connection);
void bench_need_reply(amqp_rpc_reply_t reply, const char *what);
void bench_need_sent(int status, const char *what);
amqp_table_entry_t bench_string(const char *name, bh_bytes value);
amqp_table_entry_t bench_int(const char *name, int64_t value);
/* These two declare all exchanges, queues and bindings of the topology, and delete what can be
 * deleted, messages too. */
void bench_declare(amqp_connection_state_t connection, const bh_topology *topology);
void bench_delete(amqp_connection_state_t connection, const bh_topology *topology);
/* The declaration at an index; nothing deletes a binding by itself. */
void bench_declare_one(amqp_connection_state_t connection, const bh_declaration *it);
void bench_delete_one(amqp_connection_state_t connection, const bh_declaration *it);

/* Numbers from 1 on, each done at some time: delivery tags that are settled, publishes that are
 * confirmed. */
enum { BENCH_WINDOW = 2048 }; /* more than are ever open at once */
typedef struct bench_window {
    uint64_t low; /* this one and all below are done */
    unsigned char is_done[BENCH_WINDOW];
} bench_window;

void bench_window_done(bench_window *self, uint64_t number);
/* Reads the next frame, which has to be a confirm of `channel`. */
void bench_read_confirm(amqp_connection_state_t connection, bench_window *confirms);

/* How late each message came back. */
typedef struct bench_sample {
    double failed_ms; /* when; 0: not yet */
    double delay_ms;
    double late_ms;
    int is_back;
} bench_sample;

bench_sample *bench_samples(int count);
/* The sample of a message, by the number that its body begins with. */
bench_sample *bench_sample_of(bench_sample *samples, int count, const char *body);
/* It came back, after the time that `delay_ms` says. */
void bench_sample_back(bench_sample *self, double delay_ms);

/* Writes the result, a JSON object, on standard output: `ms` went by, this process used a processor
 * for `used_ms`. `samples` may be NULL. */
void bench_print(int messages, double ms, double used_ms, const bench_sample *samples);

#endif
