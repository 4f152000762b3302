#include "../reading.h"
#include "suites.h"
#include "vectors.h"

#include <inttypes.h>
#include <stdio.h>

static vectors all;

/* --- Declarations
 * ----------------------------------------------------------------------------------------------- */

static void compare_arguments(vector *v, const char *field, const json_t *expected, const bh_topology *t, size_t i)
{
    same_int(v, field, (int64_t)json_array_size(expected), (int64_t)declaration_at(t, i).argument_count);
    for (size_t a = 0; a < json_array_size(expected); a++) {
        const json_t *entry = json_array_get(expected, a);
        same_bytes(v, field, vector_bytes(v, field, json_array_get(entry, 0)), declaration_at(t, i).arguments[a].name);
        const json_t *content;
        bh_type type = vector_value(v, field, json_array_get(entry, 1), &content);
        same_int(v, field, type, declaration_at(t, i).arguments[a].type);
        int is_text = type == BH_TYPE_STRING;
        same_bytes(v, field, is_text ? vector_bytes(v, field, content) : bh_str(""),
                   declaration_at(t, i).arguments[a].string);
        same_int(v, field, is_text ? 0 : vector_int(v, field, content), declaration_at(t, i).arguments[a].integer);
    }
}

static bh_bytes text_or_empty(const vector *v, const char *field, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value ? vector_bytes(v, field, value) : bh_str("");
}

static void compare_declaration(vector *v, const json_t *expected, const bh_topology *t, size_t i)
{
    static const vector_name what[] = {
        {"exchange", BH_DECLARE_EXCHANGE}, {"queue", BH_DECLARE_QUEUE}, {"binding", BH_DECLARE_BINDING}, {NULL, 0}};
    char field[64];
    snprintf(field, sizeof field, "declarations, row %zu", i + 1);
    vector_keys(v, field, expected, "exchange queue binding type source routing_key arguments wait_ms on_demand");
    const vector_name *is = what;
    while (is->name && !json_object_get(expected, is->name))
        is++;
    if (!is->name)
        vector_fail(v, field, "must have exchange, queue or binding");
    same_bytes(v, field, vector_bytes(v, field, json_object_get(expected, is->name)), declaration_at(t, i).name);
    same_int(v, field, is->value, declaration_at(t, i).kind);
    same_bytes(v, field, text_or_empty(v, field, expected, "type"), declaration_at(t, i).type);
    same_bytes(v, field, text_or_empty(v, field, expected, "source"), declaration_at(t, i).source);
    same_bytes(v, field, text_or_empty(v, field, expected, "routing_key"), declaration_at(t, i).routing_key);
    const json_t *wait = json_object_get(expected, "wait_ms");
    same_int(v, field, wait ? vector_int(v, field, wait) : 0, declaration_at(t, i).rung_ms);
    same_int(v, field, json_is_true(json_object_get(expected, "on_demand")), declaration_at(t, i).on_demand);
    compare_arguments(v, field, json_object_get(expected, "arguments"), t, i);
}

static void compare_declarations(vector *v, const bh_topology *t)
{
    const json_t *expected = json_object_get(v->expect, "declarations");
    if (!expected)
        return;
    for (size_t i = 0; i < json_array_size(expected); i++) {
        if (i >= view_of(t).declaration_count)
            vector_fail(v, "declarations", "%zu expected, got only %zu", json_array_size(expected), i);
        compare_declaration(v, json_array_get(expected, i), t, i);
    }
    same_int(v, "number of declarations", (int64_t)json_array_size(expected), (int64_t)view_of(t).declaration_count);
}

/* --- Rungs
 * ------------------------------------------------------------------------------------------------------ */

static void compare_numbers(vector *v, const char *key, const int64_t *got, size_t count)
{
    const json_t *expected = json_object_get(v->expect, key);
    if (!expected)
        return;
    for (size_t i = 0; i < json_array_size(expected) && i < count; i++)
        same_int(v, key, vector_int(v, key, json_array_get(expected, i)), got[i]);
    same_int(v, key, (int64_t)json_array_size(expected), (int64_t)count);
}

