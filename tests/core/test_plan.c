#include "plans.h"
#include "suites.h"
#include "vectors.h"
#include "../reading.h"
#include "plan/internal.h"

#include <math.h>

static vectors all, adopted; /* of bh__plan_adopt */

static const vector_name outcomes[] = {
    {"ok", BH_OUTCOME_OK},
    {"failed", BH_OUTCOME_FAILED},
    {"permanent", BH_OUTCOME_PERMANENT},
    {"dropped", BH_OUTCOME_DROPPED},
    {"throttled", BH_OUTCOME_THROTTLED},
    {"deferred", BH_OUTCOME_DEFERRED},
    {NULL, 0},
};

static const vector_name actions[] = {
    {"none", BH_ACTION_NONE},     {"ack", BH_ACTION_ACK},
    {"retry", BH_ACTION_RETRY},   {"reject", BH_ACTION_REJECT},
    {"return", BH_ACTION_RETURN}, {"park", BH_ACTION_PARK},
    {"drop", BH_ACTION_DROP},     {"replay", BH_ACTION_REPLAY},
    {"defer", BH_ACTION_DEFER},   {NULL, 0},
};

/* 53 bits, in the upper bits of 8 bytes; the lower 11 bits are 0. */
static void write_fraction(double u, char *out)
{
    uint64_t bits = (uint64_t)floor(ldexp(u, 53)) << 11;
    for (int i = 0; i < 8; i++)
        out[i] = (char)(unsigned char)(bits >> (56 - 8 * i));
}

void vector_fill_random(const vector *v, const json_t *json, char *out)
{
    static const unsigned char id[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                       0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
    double u = 0.5;
    double pick = 0.5;
    memcpy(out + 16, id, sizeof id);
    if (json_object_get(json, "hex")) {
        bh_bytes bytes = vector_bytes(v, "random", json);
        if (bytes.size != BH_PLAN_RANDOM_BYTES)
            vector_fail(v, "random", "must be %d bytes", BH_PLAN_RANDOM_BYTES);
        memcpy(out, bytes.data, bytes.size);
        return;
    }
    if (json) {
        vector_keys(v, "random", json, "u pick id");
        if (json_object_get(json, "u"))
            u = vector_double(v, "u", json_object_get(json, "u"));
        if (json_object_get(json, "pick"))
            pick = vector_double(v, "pick", json_object_get(json, "pick"));
        if (json_object_get(json, "id")) {
            bh_bytes bytes = vector_bytes(v, "id", json_object_get(json, "id"));
            if (bytes.size != 16)
                vector_fail(v, "random", "id must be 16 bytes");
            memcpy(out + 16, bytes.data, bytes.size);
        }
    }
    write_fraction(u, out);
    write_fraction(pick, out + 8);
}

/* --- What the copy keeps
 * ---------------------------------------------------------------------------------------- */

static int in_list(const vector *v, const char *field, const json_t *list, bh_bytes name)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (vector_same(vector_bytes(v, field, json_array_get(list, i)), name))
            return 1;
    return 0;
}

static bh_bytes header_name(const vector *v, const json_t *headers, size_t i)
{
    const json_t *entry = json_array_get(headers, i);
    if (json_is_object(entry))
        vector_fail(v, "kept_headers", "cannot be used with a repeated entry");
    return vector_bytes(v, "headers", json_array_get(entry, 0));
}

/* The plan keeps the listed headers of the delivery and no other. */
static void compare_kept_headers(vector *v, const bh_plan *plan)
{
    const json_t *kept = json_object_get(v->expect, "kept_headers");
    const json_t *headers = json_object_get(vector_get(v, "delivery"), "headers");
    if (!kept)
        return;
    if (json_array_size(headers) == 0)
        vector_fail(v, "kept_headers", "the delivery has no headers");
    for (size_t i = 0; i < json_array_size(headers); i++) {
        bh_bytes name = header_name(v, headers, i);
        v->checks++;
        int expected = in_list(v, "kept_headers", kept, name);
        if (expected != bh_plan_keeps_header(plan, name))
            vector_fail(v, "kept_headers", "%s must be %s", vector_show(name), expected ? "kept" : "dropped");
    }
    for (size_t k = 0; k < json_array_size(kept); k++) {
        bh_bytes name = vector_bytes(v, "kept_headers", json_array_get(kept, k));
        int found = 0;
        for (size_t i = 0; !found && i < json_array_size(headers); i++)
            found = vector_same(name, header_name(v, headers, i));
        if (!found)
            vector_fail(v, "kept_headers", "%s is not in the delivery", vector_show(name));
    }
}

