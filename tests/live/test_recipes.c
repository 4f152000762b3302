/*
 * The retries that people write by hand, on this broker, by librabbitmq alone: the facts that the README has. Backhop
 * has no part in it.
 */
#include "setups.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An exchange, a work queue, a sibling that is bound to the same exchange, and one wait queue. */
typedef struct recipe {
    broker *broker;
    char exchange[128], queue[128], sibling[128], wait[128];
} recipe;

/* The wait queue has no TTL of its own; what expires in it goes back to the work queue alone, or to the exchange. */
static recipe *start(int back_to_exchange)
{
    recipe *self = calloc(1, sizeof *self);
    ck_assert_ptr_nonnull(self);
    self->broker = broker_open();
    snprintf(self->exchange, sizeof self->exchange, "live.%ld.recipe.events", (long)getpid());
    snprintf(self->queue, sizeof self->queue, "live.%ld.recipe.work", (long)getpid());
    snprintf(self->sibling, sizeof self->sibling, "live.%ld.recipe.sibling", (long)getpid());
    snprintf(self->wait, sizeof self->wait, "live.%ld.recipe.wait", (long)getpid());
    broker_declare_exchange(self->broker, self->exchange, "topic");
    broker_declare_classic(self->broker, self->queue);
    broker_declare_classic(self->broker, self->sibling);
    broker_bind(self->broker, self->queue, self->exchange, "work.#");
    broker_bind(self->broker, self->sibling, self->exchange, "work.#");
    amqp_table_entry_t arguments[] = {
        entry_string("x-queue-type", "classic"),
        entry_string("x-dead-letter-exchange", back_to_exchange ? self->exchange : ""),
        entry_string("x-dead-letter-routing-key", back_to_exchange ? "work.a" : self->queue)};
    broker_declare_queue(self->broker, self->wait, arguments, 3);
    return self;
}

static void end(recipe *self)
{
    broker_close(self->broker);
    free(self);
}

/* The consumer takes the message, publishes a copy of it to wait, and acknowledges. */
static void retry(recipe *self, message *taken, const char *expiration)
{
    ck_assert_int_eq(broker_try_republish(self->broker, taken, "", self->wait, expiration), 0);
    broker_ack(self->broker, taken);
    message_free(taken);
}

/* The blog post of 2014: each delay is three times the one before, which it computes from x-death. */
START_TEST(a_delay_that_multiplies_original_expiration_grows_on_4_and_is_stuck_on_3)
{
    enum { ROUNDS = 4 };
    static const int grown[ROUNDS] = {10, 30, 90, 270}, stuck[ROUNDS] = {10, 30, 30, 30};
    const int *expected = broker_is_at_least(4, 0) ? grown : stuck;
    recipe *r = start(0);
    broker_publish_text(r->broker, r->exchange, "work.a", "first");
    for (int round = 0; round < ROUNDS; round++) {
        message taken;
        char expiration[32] = "10";
        broker_get(r->broker, r->queue, &taken);
        bh_bytes before = message_record_string(&taken, "x-death", 0, "original-expiration");
        ck_assert_int_eq(before.data != NULL, round > 0);
        if (before.data) {
            snprintf(expiration, sizeof expiration, "%.*s", (int)before.size, before.data);
            snprintf(expiration, sizeof expiration, "%d", 3 * atoi(expiration));
        }
        ck_assert_int_eq(atoi(expiration), expected[round]);
        retry(r, &taken, expiration);
    }
    end(r);
}
END_TEST

START_TEST(x_death_counts_what_a_client_publishes_again_on_3_and_not_on_4)
{
    enum { ROUNDS = 4 };
    recipe *r = start(0);
    broker_publish_text(r->broker, r->exchange, "work.a", "first");
    for (int round = 0; round < ROUNDS; round++) {
        message taken;
        broker_get(r->broker, r->queue, &taken);
        int64_t count = message_record_int(&taken, "x-death", 0, "count");
        ck_assert_int_eq(count, round == 0 ? -1 : broker_is_at_least(4, 0) ? 1 : round);
        retry(r, &taken, "10");
    }
    end(r);
}
END_TEST

