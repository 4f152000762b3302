#include "../../core/src/event_internal.h"
#include "suites.h"

START_TEST(every_kind_has_a_word_of_its_own)
{
    for (int kind = 0; kind < BH_EVENT_LAST; kind++) {
        ck_assert_msg(bh_event_name(kind).size > 0, "kind %d has no word", kind);
        ck_assert_uint_eq(bh_event_name(kind).size, strlen(bh_event_name(kind).data));
        for (int other = 0; other < kind; other++)
            ck_assert_str_ne(bh_event_name(kind).data, bh_event_name(other).data);
    }
}
END_TEST

START_TEST(a_kind_has_the_word_of_the_list)
{
#define SAME_WORD(name, word, meaning) ck_assert_str_eq(bh_event_name(name).data, word);
    BH_EVENT_LIST(SAME_WORD)
#undef SAME_WORD
}
END_TEST

START_TEST(a_number_that_is_no_kind_has_no_word)
{
    const int numbers[] = {-1, BH_EVENT_LAST, BH_EVENT_LAST + 1, 2147483647, -2147483647 - 1};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ck_assert_str_eq(bh_event_name(numbers[i]).data, "");
        ck_assert_uint_eq(bh_event_name(numbers[i]).size, 0);
    }
}
END_TEST

START_TEST(no_event_tells_nothing)
{
    ck_assert_int_eq(bh_event_what(NULL), BH_EVENT_LAST);
    ck_assert_int_eq(bh_event_status(NULL), BH_OK);
    ck_assert_str_eq(bh_event_text(NULL).data, "");
    ck_assert_str_eq(bh_event_id(NULL).data, "");
    ck_assert_int_eq(bh_event_attempts(NULL), 0);
    ck_assert_int_eq(bh_event_delay_ms(NULL), 0);
    ck_assert_int_eq(bh_event_count(NULL), 0);
    bh_event_free(NULL);
}
END_TEST

START_TEST(an_event_tells_what_was_put_into_it)
{
    bh_event *event = bh__event_new(BH_EVENT_RETRIED, BH_ERR_PUBLISH, bh_str("507"), bh_str("an id"), bh_str("publish"),
                                    bh_str("host:5672"));
    ck_assert_ptr_nonnull(event);
    event->attempts = 3;
    event->delay_ms = 4000;
    event->count = 5;
    ck_assert_int_eq(bh_event_what(event), BH_EVENT_RETRIED);
    ck_assert_int_eq(bh_event_status(event), BH_ERR_PUBLISH);
    ck_assert_int_eq(bh_event_attempts(event), 3);
    ck_assert_int_eq(bh_event_delay_ms(event), 4000);
    ck_assert_int_eq(bh_event_count(event), 5);
    bh_event_free(event);
}
END_TEST

START_TEST(an_event_keeps_copies_of_its_texts)
{
    char text[] = "a\0b", id[] = "an id";
    bh_bytes text_bytes = {text, 3}, id_bytes = {id, 2};
    bh_event *event = bh__event_new(BH_EVENT_PARKED, BH_OK, text_bytes, id_bytes, bh_str(""), bh_str(""));
    ck_assert_ptr_nonnull(event);
    memset(text, '?', sizeof text);
    memset(id, '?', sizeof id);
    ck_assert_uint_eq(bh_event_text(event).size, 3);
    ck_assert_mem_eq(bh_event_text(event).data, "a\0b", 4);
    ck_assert_uint_eq(bh_event_id(event).size, 2);
    ck_assert_mem_eq(bh_event_id(event).data, "an", 3);
    bh_event_free(event);
}
END_TEST

START_TEST(an_event_without_texts_has_empty_ones)
{
    bh_event *event = bh__event_new(BH_EVENT_BLOCKED, BH_OK, bh_str(""), bh_str(""), bh_str(""), bh_str(""));
    ck_assert_ptr_nonnull(event);
    ck_assert_str_eq(bh_event_text(event).data, "");
    ck_assert_str_eq(bh_event_id(event).data, "");
    bh_event_free(event);
}
END_TEST

Suite *suite_event(void)
{
    Suite *suite = suite_create("event");
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, every_kind_has_a_word_of_its_own);
    tcase_add_test(calls, a_kind_has_the_word_of_the_list);
    tcase_add_test(calls, a_number_that_is_no_kind_has_no_word);
    tcase_add_test(calls, no_event_tells_nothing);
    tcase_add_test(calls, an_event_tells_what_was_put_into_it);
    tcase_add_test(calls, an_event_keeps_copies_of_its_texts);
    tcase_add_test(calls, an_event_without_texts_has_empty_ones);
    suite_add_tcase(suite, calls);
    return suite;
}
