/* Silence: the vectors of sequences; calls without an object. */
#include "../reading.h"
#include "suites.h"
#include "vectors.h"

#include <backhop/adapter/silence.h>
#include <string.h>

static vectors all;

typedef struct {
    vector *v;
    bh_silence *silence;
    const json_t *row;
    int64_t now_ms;
} sequence;

/* Calls, and returns the event to emit. */
static bh_event_kind call(sequence *self, const json_t *call)
{
    const char *verb = json_string_value(json_array_get(call, 0));
    if (strcmp(verb, "begin") == 0)
        bh_silence_begin(self->silence, self->now_ms);
    else if (strcmp(verb, "check") == 0)
        return bh_silence_check(self->silence, json_array_size(call) > 1, self->now_ms);
    else if (strcmp(verb, "end") == 0)
        return bh_silence_end(self->silence, vector_status(self->v, json_array_get(call, 1)));
    else if (strcmp(verb, "lost") == 0)
        bh_silence_lost(self->silence);
    else
        vector_fail(self->v, "do", "%s is not known", verb);
    return BH_EVENT_LAST;
}

static void compare_event(sequence *self, bh_event_kind kind)
{
    const json_t *expected = json_object_get(self->row, "event");
    if (!expected)
        return;
    const char *name = json_is_null(expected) ? "" : json_string_value(expected);
    if (strcmp(bh_event_name(kind).data, name) != 0)
        vector_fail(self->v, "event", "%s at %lld", bh_event_name(kind).data, (long long)self->now_ms);
    self->v->checks++;
}

static void play_row(sequence *self)
{
    const json_t *due = json_object_get(self->row, "due_ms"), *pause = json_object_get(self->row, "pause_ms");
    const json_t *text = json_object_get(self->row, "text");
    vector_keys(self->v, "history", self->row, "at_ms do event due_ms pause_ms is_silent text");
    if (json_object_get(self->row, "at_ms"))
        self->now_ms = vector_int(self->v, "at_ms", json_object_get(self->row, "at_ms"));
    if (json_object_get(self->row, "do"))
        compare_event(self, call(self, json_object_get(self->row, "do")));
    if (due)
        same_int(self->v, "due_ms", json_is_null(due) ? BH_SILENCE_NEVER : vector_int(self->v, "due_ms", due),
                 silence_view_of(self->silence).due_ms);
    if (pause)
        same_int(self->v, "pause_ms", vector_int(self->v, "pause_ms", pause), silence_view_of(self->silence).pause_ms);
    if (text && strcmp(json_string_value(text), silence_view_of(self->silence).text.data) != 0)
        vector_fail(self->v, "text", "%s", silence_view_of(self->silence).text.data);
    expect_flag(self->v, self->row, "is_silent", silence_view_of(self->silence).is_silent);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "timeout_ms", "history");
    sequence self = {.v = v};
    const json_t *history = json_object_get(v->expect, "history");
    ck_assert_int_eq(bh_silence_new(&self.silence, vector_int(v, "timeout_ms", vector_get(v, "timeout_ms"))), BH_OK);
    for (size_t i = 0; i < json_array_size(history); i++) {
        self.row = json_array_get(history, i);
        play_row(&self);
    }
    bh_silence_free(self.silence);
    vector_end(v);
}
END_TEST

START_TEST(missing_and_foreign_arguments_change_nothing)
{
    bh_silence *silence;
    ck_assert_int_eq(bh_silence_new(NULL, 1000), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_silence_new(&silence, 0), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_silence_new(&silence, 3600001), BH_ERR_ARGUMENT);
    ck_assert_ptr_null(silence);
    bh_silence_begin(NULL, 0);
    bh_silence_lost(NULL);
    ck_assert_int_eq(bh_silence_check(NULL, 0, 0), BH_EVENT_LAST);
    ck_assert_int_eq(bh_silence_end(NULL, BH_OK), BH_EVENT_LAST);
    ck_assert_int_eq(silence_view_of(NULL).due_ms, BH_SILENCE_NEVER);
    ck_assert_int_eq(silence_view_of(NULL).is_silent, 0);
    ck_assert_int_gt(silence_view_of(NULL).pause_ms, 0);
    ck_assert_str_eq(silence_view_of(NULL).text.data, "");
    bh_silence_free(NULL);
}
END_TEST

Suite *suite_silence(void)
{
    all = vectors_load("silence");
    Suite *suite = suite_create("silence");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, missing_and_foreign_arguments_change_nothing);
    suite_add_tcase(suite, calls);
    return suite;
}