START_TEST(a_short_delay_behind_a_long_one_comes_late)
{
    recipe *r = start(0);
    message taken;
    broker_publish_text(r->broker, r->exchange, "work.a", "long");
    broker_publish_text(r->broker, r->exchange, "work.a", "short");
    int64_t begun = now_ms();
    broker_get(r->broker, r->queue, &taken);
    expect_bytes(taken.body, "long");
    retry(r, &taken, "700");
    broker_get(r->broker, r->queue, &taken);
    expect_bytes(taken.body, "short");
    retry(r, &taken, "10");
    broker_get(r->broker, r->queue, &taken);
    expect_bytes(taken.body, "long");
    message_free(&taken);
    broker_get(r->broker, r->queue, &taken);
    expect_bytes(taken.body, "short");
    expect_waited(begun, 700); /* instead of 10 */
    message_free(&taken);
    end(r);
}
END_TEST

START_TEST(dead_letters_to_the_primary_exchange_reach_its_other_queues_again)
{
    recipe *r = start(1);
    broker_publish_text(r->broker, r->exchange, "work.a", "first");
    for (int round = 0; round < 3; round++) {
        message taken;
        broker_get(r->broker, r->queue, &taken);
        broker_await_depth(r->broker, r->sibling, round + 1); /* nothing had failed for it */
        retry(r, &taken, "10");
    }
    end(r);
}
END_TEST

START_TEST(a_copied_user_id_closes_the_channel_and_the_message_comes_again)
{
    recipe *r = start(0);
    message taken;
    broker_publish_text(r->broker, r->exchange, "work.a", "first");
    broker_get(r->broker, r->queue, &taken);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_USER_ID_FLAG,
                                          .user_id = amqp_cstring_bytes("the.publisher")};
    ck_assert_int_eq(broker_try_publish(r->broker, "", r->wait, &properties, taken.body), AMQP_PRECONDITION_FAILED);
    message_free(&taken);
    broker_get(r->broker, r->queue, &taken); /* at once, again and again */
    ck_assert(taken.redelivered);
    message_free(&taken);
    ck_assert_int_eq(broker_depth(r->broker, r->wait), 0);
    end(r);
}
END_TEST

START_TEST(acknowledging_before_publishing_loses_the_message_of_a_process_that_dies)
{
    recipe *r = start(0);
    message taken;
    broker_publish_text(r->broker, r->exchange, "work.a", "first");
    broker *consumer = broker_open();
    broker_get(consumer, r->queue, &taken);
    broker_ack(consumer, &taken);
    ck_assert_int_eq(broker_depth(consumer, r->queue), 0); /* so the broker has read the ack */
    broker_cut(consumer);                                  /* before it could publish */
    message_free(&taken);
    ck_assert_int_eq(broker_try_get(r->broker, r->queue, &taken), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->wait), 0);
    end(r);
}
END_TEST

START_TEST(publishing_before_acknowledging_duplicates_the_message_of_a_process_that_dies)
{
    recipe *r = start(0);
    message taken;
    broker_publish_text(r->broker, r->exchange, "work.a", "first");
    broker *consumer = broker_open();
    broker_get(consumer, r->queue, &taken);
    ck_assert_int_eq(broker_try_republish(consumer, &taken, "", r->wait, "10"), 0);
    broker_cut(consumer); /* before it could acknowledge */
    message_free(&taken);
    broker_await_depth(r->broker, r->queue, 2);
    end(r);
}
END_TEST

/*
 * The post "RabbitMQ Retries: the (new) Full Story", its option C. Dead letters of the work queues go to an error
 * queue. A consumer of that publishes rejected messages to an exchange that waits. A consumer of the queue behind it
 * publishes to the queue that failed.
 *
 * The exchange that waits is one of the delayed-message plugin. It sends on at once a message without a header x-delay,
 * as a fanout does; and the post sets x-wait.
 */