static void compare_rungs(vector *v, const bh_topology *t)
{
    int64_t rungs[BH_TOPOLOGY_MOST_RUNGS];
    size_t count = rung_count(t);
    if (count > BH_TOPOLOGY_MOST_RUNGS)
        vector_fail(v, "rungs", "%zu of them, more than the limit", count);
    for (size_t i = 0; i < count; i++)
        rungs[i] = rung_ms(t, i);
    compare_numbers(v, "rungs", rungs, count);

    /* Each rung is an exchange, a queue and a binding. */
    int64_t on_demand[1024];
    size_t found = 0;
    size_t declared = 0;
    int64_t before = 0;
    for (size_t i = 0; i < view_of(t).declaration_count; i++) {
        if (declaration_at(t, i).kind != BH_DECLARE_QUEUE || declaration_at(t, i).rung_ms == 0)
            continue;
        if (declaration_at(t, i).rung_ms == before) /* another stripe */
            continue;
        before = declaration_at(t, i).rung_ms;
        if (!declaration_at(t, i).on_demand) {
            if (declared >= count || declaration_at(t, i).rung_ms != rungs[declared++])
                vector_fail(v, "rungs", "%" PRId64 " is declared and not listed", declaration_at(t, i).rung_ms);
        } else if (found < sizeof on_demand / sizeof on_demand[0]) {
            on_demand[found++] = declaration_at(t, i).rung_ms;
        }
    }
    if (declared != count)
        vector_fail(v, "rungs", "%zu are listed and %zu declared", count, declared);
    compare_numbers(v, "on_demand_rungs", on_demand, found);
}

/* --- Preview
 * ---------------------------------------------------------------------------------------------------- */

static void compare_preview(vector *v, const bh_topology *t, const bh_policy *p)
{
    const json_t *rows = json_object_get(v->expect, "preview");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_array_size(row) != 6)
            vector_fail(v, "preview", "a row must be [attempt, lowest, mean, highest, total, rungs]");
        int64_t attempt = vector_int(v, "preview", json_array_get(row, 0));
        const int64_t got[] = {preview_at(t, p, attempt).lowest_ms, preview_at(t, p, attempt).mean_ms,
                               preview_at(t, p, attempt).highest_ms, preview_at(t, p, attempt).total_ms,
                               (int64_t)preview_at(t, p, attempt).spread};
        for (size_t column = 0; column < 5; column++)
            same_int(v, "preview", vector_int(v, "preview", json_array_get(row, column + 1)), got[column]);
        double sum = 0;
        size_t with_share = 0;
        for (size_t rung = 0; rung < rung_count(t); rung++) {
            sum += bh_topology_share(t, p, attempt, rung);
            with_share += bh_topology_share(t, p, attempt, rung) > 1e-12;
        }
        if (rung_count(t) > 0 && (sum < 0.999999 || sum > 1.000001))
            vector_fail(v, "preview", "the shares of all rungs make %f", sum);
        if (settings_of(p).jitter != BH_JITTER_DECORRELATED)
            same_int(v, "preview, rungs with a share", got[4], (int64_t)with_share);
    }
    const json_t *shares = json_object_get(v->expect, "shares");
    for (size_t i = 0; i < json_array_size(shares); i++) {
        const json_t *row = json_array_get(shares, i);
        int64_t attempt = vector_int(v, "shares", json_array_get(row, 0));
        int64_t rung = vector_int(v, "shares", json_array_get(row, 1));
        size_t at = 0;
        while (at < rung_count(t) && rung_ms(t, at) != rung)
            at++;
        double want = vector_double(v, "shares", json_array_get(row, 2));
        double got = bh_topology_share(t, p, attempt, at);
        v->checks++;
        if (got < want - 0.0005 || got > want + 0.0005)
            vector_fail(v, "shares", "%" PRId64 " ms: expected %f, got %f", rung, want, got);
    }
}

/* --- Brokers and definitions
 * ------------------------------------------------------------------------------------ */

