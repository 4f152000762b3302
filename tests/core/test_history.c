#include "../reading.h"
#include "suites.h"
#include "vectors.h"

static vectors all;

static const vector_name sources[] = {
    {"none", BH_SOURCE_NONE},
    {"backhop", BH_SOURCE_BACKHOP},
    {"legacy", BH_SOURCE_LEGACY},
    {"x-death", BH_SOURCE_X_DEATH},
    {"delivery-count", BH_SOURCE_DELIVERY_COUNT},
    {NULL, 0},
};

static void compare_death(vector *v, const json_t *expected, const bh_history *h, size_t i)
{
    vector_keys(v, "deaths", expected, "queue reason exchange original_expiration times first_time_s routing_keys");
    bh_death death;
    bh_history_death(h, i, &death);
    expect_bytes(v, expected, "queue", death.queue);
    expect_bytes(v, expected, "reason", death.reason);
    expect_bytes(v, expected, "exchange", death.exchange);
    expect_bytes(v, expected, "original_expiration", death.original_expiration);
    expect_int(v, expected, "times", death.count);
    expect_int(v, expected, "first_time_s", death.first_time_s);
    const json_t *keys = json_object_get(expected, "routing_keys");
    if (!keys)
        return;
    same_int(v, "number of routing keys", (int64_t)json_array_size(keys), (int64_t)death.routing_key_count);
    for (size_t k = 0; k < json_array_size(keys); k++)
        same_bytes(v, "routing_keys", vector_bytes(v, "routing_keys", json_array_get(keys, k)),
                   k < death.routing_key_count ? death.routing_keys[k] : bh_str(""));
}

static void compare_place(vector *v, const char *field, const json_t *expected, const bh_death *death)
{
    vector_keys(v, field, expected, "queue reason exchange");
    expect_bytes(v, expected, "queue", death->queue);
    expect_bytes(v, expected, "reason", death->reason);
    expect_bytes(v, expected, "exchange", death->exchange);
}

static int begins_with(bh_bytes text, bh_bytes start)
{
    return text.size > start.size && memcmp(text.data, start.data, start.size) == 0;
}

/* Each problem begins with a name of the list, and each name of the list begins a problem. Default:
 * no problem. */
static void compare_problems(vector *v, const bh_history *h)
{
    const json_t *expected = json_object_get(v->expect, "problems");
    if (json_is_string(expected) && strcmp(json_string_value(expected), "any") == 0)
        return;
    size_t count = problem_count(h);
    same_int(v, "no more problems than the limit", 1, count <= BH_HISTORY_MOST_PROBLEMS);
    for (size_t p = 0; p < count; p++) {
        int found = 0;
        for (size_t e = 0; !found && e < json_array_size(expected); e++)
            found = begins_with(bh_history_problem(h, p), vector_bytes(v, "problems", json_array_get(expected, e)));
        if (!found)
            vector_fail(v, "problems", "unexpected: %s", vector_show(bh_history_problem(h, p)));
    }
    for (size_t e = 0; e < json_array_size(expected); e++) {
        bh_bytes name = vector_bytes(v, "problems", json_array_get(expected, e));
        int found = 0;
        for (size_t p = 0; !found && p < count; p++)
            found = begins_with(bh_history_problem(h, p), name);
        if (!found)
            vector_fail(v, "problems", "none begins with %s", vector_show(name));
        v->checks++;
    }
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(
        v, "delivery policy topology legacy_counter wait_queues",
        "status attempts source first_failure_ms last_delay_ms last_error id exchange routing_key parked "
        "delivery_count acquired_count crashes deferrals replays deaths death_count first_death last_death problems");
    bh_delivery *d = NULL;
    bh_policy *p = NULL;
    bh_topology *t = NULL;
    bh_history *h = NULL;
    const char *field = "";
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_policy_new(&p), BH_OK);
    ck_assert_int_eq(bh_history_new(&h), BH_OK);
    if (vector_fill_delivery(v, vector_get(v, "delivery"), d))
        vector_fail(v, "delivery", "could not be filled");
    if (vector_get(v, "topology")) {
        if (vector_fill_policy(v, vector_get(v, "policy"), p, &field) ||
            vector_new_topology(v, vector_get(v, "topology"), &t, &field) || bh_topology_build(t, p))
            vector_fail(v, "topology", "could not be built: %s", t ? bh_topology_error(t).data : field);
    } else if (vector_get(v, "policy")) {
        vector_fail(v, "policy", "means nothing without a topology");
    }
    vector_fill_history(v, h);
    /* Twice: reading replaces the history that was read before. */
    bh_history_read(h, d, t);
    if (expect_status(v, bh_history_read(h, d, t), bh_str(""))) {
        expect_int(v, v->expect, "attempts", past_of(h).attempts);
        expect_name(v, v->expect, "source", sources, past_of(h).source);
        expect_int(v, v->expect, "first_failure_ms", past_of(h).first_failure_ms);
        expect_int(v, v->expect, "last_delay_ms", past_of(h).last_delay_ms);
        expect_bytes(v, v->expect, "last_error", past_of(h).last_error);
        expect_bytes(v, v->expect, "id", past_of(h).id);
        expect_bytes(v, v->expect, "exchange", past_of(h).exchange);
        expect_bytes(v, v->expect, "routing_key", past_of(h).routing_key);
        expect_bytes(v, v->expect, "parked", past_of(h).parked);
        expect_int(v, v->expect, "delivery_count", past_of(h).delivery_count);
        expect_int(v, v->expect, "acquired_count", past_of(h).acquired_count);
        expect_int(v, v->expect, "crashes", past_of(h).crashes);
        expect_int(v, v->expect, "deferrals", past_of(h).deferrals);
        expect_int(v, v->expect, "replays", past_of(h).replays);
        expect_int(v, v->expect, "death_count", (int64_t)past_of(h).death_count);
        const json_t *deaths = json_object_get(v->expect, "deaths");
        if (deaths)
            same_int(v, "number of deaths", (int64_t)json_array_size(deaths), (int64_t)past_of(h).death_count);
        for (size_t i = 0; i < json_array_size(deaths); i++)
            compare_death(v, json_array_get(deaths, i), h, i);
        bh_death death;
        const json_t *first = json_object_get(v->expect, "first_death");
        if (first) {
            bh_history_death(h, BH_DEATH_FIRST, &death);
            compare_place(v, "first_death", first, &death);
        }
        const json_t *last = json_object_get(v->expect, "last_death");
        if (last) {
            bh_history_death(h, BH_DEATH_LAST, &death);
            compare_place(v, "last_death", last, &death);
        }
        compare_problems(v, h);
    }
    bh_history_free(h);
    bh_topology_free(t);
    bh_policy_free(p);
    bh_delivery_free(d);
    vector_end(v);
}
END_TEST

