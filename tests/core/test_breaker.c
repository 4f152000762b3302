#include "breaker_model.h"
#include "suites.h"
#include "vectors.h"

#include <backhop/breaker.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_NAMES 16
#define ROW_KEYS                                                                                                       \
    "at_ms open_until_ms close disable permit record calls kind duration_ms retry_after_ms whole_queue error counts "  \
    "refused_until_ms state reason until_ms limit pauses generation window"

static vectors all;

static const vector_name states[] = {
    {"closed", BH_BREAKER_CLOSED},
    {"open", BH_BREAKER_OPEN},
    {"half-open", BH_BREAKER_HALF_OPEN},
    {"disabled", BH_BREAKER_DISABLED},
    {NULL, 0},
};

static const vector_name kinds[] = {
    {"success", BH_CALL_SUCCESS},
    {"failure", BH_CALL_FAILURE},
    {"ignored", BH_CALL_IGNORED},
    {"throttled", BH_CALL_THROTTLED},
    {NULL, 0},
};

typedef struct {
    vector *v;
    bh_breaker *breaker;
    int64_t now_ms;
    struct {
        const char *name;
        bh_permit permit;
    } permits[MOST_NAMES];
    size_t count;
} sequence;

/* A time of a row; null is BH_BREAKER_NEVER. */
static int64_t time_of(vector *v, const char *field, const json_t *json)
{
    return json_is_null(json) ? BH_BREAKER_NEVER : vector_int(v, field, json);
}

static bh_permit granted(sequence *self)
{
    bh_permit permit;
    bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
    if (permit.generation == 0)
        vector_fail(self->v, "permit", "was refused at %lld ms", (long long)self->now_ms);
    return permit;
}

static int64_t number_of(vector *v, const json_t *row, const char *key)
{
    const json_t *json = json_object_get(row, key);
    return json ? vector_int(v, key, json) : 0;
}

static bh_call call_of(vector *v, const json_t *row)
{
    const json_t *kind = json_object_get(row, "kind");
    const json_t *error = json_object_get(row, "error");
    return (bh_call){
        .kind = kind ? (bh_call_kind)vector_name_value(v, "kind", kind, kinds) : BH_CALL_SUCCESS,
        .duration_ms = number_of(v, row, "duration_ms"),
        .retry_after_ms = number_of(v, row, "retry_after_ms"),
        .whole_queue = json_is_true(json_object_get(row, "whole_queue")),
        .error_class = error ? vector_bytes(v, "error", error) : bh_str(""),
    };
}

static void record(sequence *self, const json_t *row, const bh_permit *permit)
{
    bh_call call = call_of(self->v, row);
    const json_t *counts = json_object_get(row, "counts");
    same_int(self->v, "counts", counts ? json_is_true(counts) : 1,
             bh_breaker_record(self->breaker, bh_str(""), permit, &call, self->now_ms));
}

static void make_calls(sequence *self, const json_t *row)
{
    const json_t *names = json_object_get(row, "permit");
    for (size_t i = 0; i < json_array_size(names); i++) {
        ck_assert_uint_lt(self->count, MOST_NAMES);
        self->permits[self->count].name = json_string_value(json_array_get(names, i));
        self->permits[self->count++].permit = granted(self);
    }
    names = json_object_get(row, "record");
    for (size_t i = 0; i < json_array_size(names); i++) {
        size_t at = 0;
        while (at < self->count && strcmp(self->permits[at].name, json_string_value(json_array_get(names, i))) != 0)
            at++;
        if (at == self->count)
            vector_fail(self->v, "record", "names no permit");
        record(self, row, &self->permits[at].permit);
    }
    for (int64_t i = number_of(self->v, row, "calls"); i > 0; i--) {
        bh_permit permit = granted(self);
        record(self, row, &permit);
    }
}