static void compare_brokers(vector *v, bh_topology *t)
{
    const json_t *brokers = json_object_get(v->expect, "brokers");
    for (size_t i = 0; i < json_array_size(brokers); i++) {
        const json_t *row = json_array_get(brokers, i);
        if (json_array_size(row) < 3)
            vector_fail(v, "brokers", "a row must be [product, version, status] and texts of the error");
        bh_bytes version = vector_bytes(v, "brokers", json_array_get(row, 1));
        bh_status expected = vector_status(v, json_array_get(row, 2));
        bh_status got = bh_topology_check_broker(t, vector_bytes(v, "brokers", json_array_get(row, 0)), version);
        v->checks++;
        if (expected != got)
            vector_fail(v, "brokers", "%s: expected %s, got %s: %s", vector_show(version),
                        bh_status_name(expected).data, bh_status_name(got).data, vector_show(bh_topology_error(t)));
        for (size_t text = 3; text < json_array_size(row); text++) {
            const char *part = json_string_value(json_array_get(row, text));
            if (!strstr(bh_topology_error(t).data, part))
                vector_fail(v, "brokers", "%s: \"%s\" is not in %s", vector_show(version), part,
                            vector_show(bh_topology_error(t)));
        }
    }
}

static void compare_definitions(vector *v, bh_topology *t)
{
    const json_t *expected = json_object_get(v->expect, "definitions");
    if (!expected)
        return;
    vector_keys(v, "definitions", expected, "vhost json status");
    const json_t *vhost = json_object_get(expected, "vhost");
    bh_status status = bh_topology_export(t, vhost ? vector_bytes(v, "vhost", vhost) : bh_str("/"));
    same_int(v, "definitions, status", vector_status(v, json_object_get(expected, "status")), status);
    if (status)
        return;
    bh_bytes text = bh_topology_definitions(t);
    json_error_t error;
    json_t *got = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!got)
        vector_fail(v, "definitions", "no JSON, %s at byte %d: %s", error.text, error.position, text.data);
    v->checks++;
    if (!json_equal(json_object_get(expected, "json"), got)) {
        char *sorted = json_dumps(got, JSON_SORT_KEYS | JSON_COMPACT);
        char *wanted = json_dumps(json_object_get(expected, "json"), JSON_SORT_KEYS | JSON_COMPACT);
        vector_fail(v, "definitions", "expected %s, got %s", wanted, sorted);
    }
    json_decref(got);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "policy topology",
                 "status refused_by error queue strategy parked_queue worst_lateness_ms rungs on_demand_rungs "
                 "declarations brokers definitions preview shares");
    bh_policy *p = NULL;
    bh_topology *t = NULL;
    const char *field = "";
    ck_assert_int_eq(bh_policy_new(&p), BH_OK);
    if (vector_fill_policy(v, vector_get(v, "policy"), p, &field))
        vector_fail(v, field, "was refused: %s", bh_policy_error(p).data);
    bh_status status = vector_new_topology(v, vector_get(v, "topology"), &t, &field);
    if (!status) {
        /* Twice: building replaces the topology that was built before. */
        bh_topology_build(t, p);
        status = bh_topology_build(t, p);
        field = "build";
    }
    if (expect_status(v, status, t ? bh_topology_error(t) : bh_str(""))) {
        expect_bytes(v, v->expect, "queue", view_of(t).queue);
        expect_name(v, v->expect, "strategy", vector_strategies, view_of(t).settings.strategy);
        expect_bytes(v, v->expect, "parked_queue", view_of(t).parked_queue);
        expect_int(v, v->expect, "worst_lateness_ms", view_of(t).worst_lateness_ms);
        compare_declarations(v, t);
        compare_rungs(v, t);
        compare_preview(v, t, p);
        compare_brokers(v, t);
        compare_definitions(v, t);
    } else {
        const json_t *refused_by = json_object_get(v->expect, "refused_by");
        same_bytes(v, "refused_by", refused_by ? vector_bytes(v, "refused_by", refused_by) : bh_str("build"),
                   bh_str(field));
        if (t) {
            expect_error(v, v->expect, bh_topology_error(t));
            same_int(v, "declarations after a failure", 0, (int64_t)view_of(t).declaration_count);
        } else if (json_object_get(v->expect, "error")) {
            vector_fail(v, "error", "there is no topology to ask");
        }
    }
    bh_topology_free(t);
    bh_policy_free(p);
    vector_end(v);
}
END_TEST

/* --- Calls
 * ------------------------------------------------------------------------------------------------------ */

