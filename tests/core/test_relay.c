#include "relay/internal.h"
#include "../reading.h"
#include "topology/internal.h"
#include "plans.h"
#include "suites.h"

static vectors all;

static const vector_name deaths[] = {
    {"rejected", BH__DEATH_REJECTED}, {"expired", BH__DEATH_EXPIRED},
    {"maxlen", BH__DEATH_MAXLEN},     {"delivery_limit", BH__DEATH_DELIVERY_LIMIT},
    {"other", BH__DEATH_OTHER},       {NULL, 0},
};

static const vector_name treatments[] = {
    {"retry", BH_OUTCOME_FAILED},
    {"park", BH_OUTCOME_PERMANENT},
    {"drop", BH_OUTCOME_DROPPED},
    {NULL, 0},
};

/* A name or pattern; or a list of it and its policy. */
static bh_status add_queue(const vector *v, const json_t *entry, bh__relay *relay)
{
    const json_t *name = json_is_array(entry) ? json_array_get(entry, 0) : entry;
    const json_t *policy = json_is_array(entry) ? json_array_get(entry, 1) : vector_get(v, "policy");
    bh_policy *made = NULL;
    const char *field = "";
    ck_assert_int_eq(bh_policy_new(&made), BH_OK);
    if (vector_fill_policy(v, policy, made, &field))
        vector_fail(v, field, "was refused");
    bh_status status = bh__relay_add_queue(relay, vector_bytes(v, "queues", name), made);
    bh_policy_free(made);
    return status;
}

static bh_status fill_relay(const vector *v, bh__relay *relay)
{
    const json_t *json = vector_get(v, "relay");
    bh_status status = BH_OK;
    vector_keys(v, "relay", json, "queues namespace queue_type stripes outcomes");
    if (json_object_get(json, "namespace"))
        status = bh__relay_set_namespace(relay, vector_bytes(v, "namespace", json_object_get(json, "namespace")));
    if (status == BH_OK && json_object_get(json, "queue_type"))
        status = bh__relay_set_queue_type(
            relay,
            (bh_queue_type)vector_name_value(v, "queue_type", json_object_get(json, "queue_type"), vector_queue_types));
    if (status == BH_OK && json_object_get(json, "stripes"))
        status = bh__relay_set_stripes(relay, (int)vector_int(v, "stripes", json_object_get(json, "stripes")));
    const json_t *outcomes = json_object_get(json, "outcomes");
    for (size_t i = 0; status == BH_OK && i < json_array_size(outcomes); i++) {
        const json_t *row = json_array_get(outcomes, i);
        status = bh__relay_set_outcome(
            relay, (bh__death_reason)vector_name_value(v, "outcomes", json_array_get(row, 0), deaths),
            (bh_outcome)vector_name_value(v, "outcomes", json_array_get(row, 1), treatments));
    }
    const json_t *queues = json_object_get(json, "queues");
    for (size_t i = 0; status == BH_OK && i < json_array_size(queues); i++)
        status = add_queue(v, json_array_get(queues, i), relay);
    return status == BH_OK ? bh__relay_build(relay) : status;
}

/* Reads and decides, on a delivery that is filled anew, as a message is. */
static bh_status decide(const vector *v, bh__relay *relay, bh_plan *plan, bh_delivery *d, bh_history *h,
                        bh__dead_letter *letter)
{
    char random[BH_PLAN_RANDOM_BYTES];
    const json_t *now = vector_get(v, "now_ms");
    const json_t *there = vector_get(v, "is_there");
    vector_fill_random(v, vector_get(v, "random"), random);
    bh_delivery_clear(d);
    if (vector_fill_delivery(v, vector_get(v, "delivery"), d))
        vector_fail(v, "delivery", "could not be filled");
    ck_assert_int_eq(bh__relay_read(relay, d, h, letter), BH_OK);
    return bh__relay_plan(relay, plan, d, h, !there || json_is_true(there),
                          now ? vector_int(v, "now_ms", now) : DEFAULT_NOW_MS, (bh_bytes){random, sizeof random});
}

static void compare_names(vector *v, const bh_topology *t)
{
    const json_t *declared = json_object_get(v->expect, "declared");
    for (size_t i = 0; i < json_array_size(declared); i++)
        same_bytes(v, "declared", vector_bytes(v, "declared", json_array_get(declared, i)), declaration_at(t, i).name);
}

