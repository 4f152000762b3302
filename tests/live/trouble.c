#include "trouble.h"

#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HURRY_MS = 50 };

rig *rig_that_waits(void)
{
    rig *r = setup_rig(setup_first());
    policy_set_max_ms(r->policy, WAITING_MS);
    policy_set_initial_ms(r->policy, WAITING_MS);
    return r;
}

bh_breaker *quick_breaker(int64_t row, int64_t pause_ms)
{
    bh_breaker_settings settings;
    bh_breaker *breaker;
    bh_policy *pauses;
    ck_assert_int_eq(bh_policy_new(&pauses), BH_OK);
    policy_set_kind(pauses, BH_KIND_FIXED);
    policy_set_initial_ms(pauses, pause_ms);
    policy_set_jitter(pauses, BH_JITTER_NONE, 0);
    bh_breaker_defaults(&settings);
    settings.name = bh_str("purge API");
    settings.row_failures = row;
    settings.least_calls = 1000000; /* only failures in a row count */
    settings.probe_successes = 1;
    settings.pauses = pauses;
    ck_assert_int_eq(bh_breaker_new(&breaker, &settings, bh_str("12345678")), BH_OK);
    bh_policy_free(pauses);
    return breaker;
}

rig *rig_in_a_hurry(rig *r)
{
    rig_prepare(r);
    rig_make_worker(r);
    if (!r->back_off) {
        ck_assert_int_eq(bh_policy_new(&r->back_off), BH_OK);
        policy_set_kind(r->back_off, BH_KIND_FIXED);
        policy_set_initial_ms(r->back_off, HURRY_MS);
        policy_set_jitter(r->back_off, BH_JITTER_NONE, 0);
    }
    rig_set(r, back_off, r->back_off);
    return r;
}

void start_by(rig *r, const char *url)
{
    expect_ok(r->worker, bh_worker_add_uri(r->worker, bh_str(url)));
    expect_ok(r->worker, bh_worker_start(r->worker));
}

proxy *start_by_proxy(rig *r, const char *options)
{
    proxy *network = proxy_open("127.0.0.1", broker_port(0));
    char url[4096];
    broker_make_url(url, sizeof url, NULL, NULL, "127.0.0.1", proxy_port(network));
    ck_assert_uint_lt(strlen(url) + strlen(options), sizeof url);
    strcat(url, options);
    rig_connect_by(r, url);
    broker_bind(r->broker, r->queue, r->exchange, "work.#");
    rig_await_read(r); /* its first look is over too: a cut after some bytes hits no frame of it */
    return network;
}

static atomic_int is_name_service_silent, has_unanswered_question, are_random_bytes_gone;

void silence_name_service(void)
{
    is_name_service_silent = 1;
}

void await_unanswered_question(void)
{
    for (int64_t limit = now_ms() + LIMIT_MS; !has_unanswered_question; pause_ms(1))
        ck_assert_msg(now_ms() < limit, "no address is asked for");
}

void take_random_bytes_away(int are_gone)
{
    are_random_bytes_gone = are_gone;
}

/* The linker puts these before the system's. */
int __real_getentropy(void *bytes, size_t size);
int __wrap_getentropy(void *bytes, size_t size);

int __wrap_getentropy(void *bytes, size_t size)
{
    return are_random_bytes_gone ? -1 : __real_getentropy(bytes, size);
}

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    while (is_name_service_silent || (host && strcmp(host, UNANSWERED_HOST) == 0)) {
        has_unanswered_question = 1;
        pause(); /* the thread ends with the process */
    }
    return __real_getaddrinfo(host, port, hints, out);
}

void begin_alarm(void)
{
    broker_ctl("set-alarm");
}

void end_alarm(void)
{
    broker_ctl("clear-alarm");
}

TCase *add_test_with_end(Suite *suite, const char *name, const TTest *test, SFun end)
{
    TCase *tests = add_case(suite, name);
    tcase_add_unchecked_fixture(tests, NULL, end);
    tcase_add_test(tests, test);
    return tests;
}

int tally_add(tally *self, bh_bytes body)
{
    char text[16] = "";
    ck_assert_uint_lt(body.size, sizeof text);
    memcpy(text, body.data, body.size);
    int number = atoi(text);
    ck_assert_msg(body.size > 0 && number >= 0 && number < self->count, "a strange message: %s", text);
    self->seen[number]++;
    return number;
}

int tally_distinct(const tally *self)
{
    int distinct = 0;
    for (int i = 0; i < self->count; i++)
        distinct += self->seen[i] > 0;
    return distinct;
}

int tally_duplicates(const tally *self)
{
    int duplicates = 0;
    for (int i = 0; i < self->count; i++)
        duplicates += self->seen[i] > 1 ? self->seen[i] - 1 : 0;
    return duplicates;
}

void tally_drain(tally *self, rig *r, const char *queue)
{
    message found;
    while (broker_try_get(r->broker, queue, &found)) {
        tally_add(self, found.body);
        broker_ack(r->broker, &found);
        message_free(&found);
    }
}