static void compare_row(sequence *self, const json_t *row)
{
    vector *v = self->v;
    bh_breaker_view view;
    bh_breaker_read(self->breaker, bh_str(""), self->now_ms, &view);
    const json_t *json = json_object_get(row, "until_ms");
    if (json)
        same_int(v, "until_ms", time_of(v, "until_ms", json), view.until_ms);
    expect_name(v, row, "state", states, view.state);
    expect_bytes(v, row, "reason", bh_str(view.reason));
    expect_int(v, row, "limit", view.limit);
    expect_int(v, row, "pauses", view.pauses);
    expect_int(v, row, "generation", view.generation);
    const json_t *window = json_object_get(row, "window");
    const int64_t got[] = {view.calls, view.failures, view.slow};
    for (size_t i = 0; i < json_array_size(window); i++)
        same_int(v, "window", vector_int(v, "window", json_array_get(window, i)), got[i]);
}

static void play(sequence *self, const json_t *row)
{
    vector *v = self->v;
    vector_keys(v, "a row", row, ROW_KEYS);
    if (json_object_get(row, "at_ms"))
        self->now_ms = number_of(v, row, "at_ms");
    const json_t *until = json_object_get(row, "open_until_ms");
    if (until)
        same_int(v, "open", BH_OK,
                 bh_breaker_open(self->breaker, bh_str(""), time_of(v, "open_until_ms", until), self->now_ms));
    if (json_object_get(row, "close"))
        bh_breaker_close(self->breaker, bh_str(""), self->now_ms);
    if (json_object_get(row, "disable"))
        bh_breaker_disable(self->breaker, bh_str(""), self->now_ms);
    make_calls(self, row);
    const json_t *refused = json_object_get(row, "refused_until_ms");
    if (refused) {
        bh_permit permit;
        bh_breaker_permit(self->breaker, bh_str(""), self->now_ms, &permit);
        same_int(v, "refused", 0, permit.generation);
        same_int(v, "refused_until_ms", time_of(v, "refused_until_ms", refused), permit.until_ms);
    }
    compare_row(self, row);
}

static void fill_settings(vector *v, bh_breaker_settings *settings)
{
    bh_breaker_defaults(settings);
    const struct {
        const char *name;
        int64_t *field;
    } fields[] = {
        {"window_ms", &settings->window_ms},
        {"least_calls", &settings->least_calls},
        {"failure_percent", &settings->failure_percent},
        {"row_failures", &settings->row_failures},
        {"slow_ms", &settings->slow_ms},
        {"slow_percent", &settings->slow_percent},
        {"probe_successes", &settings->probe_successes},
        {"probe_timeout_ms", &settings->probe_timeout_ms},
        {"ramp_calls", &settings->ramp_calls},
        {"throttled_opens", &settings->throttled_opens},
    };
    const json_t *given = vector_get(v, "settings");
    if (!given)
        return;
    vector_keys(v, "settings", given,
                "window_ms least_calls failure_percent row_failures slow_ms slow_percent probe_successes "
                "probe_timeout_ms ramp_calls throttled_opens");
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (json_object_get(given, fields[i].name))
            *fields[i].field = number_of(v, given, fields[i].name);
}

/* The pauses of a case: 10 s each if it has none, NULL (the library's) if it has null. */
static bh_policy *make_pauses(vector *v)
{
    const json_t *given = vector_get(v, "pauses");
    if (json_is_null(given))
        return NULL;
    bh_policy *pauses = NULL;
    const char *field = "";
    ck_assert_int_eq(bh_policy_new(&pauses), BH_OK);
    if (given) {
        ck_assert_int_eq(vector_fill_policy(v, given, pauses, &field), BH_OK);
        return pauses;
    }
    ck_assert_int_eq(policy_set_kind(pauses, BH_KIND_FIXED), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(pauses, 10000), BH_OK);
    ck_assert_int_eq(policy_set_jitter(pauses, BH_JITTER_NONE, 0), BH_OK);
    return pauses;
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "settings pauses random", "status error history");
    bh_breaker_settings settings;
    fill_settings(v, &settings);
    bh_policy *pauses = make_pauses(v);
    settings.pauses = pauses;
    const json_t *given = vector_get(v, "random");
    bh_bytes random = given ? vector_bytes(v, "random", given) : (bh_bytes){"\0\0\0\0\0\0\0", 8};
    sequence self = {.v = v};
    bh_status status = bh_breaker_new(&self.breaker, &settings, random);
    bh_policy_free(pauses);
    if (expect_status(v, status, bh_breaker_settings_error(&settings))) {
        const json_t *history = json_object_get(v->expect, "history");
        for (size_t i = 0; i < json_array_size(history); i++)
            play(&self, json_array_get(history, i));
    } else {
        ck_assert_ptr_null(self.breaker);
        expect_error(v, v->expect, bh_breaker_settings_error(&settings));
    }
    bh_breaker_free(self.breaker);
    vector_end(v);
}
END_TEST