static bh_delivery *d;
static bh_history *h;

static void set_up(void)
{
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_history_new(&h), BH_OK);
}

static void tear_down(void)
{
    bh_history_free(h);
    bh_delivery_free(d);
}

START_TEST(missing_arguments_are_refused)
{
    ck_assert_int_eq(bh_history_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_history_read(NULL, d, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_history_read(h, NULL, NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_history_set_legacy_counter(NULL, bh_str("x")), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_history_add_wait_queue(NULL, bh_str("x")), BH_ERR_ARGUMENT);
    bh_history_free(NULL);
}
END_TEST

START_TEST(an_open_table_is_refused)
{
    ck_assert_int_eq(push_open(d, BH_TYPE_ARRAY, "x-death"), BH_OK);
    ck_assert_int_eq(push_open(d, BH_TYPE_TABLE, ""), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_ERR_STATE);
    ck_assert_int_eq(bh_delivery_end(d), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_ERR_STATE);
    ck_assert_int_eq(bh_delivery_end(d), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
}
END_TEST

START_TEST(an_index_out_of_range_gives_nothing)
{
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
    const size_t indexes[] = {0, 1, (size_t)-1};
    for (size_t i = 0; i < 3; i++) {
        bh_death death;
        ck_assert_int_eq(bh_history_death(h, indexes[i], &death), BH_ERR_ARGUMENT);
        ck_assert_str_eq(death.queue.data, "");
        ck_assert_str_eq(death.reason.data, "");
        ck_assert_str_eq(death.exchange.data, "");
        ck_assert_str_eq(death.original_expiration.data, "");
        ck_assert_uint_eq(death.routing_key_count, 0);
        ck_assert_int_eq(death.count, 0);
        ck_assert_int_eq(death.first_time_s, -1);
        ck_assert_str_eq(bh_history_problem(h, indexes[i]).data, "");
    }
}
END_TEST

START_TEST(reading_another_delivery_forgets_the_one_before)
{
    ck_assert_int_eq(push_int(d, "backhop-attempts", 3), BH_OK);
    ck_assert_int_eq(push_text(d, "backhop-id", "one"), BH_OK);
    ck_assert_int_eq(push_int(d, "backhop-error", 3), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
    ck_assert_int_eq(past_of(h).attempts, 3);
    ck_assert_uint_eq(problem_count(h), 1);
    bh_delivery_clear(d);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
    ck_assert_int_eq(past_of(h).attempts, 0);
    ck_assert_int_eq(past_of(h).source, BH_SOURCE_NONE);
    ck_assert_str_eq(past_of(h).id.data, "");
    ck_assert_uint_eq(problem_count(h), 0);
}
END_TEST

START_TEST(a_legacy_counter_can_be_taken_back)
{
    ck_assert_int_eq(
        bh_delivery_push(d, &(bh_value){.type = BH_TYPE_INT32, .name = bh_str("x-retry-count"), .integer = 3}), BH_OK);
    ck_assert_int_eq(bh_history_set_legacy_counter(h, bh_str("x-retry-count")), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
    ck_assert_int_eq(past_of(h).attempts, 3);
    ck_assert_int_eq(bh_history_set_legacy_counter(h, bh_str("")), BH_OK);
    ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
    ck_assert_int_eq(past_of(h).attempts, 0);
}
END_TEST

/* Checks the story of these headers: values of digits are whole numbers. */
static void expect_story(const char *const headers[][2], const char *story)
{
    bh_delivery_clear(d);
    for (size_t i = 0; headers[i][0]; i++) {
        char *end;
        long long number = strtoll(headers[i][1], &end, 10);
        if (*end == '\0')
            ck_assert_int_eq(push_int(d, headers[i][0], number), BH_OK);
        else
            ck_assert_int_eq(push_text(d, headers[i][0], headers[i][1]), BH_OK);
    }
    for (int again = 0; again < 2; again++) {
        ck_assert_int_eq(bh_history_read(h, d, NULL), BH_OK);
        ck_assert_str_eq(bh_history_explanation(h).data, story);
    }
}

START_TEST(a_story_tells_all_that_is_known)
{
    ck_assert_str_eq(bh_history_explanation(h).data, "");
    expect_story((const char *const[][2]){{NULL, NULL}}, "It never failed.");
    expect_story(
        (const char *const[][2]){{"backhop-deferrals", "2"}, {NULL, NULL}},
        "It never failed.\n"
        "Its handler or its breaker deferred it 2 times, because the downstream was busy or down. A deferral is no "
        "attempt.");
    expect_story((const char *const[][2]){{"backhop-attempts", "8"},
                                          {"backhop-first-failure", "1700000000000"},
                                          {"backhop-delay", "90000"},
                                          {"backhop-error", "507 queue\nis full"},
                                          {"backhop-parked", "too-old"},
                                          {"backhop-exchange", "cdn"},
                                          {"backhop-routing-key", "purge.image"},
                                          {"backhop-id", "5f0c"},
                                          {"backhop-replays", "2"},
                                          {NULL, NULL}},
                 "It failed 8 times, first at 2023-11-14 22:13:20 UTC.\n"
                 "The last error was: 507 queue\nis full\n"
                 "Its last wait was 1 min 30 s.\n"
                 "It was parked because it was too old for another attempt.\n"
                 "It was first published to exchange \"cdn\" with routing key \"purge.image\".\n"
                 "All its attempts have the id 5f0c.\n"
                 "It was sent back from the parked queue 2 times.");
    ck_assert_str_eq(bh_history_explanation(NULL).data, "");
}
END_TEST

START_TEST(a_story_tells_the_days_of_leap_years)
{
    static const char *const days[][2] = {{"951782400000", "2000-02-29 00:00:00"},
                                          {"951868800000", "2000-03-01 00:00:00"},
                                          {"4107542399000", "2100-02-28 23:59:59"},
                                          {"4107542400000", "2100-03-01 00:00:00"},
                                          {"1735689599000", "2024-12-31 23:59:59"}};
    for (size_t i = 0; i < sizeof days / sizeof days[0]; i++) {
        char story[100];
        snprintf(story, sizeof story, "It failed once, first at %s UTC.", days[i][1]);
        expect_story(
            (const char *const[][2]){{"backhop-attempts", "1"}, {"backhop-first-failure", days[i][0]}, {NULL, NULL}},
            story);
    }
}
END_TEST

START_TEST(a_story_shows_no_bytes_that_are_no_text)
{
    expect_story((const char *const[][2]){{"backhop-error", "\x1b[31mred\r"}, {"backhop-id", "caf\xe9"}, {NULL, NULL}},
                 "It never failed.\nThe last error was: ?[31mred?\nAll its attempts have the id caf?.");
    expect_story((const char *const[][2]){{"backhop-id", "caf\xc3\xa9"}, {NULL, NULL}},
                 "It never failed.\nAll its attempts have the id caf\xc3\xa9.");
}
END_TEST

Suite *suite_history(void)
{
    all = vectors_load("history");
    Suite *suite = suite_create("history");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_checked_fixture(calls, set_up, tear_down);
    tcase_add_test(calls, missing_arguments_are_refused);
    tcase_add_test(calls, an_open_table_is_refused);
    tcase_add_test(calls, an_index_out_of_range_gives_nothing);
    tcase_add_test(calls, reading_another_delivery_forgets_the_one_before);
    tcase_add_test(calls, a_legacy_counter_can_be_taken_back);
    tcase_add_test(calls, a_story_tells_all_that_is_known);
    tcase_add_test(calls, a_story_tells_the_days_of_leap_years);
    tcase_add_test(calls, a_story_shows_no_bytes_that_are_no_text);
    suite_add_tcase(suite, calls);
    return suite;
}
