#include "properties.h"
#include "suites.h"

#include "worker/wire/assembler.h"

#include <backhop/adapter/history.h>

static bh__assembler assembler;
static bh_message *message;

static void set_up(void)
{
    assembler = (bh__assembler){.is_begun = 0};
    message = NULL;
}

static void tear_down(void)
{
    bh__assembler_clear(&assembler);
    bh_message_free(message);
}

static void begin(uint64_t tag)
{
    bh__assembler_begin(&assembler, tag, 1, amqp_cstring_bytes("exchange"), amqp_cstring_bytes("key"));
}

static bh_status add(int type, bh_bytes payload)
{
    bh__frame frame = {.type = type, .channel = 1, .payload = payload};
    bh_message_free(message);
    message = NULL;
    return bh__assembler_add(&assembler, &frame, &message);
}

static bh_status add_header(uint64_t body_size, bh_bytes properties)
{
    bh__buffer payload = {.data = NULL};
    add_number(&payload, 60, 2);
    add_number(&payload, 0, 2);
    add_number(&payload, body_size, 8);
    add_bytes(&payload, properties.data, properties.size);
    bh_status status = add(AMQP_FRAME_HEADER, bytes_of(&payload));
    bh__buffer_free(&payload);
    return status;
}

static void expect_text(bh_bytes got, const char *want)
{
    ck_assert_uint_eq(got.size, strlen(want));
    ck_assert_str_eq(got.data, want);
}

START_TEST(a_message_is_whole_with_the_last_byte_of_its_body)
{
    begin(42);
    ck_assert_int_eq(add_header(9, (bh_bytes){"\0\0", 2}), BH_OK);
    ck_assert_ptr_null(message);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("one ")), BH_OK);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("")), BH_OK);
    ck_assert_ptr_null(message);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("piece")), BH_OK);
    ck_assert_ptr_nonnull(message);
    expect_text(bh_message_body(message), "one piece");
    expect_text(message->exchange, "exchange");
    expect_text(message->routing_key, "key");
    ck_assert_uint_eq(message->properties.size, 2);
    ck_assert_uint_eq(message->delivery_tag, 42);
    ck_assert_int_eq(bh_message_redelivered(message), 1);
}
END_TEST

START_TEST(a_message_without_body_is_whole_with_its_header)
{
    begin(1);
    ck_assert_int_eq(add_header(0, (bh_bytes){"\0\0", 2}), BH_OK);
    ck_assert_ptr_nonnull(message);
    expect_text(bh_message_body(message), "");
}
END_TEST

START_TEST(names_without_text_are_empty)
{
    bh__assembler_begin(&assembler, 1, 0, amqp_empty_bytes, amqp_empty_bytes);
    ck_assert_int_eq(add_header(0, (bh_bytes){NULL, 0}), BH_OK);
    expect_text(message->exchange, "");
    expect_text(message->routing_key, "");
    expect_text(message->properties, "");
    ck_assert_int_eq(bh_message_redelivered(message), 0);
}
END_TEST

START_TEST(names_of_255_bytes_are_whole)
{
    char name[256];
    memset(name, 'n', sizeof name - 1);
    name[255] = '\0';
    bh__assembler_begin(&assembler, 1, 0, amqp_cstring_bytes(name), amqp_cstring_bytes(name));
    ck_assert_int_eq(add_header(0, (bh_bytes){"\0\0", 2}), BH_OK);
    expect_text(message->exchange, name);
    expect_text(message->routing_key, name);
}
END_TEST

START_TEST(frames_that_do_not_belong_there_are_told)
{
    static const bh_bytes header = {"\0\x3C\0\0\0\0\0\0\0\0\0\2\0\0", 14};
    ck_assert_int_eq(add(AMQP_FRAME_HEADER, header), BH_ERR_CONNECTION); /* before any method */
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("x")), BH_ERR_CONNECTION);
    begin(1);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("x")), BH_ERR_CONNECTION); /* before its header */
    ck_assert_int_eq(add(AMQP_FRAME_HEADER, (bh_bytes){header.data, 11}), BH_ERR_CONNECTION);
    ck_assert_int_eq(add(AMQP_FRAME_METHOD, header), BH_ERR_CONNECTION);
    ck_assert_int_eq(add(AMQP_FRAME_HEADER, header), BH_OK);
    ck_assert_int_eq(add(AMQP_FRAME_HEADER, header), BH_ERR_CONNECTION);      /* a second header */
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("xyz")), BH_ERR_CONNECTION); /* more than announced */
    ck_assert_ptr_null(message);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("xy")), BH_OK);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("x")), BH_ERR_CONNECTION); /* after its end */
}
END_TEST

START_TEST(a_body_that_no_memory_has_is_told)
{
    begin(1);
    ck_assert_int_eq(add_header(UINT64_MAX, (bh_bytes){"\0\0", 2}), BH_ERR_CONNECTION);
    ck_assert_int_eq(add_header(536870913, (bh_bytes){"\0\0", 2}), BH_ERR_CONNECTION); /* 512 MiB and a byte */
    ck_assert_ptr_null(message);
}
END_TEST