static void compare(vector *v, bh__relay *relay)
{
    bh_delivery *d = NULL;
    bh_history *h = NULL;
    bh_plan *plan = NULL;
    bh__dead_letter letter;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_history_new(&h), BH_OK);
    ck_assert_int_eq(bh_plan_new(&plan), BH_OK);
    if (vector_get(v, "frame_max"))
        ck_assert_int_eq(bh_plan_set_frame_max(plan, vector_int(v, "frame_max", vector_get(v, "frame_max"))), BH_OK);
    expect_bytes(v, v->expect, "rejected_queue", bh__topology_own_queue(relay->topology));
    compare_names(v, relay->topology);
    const json_t *vhost = vector_get(v, "vhost");
    bh_bytes host = vhost ? vector_bytes(v, "vhost", vhost) : bh_str("/");
    expect_bytes(v, v->expect, "quorum_policy", bh__relay_policy_line(relay, BH_QUEUE_QUORUM, host));
    expect_bytes(v, v->expect, "classic_policy", bh__relay_policy_line(relay, BH_QUEUE_CLASSIC, host));
    if (vector_get(v, "delivery")) {
        decide(v, relay, plan, d, h, &letter); /* twice: the first letter leaves nothing behind */
        ck_assert_int_eq(decide(v, relay, plan, d, h, &letter), BH_OK);
        expect_bytes(v, v->expect, "queue", letter.queue);
        expect_name(v, v->expect, "death", deaths, letter.reason);
        expect_error(v, v->expect, letter.text);
        const json_t *first = json_object_get(v->expect, "first_published");
        if (first) {
            same_bytes(v, "first_published", vector_bytes(v, "exchange", json_array_get(first, 0)),
                       past_of(h).exchange);
            same_bytes(v, "first_published", vector_bytes(v, "routing key", json_array_get(first, 1)),
                       past_of(h).routing_key);
        }
        expect_plan(v, plan);
        if (letter.is_served != (letter.queue.size > 0))
            vector_fail(v, "queue", "is there, and is not served");
    }
    bh_plan_free(plan);
    bh_history_free(h);
    bh_delivery_free(d);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(
        v, "relay policy delivery is_there vhost now_ms random frame_max",
        "status error queue death first_published rejected_queue declared quorum_policy classic_policy " PLAN_KEYS);
    bh__relay *relay = NULL;
    ck_assert_int_eq(bh__relay_new(&relay), BH_OK);
    bh_status status = fill_relay(v, relay);
    if (expect_status(v, status, bh__relay_error(relay)))
        compare(v, relay);
    else
        expect_error(v, v->expect, bh__relay_error(relay));
    bh__relay_free(relay);
    vector_end(v);
}
END_TEST

/* --- Calls
 * ------------------------------------------------------------------------------------------------------ */

static bh__relay *relay;
static bh_delivery *d;
static bh_history *h;
static bh_plan *plan;
static const char zeros[BH_PLAN_RANDOM_BYTES];
static const bh_bytes random = {zeros, sizeof zeros};

static void set_up(void)
{
    ck_assert_int_eq(bh__relay_new(&relay), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_history_new(&h), BH_OK);
    ck_assert_int_eq(bh_plan_new(&plan), BH_OK);
}

static void tear_down(void)
{
    bh_plan_free(plan);
    bh_history_free(h);
    bh_delivery_free(d);
    bh__relay_free(relay);
}

START_TEST(missing_arguments_are_refused)
{
    bh__dead_letter letter;
    bh_bytes none = {NULL, 0};
    ck_assert_int_eq(bh__relay_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_add_queue(NULL, bh_str("email"), NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_add_queue(relay, none, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_queue_type(NULL, BH_QUEUE_QUORUM), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_queue_type(relay, (bh_queue_type)9), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_namespace(NULL, bh_str("ns")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_stripes(relay, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_outcome(NULL, BH__DEATH_EXPIRED, BH_OUTCOME_FAILED), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_outcome(relay, BH__DEATH_EXPIRED, BH_OUTCOME_OK), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_set_outcome(relay, BH__DEATH_OTHER, BH_OUTCOME_FAILED), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_build(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_read(relay, NULL, h, &letter), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_read(relay, d, NULL, &letter), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__relay_read(relay, d, h, NULL), BH_ERR_ARGUMENT);
    ck_assert_uint_eq(letter.queue.size, 0);
    ck_assert_uint_eq(letter.text.size, 0);
    ck_assert_int_eq(bh__relay_plan(relay, NULL, d, h, 1, 0, random), BH_ERR_ARGUMENT);
    ck_assert_uint_eq(bh__relay_error(NULL).size, 0);
    bh__relay_free(NULL);
}
END_TEST

START_TEST(nothing_is_read_before_it_is_built_nor_decided_before_it_is_read)
{
    bh__dead_letter letter;
    ck_assert_int_eq(bh__relay_build(relay), BH_ERR_STATE);
    ck_assert_int_eq(bh__relay_add_queue(relay, bh_str("email"), NULL), BH_OK);
    ck_assert_int_eq(bh__relay_read(relay, d, h, &letter), BH_ERR_STATE);
    ck_assert_uint_eq(bh__relay_policy_line(relay, BH_QUEUE_QUORUM, bh_str("/")).size, 0);
    ck_assert_int_eq(bh__relay_build(relay), BH_OK);
    ck_assert_int_eq(bh__relay_plan(relay, plan, d, h, 1, 0, random), BH_ERR_STATE);
    ck_assert_int_eq(bh__relay_read(relay, d, h, &letter), BH_OK);
    ck_assert_int_eq(bh__relay_plan(relay, plan, d, h, 1, 0, random), BH_OK);
    ck_assert_int_eq(bh__relay_add_queue(relay, bh_str("webhook.*"), NULL), BH_OK);
    ck_assert_int_eq(bh__relay_plan(relay, plan, d, h, 1, 0, random), BH_ERR_STATE);
    ck_assert_int_eq(bh__relay_build(relay), BH_OK);
    ck_assert_uint_eq(relay->served_count, 2);
    ck_assert(!relay->served[0].is_pattern);
    ck_assert(relay->served[1].is_pattern);
    ck_assert_str_eq(bh__relay_name_of(relay, &relay->served[1]).data, "webhook.*");
}
END_TEST

Suite *suite_relay(void)
{
    Suite *suite = suite_create("relay");
    all = vectors_load("relay");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, missing_arguments_are_refused);
    tcase_add_test(calls, nothing_is_read_before_it_is_built_nor_decided_before_it_is_read);
    suite_add_tcase(suite, calls);
    return suite;
}