static void compare_kept_properties(vector *v, const bh_plan *plan)
{
    const json_t *kept = json_object_get(v->expect, "kept_properties");
    json_t *properties = json_object_get(vector_get(v, "delivery"), "properties");
    if (!kept)
        return;
    if (json_object_size(properties) == 0)
        vector_fail(v, "kept_properties", "the delivery has no properties");
    for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
        const char *text = json_object_iter_key(i);
        json_t *name = json_string(text);
        bh_property property = (bh_property)vector_name_value(v, "kept_properties", name, vector_properties);
        json_decref(name);
        same_int(v, text, in_list(v, "kept_properties", kept, bh_str(text)), bh_plan_keeps_property(plan, property));
    }
    for (size_t k = 0; k < json_array_size(kept); k++)
        if (!json_object_get(properties, json_string_value(json_array_get(kept, k))))
            vector_fail(v, "kept_properties", "the delivery lacks one of them");
}

/* --- What the copy gets
 * ----------------------------------------------------------------------------------------- */

static size_t find_header(const bh_plan *plan, bh_bytes name)
{
    size_t i = 0;
    while (i < planned_of(plan).header_count && !vector_same(plan_header(plan, i).name, name))
        i++;
    return i;
}

static void compare_header(vector *v, const bh_plan *plan, size_t i, bh_bytes name, const json_t *value)
{
    const char *field = vector_show(name);
    if (i >= planned_of(plan).header_count)
        vector_fail(v, field, "expected as a header, got none");
    same_bytes(v, "headers", name, plan_header(plan, i).name);
    bh_bytes text = bh_str("");
    bh_bytes source = bh_str("");
    int64_t number = 0;
    bh_type type = BH_TYPE_VOID;
    if (json_object_get(value, "copy_of")) {
        source = vector_bytes(v, field, json_object_get(value, "copy_of"));
    } else {
        const json_t *content;
        type = vector_value(v, field, value, &content);
        if (type == BH_TYPE_ARRAY && json_array_size(content) == 1)
            text = vector_bytes(v, field, json_array_get(content, 0));
        else if (type == BH_TYPE_STRING)
            text = vector_bytes(v, field, content);
        else if (type == BH_TYPE_INT64)
            number = vector_int(v, field, content);
        else
            vector_fail(v, field, "a plan sets no header of this kind");
    }
    same_int(v, field, type, plan_header(plan, i).type);
    same_bytes(v, field, text, plan_header(plan, i).string);
    same_int(v, field, number, plan_header(plan, i).integer);
    same_bytes(v, field, source, plan_header(plan, i).source);
}

static void compare_headers(vector *v, const bh_plan *plan)
{
    static const char *const keys[] = {"headers", "headers_in_any_order", "headers_with"};
    for (size_t k = 0; k < 3; k++) {
        const json_t *expected = json_object_get(v->expect, keys[k]);
        if (!expected)
            continue;
        for (size_t i = 0; i < json_array_size(expected); i++) {
            const json_t *entry = json_array_get(expected, i);
            bh_bytes name = vector_bytes(v, keys[k], json_array_get(entry, 0));
            compare_header(v, plan, k == 0 ? i : find_header(plan, name), name, json_array_get(entry, 1));
        }
        if (k == 2)
            continue;
        for (size_t i = json_array_size(expected); i < planned_of(plan).header_count; i++)
            vector_fail(v, keys[k], "%zu expected, got %zu, the last one %s", json_array_size(expected),
                        planned_of(plan).header_count,
                        vector_show(plan_header(plan, planned_of(plan).header_count - 1).name));
        v->checks++;
    }
    const json_t *without = json_object_get(v->expect, "headers_without");
    for (size_t i = 0; i < json_array_size(without); i++) {
        bh_bytes name = vector_bytes(v, "headers_without", json_array_get(without, i));
        v->checks++;
        if (find_header(plan, name) < planned_of(plan).header_count)
            vector_fail(v, "headers_without", "the plan sets %s", vector_show(name));
    }
}

