#include "properties.h"
#include "suites.h"

#include "worker/wire/content.h"
#include "../reading.h"

#include <stdio.h>

static bh_delivery *delivery;
static bh__buffer wire, headers, nested;

static void set_up(void)
{
    wire = headers = nested = (bh__buffer){.data = NULL};
    ck_assert_int_eq(bh_delivery_new(&delivery), BH_OK);
}

static void tear_down(void)
{
    bh_delivery_free(delivery);
    bh__buffer_free(&wire);
    bh__buffer_free(&headers);
    bh__buffer_free(&nested);
}

static unsigned flag(bh_property property)
{
    return 1u << (15 - (int)property);
}

/* Properties that are the headers alone. */
static bh_bytes only_headers(void)
{
    bh__buffer_clear(&wire);
    add_number(&wire, flag(BH_PROPERTY_HEADERS), 2);
    add_counted(&wire, 4, bytes_of(&headers));
    return bytes_of(&wire);
}

static bh_status read(bh_bytes properties)
{
    /* In a place of its own size, so that a sanitizer sees a byte too many. */
    char *exact = malloc(properties.size ? properties.size : 1);
    ck_assert_ptr_nonnull(exact);
    if (properties.size)
        memcpy(exact, properties.data, properties.size);
    bh_status status =
        bh__content_read(delivery, bh_str("exchange"), bh_str("key"), (bh_bytes){exact, properties.size});
    free(exact);
    return status;
}

static void expect_text(bh_bytes got, const char *want)
{
    ck_assert_uint_eq(got.size, strlen(want));
    ck_assert_str_eq(got.data, want);
}

/* ----------------------------------------------------------------------------------------- read */

START_TEST(a_message_without_properties_is_read)
{
    ck_assert_int_eq(read((bh_bytes){"\0\0", 2}), BH_OK);
    expect_text(delivery_view_of(delivery).exchange, "exchange");
    expect_text(delivery_view_of(delivery).routing_key, "key");
    ck_assert_uint_eq(delivery_view_of(delivery).value_count, 0);
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        ck_assert_int_eq(bh_delivery_has_property(delivery, (bh_property)i), 0);
}
END_TEST

START_TEST(every_property_is_read)
{
    add_number(&wire, 0xFFFC, 2);
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        char text[8];
        snprintf(text, sizeof text, "text%d", i);
        if (i == BH_PROPERTY_HEADERS)
            add_counted(&wire, 4, bh_str(""));
        else if (i == BH_PROPERTY_DELIVERY_MODE || i == BH_PROPERTY_PRIORITY)
            add_number(&wire, (uint64_t)i + 200, 1);
        else if (i == BH_PROPERTY_TIMESTAMP)
            add_number(&wire, UINT64_C(1700000000), 8);
        else
            add_counted(&wire, 1, bh_str(text));
    }
    ck_assert_int_eq(read(bytes_of(&wire)), BH_OK);
    expect_text(bh_delivery_property(delivery, BH_PROPERTY_CONTENT_TYPE), "text0");
    expect_text(bh_delivery_property(delivery, BH_PROPERTY_CLUSTER_ID), "text13");
    ck_assert_int_eq(bh_delivery_number(delivery, BH_PROPERTY_PRIORITY), 200 + BH_PROPERTY_PRIORITY);
    ck_assert_int_eq(bh_delivery_number(delivery, BH_PROPERTY_TIMESTAMP), 1700000000);
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        ck_assert_msg(i == BH_PROPERTY_HEADERS || bh_delivery_has_property(delivery, (bh_property)i), "property %d", i);
}
END_TEST

START_TEST(what_was_read_before_is_gone)
{
    add_text(&headers, "old", "value");
    ck_assert_int_eq(read(only_headers()), BH_OK);
    ck_assert_int_eq(read((bh_bytes){"\0\0", 2}), BH_OK);
    ck_assert_int_eq(header_of(delivery, bh_str("old")).type, 0);
}
END_TEST

