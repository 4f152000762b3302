/*
 * Compatibility: copies.txt has copies that version 0.1.0 wrote before its core was split into
 * folders. This version reads each of them, and writes the same bytes. With
 * BACKHOP_WRITE_COPIES=FILE the program writes that file anew.
 *
 * A line has the case's name, failed attempts, last error, first failure in ms, reason of the park,
 * and properties in hexadecimal. A "-" stands for an empty text.
 */
#include "../topologies.h"
#include "../reading.h"
#include "properties.h"
#include "suites.h"

#include "worker/wire/content.h"

#include <backhop/adapter/history.h>
#include <backhop/topology.h>
#include <inttypes.h>
#include <stdio.h>

#define FIRST_FAILURE_MS INT64_C(1767225600123)

enum { MOST_LINE = 8192, COPIES = 5 };

typedef struct setup {
    const char *name;
    bh_strategy strategy;
    bh_queue_type type;
} setup;

static const setup setups[] = {
    {"ladder", BH_STRATEGY_LADDER, BH_QUEUE_QUORUM},
    {"message-ttl", BH_STRATEGY_MESSAGE_TTL, BH_QUEUE_QUORUM},
    {"delayed-exchange", BH_STRATEGY_DELAYED_EXCHANGE, BH_QUEUE_CLASSIC},
};

static bh_policy *policy;
static bh_topology *topology;
static bh_delivery *delivery;
static bh_history *history;
static bh_plan *plan;

static void build(const setup *each)
{
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(policy_set_max_attempts(policy, COPIES - 1), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("cdn-purge")), BH_OK);
    ck_assert_int_eq(topology_set_strategy(topology, each->strategy), BH_OK);
    ck_assert_int_eq(topology_set_queue_type(topology, each->type), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_history_new(&history), BH_OK);
    ck_assert_int_eq(bh_plan_new(&plan), BH_OK);
}

static void free_all(void)
{
    bh_plan_free(plan);
    bh_history_free(history);
    bh_delivery_free(delivery);
    bh_topology_free(topology);
    bh_policy_free(policy);
}

static void publish_original(void)
{
    bh_delivery_clear(delivery);
    ck_assert_int_eq(bh_delivery_set_address(delivery, bh_str("site"), bh_str("page.changed")), BH_OK);
    ck_assert_int_eq(bh_delivery_set_property(delivery, BH_PROPERTY_CONTENT_TYPE, bh_str("text/plain")), BH_OK);
    ck_assert_int_eq(bh_delivery_set_number(delivery, BH_PROPERTY_PRIORITY, 7), BH_OK);
    ck_assert_int_eq(bh_delivery_set_property(delivery, BH_PROPERTY_EXPIRATION, bh_str("60000")), BH_OK);
    ck_assert_int_eq(bh_delivery_set_property(delivery, BH_PROPERTY_MESSAGE_ID, bh_str("42")), BH_OK);
    ck_assert_int_eq(push_text(delivery, "tenant", "acme"), BH_OK);
    ck_assert_int_eq(
        bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_INT16, .name = bh_str("size"), .integer = -3}), BH_OK);
    ck_assert_int_eq(
        bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_FLOAT, .name = bh_str("ratio"), .number = 0.5}), BH_OK);
    ck_assert_int_eq(push_open(delivery, BH_TYPE_TABLE, "page"), BH_OK);
    ck_assert_int_eq(
        bh_delivery_push(delivery,
                         &(bh_value){.type = BH_TYPE_DECIMAL, .name = bh_str("price"), .integer = 1999, .places = 2}),
        BH_OK);
    ck_assert_int_eq(bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_VOID, .name = bh_str("none")}), BH_OK);
    ck_assert_int_eq(bh_delivery_end(delivery), BH_OK);
}

/* Plans the next copy of the case: four failures, parked at the last one, then the replay. Returns
 * its properties. */