/* True of every plan, whatever the case says. */
static void check_invariants(const vector *v, const bh_plan *plan)
{
    bh_action action = planned_of(plan).action;
    int publishes = action == BH_ACTION_RETRY || action == BH_ACTION_DEFER || action == BH_ACTION_PARK ||
                    action == BH_ACTION_REPLAY;
    if (publishes_copy(plan) != publishes)
        vector_fail(v, "publishes", "does not go with the action");
    if (!publishes && planned_of(plan).header_count)
        vector_fail(v, "headers", "are set although nothing is published");
    if ((action == BH_ACTION_PARK) != (planned_of(plan).reason.size > 0))
        vector_fail(v, "reason", "does not go with the action");
    if (publishes &&
        (bh_plan_keeps_property(plan, BH_PROPERTY_USER_ID) || bh_plan_keeps_property(plan, BH_PROPERTY_EXPIRATION) ||
         bh_plan_keeps_property(plan, BH_PROPERTY_DELIVERY_MODE)))
        vector_fail(v, "kept_properties", "user-id, expiration and delivery-mode are never kept");
    for (size_t i = 0; publishes && i < planned_of(plan).header_count; i++)
        if (bh_plan_keeps_header(plan, plan_header(plan, i).name))
            vector_fail(v, "headers", "%s is kept and set", vector_show(plan_header(plan, i).name));
}

void expect_plan(vector *v, const bh_plan *plan)
{
    expect_name(v, v->expect, "action", actions, planned_of(plan).action);
    expect_bytes(v, v->expect, "reason", planned_of(plan).reason);
    expect_bytes(v, v->expect, "id", copy_of(plan).id);
    expect_int(v, v->expect, "attempts", planned_of(plan).attempts);
    expect_int(v, v->expect, "deferrals", planned_of(plan).deferrals);
    expect_int(v, v->expect, "delay_ms", planned_of(plan).delay_ms);
    expect_flag(v, v->expect, "retry_after_met", planned_of(plan).retry_after_met);
    expect_bytes(v, v->expect, "exchange", copy_of(plan).exchange);
    expect_bytes(v, v->expect, "routing_key", copy_of(plan).routing_key);
    expect_flag(v, v->expect, "mandatory", copy_of(plan).mandatory);
    expect_flag(v, v->expect, "on_demand", copy_of(plan).on_demand);
    expect_bytes(v, v->expect, "expiration", copy_of(plan).expiration);
    compare_kept_properties(v, plan);
    compare_kept_headers(v, plan);
    compare_headers(v, plan);
    check_invariants(v, plan);
}

static bh_outcome outcome_of(const vector *v)
{
    const json_t *outcome = vector_get(v, "outcome");
    return outcome ? (bh_outcome)vector_name_value(v, "outcome", outcome, outcomes) : BH_OUTCOME_FAILED;
}

static bh_status decide(const vector *v, bh_plan *plan, const bh_delivery *d, const bh_history *h, const bh_policy *p,
                        const bh_topology *t)
{
    char random[BH_PLAN_RANDOM_BYTES];
    vector_fill_random(v, vector_get(v, "random"), random);
    bh_bytes random_bytes = {random, sizeof random};
    if (json_is_true(vector_get(v, "replay")))
        return bh_plan_replay(plan, d, h, t, random_bytes);
    const json_t *error = vector_get(v, "error");
    const json_t *retry_after = vector_get(v, "retry_after_ms");
    const json_t *now = vector_get(v, "now_ms");
    int64_t now_ms = now ? vector_int(v, "now_ms", now) : DEFAULT_NOW_MS;
    if (v >= adopted.cases && v < adopted.cases + adopted.count)
        return bh__plan_adopt(plan, d, h, p, t, now_ms, random_bytes);
    if (json_is_true(vector_get(v, "guard")))
        return bh_plan_guard(plan, d, h, p, t, now_ms, random_bytes);
    return bh_plan_make(plan, d, h, p, t, outcome_of(v), error ? vector_bytes(v, "error", error) : bh_str(""),
                        retry_after ? vector_int(v, "retry_after_ms", retry_after) : 0, now_ms, random_bytes);
}