START_TEST(every_type_of_header_is_read)
{
    static const struct {
        const char *name;
        char type;
        char value[9];
        size_t size;
        int64_t integer;
    } cases[] = {
        {"true", BH_TYPE_BOOLEAN, "\1", 1, 1},
        {"int8", BH_TYPE_INT8, "\x80", 1, -128},
        {"uint8", BH_TYPE_UINT8, "\x80", 1, 128},
        {"int16", BH_TYPE_INT16, "\x80\0", 2, -32768},
        {"uint16", BH_TYPE_UINT16, "\x80\0", 2, 32768},
        {"int32", BH_TYPE_INT32, "\x80\0\0\0", 4, INT32_MIN},
        {"uint32", BH_TYPE_UINT32, "\x80\0\0\0", 4, INT64_C(2147483648)},
        {"int64", BH_TYPE_INT64, "\x80\0\0\0\0\0\0\0", 8, INT64_MIN},
        {"timestamp", BH_TYPE_TIMESTAMP, "\0\0\0\0\0\0\1\0", 8, 256},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        add_field(&headers, cases[i].name, cases[i].type, cases[i].value, cases[i].size);
    add_field(&headers, "float", BH_TYPE_FLOAT, "\x3F\xC0\0\0", 4);
    add_field(&headers, "double", BH_TYPE_DOUBLE, "\xBF\xF8\0\0\0\0\0\0", 8);
    add_field(&headers, "decimal", BH_TYPE_DECIMAL, "\2\0\0\1\x3A", 5);
    add_field(&headers, "void", BH_TYPE_VOID, NULL, 0);
    add_text(&headers, "string", "text");
    add_field(&headers, "bytes", BH_TYPE_BYTES, "\0\0\0\3a\0b", 7);
    ck_assert_int_eq(read(only_headers()), BH_OK);
    size_t count = sizeof cases / sizeof cases[0];
    ck_assert_uint_eq(delivery_view_of(delivery).value_count, count + 6);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(value_at(delivery, i).type, cases[i].type);
        ck_assert_msg(value_at(delivery, i).integer == cases[i].integer, "%s", cases[i].name);
    }
    ck_assert_double_eq(value_at(delivery, count).number, 1.5);
    ck_assert_double_eq(value_at(delivery, count + 1).number, -1.5);
    ck_assert_int_eq(value_at(delivery, count + 2).places, 2);
    ck_assert_int_eq(value_at(delivery, count + 2).integer, 314);
    ck_assert_int_eq(value_at(delivery, count + 3).type, BH_TYPE_VOID);
    expect_text(value_at(delivery, count + 4).string, "text");
    ck_assert_uint_eq(value_at(delivery, count + 5).string.size, 3);
}
END_TEST

START_TEST(tables_and_arrays_are_read_as_they_nest)
{
    add_text(&nested, "inner", "text");
    add_field(&headers, "table", BH_TYPE_TABLE, NULL, 0);
    add_counted(&headers, 4, bytes_of(&nested));
    add_field(&headers, "array", BH_TYPE_ARRAY, "\0\0\0\4V\x74\1V", 8);
    add_field(&headers, "empty", BH_TYPE_TABLE, "\0\0\0\0", 4);
    add_field(&headers, "last", BH_TYPE_BOOLEAN, "\0", 1);
    ck_assert_int_eq(read(only_headers()), BH_OK);
    static const char types[] = {BH_TYPE_TABLE,   BH_TYPE_STRING, BH_TYPE_ARRAY, BH_TYPE_VOID,
                                 BH_TYPE_BOOLEAN, BH_TYPE_VOID,   BH_TYPE_TABLE, BH_TYPE_BOOLEAN};
    static const size_t ends[] = {2, 2, 6, 4, 5, 6, 7, 8};
    ck_assert_uint_eq(delivery_view_of(delivery).value_count, sizeof types);
    for (size_t i = 0; i < sizeof types; i++) {
        ck_assert_int_eq(value_at(delivery, i).type, types[i]);
        ck_assert_uint_eq(value_at(delivery, i).end, ends[i]);
    }
    expect_text(value_at(delivery, 1).name, "inner");
    expect_text(value_at(delivery, 7).name, "last");
}
END_TEST

/* Arrays in arrays, as deep as a frame has room for. */
START_TEST(a_hundred_thousand_levels_are_walked_without_recursion)
{
    enum { LEVELS = 100000 };
    add_field(&headers, "deep", BH_TYPE_ARRAY, NULL, 0);
    for (int level = LEVELS - 1; level > 0; level--) {
        add_number(&headers, 5 * (uint64_t)level, 4);
        add_number(&headers, BH_TYPE_ARRAY, 1);
    }
    add_number(&headers, 0, 4);
    add_text(&headers, "behind", "text");
    ck_assert_int_eq(read(only_headers()), BH_OK);
    expect_text(header_of(delivery, bh_str("behind")).string, "text");
}
END_TEST