typedef struct post {
    broker *broker;
    char events[64], errors[64], waits[64], email[64], webhook[64], error_queue[64], requeue_queue[64];
} post;

static void name_of(char out[64], const char *what)
{
    snprintf(out, 64, "live.%ld.post.%s", (long)getpid(), what);
}

static void declare_work(const post *self, const char *queue)
{
    amqp_table_entry_t arguments[] = {entry_string("x-queue-type", "classic"),
                                      entry_string("x-dead-letter-exchange", self->errors)};
    broker_declare_queue(self->broker, queue, arguments, 2);
    broker_bind(self->broker, queue, self->events, "");
}

static void start_post(post *self)
{
    name_of(self->events, "notification-exchange");
    name_of(self->errors, "error-exchange");
    name_of(self->waits, "wait-exchange");
    name_of(self->email, "email-queue");
    name_of(self->webhook, "webhook-queue");
    name_of(self->error_queue, "error-queue");
    name_of(self->requeue_queue, "requeue-queue");
    self->broker = broker_open();
    broker_declare_exchange(self->broker, self->events, "fanout");
    broker_declare_exchange(self->broker, self->errors, "fanout");
    broker_declare_exchange(self->broker, self->waits, "fanout");
    broker_declare_classic(self->broker, self->error_queue);
    broker_declare_classic(self->broker, self->requeue_queue);
    broker_bind(self->broker, self->error_queue, self->errors, "");
    broker_bind(self->broker, self->requeue_queue, self->waits, "");
    declare_work(self, self->email);
    declare_work(self, self->webhook);
}

static int64_t rejects_of(const message *taken)
{
    for (size_t i = 0; i < 10; i++) {
        bh_bytes reason = message_record_string(taken, "x-death", i, "reason");
        if (reason.data && reason.size == 8 && memcmp(reason.data, "rejected", 8) == 0)
            return message_record_int(taken, "x-death", i, "count");
    }
    return -1;
}

/* Does as its two consumers do with the next dead letter. Returns 1 if it is on its way again. */
static int carry_out_post(const post *self)
{
    enum { DELAYS = 4 };
    message taken;
    char queue[300];
    broker_get(self->broker, self->error_queue, &taken);
    bh_bytes reason = message_string(&taken, "x-first-death-reason");
    int is_rejected = reason.size == 8 && memcmp(reason.data, "rejected", 8) == 0;
    int64_t rejects = rejects_of(&taken);
    int goes_on = is_rejected && rejects > 0 && rejects <= DELAYS;
    if (goes_on)
        ck_assert_int_eq(broker_try_republish(self->broker, &taken, self->waits, "", NULL), 0);
    broker_ack(self->broker, &taken);
    message_free(&taken);
    if (!goes_on)
        return 0;
    broker_get(self->broker, self->requeue_queue, &taken);
    bh_bytes failed = message_string(&taken, "x-first-death-queue");
    snprintf(queue, sizeof queue, "%.*s", (int)failed.size, failed.data);
    ck_assert_int_eq(broker_try_republish(self->broker, &taken, "", queue, NULL), 0);
    broker_ack(self->broker, &taken);
    message_free(&taken);
    return 1;
}

static void reject_email(const post *self)
{
    message taken;
    broker_get(self->broker, self->email, &taken);
    broker_reject(self->broker, &taken, 0);
    message_free(&taken);
}

static void expect_gone(const post *self)
{
    const char *const queues[] = {self->email, self->error_queue, self->requeue_queue};
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++)
        ck_assert_int_eq(broker_depth(self->broker, queues[i]), 0);
}