static void run(vector *v)
{
    vector_begin(v,
                 "delivery policy topology legacy_counter wait_queues outcome error retry_after_ms now_ms random "
                 "frame_max guard replay",
                 "status counts_as " PLAN_KEYS);
    bh_delivery *d = NULL;
    bh_policy *p = NULL;
    bh_topology *t = NULL;
    bh_history *h = NULL;
    bh_plan *plan = NULL;
    const char *field = "";
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_policy_new(&p), BH_OK);
    ck_assert_int_eq(bh_history_new(&h), BH_OK);
    ck_assert_int_eq(bh_plan_new(&plan), BH_OK);
    if (vector_fill_delivery(v, vector_get(v, "delivery"), d))
        vector_fail(v, "delivery", "could not be filled");
    if (vector_fill_policy(v, vector_get(v, "policy"), p, &field))
        vector_fail(v, field, "was refused: %s", bh_policy_error(p).data);
    if (vector_new_topology(v, vector_get(v, "topology"), &t, &field) || bh_topology_build(t, p))
        vector_fail(v, "topology", "could not be built: %s", t ? bh_topology_error(t).data : field);
    vector_fill_history(v, h);
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    if (vector_get(v, "frame_max"))
        ck_assert_int_eq(bh_plan_set_frame_max(plan, vector_int(v, "frame_max", vector_get(v, "frame_max"))), BH_OK);
    /* Twice: a plan replaces the one before. */
    decide(v, plan, d, h, p, t);
    if (expect_status(v, decide(v, plan, d, h, p, t), bh_str(""))) {
        expect_plan(v, plan);
        expect_name(v, v->expect, "counts_as", outcomes, bh_plan_outcome(h, p, t, outcome_of(v)));
    }
    bh_plan_free(plan);
    bh_history_free(h);
    bh_topology_free(t);
    bh_policy_free(p);
    bh_delivery_free(d);
    vector_end(v);
}

START_TEST(a_vector)
{
    run(&all.cases[_i]);
}
END_TEST

START_TEST(a_vector_of_a_message_that_is_adopted)
{
    run(&adopted.cases[_i]);
}
END_TEST

/* --- Calls
 * ------------------------------------------------------------------------------------------------------ */

static bh_delivery *d;
static bh_history *h;
static bh_policy *p;
static bh_topology *t;
static bh_plan *plan;
static const char zeros[BH_PLAN_RANDOM_BYTES];

static void set_up(void)
{
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_history_new(&h), BH_OK);
    ck_assert_int_eq(bh_policy_new(&p), BH_OK);
    ck_assert_int_eq(bh_topology_new(&t, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    ck_assert_int_eq(bh_plan_new(&plan), BH_OK);
}

static void tear_down(void)
{
    bh_plan_free(plan);
    bh_topology_free(t);
    bh_policy_free(p);
    bh_history_free(h);
    bh_delivery_free(d);
}

/* Makes a plan by a policy whose delays the topology, built for `p` with `strategy`, may not
 * have. */
static bh_status make_with(bh_policy *other)
{
    bh_bytes random = {zeros, sizeof zeros};
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    bh_status status = bh_plan_make(plan, d, h, other, t, BH_OUTCOME_FAILED, bh_str("507"), 0, DEFAULT_NOW_MS, random);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, other, t, DEFAULT_NOW_MS, random), status);
    ck_assert_int_eq(bh_topology_check_policy(t, other), status);
    return status;
}

START_TEST(a_policy_whose_waits_the_topology_lacks_is_refused)
{
    bh_policy *other;
    ck_assert_int_eq(bh_policy_new(&other), BH_OK);
    ck_assert_int_eq(make_with(other), BH_OK); /* the same delays */
    ck_assert_int_eq(policy_set_max_attempts(other, 3), BH_OK);
    ck_assert_int_eq(make_with(other), BH_OK); /* some of the topology's rungs */
    ck_assert_int_eq(policy_set_max_crashes(other, 1), BH_OK);
    ck_assert_int_eq(make_with(other), BH_OK);
    ck_assert_int_eq(policy_set_max_retry_after_ms(other, 7 * INT64_C(86400000)), BH_OK);
    ck_assert_int_eq(make_with(other), BH_ERR_FOREIGN_POLICY); /* a request of a week has no rung */
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_NONE);
    ck_assert_int_eq(policy_set_max_retry_after_ms(other, 0), BH_OK);
    ck_assert_int_eq(make_with(other), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(other, 500), BH_OK);
    ck_assert_int_eq(make_with(other), BH_ERR_FOREIGN_POLICY);
    ck_assert_int_eq(bh_topology_add_policy(t, other), BH_OK);
    ck_assert_int_eq(make_with(other), BH_ERR_STATE); /* it has to be built again */
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    ck_assert_int_eq(make_with(other), BH_OK);
    ck_assert_int_eq(make_with(p), BH_OK);
    bh_policy_free(other);
}
END_TEST