START_TEST(what_is_malformed_is_told_so_and_nothing_crashes)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t size;
    } cases[] = {
        {"no flags", "", 0},
        {"half of the flags", "\x20", 1},
        {"a flag that no property has", "\0\2", 2},
        {"flags that go on", "\0\1\0\0", 4},
        {"no content type", "\x80\0", 2},
        {"a content type that ends early", "\x80\0\5text", 7},
        {"no headers", "\x20\0", 2},
        {"a header length that ends early", "\x20\0\0\0\0", 5},
        {"headers longer than all", "\x20\0\xFF\xFF\xFF\xFF", 6},
        {"headers a byte too long", "\x20\0\0\0\0\1", 6},
        {"no delivery mode", "\x10\0", 2},
        {"a timestamp that ends early", "\0\x40\0\0\0\0\0\0\0", 9},
        {"a header without type", "\x20\0\0\0\0\2\1a", 8},
        {"a header's name longer than the table",
         "\x20\0\0\0\0\2\xFF"
         "a",
         8},
        {"a type that there is not", "\x20\0\0\0\0\3\1a?", 9},
        {"a type of zero", "\x20\0\0\0\0\3\1a\0", 9},
        {"a boolean without value", "\x20\0\0\0\0\3\1at", 9},
        {"a string longer than the table", "\x20\0\0\0\0\7\1aS\0\0\0\1", 13},
        {"a string of four gigabytes", "\x20\0\0\0\0\7\1aS\xFF\xFF\xFF\xFF", 13},
        {"a decimal without digits", "\x20\0\0\0\0\4\1aD\2", 10},
        {"a table in which a field ends early", "\x20\0\0\0\0\x9\1aF\0\0\0\2\1b", 15},
        {"an array of a type that there is not", "\x20\0\0\0\0\x8\1aA\0\0\0\1?", 14},
        {"an array longer than its table", "\x20\0\0\0\0\x8\1aA\0\0\0\2V", 14},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(read((bh_bytes){cases[i].bytes, cases[i].size}) == BH_ERR_CONTENT, "%s", cases[i].name);
}
END_TEST

START_TEST(what_follows_the_properties_is_not_looked_at)
{
    ck_assert_int_eq(read((bh_bytes){"\0\0behind", 8}), BH_OK);
}
END_TEST

START_TEST(a_header_that_is_a_string_is_found_without_a_delivery)
{
    add_text(&headers, "other", "x");
    add_field(&headers, "number", BH_TYPE_INT8, "\1", 1);
    add_text(&headers, "backhop-id", "first");
    add_text(&headers, "backhop-id", "second");
    bh_bytes found = bh__content_string(only_headers(), "backhop-id");
    ck_assert_uint_eq(found.size, 5);
    ck_assert_mem_eq(found.data, "first", 5);
    ck_assert_uint_eq(bh__content_string(bytes_of(&wire), "number").size, 0);
    ck_assert_uint_eq(bh__content_string(bytes_of(&wire), "missing").size, 0);
    ck_assert_uint_eq(bh__content_string((bh_bytes){"\0\0", 2}, "backhop-id").size, 0);
    ck_assert_uint_eq(bh__content_string((bh_bytes){"\x20", 1}, "backhop-id").size, 0);
}
END_TEST

/* ----------------------------------------------------------------------------------------- copy */

typedef struct decision {
    bh_policy *policy;
    bh_topology *topology;
    bh_history *history;
    bh_plan *plan;
} decision;

static void make_decision(decision *self, bh_outcome outcome)
{
    static const char random[BH_PLAN_RANDOM_BYTES];
    ck_assert_int_eq(bh_policy_new(&self->policy), BH_OK);
    ck_assert_int_eq(bh_topology_new(&self->topology, bh_str("work")), BH_OK);
    ck_assert_int_eq(bh_topology_build(self->topology, self->policy), BH_OK);
    ck_assert_int_eq(bh_history_new(&self->history), BH_OK);
    ck_assert_int_eq(bh_plan_new(&self->plan), BH_OK);
    ck_assert_int_eq(bh_history_read(self->history, delivery, self->topology), BH_OK);
    ck_assert_int_eq(bh_plan_make(self->plan, delivery, self->history, self->policy, self->topology, outcome,
                                  bh_str("507"), 0, INT64_C(1700000000000), (bh_bytes){random, sizeof random}),
                     BH_OK);
}

static void free_decision(decision *self)
{
    bh_plan_free(self->plan);
    bh_history_free(self->history);
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
}

static const header_field *find(const property_list *of, const char *name)
{
    for (size_t i = 0; i < of->header_count; i++)
        if (bh__same(of->headers[i].name, bh_str(name)))
            return &of->headers[i];
    return NULL;
}

