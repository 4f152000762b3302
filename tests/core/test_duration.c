#include "suites.h"

#include <backhop/adapter/duration.h>

START_TEST(a_duration_has_two_units_at_most)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {0, "0 s"},
        {1, "0.001 s"},
        {250, "0.25 s"},
        {12345, "12.3 s"},
        {59999, "60 s"},
        {60000, "1 min"},
        {90000, "1 min 30 s"},
        {3599499, "59 min 59 s"},
        {3599500, "1 h"},
        {7200000, "2 h"},
        {3605000, "1 h 5 s"},
        {86400000 + 300000, "1 d 5 min"},
        {3 * INT64_C(86400000) + 4 * 3600000 + 59 * 60000, "3 d 4 h"},
        {-1500, "-1.5 s"},
    };
    char room[BH_DURATION_ROOM];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bh_bytes text = bh_duration_text(cases[i].ms, room);
        ck_assert_str_eq(text.data, cases[i].text);
        ck_assert_uint_eq(text.size, strlen(cases[i].text));
    }
}
END_TEST

START_TEST(the_longest_duration_fits)
{
    char room[BH_DURATION_ROOM];
    ck_assert_str_eq(bh_duration_text(INT64_MAX, room).data, "106751991167 d 7 h");
    ck_assert_str_eq(bh_duration_text(INT64_MIN, room).data, "-9.22e+15 s");
}
END_TEST

START_TEST(a_text_is_read_as_a_duration)
{
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {{"30s", 30000},
                 {"250ms", 250},
                 {"1.5s", 1500},
                 {"0.0014s", 1},
                 {"0.0004s", 1},
                 {"0.000000001s", 1},
                 {"0.0s", 0},
                 {"0d", 0},
                 {"5m", 300000},
                 {" 5 min ", 300000},
                 {"2h", 7200000},
                 {"3d", 259200000},
                 {"4 min 30 s", 270000},
                 {"9007199254740992ms", INT64_C(9007199254740992)},
                 {"9007199254742000ms", -1},
                 {"104249991375d", -1},
                 {"30", -1},
                 {"", -1},
                 {" ", -1},
                 {"s", -1},
                 {"-1s", -1},
                 {"+1s", -1},
                 {"1e3s", -1},
                 {"1,5s", -1},
                 {"infs", -1},
                 {"0x1s", -1},
                 {".5s", -1},
                 {"30 seconds", -1},
                 {"30S", -1},
                 {"1s,", -1},
                 {"1s 5", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(bh_duration_ms(bh_str(cases[i].text)) == cases[i].ms, "%s", cases[i].text);
    ck_assert(bh_duration_ms((bh_bytes){"30sx", 3}) == 30000);
    ck_assert(bh_duration_ms((bh_bytes){"30s\0s", 5}) == -1);
}
END_TEST

Suite *suite_duration(void)
{
    TCase *cases = tcase_create("duration");
    tcase_add_test(cases, a_duration_has_two_units_at_most);
    tcase_add_test(cases, a_text_is_read_as_a_duration);
    tcase_add_test(cases, the_longest_duration_fits);
    Suite *suite = suite_create("duration");
    suite_add_tcase(suite, cases);
    return suite;
}
