#include "policy/internal.h"
#include "suites.h"
#include "vectors.h"

#include <stdio.h>

static vectors all;

static void compare_delays(vector *v, const bh_policy *policy)
{
    const json_t *delays = json_object_get(v->expect, "delays");
    for (size_t i = 0; i < json_array_size(delays); i++) {
        const json_t *row = json_array_get(delays, i);
        char field[64];
        snprintf(field, sizeof field, "delays, row %zu", i + 1);
        if (json_array_size(row) != 4)
            vector_fail(v, field, "must be [attempt, previous_ms, u, ms]");
        int64_t got = bh_policy_delay_ms(policy, vector_int(v, field, json_array_get(row, 0)),
                                         vector_int(v, field, json_array_get(row, 1)),
                                         vector_double(v, field, json_array_get(row, 2)));
        same_int(v, field, vector_int(v, field, json_array_get(row, 3)), got);
    }
}

static void compare_preview(vector *v, const bh_policy *policy)
{
    const json_t *preview = json_object_get(v->expect, "preview");
    for (size_t i = 0; i < json_array_size(preview); i++) {
        const json_t *row = json_array_get(preview, i);
        if (json_array_size(row) != 5)
            vector_fail(v, "preview", "a row must be [attempt, lowest, mean, highest, total]");
        int64_t attempt = vector_int(v, "preview", json_array_get(row, 0));
        const int64_t got[] = {preview_of(policy, attempt).lowest_ms, preview_of(policy, attempt).mean_ms,
                               preview_of(policy, attempt).highest_ms, preview_of(policy, attempt).total_ms};
        static const char *const parts[] = {"lowest", "mean", "highest", "total"};
        for (size_t part = 0; part < 4; part++) {
            char field[64];
            snprintf(field, sizeof field, "preview, row %zu, %s", i + 1, parts[part]);
            same_int(v, field, vector_int(v, field, json_array_get(row, part + 1)), got[part]);
        }
    }
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "policy",
                 "status refused_by error kind jitter max_attempts max_ms max_age_ms max_retry_after_ms max_crashes "
                 "max_deferrals delays "
                 "preview");
    bh_policy *policy = NULL;
    const char *field = "";
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    bh_status status = vector_fill_policy(v, vector_get(v, "policy"), policy, &field);
    if (!status) {
        field = "check";
        status = bh_policy_check(policy);
    }
    if (expect_status(v, status, bh_policy_error(policy))) {
        expect_name(v, v->expect, "kind", vector_kinds, settings_of(policy).kind);
        expect_name(v, v->expect, "jitter", vector_jitters, settings_of(policy).jitter);
        expect_int(v, v->expect, "max_attempts", limits_of(policy).max_attempts);
        int64_t most = limits_of(policy).max_attempts;
        ck_assert_int_eq(bh__policy_is_last(policy, most), most > 0); /* no attempt is the last if there is no limit */
        ck_assert_int_eq(bh__policy_is_last(policy, most - 1), 0);
        expect_int(v, v->expect, "max_ms", limits_of(policy).max_ms);
        expect_int(v, v->expect, "max_age_ms", limits_of(policy).max_age_ms);
        expect_int(v, v->expect, "max_retry_after_ms", limits_of(policy).max_retry_after_ms);
        expect_int(v, v->expect, "max_crashes", limits_of(policy).max_crashes);
        expect_int(v, v->expect, "max_deferrals", limits_of(policy).max_deferrals);
        compare_delays(v, policy);
        compare_preview(v, policy);
    } else {
        const json_t *refused_by = json_object_get(v->expect, "refused_by");
        if (!refused_by)
            vector_fail(v, "refused_by", "is missing");
        same_bytes(v, "refused_by", vector_bytes(v, "refused_by", refused_by), bh_str(field));
        expect_error(v, v->expect, bh_policy_error(policy));
    }
    bh_policy_free(policy);
    vector_end(v);
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    ck_assert_int_eq(bh_policy_new(NULL), BH_ERR_ARGUMENT);
    bh_policy_settings settings;
    bh_policy_defaults(NULL);
    bh_policy_read(NULL, &settings);
    ck_assert_int_eq(settings.initial_ms, 1000);
    ck_assert_int_eq(bh_policy_set(NULL, &settings), BH_ERR_ARGUMENT);
    bh_policy *policy = NULL;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(bh_policy_set(policy, NULL), BH_ERR_ARGUMENT);
    settings.step_count = 1;
    ck_assert_int_eq(bh_policy_set(policy, &settings), BH_ERR_ARGUMENT);
    bh_policy_free(policy);
    ck_assert_int_eq(bh_policy_check(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh__policy_is_last(NULL, 1), 0);
    bh_policy_free(NULL);
}
END_TEST

START_TEST(a_number_that_names_no_kind_or_jitter_is_refused)
{
    bh_policy *policy = NULL;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    const int numbers[] = {-1, 99};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(policy_set_kind(policy, (bh_kind)numbers[i]), BH_ERR_POLICY);
        ck_assert_uint_gt(bh_policy_error(policy).size, 0);
        ck_assert_int_eq(policy_set_jitter(policy, (bh_jitter)numbers[i], 0.2), BH_ERR_POLICY);
    }
    ck_assert_int_eq(settings_of(policy).kind, BH_KIND_EXPONENTIAL);
    ck_assert_int_eq(settings_of(policy).jitter, BH_JITTER_SPREAD);
    bh_policy_free(policy);
}
END_TEST