START_TEST(a_copy_has_the_properties_and_foreign_headers_byte_for_byte)
{
    add_text(&headers, "tenant", "acme");
    add_field(&headers, "odd", BH_TYPE_ARRAY, "\0\0\0\3u\1\2", 7);
    add_text(&headers, "x-delay", "100");
    add_text(&headers, "tenant", "again");
    add_field(&headers, "nan", BH_TYPE_FLOAT, "\x7F\xC0\1\2", 4);
    unsigned flags = flag(BH_PROPERTY_CONTENT_TYPE) | flag(BH_PROPERTY_HEADERS) | flag(BH_PROPERTY_DELIVERY_MODE) |
                     flag(BH_PROPERTY_PRIORITY) | flag(BH_PROPERTY_EXPIRATION) | flag(BH_PROPERTY_TIMESTAMP) |
                     flag(BH_PROPERTY_USER_ID);
    add_number(&wire, flags, 2);
    add_counted(&wire, 1, bh_str("text/plain"));
    add_counted(&wire, 4, bytes_of(&headers));
    add_number(&wire, 1, 1);
    add_number(&wire, 9, 1);
    add_counted(&wire, 1, bh_str("60000"));
    add_number(&wire, 1234, 8);
    add_counted(&wire, 1, bh_str("guest"));
    ck_assert_int_eq(read(bytes_of(&wire)), BH_OK);

    decision made;
    static property_list original, copy;
    bh__buffer out = {.data = NULL};
    make_decision(&made, BH_OUTCOME_FAILED);
    add_bytes(&out, "before", 6); /* it appends */
    ck_assert_int_eq(bh__content_copy(&out, made.plan, bytes_of(&wire)), BH_OK);
    ck_assert_mem_eq(out.data, "before", 6);
    out.begin = 6;
    ck_assert(property_list_read(&original, bytes_of(&wire)));
    ck_assert(property_list_read(&copy, bytes_of(&out)));
    static const bh_property same[] = {BH_PROPERTY_CONTENT_TYPE, BH_PROPERTY_PRIORITY, BH_PROPERTY_TIMESTAMP};
    for (size_t i = 0; i < 3; i++)
        ck_assert(bh__same(original.values[same[i]], copy.values[same[i]]));
    ck_assert_mem_eq(copy.values[BH_PROPERTY_DELIVERY_MODE].data, "\2", 1);
    ck_assert_ptr_null(copy.values[BH_PROPERTY_USER_ID].data);
    static const size_t kept[] = {0, 1, 3, 4};
    for (size_t i = 0; i < 4; i++) {
        ck_assert(bh__same(copy.headers[i].name, original.headers[kept[i]].name));
        ck_assert(bh__same(copy.headers[i].value, original.headers[kept[i]].value));
    }
    ck_assert_ptr_null(find(&copy, "x-delay"));
    ck_assert_uint_eq(copy.header_count, 4 + planned_of(made.plan).header_count);
    ck_assert_ptr_nonnull(find(&copy, "backhop-attempts"));
    ck_assert_ptr_nonnull(find(&copy, "BCC"));

    ck_assert_int_eq(bh__content_read(delivery, bh_str(""), bh_str(""), bytes_of(&out)), BH_OK);
    ck_assert_int_eq(bh_history_read(made.history, delivery, made.topology), BH_OK);
    ck_assert_int_eq(past_of(made.history).attempts, 1);
    bh__buffer_free(&out);
    free_decision(&made);
}
END_TEST

START_TEST(a_copy_of_a_message_without_headers_has_those_of_the_plan)
{
    decision made;
    static property_list copy;
    bh__buffer out = {.data = NULL};
    ck_assert_int_eq(read((bh_bytes){"\0\0", 2}), BH_OK);
    make_decision(&made, BH_OUTCOME_PERMANENT);
    ck_assert_int_eq(bh__content_copy(&out, made.plan, (bh_bytes){"\0\0", 2}), BH_OK);
    ck_assert(property_list_read(&copy, bytes_of(&out)));
    ck_assert_uint_eq(copy.header_count, planned_of(made.plan).header_count);
    ck_assert_ptr_nonnull(find(&copy, "backhop-parked"));
    ck_assert_ptr_null(find(&copy, "BCC"));
    bh__buffer_free(&out);
    free_decision(&made);
}
END_TEST