static bh_policy *p;
static bh_topology *t;

static void set_up(void)
{
    ck_assert_int_eq(bh_policy_new(&p), BH_OK);
    ck_assert_int_eq(bh_topology_new(&t, bh_str("orders")), BH_OK);
}

static void tear_down(void)
{
    bh_topology_free(t);
    bh_policy_free(p);
}

START_TEST(missing_arguments_are_refused)
{
    bh_bytes text = bh_str("a");
    ck_assert_int_eq(bh_topology_new(NULL, text), BH_ERR_ARGUMENT);
    bh_topology_settings settings;
    bh_topology_defaults(&settings);
    bh_topology_defaults(NULL);
    ck_assert_int_eq(bh_topology_set(NULL, &settings), BH_ERR_ARGUMENT);
    ck_assert_int_eq(preview_at(NULL, p, 1).lowest_ms, 0);
    ck_assert_int_eq(preview_at(t, p, 1).lowest_ms, 0); /* not built */
    ck_assert_uint_eq(preview_at(t, NULL, 1).spread, 0);
    ck_assert_int_eq(add_string_argument(NULL, text, text), BH_ERR_ARGUMENT);
    ck_assert_int_eq(add_int_argument(NULL, text, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_add_policy(NULL, p), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_add_policy(t, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_build(NULL, p), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_build(t, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_check_broker(NULL, text, text), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_export(NULL, text), BH_ERR_ARGUMENT);
    bh_topology_free(NULL);
}
END_TEST

START_TEST(numbers_that_are_none_of_the_names_are_refused)
{
    ck_assert_int_eq(topology_set_strategy(t, (bh_strategy)99), BH_ERR_ARGUMENT);
    ck_assert_int_eq(topology_set_queue_type(t, (bh_queue_type)99), BH_ERR_ARGUMENT);
    ck_assert_int_eq(topology_set_series(t, (bh_series)7), BH_ERR_ARGUMENT);
    ck_assert_int_eq(topology_declare_work_queue(t, (bh_queue_type)99), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    ck_assert_int_eq(view_of(t).settings.strategy, BH_STRATEGY_LADDER);
}
END_TEST

START_TEST(a_further_policy_that_contradicts_itself_is_refused)
{
    ck_assert_int_eq(policy_set_kind(p, BH_KIND_STEPS), BH_OK);
    ck_assert_int_eq(bh_topology_add_policy(t, p), BH_ERR_POLICY);
    ck_assert_ptr_nonnull(strstr(bh_topology_error(t).data, "no step is given"));
    ck_assert_int_eq(policy_set_kind(p, BH_KIND_EXPONENTIAL), BH_OK);
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
}
END_TEST

START_TEST(a_further_policy_is_copied)
{
    bh_policy *slow;
    ck_assert_int_eq(bh_policy_new(&slow), BH_OK);
    ck_assert_int_eq(policy_set_kind(slow, BH_KIND_FIXED), BH_OK);
    ck_assert_int_eq(policy_set_jitter(slow, BH_JITTER_NONE, 0), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(slow, 1234), BH_OK);
    ck_assert_int_eq(bh_topology_add_policy(t, slow), BH_OK);
    bh_policy_free(slow);
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    size_t at = 0;
    while (at < rung_count(t) && rung_ms(t, at) != 1234)
        at++;
    ck_assert_uint_lt(at, rung_count(t));
}
END_TEST

START_TEST(what_needs_a_built_topology_says_so)
{
    ck_assert_uint_eq(view_of(t).declaration_count, 0);
    ck_assert_int_eq(bh_topology_check_broker(t, bh_str("RabbitMQ"), bh_str("4.3.6")), BH_ERR_STATE);
    ck_assert_int_eq(bh_topology_export(t, bh_str("/")), BH_ERR_STATE);
    ck_assert_str_eq(bh_topology_definitions(t).data, "");
}
END_TEST

START_TEST(an_argument_that_is_given_twice_is_not_blamed_on_the_strategy)
{
    ck_assert_int_eq(topology_declare_work_queue(t, BH_QUEUE_QUORUM), BH_OK);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(add_int_argument(t, bh_str("x-max-length"), 10), BH_OK);
    ck_assert_int_eq(bh_topology_build(t, p), BH_ERR_STRATEGY);
    ck_assert_str_eq(bh_topology_error(t).data, "the work queue's argument x-max-length is given twice: leave one out");
}
END_TEST

START_TEST(a_refused_build_leaves_no_declarations)
{
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    ck_assert_uint_gt(view_of(t).declaration_count, 0);
    ck_assert_int_eq(topology_set_strategy(t, BH_STRATEGY_NATIVE), BH_OK);
    ck_assert_int_eq(bh_topology_build(t, p), BH_ERR_STRATEGY);
    ck_assert_uint_eq(view_of(t).declaration_count, 0);
    ck_assert_uint_eq(rung_count(t), 0);
    ck_assert_int_eq(bh_topology_export(t, bh_str("/")), BH_ERR_STATE);
    ck_assert_int_eq(topology_set_strategy(t, BH_STRATEGY_LADDER), BH_OK);
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    ck_assert_uint_gt(view_of(t).declaration_count, 0);
}
END_TEST

START_TEST(the_unroutable_queue_is_the_namespaces)
{
    static const struct {
        bh_strategy strategy;
        bh_queue_type type;
        const char *ns, *name;
    } cases[] = {{BH_STRATEGY_LADDER, BH_QUEUE_QUORUM, "", "backhop.unroutable"},
                 {BH_STRATEGY_LADDER, BH_QUEUE_CLASSIC, "", "backhop.classic.unroutable"},
                 {BH_STRATEGY_MESSAGE_TTL, BH_QUEUE_QUORUM, "acme", "acme.unroutable"},
                 {BH_STRATEGY_REJECT, BH_QUEUE_QUORUM, "", "backhop.unroutable"},
                 {BH_STRATEGY_NATIVE, BH_QUEUE_QUORUM, "", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bh_policy *policy;
        bh_topology *topology;
        int is_declared = 0;
        ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
        policy_set_kind(policy, BH_KIND_FIXED);
        policy_set_jitter(policy, BH_JITTER_NONE, 0);
        ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
        topology_set_strategy(topology, cases[i].strategy);
        topology_set_queue_type(topology, cases[i].type);
        if (cases[i].ns[0])
            topology_set_name_space(topology, bh_str(cases[i].ns));
        ck_assert_str_eq(view_of(topology).unroutable_queue.data, "");
        ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
        ck_assert_str_eq(view_of(topology).unroutable_queue.data, cases[i].name);
        for (size_t at = 0; at < view_of(topology).declaration_count; at++)
            is_declared |= declaration_at(topology, at).kind == BH_DECLARE_QUEUE &&
                           strcmp(declaration_at(topology, at).name.data, cases[i].name) == 0;
        ck_assert_int_eq(is_declared, cases[i].name[0] != '\0');
        bh_topology_free(topology);
        bh_policy_free(policy);
    }
    ck_assert_str_eq(view_of(NULL).unroutable_queue.data, "");
}
END_TEST

START_TEST(a_message_is_the_work_queues_by_the_header_that_names_it)
{
    static const char *const queues[] = {"orders", "orders2", "order", "Orders", ""};
    bh_topology *topology;
    bh_delivery *delivery;
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    ck_assert_int_eq(bh_topology_owns(topology, delivery), 0);
    for (size_t i = 0; i < sizeof queues / sizeof queues[0]; i++) {
        bh_delivery_clear(delivery);
        push_text(delivery, "backhop-queue", queues[i]);
        ck_assert_int_eq(bh_topology_owns(topology, delivery), i == 0);
    }
    bh_delivery_clear(delivery);
    push_int(delivery, "backhop-queue", 1);
    ck_assert_int_eq(bh_topology_owns(topology, delivery), 0);
    ck_assert_int_eq(bh_topology_owns(NULL, delivery), 0);
    ck_assert_int_eq(bh_topology_owns(topology, NULL), 0);
    bh_delivery_free(delivery);
    bh_topology_free(topology);
}
END_TEST

/* W2: each copy of a retry that a federation of Backhop's exchanges published became a message of
 * its own. */
START_TEST(a_copy_that_federation_made_of_a_retry_is_not_the_work_queues)
{
    static const struct {
        const char *header, *field, *exchange;
        int is_own;
    } rows[] = {{"x-received-from", "exchange", "backhop.return", 0},
                {"x-received-from", "exchange", "backhop.wait.1000", 0},
                {"x-received-from", "exchange", "backhop.unroutable", 0},
                {"x-received-from", "exchange", "orders", 1},
                {"x-received-from", "exchange", "other.return", 1},
                {"x-received-from", "uri", "backhop.return", 1},
                {"x-sent-from", "exchange", "backhop.return", 1}};
    bh_policy *policy;
    bh_topology *topology;
    bh_delivery *delivery;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&topology, bh_str("orders")), BH_OK);
    ck_assert_int_eq(bh_topology_build(topology, policy), BH_OK);
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bh_delivery_clear(delivery);
        bh_delivery_push(
            delivery, &(bh_value){.type = BH_TYPE_STRING, .name = bh_str("backhop-queue"), .string = bh_str("orders")});
        bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_ARRAY, .name = bh_str(rows[i].header)});
        bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_TABLE, .name = bh_str("")});
        bh_delivery_push(delivery, &(bh_value){.type = BH_TYPE_STRING, .name = bh_str("vhost"), .string = bh_str("/")});
        bh_delivery_push(
            delivery,
            &(bh_value){.type = BH_TYPE_STRING, .name = bh_str(rows[i].field), .string = bh_str(rows[i].exchange)});
        bh_delivery_end(delivery);
        bh_delivery_end(delivery);
        ck_assert_msg(bh_topology_owns(topology, delivery) == rows[i].is_own, "row %zu", i);
    }
    bh_delivery_free(delivery);
    bh_topology_free(topology);
    bh_policy_free(policy);
}
END_TEST