START_TEST(a_policy_that_was_changed_after_the_topology_was_built_is_refused)
{
    ck_assert_int_eq(make_with(p), BH_OK);
    ck_assert_int_eq(policy_set_jitter(p, BH_JITTER_NONE, 0), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(p, 1234), BH_OK);
    ck_assert_int_eq(make_with(p), BH_ERR_FOREIGN_POLICY);
}
END_TEST

START_TEST(reject_and_native_refuse_another_delay_than_the_work_queue_s)
{
    const bh_strategy strategies[] = {BH_STRATEGY_REJECT, BH_STRATEGY_NATIVE};
    bh_policy *other;
    ck_assert_int_eq(bh_policy_new(&other), BH_OK);
    bh_policy *both[] = {p, other};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(policy_set_kind(both[i], BH_KIND_FIXED), BH_OK);
        ck_assert_int_eq(policy_set_jitter(both[i], BH_JITTER_NONE, 0), BH_OK);
    }
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(topology_set_strategy(t, strategies[i]), BH_OK);
        ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
        ck_assert_int_eq(policy_set_initial_ms(other, 1000), BH_OK);
        ck_assert_int_eq(policy_set_max_attempts(other, 5), BH_OK);
        ck_assert_int_eq(make_with(other), BH_OK);
        ck_assert_int_eq(policy_set_initial_ms(other, 2000), BH_OK);
        ck_assert_int_eq(make_with(other), BH_ERR_FOREIGN_POLICY);
    }
    bh_policy_free(other);
}
END_TEST

/* Makes plans for numbers that are spread evenly, and compares their wait queues with the
 * topology's preview. */
static void compare_with_preview(int64_t attempt)
{
    enum { STEPS = 50, PICKS = 20 };
    int64_t counts[BH_TOPOLOGY_MOST_RUNGS] = {0};
    double sum = 0;
    int64_t lowest_ms = preview_at(t, p, attempt).lowest_ms;
    int64_t highest_ms = preview_at(t, p, attempt).highest_ms;
    bh_delivery_clear(d);
    ck_assert_int_eq(push_int(d, "backhop-attempts", attempt - 1), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    for (int step = 0; step < STEPS * PICKS; step++) {
        char random[BH_PLAN_RANDOM_BYTES] = {0};
        bh_bytes random_bytes = {random, sizeof random};
        write_fraction((step / PICKS + 0.5) / STEPS, random);
        write_fraction((step % PICKS + 0.5) / PICKS, random + 8);
        ck_assert_int_eq(bh_plan_make(plan, d, h, p, t, BH_OUTCOME_FAILED, bh_str(""), 0, DEFAULT_NOW_MS, random_bytes),
                         BH_OK);
        int64_t delay_ms = planned_of(plan).delay_ms;
        ck_assert_int_ge(delay_ms, lowest_ms);
        ck_assert_int_le(delay_ms, highest_ms);
        sum += (double)delay_ms;
        for (size_t i = 0; i < rung_count(t); i++)
            counts[i] += rung_ms(t, i) == delay_ms;
    }
    size_t spread = 0;
    for (size_t i = 0; i < rung_count(t); i++) {
        double share = (double)counts[i] / (STEPS * PICKS);
        spread += bh_topology_share(t, p, attempt, i) > 0;
        ck_assert_double_eq_tol(share, bh_topology_share(t, p, attempt, i), 0.03);
    }
    ck_assert_uint_eq(spread, preview_at(t, p, attempt).spread);
    double mean = sum / (STEPS * PICKS);
    ck_assert_double_eq_tol(mean, (double)preview_at(t, p, attempt).mean_ms, mean / 100);
}

START_TEST(plans_wait_where_the_topology_s_preview_says)
{
    static const struct {
        bh_jitter jitter;
        double ratio;
        int64_t initial_ms;
        int64_t max_ms;
        bh_series series;
    } policies[] = {
        {BH_JITTER_SPREAD, 0.2, 1000, 300000, BH_SERIES_R10},   {BH_JITTER_SPREAD, 0.2, 30000, 3600000, BH_SERIES_R10},
        {BH_JITTER_SPREAD, 0.2, 30000, 3600000, BH_SERIES_R40}, {BH_JITTER_SPREAD, 1, 700, 5000, BH_SERIES_R20},
        {BH_JITTER_EQUAL, 0, 1000, 9500, BH_SERIES_R5},         {BH_JITTER_FULL, 0, 150, 1000, BH_SERIES_R10},
        {BH_JITTER_NONE, 0, 123, 3000, BH_SERIES_R10},
    };
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        ck_assert_int_eq(policy_set_jitter(p, policies[i].jitter, policies[i].ratio), BH_OK);
        ck_assert_int_eq(policy_set_initial_ms(p, policies[i].initial_ms), BH_OK);
        ck_assert_int_eq(policy_set_max_ms(p, policies[i].max_ms), BH_OK);
        ck_assert_int_eq(topology_set_series(t, policies[i].series), BH_OK);
        ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
        for (int64_t attempt = 1; attempt <= 9; attempt += 2)
            compare_with_preview(attempt);
    }
    ck_assert_int_eq(policy_set_jitter(p, BH_JITTER_DECORRELATED, 0), BH_OK);
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    compare_with_preview(1);
}
END_TEST