/* Headers of every type, tables and arrays in each other, and each property but the headers. */
static void add_everything(void)
{
    static const struct {
        char type;
        char value[9];
        size_t size;
    } cases[] = {
        {BH_TYPE_BOOLEAN, "\1", 1},         {BH_TYPE_INT8, "\x80", 1},
        {BH_TYPE_UINT8, "\x80", 1},         {BH_TYPE_INT16, "\x80\1", 2},
        {BH_TYPE_UINT16, "\x80\1", 2},      {BH_TYPE_INT32, "\x80\1\2\3", 4},
        {BH_TYPE_UINT32, "\x80\1\2\3", 4},  {BH_TYPE_INT64, "\x80\1\2\3\4\5\6\7", 8},
        {BH_TYPE_UINT64, "\xff\1\2\3", 8},  {BH_TYPE_TIMESTAMP, "\0\1\2\3\4\5\6\7", 8},
        {BH_TYPE_FLOAT, "\x3F\xC0\0\0", 4}, {BH_TYPE_DOUBLE, "\xBF\xF8\0\0\0\0\0\1", 8},
        {BH_TYPE_DECIMAL, "\2\xff\0\1", 5}, {BH_TYPE_VOID, "", 0},
        {BH_TYPE_STRING, "\0\0\0\2a\0", 6}, {BH_TYPE_BYTES, "\0\0\0\3a\0\xfe", 7},
        {BH_TYPE_ARRAY, "\0\0\0\0", 4},     {BH_TYPE_TABLE, "\0\0\0\0", 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[] = {(char)('A' + (char)i), '\0'};
        add_field(&headers, name, cases[i].type, cases[i].value, cases[i].size);
    }
    for (int depth = 0; depth < BH_DELIVERY_MAX_DEPTH - 1; depth++) {
        bh__buffer outer = {.data = NULL};
        if (depth % 2)
            add_field(&nested, "beside", BH_TYPE_VOID, NULL, 0);
        else
            add_bytes(&nested, "b\xff", 2);
        add_counted(&outer, 4, bytes_of(&nested));
        bh__buffer_clear(&nested);
        if (depth % 2) {
            add_number(&nested, BH_TYPE_TABLE, 1);
            add_bytes(&nested, outer.data, bh__buffer_size(&outer));
        } else {
            add_field(&nested, "inner", BH_TYPE_ARRAY, outer.data, bh__buffer_size(&outer));
        }
        bh__buffer_free(&outer);
    }
    bh__buffer whole = {.data = NULL};
    add_counted(&whole, 4, bytes_of(&nested));
    add_field(&headers, "nested", BH_TYPE_TABLE, whole.data, bh__buffer_size(&whole));
    bh__buffer_free(&whole);
    add_field(&headers, "CC", BH_TYPE_ARRAY, "\0\0\0\7S\0\0\0\2to", 11); /* which the copy has as backhop-cc */
    add_text(&headers, "x-delay", "100");
    add_number(&wire, 0xFFFC, 2);
    for (int i = 0; i < BH_PROPERTY_LAST; i++) {
        if (i == BH_PROPERTY_HEADERS)
            add_counted(&wire, 4, bytes_of(&headers));
        else if (i == BH_PROPERTY_DELIVERY_MODE || i == BH_PROPERTY_PRIORITY)
            add_number(&wire, 255, 1);
        else if (i == BH_PROPERTY_TIMESTAMP)
            add_number(&wire, UINT64_C(0xfedcba9876543210), 8);
        else
            add_counted(&wire, 1, bh_str(i % 3 ? "text" : ""));
    }
}

START_TEST(a_copy_of_the_delivery_alone_has_the_same_bytes)
{
    decision made;
    bh__buffer out = {.data = NULL};
    add_everything();
    ck_assert_int_eq(read(bytes_of(&wire)), BH_OK);
    ck_assert_int_eq(delivery_view_of(delivery).is_truncated, 0);
    make_decision(&made, BH_OUTCOME_FAILED);
    ck_assert_int_eq(bh__content_copy(&out, made.plan, bytes_of(&wire)), BH_OK);
    for (int again = 0; again < 2; again++) {
        bh_bytes copy = bh_plan_copy_properties(made.plan, delivery, 0);
        ck_assert_uint_eq(copy.size, bh__buffer_size(&out));
        ck_assert_mem_eq(copy.data, out.data, copy.size);
    }
    bh__buffer_free(&out);
    free_decision(&made);
}
END_TEST

START_TEST(a_copy_may_have_the_smallest_integers)
{
    static const struct {
        int64_t number;
        char type;
        size_t size;
    } cases[] = {
        {INT8_MAX, BH_TYPE_INT8, 1},
        {INT8_MIN, BH_TYPE_INT8, 1},
        {INT8_MAX + 1, BH_TYPE_INT16, 2},
        {INT8_MIN - 1, BH_TYPE_INT16, 2},
        {INT16_MAX, BH_TYPE_INT16, 2},
        {INT16_MIN, BH_TYPE_INT16, 2},
        {INT16_MAX + 1, BH_TYPE_INT32, 4},
        {INT16_MIN - 1, BH_TYPE_INT32, 4},
        {INT32_MAX, BH_TYPE_INT32, 4},
        {INT32_MIN, BH_TYPE_INT32, 4},
        {INT64_C(1) + INT32_MAX, BH_TYPE_INT64, 8},
        {INT64_C(-1) + INT32_MIN, BH_TYPE_INT64, 8},
        {INT64_MAX, BH_TYPE_INT64, 8},
        {INT64_MIN, BH_TYPE_INT64, 8},
    };
    size_t count = sizeof cases / sizeof cases[0];
    decision made;
    static property_list copy;
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(push_int(delivery, "n", cases[i].number), BH_OK);
    ck_assert_int_eq(
        bh_delivery_push(delivery,
                         &(bh_value){.type = BH_TYPE_UINT16, .name = bh_str("a type of its own"), .integer = 1}),
        BH_OK);
    make_decision(&made, BH_OUTCOME_FAILED);
    ck_assert(property_list_read(&copy, bh_plan_copy_properties(made.plan, delivery, BH_HIDDEN_WIDTHS)));
    ck_assert_uint_eq(copy.header_count, count + 1 + planned_of(made.plan).header_count);
    for (size_t i = 0; i < count; i++) {
        bh_bytes value = copy.headers[i].value;
        ck_assert_uint_eq(value.size, 1 + cases[i].size);
        ck_assert_int_eq(*value.data, cases[i].type);
        ck_assert_uint_eq(bh__get_number(value.data + 1, cases[i].size),
                          (uint64_t)cases[i].number & UINT64_MAX >> (64 - 8 * cases[i].size));
    }
    ck_assert_mem_eq(copy.headers[count].value.data, "u\0\1", 3);
    ck_assert_mem_eq(find(&copy, "backhop-attempts")->value.data, "l\0\0\0\0\0\0\0\1", 9);
    free_decision(&made);
}
END_TEST

START_TEST(a_copy_may_have_strings_that_are_not_utf8_as_bytes)
{
    static const struct {
        const char *text;
        bh_type given, hidden;
    } cases[] = {
        {"gr\xc3\xbcn", BH_TYPE_STRING, BH_TYPE_STRING},
        {"\xff", BH_TYPE_STRING, BH_TYPE_BYTES},
        {"text", BH_TYPE_BYTES, BH_TYPE_BYTES},
        {"", BH_TYPE_STRING, BH_TYPE_STRING},
    };
    size_t count = sizeof cases / sizeof cases[0];
    decision made;
    static property_list copy;
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(
            bh_delivery_push(delivery,
                             &(bh_value){.type = cases[i].given, .name = bh_str("n"), .string = bh_str(cases[i].text)}),
            BH_OK);
    make_decision(&made, BH_OUTCOME_FAILED);
    for (int hidden = 0; hidden <= BH_HIDDEN_BYTES; hidden += BH_HIDDEN_BYTES) {
        ck_assert(property_list_read(&copy, bh_plan_copy_properties(made.plan, delivery, hidden)));
        for (size_t i = 0; i < count; i++) {
            bh_bytes value = copy.headers[i].value;
            ck_assert_int_eq(*value.data, hidden ? cases[i].hidden : cases[i].given);
            ck_assert_uint_eq(value.size, 5 + strlen(cases[i].text));
        }
    }
    free_decision(&made);
}
END_TEST

START_TEST(no_copy_is_written_of_a_delivery_that_has_not_all)
{
    decision made;
    bh_delivery *other = NULL;
    ck_assert_int_eq(bh_delivery_new(&other), BH_OK);
    ck_assert_int_eq(read((bh_bytes){"\0\0", 2}), BH_OK);
    make_decision(&made, BH_OUTCOME_FAILED);
    ck_assert_uint_gt(bh_plan_copy_properties(made.plan, delivery, 0).size, 0);
    ck_assert_uint_eq(bh_plan_copy_properties(made.plan, NULL, 0).size, 0);
    ck_assert_uint_eq(bh_plan_copy_properties(NULL, delivery, 0).size, 0);
    static const int64_t priorities[] = {-1, 256};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(bh_delivery_set_number(other, BH_PROPERTY_PRIORITY, priorities[i]), BH_OK);
        ck_assert_uint_eq(bh_plan_copy_properties(made.plan, other, 0).size, 0);
    }
    bh_delivery_clear(other);
    for (int i = 0; i <= BH_DELIVERY_MAX_DEPTH; i++)
        ck_assert_int_eq(push_open(other, BH_TYPE_ARRAY, "deep"), BH_OK);
    ck_assert_uint_eq(bh_plan_copy_properties(made.plan, other, 0).size, 0);
    for (int i = 0; i <= BH_DELIVERY_MAX_DEPTH; i++)
        ck_assert_int_eq(bh_delivery_end(other), BH_OK);
    ck_assert_uint_eq(bh_plan_copy_properties(made.plan, other, 0).size, 0);
    bh_delivery_free(other);
    free_decision(&made);
}
END_TEST