START_TEST(the_newer_post_s_retries_never_end_on_4_and_lose_the_message_at_their_end_on_3)
{
    enum { MORE_THAN_ITS_DELAYS = 10, ITS_DELAYS = 4 };
    post self;
    start_post(&self);
    broker_publish_text(self.broker, self.events, "order.created", "first");
    int rounds = 0;
    do
        reject_email(&self);
    while (carry_out_post(&self) && ++rounds < MORE_THAN_ITS_DELAYS);
    if (broker_is_at_least(4, 0)) {
        message taken;
        ck_assert_int_eq(rounds, MORE_THAN_ITS_DELAYS);
        broker_get(self.broker, self.email, &taken);
        expect_bytes(bh_str(taken.routing_key), self.email); /* no longer what the publisher wrote */
        message_free(&taken);
    } else {
        ck_assert_int_eq(rounds, ITS_DELAYS);
        expect_gone(&self);
    }
    broker_await_depth(self.broker, self.webhook, 1); /* nothing had failed for it */
    broker_close(self.broker);
}
END_TEST

START_TEST(the_newer_post_s_retries_lose_what_died_of_something_else)
{
    post self;
    start_post(&self);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_EXPIRATION_FLAG, .expiration = amqp_cstring_bytes("1")};
    ck_assert_int_eq(broker_try_publish(self.broker, "", self.email, &properties, bh_str("expires")), 0);
    ck_assert_int_eq(carry_out_post(&self), 0);
    expect_gone(&self);
    broker_close(self.broker);
}
END_TEST

START_TEST(the_newer_post_s_retries_go_to_the_queue_that_a_stranger_names_but_on_4)
{
    post self;
    char stranger[64];
    start_post(&self);
    name_of(stranger, "stranger");
    broker_declare_classic(self.broker, stranger);
    amqp_table_entry_t record[] = {entry_string("queue", stranger), entry_string("reason", "rejected"),
                                   entry_int("count", 1), entry_string("exchange", "")};
    amqp_field_value_t deaths[] = {{.kind = AMQP_FIELD_KIND_TABLE, .value.table = {4, record}}};
    amqp_table_entry_t headers[] = {entry_array("x-death", deaths, 1), entry_string("x-first-death-queue", stranger),
                                    entry_string("x-first-death-exchange", ""),
                                    entry_string("x-first-death-reason", "rejected")};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {4, headers}};
    ck_assert_int_eq(broker_try_publish(self.broker, "", self.email, &properties, bh_str("theirs")), 0);
    reject_email(&self);
    ck_assert_int_eq(carry_out_post(&self), 1);
    broker_await_depth(self.broker, broker_is_at_least(4, 0) ? self.email : stranger, 1);
    broker_close(self.broker);
}
END_TEST

Suite *suite_recipes(void)
{
    Suite *suite = suite_create("recipes");
    TCase *recipes = add_case(suite, "by hand");
    if (broker_is_at_least(4, 0) ||
        !broker_is_at_least(3, 13)) { /* 3.13 does the one or the other, by its patch level */
        tcase_add_test(recipes, a_delay_that_multiplies_original_expiration_grows_on_4_and_is_stuck_on_3);
        tcase_add_test(recipes, x_death_counts_what_a_client_publishes_again_on_3_and_not_on_4);
        tcase_add_test(recipes, the_newer_post_s_retries_never_end_on_4_and_lose_the_message_at_their_end_on_3);
        tcase_add_test(recipes, the_newer_post_s_retries_go_to_the_queue_that_a_stranger_names_but_on_4);
    }
    tcase_add_test(recipes, the_newer_post_s_retries_lose_what_died_of_something_else);
    tcase_add_test(recipes, a_short_delay_behind_a_long_one_comes_late);
    tcase_add_test(recipes, dead_letters_to_the_primary_exchange_reach_its_other_queues_again);
    tcase_add_test(recipes, a_copied_user_id_closes_the_channel_and_the_message_comes_again);
    tcase_add_test(recipes, acknowledging_before_publishing_loses_the_message_of_a_process_that_dies);
    tcase_add_test(recipes, publishing_before_acknowledging_duplicates_the_message_of_a_process_that_dies);
    return suite;
}