static bh_status make(bh_outcome outcome, size_t random_size)
{
    bh_bytes random = {zeros, random_size};
    return bh_plan_make(plan, d, h, p, t, outcome, bh_str(""), 0, DEFAULT_NOW_MS, random);
}

START_TEST(missing_arguments_are_refused)
{
    bh_bytes random = {zeros, sizeof zeros};
    bh_bytes none = bh_str("");
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(bh_plan_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_set_frame_max(NULL, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_set_frame_max(plan, -1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_make(NULL, d, h, p, t, BH_OUTCOME_OK, none, 0, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_make(plan, NULL, h, p, t, BH_OUTCOME_OK, none, 0, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_make(plan, d, NULL, p, t, BH_OUTCOME_OK, none, 0, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_make(plan, d, h, NULL, t, BH_OUTCOME_OK, none, 0, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_make(plan, d, h, p, NULL, BH_OUTCOME_OK, none, 0, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(NULL, d, h, p, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(plan, NULL, h, p, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(plan, d, NULL, p, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, NULL, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, NULL, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__plan_adopt(NULL, d, h, p, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__plan_adopt(plan, NULL, h, p, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__plan_adopt(plan, d, NULL, p, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__plan_adopt(plan, d, h, NULL, t, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__plan_adopt(plan, d, h, p, NULL, 0, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_replay(NULL, d, h, t, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_replay(plan, NULL, h, t, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_replay(plan, d, NULL, t, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_replay(plan, d, h, NULL, random), BH_ERR_ARGUMENT);
    bh_plan_free(NULL);
}
END_TEST

START_TEST(too_few_or_too_many_random_bytes_and_unknown_outcomes_are_refused)
{
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES - 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(make((bh_outcome)99, BH_PLAN_RANDOM_BYTES), BH_ERR_ARGUMENT);
    bh_bytes too_few = {zeros, BH_PLAN_RANDOM_BYTES - 1};
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, 0, too_few), BH_ERR_ARGUMENT);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_OK);
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_RETRY);
}
END_TEST

START_TEST(a_new_plan_has_decided_nothing)
{
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_NONE);
    ck_assert_int_eq(publishes_copy(plan), 0);
    ck_assert_uint_eq(planned_of(plan).header_count, 0);
    ck_assert_str_eq(copy_of(plan).exchange.data, "");
    ck_assert_str_eq(copy_of(plan).routing_key.data, "");
    ck_assert_str_eq(planned_of(plan).reason.data, "");
    ck_assert_str_eq(copy_of(plan).expiration.data, "");
}
END_TEST

START_TEST(a_history_that_was_not_read_is_refused)
{
    bh_bytes random = {zeros, sizeof zeros};
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_ERR_STATE);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, 0, random), BH_ERR_STATE);
    ck_assert_int_eq(bh_plan_replay(plan, d, h, t, random), BH_ERR_STATE);
}
END_TEST

START_TEST(an_open_table_is_refused)
{
    bh_bytes random = {zeros, sizeof zeros};
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(push_open(d, BH_TYPE_TABLE, "open"), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_ERR_STATE);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, 0, random), BH_ERR_STATE);
    ck_assert_int_eq(bh_plan_replay(plan, d, h, t, random), BH_ERR_STATE);
}
END_TEST

START_TEST(a_topology_that_is_not_built_is_refused)
{
    bh_bytes random = {zeros, sizeof zeros};
    bh_topology_free(t);
    t = NULL;
    ck_assert_int_eq(bh_topology_new(&t, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_ERR_STATE);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, 0, random), BH_ERR_STATE);
    ck_assert_int_eq(bh_plan_replay(plan, d, h, t, random), BH_ERR_STATE);
}
END_TEST

START_TEST(a_plan_replaces_the_one_before)
{
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_PERMANENT, BH_PLAN_RANDOM_BYTES), BH_OK);
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_PARK);
    ck_assert_int_eq(make(BH_OUTCOME_OK, BH_PLAN_RANDOM_BYTES), BH_OK);
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_ACK);
    ck_assert_int_eq(publishes_copy(plan), 0);
    ck_assert_uint_eq(planned_of(plan).header_count, 0);
    ck_assert_str_eq(planned_of(plan).reason.data, "");
    ck_assert_str_eq(copy_of(plan).routing_key.data, "");
}
END_TEST

START_TEST(a_guard_replaces_the_plan_before)
{
    bh_bytes random = {zeros, sizeof zeros};
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_PERMANENT, BH_PLAN_RANDOM_BYTES), BH_OK);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, DEFAULT_NOW_MS, random), BH_OK);
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_NONE);
    ck_assert_int_eq(publishes_copy(plan), 0);
    ck_assert_uint_eq(planned_of(plan).header_count, 0);
    ck_assert_str_eq(planned_of(plan).reason.data, "");
}
END_TEST