START_TEST(a_plan_without_a_copy_writes_none)
{
    decision made;
    ck_assert_int_eq(read((bh_bytes){"\0\0", 2}), BH_OK);
    make_decision(&made, BH_OUTCOME_OK);
    bh_bytes nothing = bh_plan_copy_properties(made.plan, delivery, 0);
    ck_assert_uint_eq(nothing.size, 0);
    ck_assert_str_eq(nothing.data, "");
    free_decision(&made);
}
END_TEST

START_TEST(a_copy_of_another_delivery_than_was_decided_on_has_void_for_what_is_not_there)
{
    decision made;
    static property_list copy;
    bh_delivery *other = NULL;
    ck_assert_int_eq(bh_delivery_new(&other), BH_OK);
    add_field(&headers, "CC", BH_TYPE_ARRAY, "\0\0\0\7S\0\0\0\2to", 11);
    ck_assert_int_eq(read(only_headers()), BH_OK);
    make_decision(&made, BH_OUTCOME_FAILED);
    ck_assert(property_list_read(&copy, bh_plan_copy_properties(made.plan, other, 0)));
    ck_assert_mem_eq(find(&copy, "backhop-cc")->value.data, "V", 1);
    bh_delivery_free(other);
    free_decision(&made);
}
END_TEST

START_TEST(a_copy_of_what_is_malformed_is_refused_and_writes_nothing)
{
    decision made;
    bh__buffer out = {.data = NULL};
    ck_assert_int_eq(read((bh_bytes){"\0\0", 2}), BH_OK);
    make_decision(&made, BH_OUTCOME_FAILED);
    ck_assert_int_eq(bh__content_copy(&out, made.plan, (bh_bytes){"\x20\0\0", 3}), BH_ERR_CONTENT);
    ck_assert_uint_eq(bh__buffer_size(&out), 0);
    bh__buffer_free(&out);
    free_decision(&made);
}
END_TEST