START_TEST(an_index_out_of_range_gives_an_empty_declaration)
{
    ck_assert_int_eq(bh_topology_build(t, p), BH_OK);
    const size_t indexes[] = {view_of(t).declaration_count, (size_t)-1};
    for (size_t i = 0; i < 2; i++) {
        bh_declaration it = {.kind = BH_DECLARE_QUEUE, .name = bh_str("a"), .argument_count = 1};
        ck_assert_int_eq(bh_topology_declaration(t, indexes[i], &it), BH_ERR_ARGUMENT);
        ck_assert_int_eq(it.kind, BH_DECLARE_NONE);
        ck_assert_uint_eq(it.name.size, 0);
        ck_assert_uint_eq(it.type.size, 0);
        ck_assert_uint_eq(it.source.size, 0);
        ck_assert_uint_eq(it.routing_key.size, 0);
        ck_assert_int_eq(it.rung_ms, 0);
        ck_assert_int_eq(it.on_demand, 0);
        ck_assert_int_eq(it.passive, 0);
        ck_assert_uint_eq(it.argument_count, 0);
        ck_assert_ptr_null(it.arguments);
        ck_assert_int_eq(rung_ms(t, indexes[i]), 0);
    }
    ck_assert_int_eq(bh_topology_declaration(t, 0, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_topology_declaration(NULL, 0, &(bh_declaration){0}), BH_ERR_ARGUMENT);
}
END_TEST

Suite *suite_topology(void)
{
    all = vectors_load("topology");
    Suite *suite = suite_create("topology");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, missing_arguments_are_refused);
    tcase_add_test(calls, numbers_that_are_none_of_the_names_are_refused);
    tcase_add_test(calls, a_further_policy_that_contradicts_itself_is_refused);
    tcase_add_test(calls, a_further_policy_is_copied);
    tcase_add_test(calls, what_needs_a_built_topology_says_so);
    tcase_add_test(calls, an_argument_that_is_given_twice_is_not_blamed_on_the_strategy);
    tcase_add_test(calls, a_refused_build_leaves_no_declarations);
    tcase_add_test(calls, the_unroutable_queue_is_the_namespaces);
    tcase_add_test(calls, a_message_is_the_work_queues_by_the_header_that_names_it);
    tcase_add_test(calls, a_copy_that_federation_made_of_a_retry_is_not_the_work_queues);
    tcase_add_test(calls, an_index_out_of_range_gives_an_empty_declaration);
    suite_add_tcase(suite, calls);
    return suite;
}