START_TEST(a_guard_before_the_epoch_or_beyond_2_to_the_53_is_refused)
{
    bh_bytes random = {zeros, sizeof zeros};
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, -1, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, INT64_C(9007199254740992), random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_guard(plan, d, h, p, t, INT64_C(9007199254740991), random), BH_OK);
}
END_TEST

START_TEST(an_index_out_of_range_gives_nothing)
{
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_OK);
    const size_t indexes[] = {planned_of(plan).header_count, (size_t)-1};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_str_eq(plan_header(plan, indexes[i]).name.data, "");
        ck_assert_str_eq(plan_header(plan, indexes[i]).string.data, "");
        ck_assert_int_eq(plan_header(plan, indexes[i]).integer, 0);
        ck_assert_str_eq(plan_header(plan, indexes[i]).source.data, "");
        bh_header header;
        ck_assert_int_eq(bh_plan_header(plan, indexes[i], &header), BH_ERR_ARGUMENT);
        ck_assert_int_eq(header.type, 0);
    }
}
END_TEST

#define SPAN "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

START_TEST(the_span_of_the_failed_attempt_is_on_its_copy_and_on_no_other)
{
    const bh_bytes name = bh_str("backhop-traceparent");
    ck_assert_int_eq(
        bh_delivery_push(d,
                         &(bh_value){.type = BH_TYPE_STRING, .name = name, .string = bh_str("of the failure before")}),
        BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_str_eq(past_of(h).traceparent.data, "");
    for (int outcome = BH_OUTCOME_FAILED; outcome <= BH_OUTCOME_PERMANENT; outcome++) {
        ck_assert_int_eq(bh_plan_set_traceparent(plan, bh_str(SPAN)), BH_OK);
        ck_assert_int_eq(make((bh_outcome)outcome, BH_PLAN_RANDOM_BYTES), BH_OK);
        size_t at = find_header(plan, name);
        ck_assert_uint_lt(at, planned_of(plan).header_count);
        ck_assert_str_eq(plan_header(plan, at).string.data, SPAN);
        ck_assert_int_eq(bh_plan_keeps_header(plan, name), 0);
        ck_assert_int_eq(make((bh_outcome)outcome, BH_PLAN_RANDOM_BYTES), BH_OK);
        ck_assert_uint_eq(find_header(plan, name), planned_of(plan).header_count);
        ck_assert_int_eq(bh_plan_keeps_header(plan, name), 0);
    }
    ck_assert_int_eq(bh_plan_set_traceparent(plan, bh_str(SPAN)), BH_OK);
    ck_assert_int_eq(bh_plan_set_traceparent(plan, bh_str("")), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_OK);
    ck_assert_uint_eq(find_header(plan, name), planned_of(plan).header_count);

    bh_delivery_clear(d);
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_STRING, .name = name, .string = bh_str(SPAN)}),
                     BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_str_eq(past_of(h).traceparent.data, SPAN);
    ck_assert_str_eq(past_of(NULL).traceparent.data, "");
}
END_TEST