/* ---------------------------------------------------------------------------------------- strip */

START_TEST(what_is_published_again_neither_expires_nor_reaches_other_queues)
{
    static const char *const names[] = {"CC", "BCC", "x-delay", "x-delivery-count", "x-acquired-count"};
    static property_list stripped;
    bh__buffer out = {.data = NULL};
    add_text(&headers, "kept", "value");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        add_text(&headers, names[i], "payment");
    add_text(&headers, "cc", "kept too");
    add_number(&wire,
               flag(BH_PROPERTY_HEADERS) | flag(BH_PROPERTY_PRIORITY) | flag(BH_PROPERTY_EXPIRATION) |
                   flag(BH_PROPERTY_USER_ID),
               2);
    add_counted(&wire, 4, bytes_of(&headers));
    add_number(&wire, 7, 1);
    add_counted(&wire, 1, bh_str("100"));
    add_counted(&wire, 1, bh_str("alice"));
    ck_assert_int_eq(bh__content_strip(&out, bytes_of(&wire)), BH_OK);
    ck_assert(property_list_read(&stripped, bytes_of(&out)));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_ptr_null(find(&stripped, names[i]));
    ck_assert_ptr_nonnull(find(&stripped, "kept"));
    ck_assert_ptr_nonnull(find(&stripped, "cc"));
    ck_assert_int_eq(bh__content_read(delivery, bh_str(""), bh_str(""), bytes_of(&out)), BH_OK);
    ck_assert_int_eq(bh_delivery_number(delivery, BH_PROPERTY_PRIORITY), 7);
    ck_assert(!bh_delivery_has_property(delivery, BH_PROPERTY_EXPIRATION));
    ck_assert(!bh_delivery_has_property(delivery, BH_PROPERTY_USER_ID));
    bh__buffer_clear(&out);
    ck_assert_int_eq(bh__content_strip(&out, (bh_bytes){"\x20\0\0", 3}), BH_ERR_CONTENT);
    ck_assert_uint_eq(bh__buffer_size(&out), 0);
    bh__buffer_free(&out);
}
END_TEST

/* ---------------------------------------------------------------------------------- fingerprint */

