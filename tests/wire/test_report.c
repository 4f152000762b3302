#include "suites.h"

#include "base/report.h"

#include <string.h>

START_TEST(a_report_of_zero_bytes_says_nothing)
{
    bh__report report = {.status = BH_OK};
    ck_assert_str_eq(bh__report_text(&report).data, "");
    bh__report_clear(&report);
    bh__report_free(&report);
}
END_TEST

START_TEST(a_status_without_a_sentence_has_that_of_the_status)
{
    bh__report report = {.status = BH_ERR_TLS};
    ck_assert_str_eq(bh__report_text(&report).data, bh_status_text(BH_ERR_TLS).data);
    ck_assert_int_eq(bh__report_set(&report, BH_ERR_URI, "%s", ""), BH_ERR_URI);
    ck_assert_str_eq(bh__report_text(&report).data, bh_status_text(BH_ERR_URI).data);
    bh__report_free(&report);
}
END_TEST

START_TEST(x3_controls_of_terminals_lines_and_directions_are_not_shown)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"plain \xe2\x80\x94 \xf0\x9f\xa7\xa8", "plain \xe2\x80\x94 \xf0\x9f\xa7\xa8"},
        {"\x1b]0;PWN\x07\x1b[2J\x7f", "?]0;PWN??[2J?"},
        {"a\xc2\x9b"
         "31m\xc2\x85z",
         "a?31m?z"},
        {"a\xe2\x80\xaa\xe2\x80\xae\xe2\x81\xa6\xe2\x81\xa9z", "a????z"},
        {"a\xe2\x80\xa8\xe2\x80\xa9z", "a??z"},
        {"a\nb\tc\r", "a b c?"},
        {"\xff\xc2\xa0\xed\xa0\x80", "?\xc2\xa0???"},
    };
    bh__report report = {.status = BH_OK};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bh__report_clear(&report);
        bh__report_add_shown(&report, bh_str(cases[i].text), 0);
        ck_assert_str_eq(bh__report_text(&report).data, cases[i].shown);
    }
    bh__report_clear(&report);
    bh__report_add_shown(&report, bh_str("a\n\tb\xc2\x9b"), 1);
    ck_assert_str_eq(bh__report_text(&report).data, "a\n\tb?");
    bh__report_free(&report);
}
END_TEST

START_TEST(a_sentence_is_set_added_to_replaced_and_cleared)
{
    bh__report report = {.status = BH_OK};
    ck_assert_int_eq(bh__report_set(&report, BH_ERR_CLASH, "queue %s", "work"), BH_ERR_CLASH);
    bh__report_add(&report, " has %d", 42);
    ck_assert_str_eq(bh__report_text(&report).data, "queue work has 42");
    ck_assert_uint_eq(bh__report_text(&report).size, strlen("queue work has 42"));
    bh__report_set(&report, BH_ERR_MISSING, "none");
    ck_assert_int_eq(report.status, BH_ERR_MISSING);
    ck_assert_str_eq(bh__report_text(&report).data, "none");
    bh__report_clear(&report);
    ck_assert_int_eq(report.status, BH_OK);
    ck_assert_str_eq(bh__report_text(&report).data, "");
    bh__report_free(&report);
}
END_TEST

START_TEST(a_sentence_may_be_as_long_as_it_likes)
{
    static char piece[1001];
    bh__report report = {.status = BH_OK};
    memset(piece, 'x', sizeof piece - 1);
    for (int i = 0; i < 100; i++)
        bh__report_add(&report, "%s", piece);
    ck_assert_uint_eq(bh__report_text(&report).size, 100000);
    ck_assert_uint_eq(strlen(bh__report_text(&report).data), 100000);
    bh__report_free(&report);
}
END_TEST

Suite *suite_report(void)
{
    Suite *suite = suite_create("report");
    TCase *all = tcase_create("report");
    tcase_add_test(all, a_report_of_zero_bytes_says_nothing);
    tcase_add_test(all, a_status_without_a_sentence_has_that_of_the_status);
    tcase_add_test(all, x3_controls_of_terminals_lines_and_directions_are_not_shown);
    tcase_add_test(all, a_sentence_is_set_added_to_replaced_and_cleared);
    tcase_add_test(all, a_sentence_may_be_as_long_as_it_likes);
    suite_add_tcase(suite, all);
    return suite;
}