START_TEST(a_refused_value_does_no_lasting_harm)
{
    bh_policy *policy = NULL;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(policy, 0), BH_ERR_POLICY);
    ck_assert_int_eq(policy_set_initial_ms(policy, 2000), BH_OK);
    ck_assert_int_eq(bh_policy_check(policy), BH_OK);
    ck_assert_int_eq(bh_policy_delay_ms(policy, 1, 0, 0.5), 2000);
    bh_policy_free(policy);
}
END_TEST

START_TEST(a_contradiction_can_be_mended)
{
    bh_policy *policy = NULL;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    ck_assert_int_eq(policy_set_initial_ms(policy, 400000), BH_OK);
    ck_assert_int_eq(bh_policy_check(policy), BH_ERR_POLICY);
    ck_assert_int_eq(policy_set_max_ms(policy, 400000), BH_OK);
    ck_assert_int_eq(bh_policy_check(policy), BH_OK);
    bh_policy_free(policy);
}
END_TEST

START_TEST(an_option_that_the_kind_does_not_use_is_refused)
{
    static const struct {
        bh_kind kind;
        int has_initial;
        int has_factor;
        const char *refused;
    } rows[] = {
        {BH_KIND_EXPONENTIAL, 1, 1, NULL},
        {BH_KIND_LINEAR, 1, 0, NULL},
        {BH_KIND_LINEAR, 0, 1, "factor is given, and the kind linear has no use for it"},
        {BH_KIND_FIXED, 1, 0, NULL},
        {BH_KIND_FIXED, 1, 1, "factor is given, and the kind fixed has no use for it"},
        {BH_KIND_STEPS, 0, 0, NULL},
        {BH_KIND_STEPS, 1, 1, "initial is given, and the kind steps has no use for it"},
        {BH_KIND_STEPS, 0, 1, "factor is given, and the kind steps has no use for it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bh_policy *policy = NULL;
        ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
        bh_policy_settings settings = settings_of(policy);
        settings.kind = rows[i].kind;
        settings.gives_initial = rows[i].has_initial;
        settings.gives_factor = rows[i].has_factor;
        bh_status status = bh_policy_set(policy, &settings);
        ck_assert_int_eq(status, rows[i].refused ? BH_ERR_POLICY : BH_OK);
        if (rows[i].refused)
            ck_assert_ptr_nonnull(strstr(bh_policy_error(policy).data, rows[i].refused));
        bh_policy_free(policy);
    }
}
END_TEST

START_TEST(a_delay_is_never_below_one_or_above_max_whatever_the_attempt)
{
    bh_policy *policy = NULL;
    ck_assert_int_eq(bh_policy_new(&policy), BH_OK);
    const int64_t attempts[] = {INT64_MIN, -1, 0, 1, 62, 63, 64, 1023, 1024, 1025, INT32_MAX, INT64_MAX};
    const int64_t previous[] = {INT64_MIN, -1, 0, 1, 100000, INT64_MAX};
    const bh_jitter jitters[] = {BH_JITTER_NONE, BH_JITTER_SPREAD, BH_JITTER_EQUAL, BH_JITTER_FULL,
                                 BH_JITTER_DECORRELATED};
    for (size_t j = 0; j < 5; j++) {
        ck_assert_int_eq(policy_set_jitter(policy, jitters[j], 1), BH_OK);
        for (size_t a = 0; a < sizeof attempts / sizeof attempts[0]; a++) {
            for (size_t p = 0; p < sizeof previous / sizeof previous[0]; p++)
                for (double u = -0.25; u < 1.5; u += 0.25) {
                    int64_t delay = bh_policy_delay_ms(policy, attempts[a], previous[p], u);
                    ck_assert_int_ge(delay, 1);
                    ck_assert_int_le(delay, 300000);
                }
            if (attempts[a] < 1)
                continue;
            ck_assert_int_le(preview_of(policy, attempts[a]).lowest_ms, preview_of(policy, attempts[a]).mean_ms);
            ck_assert_int_le(preview_of(policy, attempts[a]).mean_ms, preview_of(policy, attempts[a]).highest_ms);
        }
    }
    bh_policy_free(policy);
}
END_TEST

Suite *suite_policy(void)
{
    all = vectors_load("policy");
    Suite *suite = suite_create("policy");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, missing_arguments_are_refused);
    tcase_add_test(calls, a_number_that_names_no_kind_or_jitter_is_refused);
    tcase_add_test(calls, a_refused_value_does_no_lasting_harm);
    tcase_add_test(calls, a_contradiction_can_be_mended);
    tcase_add_test(calls, an_option_that_the_kind_does_not_use_is_refused);
    tcase_add_test(calls, a_delay_is_never_below_one_or_above_max_whatever_the_attempt);
    suite_add_tcase(suite, calls);
    return suite;
}