static uint64_t fingerprint(const char *routing_key, const char *body, const char *const names[], size_t count)
{
    bh__buffer_clear(&headers);
    for (size_t i = 0; i < count; i++)
        add_text(&headers, names[i], names[i]);
    return bh__content_fingerprint((bh__siphash_key){1, 2}, bh_str("exchange"), bh_str(routing_key), only_headers(),
                                   bh_str(body));
}

START_TEST(F2_a_message_is_known_again_by_all_but_the_counts_of_its_deliveries)
{
    static const char *const first[] = {"a", "backhop-id"},
                             *const again[] = {"x-acquired-count", "backhop-id", "x-delivery-count", "a"},
                             *const other[] = {"b", "backhop-id"};
    uint64_t number = fingerprint("key", "body", first, 2);
    ck_assert(number != 0);
    ck_assert(fingerprint("key", "body", again, 4) == number);
    ck_assert(fingerprint("key", "body", other, 2) != number);
    ck_assert(fingerprint("key", "body", first + 1, 1) != number);
    ck_assert(fingerprint("key 2", "body", first, 2) != number);
    ck_assert(fingerprint("key", "body, and more", first, 2) != number);
    ck_assert(bh__content_fingerprint((bh__siphash_key){1, 2}, bh_str(""), bh_str(""), bh_str("?"), bh_str("")) == 0);
}
END_TEST

static uint64_t fingerprint_of(bh_bytes properties)
{
    return bh__content_fingerprint((bh__siphash_key){1, 2}, bh_str(""), bh_str(""), properties, bh_str("body"));
}

START_TEST(F2_a_message_without_an_id_is_never_known_again)
{
    static const char *const name[] = {"a"};
    ck_assert(fingerprint("key", "body", name, 1) == 0);
    ck_assert(fingerprint_of((bh_bytes){"\0\0", 2}) == 0);
    ck_assert(fingerprint_of((bh_bytes){"\0\x80\0", 3}) == 0); /* an empty message-id */
    ck_assert(fingerprint_of((bh_bytes){"\0\x80\1m", 4}) != 0);
    bh__buffer_clear(&headers);
    add_text(&headers, "backhop-id", "");
    ck_assert(fingerprint_of(only_headers()) == 0);
}
END_TEST

Suite *suite_content(void)
{
    Suite *suite = suite_create("content");
    TCase *reading = tcase_create("read");
    tcase_add_checked_fixture(reading, set_up, tear_down);
    tcase_add_test(reading, a_message_without_properties_is_read);
    tcase_add_test(reading, every_property_is_read);
    tcase_add_test(reading, what_was_read_before_is_gone);
    tcase_add_test(reading, every_type_of_header_is_read);
    tcase_add_test(reading, tables_and_arrays_are_read_as_they_nest);
    tcase_add_test(reading, a_hundred_thousand_levels_are_walked_without_recursion);
    tcase_add_test(reading, what_is_malformed_is_told_so_and_nothing_crashes);
    tcase_add_test(reading, what_follows_the_properties_is_not_looked_at);
    tcase_add_test(reading, a_header_that_is_a_string_is_found_without_a_delivery);
    suite_add_tcase(suite, reading);
    TCase *knowing = tcase_create("fingerprint");
    tcase_add_checked_fixture(knowing, set_up, tear_down);
    tcase_add_test(knowing, F2_a_message_without_an_id_is_never_known_again);
    tcase_add_test(knowing, F2_a_message_is_known_again_by_all_but_the_counts_of_its_deliveries);
    suite_add_tcase(suite, knowing);
    TCase *copying = tcase_create("copy");
    tcase_add_checked_fixture(copying, set_up, tear_down);
    tcase_add_test(copying, a_copy_has_the_properties_and_foreign_headers_byte_for_byte);
    tcase_add_test(copying, a_copy_of_a_message_without_headers_has_those_of_the_plan);
    tcase_add_test(copying, a_copy_of_the_delivery_alone_has_the_same_bytes);
    tcase_add_test(copying, a_copy_may_have_the_smallest_integers);
    tcase_add_test(copying, a_copy_may_have_strings_that_are_not_utf8_as_bytes);
    tcase_add_test(copying, no_copy_is_written_of_a_delivery_that_has_not_all);
    tcase_add_test(copying, a_plan_without_a_copy_writes_none);
    tcase_add_test(copying, a_copy_of_another_delivery_than_was_decided_on_has_void_for_what_is_not_there);
    tcase_add_test(copying, a_copy_of_what_is_malformed_is_refused_and_writes_nothing);
    tcase_add_test(copying, what_is_published_again_neither_expires_nor_reaches_other_queues);
    suite_add_tcase(suite, copying);
    return suite;
}