static bh_bytes write_copy(int number)
{
    char random[BH_PLAN_RANDOM_BYTES];
    for (size_t i = 0; i < sizeof random; i++)
        random[i] = (char)(31 * number + 7 * (int)i);
    bh_bytes bytes = {random, sizeof random};
    ck_assert_int_eq(bh_history_read(history, delivery, topology), BH_OK);
    if (number == COPIES - 1)
        ck_assert_int_eq(bh_plan_replay(plan, delivery, history, topology, bytes), BH_OK);
    else
        ck_assert_int_eq(bh_plan_make(plan, delivery, history, policy, topology, BH_OUTCOME_FAILED,
                                      bh_str("507 queue is full"), 0, FIRST_FAILURE_MS + 60000 * number, bytes),
                         BH_OK);
    bh_bytes copy = bh_plan_copy_properties(plan, delivery, 0);
    ck_assert_uint_gt(copy.size, 0);
    return copy;
}

/* Decodes properties as the work queue, or the parked queue, would deliver them. */
static void deliver(bh_bytes properties)
{
    bh_bytes key = planned_of(plan).action == BH_ACTION_PARK ? view_of(topology).parked_queue : view_of(topology).queue;
    ck_assert_int_eq(bh__content_read(delivery, bh_str(""), key, properties), BH_OK);
    ck_assert_int_eq(bh_history_read(history, delivery, topology), BH_OK);
}

static const char *text_of(bh_bytes bytes, char *to, size_t size)
{
    snprintf(to, size, "%.*s", bytes.size ? (int)bytes.size : 1, bytes.size ? bytes.data : "-");
    for (char *at = to; *at; at++)
        if (*at == ' ')
            *at = '_';
    return to;
}

static void print_line(char *to, const char *name, bh_bytes properties)
{
    char error[64], reason[32];
    int used = snprintf(to, MOST_LINE, "%s %" PRId64 " %s %" PRId64 " %s ", name, past_of(history).attempts,
                        text_of(past_of(history).last_error, error, sizeof error), past_of(history).first_failure_ms,
                        text_of(past_of(history).parked, reason, sizeof reason));
    ck_assert_uint_lt((size_t)used + 2 * properties.size + 2, MOST_LINE);
    for (size_t i = 0; i < properties.size; i++)
        used += snprintf(to + used, 3, "%02x", (unsigned char)properties.data[i]);
    snprintf(to + used, 2, "\n");
}

/* Writes the lines of a case to `file`, or compares them with the file's. */
static void play(const setup *each, FILE *file, int is_writing)
{
    build(each);
    publish_original();
    for (int i = 0; i < COPIES; i++) {
        char line[MOST_LINE], expected[MOST_LINE], copy[MOST_LINE / 2];
        bh_bytes written = write_copy(i);
        ck_assert_uint_le(written.size, sizeof copy);
        memcpy(copy, written.data, written.size);
        deliver((bh_bytes){copy, written.size});
        print_line(line, each->name, (bh_bytes){copy, written.size});
        if (is_writing) {
            fputs(line, file);
            continue;
        }
        ck_assert_ptr_nonnull(fgets(expected, sizeof expected, file));
        ck_assert_str_eq(line, expected);
    }
    free_all();
}

static void play_all(const char *path, int is_writing)
{
    FILE *file = fopen(path, is_writing ? "w" : "r");
    ck_assert_ptr_nonnull(file);
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++)
        play(&setups[i], file, is_writing);
    if (!is_writing)
        ck_assert_int_eq(fgetc(file), EOF);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(copies_of_version_0_1_0_are_read_and_written_alike)
{
    const char *path = getenv("BACKHOP_WRITE_COPIES");
    if (path)
        play_all(path, 1);
    play_all(BACKHOP_COPIES, 0);
}
END_TEST

Suite *suite_compatibility(void)
{
    Suite *suite = suite_create("compatibility");
    TCase *copies = tcase_create("copies");
    tcase_add_test(copies, copies_of_version_0_1_0_are_read_and_written_alike);
    suite_add_tcase(suite, copies);
    return suite;
}