START_TEST(what_is_no_span_is_refused)
{
    static const char *const wrong[] = {
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333g-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 ",
        "00-0af7651916cd43dd8448eb211c80319cb7ad6b7169203331--01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
        "span",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(bh_plan_set_traceparent(plan, bh_str(wrong[i])) == BH_ERR_ARGUMENT, "%s", wrong[i]);
    ck_assert_int_eq(bh_plan_set_traceparent(plan, (bh_bytes){NULL, 0}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_plan_set_traceparent(NULL, bh_str(SPAN)), BH_ERR_ARGUMENT);
}
END_TEST

START_TEST(in_a_frame_without_room_the_span_and_the_due_time_go_first)
{
    char pad[3160];
    memset(pad, 'x', sizeof pad);
    ck_assert_int_eq(bh_plan_set_frame_max(plan, 4096), BH_OK);
    ck_assert_int_eq(
        bh_delivery_push(
            d, &(bh_value){.type = BH_TYPE_STRING, .name = bh_str("pad"), .string = (bh_bytes){pad, sizeof pad}}),
        BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, t), BH_OK);
    ck_assert_int_eq(bh_plan_set_traceparent(plan, bh_str(SPAN)), BH_OK);
    ck_assert_int_eq(make(BH_OUTCOME_FAILED, BH_PLAN_RANDOM_BYTES), BH_OK);
    ck_assert_int_eq(planned_of(plan).action, BH_ACTION_RETRY);
    ck_assert_uint_eq(find_header(plan, bh_str("backhop-traceparent")), planned_of(plan).header_count);
}
END_TEST

Suite *suite_plan(void)
{
    all = vectors_load("plan");
    adopted = vectors_load("adopt");
    Suite *suite = suite_create("plan");
    vectors_add(suite, &all, a_vector);
    vectors_add(suite, &adopted, a_vector_of_a_message_that_is_adopted);
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, missing_arguments_are_refused);
    tcase_add_test(calls, plans_wait_where_the_topology_s_preview_says);
    tcase_add_test(calls, a_policy_whose_waits_the_topology_lacks_is_refused);
    tcase_add_test(calls, a_policy_that_was_changed_after_the_topology_was_built_is_refused);
    tcase_add_test(calls, reject_and_native_refuse_another_delay_than_the_work_queue_s);
    tcase_add_test(calls, too_few_or_too_many_random_bytes_and_unknown_outcomes_are_refused);
    tcase_add_test(calls, a_new_plan_has_decided_nothing);
    tcase_add_test(calls, a_history_that_was_not_read_is_refused);
    tcase_add_test(calls, an_open_table_is_refused);
    tcase_add_test(calls, a_topology_that_is_not_built_is_refused);
    tcase_add_test(calls, a_plan_replaces_the_one_before);
    tcase_add_test(calls, a_guard_replaces_the_plan_before);
    tcase_add_test(calls, a_guard_before_the_epoch_or_beyond_2_to_the_53_is_refused);
    tcase_add_test(calls, an_index_out_of_range_gives_nothing);
    tcase_add_test(calls, the_span_of_the_failed_attempt_is_on_its_copy_and_on_no_other);
    tcase_add_test(calls, what_is_no_span_is_refused);
    tcase_add_test(calls, in_a_frame_without_room_the_span_and_the_due_time_go_first);
    suite_add_tcase(suite, calls);
    return suite;
}
