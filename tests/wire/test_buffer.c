#include "suites.h"

#include "base/buffer.h"

#include <stdio.h>

static void put(bh__buffer *buffer, const char *text)
{
    ck_assert_int_eq(bh__buffer_reserve(buffer, strlen(text)), 1);
    bh__put_bytes(buffer, bh_str(text));
}

static void expect(const bh__buffer *buffer, const char *text)
{
    ck_assert_uint_eq(bh__buffer_size(buffer), strlen(text));
    if (*text)
        ck_assert_mem_eq(buffer->data + buffer->begin, text, strlen(text));
}

START_TEST(a_buffer_of_zero_bytes_is_empty)
{
    bh__buffer buffer = {.data = NULL};
    expect(&buffer, "");
    bh__buffer_clear(&buffer);
    bh__buffer_free(&buffer);
    expect(&buffer, "");
}
END_TEST

START_TEST(what_is_written_at_the_end_is_read_at_the_beginning)
{
    bh__buffer buffer = {.data = NULL};
    put(&buffer, "first");
    put(&buffer, "second");
    buffer.begin += 5;
    expect(&buffer, "second");
    put(&buffer, "third");
    expect(&buffer, "secondthird");
    bh__buffer_free(&buffer);
}
END_TEST

START_TEST(room_for_nothing_is_a_place_all_the_same)
{
    bh__buffer buffer = {.data = NULL};
    ck_assert_int_eq(bh__buffer_reserve(&buffer, 0), 1);
    bh__put_bytes(&buffer, bh_str(""));
    expect(&buffer, "");
    bh__buffer_free(&buffer);
}
END_TEST

START_TEST(what_was_read_makes_room_for_what_is_written)
{
    bh__buffer buffer = {.data = NULL};
    put(&buffer, "0123456789");
    size_t capacity = buffer.capacity;
    for (int i = 0; i < 1000; i++) {
        buffer.begin += 10;
        put(&buffer, "0123456789");
        expect(&buffer, "0123456789");
    }
    ck_assert_uint_le(buffer.capacity, capacity + 20); /* of ten bytes at a time it never has more */
    bh__buffer_free(&buffer);
}
END_TEST

START_TEST(room_keeps_what_is_there_while_it_grows)
{
    bh__buffer buffer = {.data = NULL};
    char wanted[3001] = "";
    for (int i = 0; i < 1000; i++) {
        char text[8];
        snprintf(text, sizeof text, "%03d", i);
        put(&buffer, text);
        memcpy(wanted + 3 * (size_t)i, text, 4);
        if (i == 500) {
            buffer.begin += 9;
            ck_assert_int_eq(bh__buffer_reserve(&buffer, 1000000), 1);
        }
    }
    expect(&buffer, wanted + 9);
    bh__buffer_free(&buffer);
}
END_TEST

START_TEST(room_that_no_memory_has_is_refused_and_loses_nothing)
{
    bh__buffer buffer = {.data = NULL};
    put(&buffer, "kept");
    ck_assert_int_eq(bh__buffer_reserve(&buffer, SIZE_MAX / 2), 0);
    expect(&buffer, "kept");
    put(&buffer, " and more");
    expect(&buffer, "kept and more");
    bh__buffer_free(&buffer);
}
END_TEST

START_TEST(numbers_are_big_endian_and_come_back)
{
    static const uint64_t numbers[] = {0, 1, 0x7F, 0x80, 0xFF, 0x1234, 0x89ABCDEF, UINT64_MAX, UINT64_C(1) << 63};
    bh__buffer buffer = {.data = NULL};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        for (size_t size = 1; size <= 8; size++) {
            ck_assert_int_eq(bh__buffer_reserve(&buffer, size), 1);
            bh__put_number(&buffer, numbers[i], size);
            uint64_t kept = size == 8 ? numbers[i] : numbers[i] & ((UINT64_C(1) << 8 * size) - 1);
            ck_assert_uint_eq(bh__get_number(buffer.data + buffer.end - size, size), kept);
            ck_assert_uint_eq((unsigned char)buffer.data[buffer.end - 1], kept & 0xFF);
        }
    ck_assert_uint_eq(bh__get_number("", 0), 0);
    bh__buffer_free(&buffer);
}
END_TEST

Suite *suite_buffer(void)
{
    Suite *suite = suite_create("buffer");
    TCase *all = tcase_create("buffer");
    tcase_add_test(all, a_buffer_of_zero_bytes_is_empty);
    tcase_add_test(all, what_is_written_at_the_end_is_read_at_the_beginning);
    tcase_add_test(all, room_for_nothing_is_a_place_all_the_same);
    tcase_add_test(all, what_was_read_makes_room_for_what_is_written);
    tcase_add_test(all, room_keeps_what_is_there_while_it_grows);
    tcase_add_test(all, room_that_no_memory_has_is_refused_and_loses_nothing);
    tcase_add_test(all, numbers_are_big_endian_and_come_back);
    suite_add_tcase(suite, all);
    return suite;
}