START_TEST(missing_and_foreign_arguments_change_nothing)
{
    bh_breaker_settings settings;
    bh_breaker *breaker = NULL;
    bh_permit permit = {1, 1, 1};
    bh_breaker_view view;
    bh_call call = {.kind = BH_CALL_SUCCESS};
    bh_bytes random = {"12345678", 8};
    bh_breaker_defaults(NULL);
    bh_breaker_defaults(&settings);
    ck_assert_uint_gt(bh_breaker_settings_error(NULL).size, 0);
    ck_assert_int_eq(bh_breaker_new(NULL, &settings, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_new(&breaker, NULL, random), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_new(&breaker, &settings, bh_str("1234567")), BH_ERR_ARGUMENT);
    bh_breaker_permit(NULL, bh_str(""), 0, &permit);
    ck_assert_int_eq(permit.generation, 0);
    ck_assert_int_eq(bh_breaker_record(NULL, bh_str(""), &permit, &call, 0), 0);
    ck_assert_int_eq(bh_breaker_open(NULL, bh_str(""), 0, 0), BH_ERR_ARGUMENT);
    bh_breaker_close(NULL, bh_str(""), 0);
    bh_breaker_disable(NULL, bh_str(""), 0);
    bh_breaker_read(NULL, bh_str(""), 0, &view);
    bh_breaker_free(NULL);

    ck_assert_int_eq(bh_breaker_new(&breaker, &settings, random), BH_OK);
    bh_breaker_permit(breaker, bh_str(""), 0, NULL);
    bh_breaker_read(breaker, bh_str(""), 0, NULL);
    ck_assert_int_eq(bh_breaker_open(breaker, bh_str(""), -2, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_breaker_open(breaker, bh_str(""), INT64_MAX, 0), BH_ERR_ARGUMENT);
    bh_breaker_permit(breaker, bh_str(""), 0, &permit);
    ck_assert_int_eq(bh_breaker_record(breaker, bh_str(""), NULL, &call, 0), 0);
    ck_assert_int_eq(bh_breaker_record(breaker, bh_str(""), &permit, NULL, 0), 0);
    ck_assert_int_eq(bh_breaker_record(breaker, bh_str(""), &(bh_permit){permit.generation, 2, 0}, &call, 0), 0);
    ck_assert_int_eq(bh_breaker_record(breaker, bh_str(""), &(bh_permit){permit.generation, INT64_MIN, 0}, &call, 0),
                     0);
    call.kind = (bh_call_kind)99;
    ck_assert_int_eq(bh_breaker_record(breaker, bh_str(""), &permit, &call, 0), 0);
    call.kind = BH_CALL_SUCCESS;
    ck_assert_int_eq(bh_breaker_record(breaker, bh_str(""), &permit, &call, INT64_MAX), 1);
    bh_breaker_read(breaker, bh_str(""), INT64_MIN, &view);
    ck_assert_int_eq(view.state, BH_BREAKER_CLOSED);
    bh_breaker_free(breaker);
}
END_TEST

START_TEST(any_history_keeps_the_promises)
{
    uint64_t state = (uint64_t)_i;
    char name[32];
    snprintf(name, sizeof name, "seed %d", _i);
    breaker_model_play(draw_by_seed, &state, 4000, name);
}
END_TEST

Suite *suite_breaker(void)
{
    all = vectors_load("breaker");
    Suite *suite = suite_create("breaker");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, missing_and_foreign_arguments_change_nothing);
    tcase_add_loop_test(calls, any_history_keeps_the_promises, 0, 200);
    suite_add_tcase(suite, calls);
    return suite;
}