START_TEST(a_new_message_gives_up_one_that_is_not_whole)
{
    begin(1);
    ck_assert_int_eq(add_header(100, (bh_bytes){"\0\0", 2}), BH_OK);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("half")), BH_OK);
    begin(2);
    ck_assert_int_eq(add_header(3, (bh_bytes){"\0\0", 2}), BH_OK);
    ck_assert_int_eq(add(AMQP_FRAME_BODY, bh_str("new")), BH_OK);
    expect_text(bh_message_body(message), "new");
    ck_assert_uint_eq(message->delivery_tag, 2);
}
END_TEST

/* ------------------------------------------------------------------------------------- messages */

static bh_message *whole(uint64_t tag)
{
    bh_message *made = NULL;
    begin(tag);
    bh__frame frame = {.type = AMQP_FRAME_HEADER, .payload = {"\0\x3C\0\0\0\0\0\0\0\0\0\0\0\0", 14}};
    ck_assert_int_eq(bh__assembler_add(&assembler, &frame, &made), BH_OK);
    ck_assert_ptr_nonnull(made);
    return made;
}

START_TEST(a_list_gives_back_first_what_came_first)
{
    bh__message_list list = {.first = NULL}, other = {.first = NULL};
    ck_assert_ptr_null(bh__message_list_pop(&list));
    bh__message_list_append(&list, &other);
    for (uint64_t tag = 1; tag <= 3; tag++)
        bh__message_list_push(&list, whole(tag));
    for (uint64_t tag = 4; tag <= 5; tag++)
        bh__message_list_push(&other, whole(tag));
    bh__message_list_append(&list, &other);
    ck_assert_uint_eq(list.count, 5);
    ck_assert_uint_eq(other.count, 0);
    ck_assert_ptr_null(other.first);
    bh__message_list_append(&other, &list);
    for (uint64_t tag = 1; tag <= 4; tag++) {
        bh_message *next = bh__message_list_pop(&other);
        ck_assert_uint_eq(next->delivery_tag, tag);
        bh_message_free(next);
    }
    bh__message_list_clear(&other);
    ck_assert_uint_eq(other.count, 0);
    ck_assert_ptr_null(other.last);
}
END_TEST

START_TEST(a_message_lives_as_long_as_its_last_reference)
{
    bh_message *kept = whole(1);
    bh__message_keep(kept);
    bh_message_free(kept);
    ck_assert_uint_eq(kept->delivery_tag, 1);
    bh_message_free(kept);
    bh_message_free(NULL);
    expect_text(bh_message_body(NULL), "");
    ck_assert_int_eq(bh_message_redelivered(NULL), 0);
}
END_TEST

START_TEST(an_error_is_kept_a_little_longer_than_the_plan_keeps_it)
{
    static char text[2 * BH_HISTORY_MOST_ERROR_BYTES];
    message = whole(1);
    memset(text, 'e', sizeof text);
    ck_assert_int_eq(bh__message_set_error(message, (bh_bytes){text, sizeof text}), BH_OK);
    ck_assert_uint_gt(message->error_size, BH_HISTORY_MOST_ERROR_BYTES);
    ck_assert_uint_lt(message->error_size, sizeof text);
    ck_assert_int_eq(bh__message_set_error(message, bh_str("507")), BH_OK);
    ck_assert_uint_eq(message->error_size, 3);
    ck_assert_mem_eq(message->error, "507", 3);
    ck_assert_int_eq(bh__message_set_error(message, bh_str("")), BH_OK);
    ck_assert_ptr_null(message->error);
}
END_TEST

Suite *suite_assembler(void)
{
    Suite *suite = suite_create("assembler");
    TCase *assembling = tcase_create("assembling");
    tcase_add_checked_fixture(assembling, set_up, tear_down);
    tcase_add_test(assembling, a_message_is_whole_with_the_last_byte_of_its_body);
    tcase_add_test(assembling, a_message_without_body_is_whole_with_its_header);
    tcase_add_test(assembling, names_without_text_are_empty);
    tcase_add_test(assembling, names_of_255_bytes_are_whole);
    tcase_add_test(assembling, frames_that_do_not_belong_there_are_told);
    tcase_add_test(assembling, a_body_that_no_memory_has_is_told);
    tcase_add_test(assembling, a_new_message_gives_up_one_that_is_not_whole);
    suite_add_tcase(suite, assembling);
    TCase *messages = tcase_create("messages");
    tcase_add_checked_fixture(messages, set_up, tear_down);
    tcase_add_test(messages, a_list_gives_back_first_what_came_first);
    tcase_add_test(messages, a_message_lives_as_long_as_its_last_reference);
    tcase_add_test(messages, an_error_is_kept_a_little_longer_than_the_plan_keeps_it);
    suite_add_tcase(suite, messages);
    return suite;
}
