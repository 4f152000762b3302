#include "suites.h"
#include "vectors.h"
#include "../reading.h"

#include <math.h>

static vectors all;

static void compare_properties(vector *v, const bh_delivery *d)
{
    const json_t *expected = json_object_get(v->expect, "properties");
    if (!expected)
        return;
    for (const vector_name *p = vector_properties; p->name; p++) {
        bh_property property = (bh_property)p->value;
        const json_t *value = json_object_get(expected, p->name);
        same_int(v, p->name, value != NULL, bh_delivery_has_property(d, property));
        int is_number = json_is_integer(value);
        int is_text = value && !is_number && property != BH_PROPERTY_HEADERS;
        same_int(v, p->name, is_number ? vector_int(v, p->name, value) : 0, bh_delivery_number(d, property));
        same_bytes(v, p->name, is_text ? vector_bytes(v, p->name, value) : bh_str(""),
                   bh_delivery_property(d, property));
    }
    for (void *i = json_object_iter((json_t *)expected); i; i = json_object_iter_next((json_t *)expected, i)) {
        json_t *name = json_string(json_object_iter_key(i));
        vector_name_value(v, "properties", name, vector_properties);
        json_decref(name);
    }
}

static void compare_headers(vector *v, const bh_delivery *d)
{
    const json_t *expected = json_object_get(v->expect, "headers");
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *entry = json_array_get(expected, i);
        bh_bytes name = vector_bytes(v, "headers", json_array_get(entry, 0));
        const json_t *content;
        bh_type type = vector_value(v, "headers", json_array_get(entry, 1), &content);
        const char *field = vector_show(name);
        same_int(v, field, type, header_of(d, name).type);
        int64_t number = 0;
        if (type == BH_TYPE_BOOLEAN)
            number = json_is_true(content);
        else if (strchr("bBsuIilLT", type))
            number = vector_int(v, field, content);
        else if (type == BH_TYPE_DECIMAL)
            number = vector_int(v, field, json_object_get(content, "value"));
        same_int(v, field, number, header_of(d, name).integer);
        int is_text = type == BH_TYPE_STRING || type == BH_TYPE_BYTES;
        same_bytes(v, field, is_text ? vector_bytes(v, field, content) : bh_str(""), header_of(d, name).string);
    }
    const json_t *absent = json_object_get(v->expect, "absent");
    for (size_t i = 0; i < json_array_size(absent); i++) {
        bh_bytes name = vector_bytes(v, "absent", json_array_get(absent, i));
        same_int(v, vector_show(name), 0, header_of(d, name).type);
        same_int(v, vector_show(name), 0, header_of(d, name).integer);
        same_bytes(v, vector_show(name), bh_str(""), header_of(d, name).string);
    }
}

static size_t compare_values(vector *v, const bh_delivery *d, const json_t *entries, bh_type in, size_t index);

/* The value at the index, with all that is in it; returns the index after it. */
static size_t compare_value(vector *v, const bh_delivery *d, bh_bytes name, const json_t *value, size_t index)
{
    const json_t *content;
    bh_type type = vector_value(v, "values", value, &content);
    const char *field = vector_show(name);
    same_int(v, field, type, value_at(d, index).type);
    same_bytes(v, field, name, value_at(d, index).name);
    size_t end = index + 1;
    int64_t number = 0, places = 0;
    double real = 0;
    bh_bytes text = bh_str("");
    if (type == BH_TYPE_ARRAY || type == BH_TYPE_TABLE)
        end = compare_values(v, d, content, type, end);
    else if (type == BH_TYPE_STRING || type == BH_TYPE_BYTES)
        text = vector_bytes(v, field, content);
    else if (type == BH_TYPE_FLOAT || type == BH_TYPE_DOUBLE)
        real = vector_double(v, field, content);
    else if (type == BH_TYPE_BOOLEAN)
        number = json_is_true(content);
    else if (type == BH_TYPE_DECIMAL) {
        number = vector_int(v, field, json_object_get(content, "value"));
        places = vector_int(v, field, json_object_get(content, "places"));
    } else if (type != BH_TYPE_VOID)
        number = vector_int(v, field, content);
    same_int(v, field, (int64_t)end, (int64_t)value_at(d, index).end);
    same_int(v, field, number, value_at(d, index).integer);
    same_int(v, field, places, value_at(d, index).places);
    same_bytes(v, field, text, value_at(d, index).string);
    double got = value_at(d, index).number;
    same_int(v, field, 1, isnan(real) ? isnan(got) : real >= got && real <= got);
    return end;
}

static size_t compare_values(vector *v, const bh_delivery *d, const json_t *entries, bh_type in, size_t index)
{
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i);
        if (in == BH_TYPE_ARRAY)
            index = compare_value(v, d, bh_str(""), entry, index);
        else
            index = compare_value(v, d, vector_bytes(v, "values", json_array_get(entry, 0)), json_array_get(entry, 1),
                                  index);
    }
    return index;
}

static void compare_all_values(vector *v, const bh_delivery *d)
{
    const json_t *expected = json_object_get(v->expect, "values");
    if (!expected)
        return;
    size_t count = compare_values(v, d, expected, BH_TYPE_TABLE, 0);
    same_int(v, "value_count", (int64_t)count, (int64_t)delivery_view_of(d).value_count);
}

START_TEST(a_vector)
{
    vector *v = &all.cases[_i];
    vector_begin(v, "delivery", "status exchange routing_key properties headers values absent truncated header_bytes");
    bh_delivery *d = NULL;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    /* Twice: an object that is cleared is as good as a new one. */
    vector_fill_delivery(v, vector_get(v, "delivery"), d);
    bh_delivery_clear(d);
    bh_status status = vector_fill_delivery(v, vector_get(v, "delivery"), d);
    if (expect_status(v, status, bh_str(""))) {
        expect_bytes(v, v->expect, "exchange", delivery_view_of(d).exchange);
        expect_bytes(v, v->expect, "routing_key", delivery_view_of(d).routing_key);
        compare_properties(v, d);
        compare_headers(v, d);
        compare_all_values(v, d);
        expect_flag(v, v->expect, "truncated", delivery_view_of(d).is_truncated);
        expect_int(v, v->expect, "header_bytes", bh_delivery_header_bytes(d));
    }
    bh_delivery_free(d);
    vector_end(v);
}
END_TEST

START_TEST(missing_arguments_are_refused)
{
    bh_bytes text = bh_str("a");
    ck_assert_int_eq(bh_delivery_new(NULL), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_address(NULL, text, text), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_property(NULL, BH_PROPERTY_TYPE, text), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_number(NULL, BH_PROPERTY_PRIORITY, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_INT64, .name = text, .integer = 1}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_DOUBLE, .name = text, .number = 1}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_STRING, .name = text, .string = text}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(
        bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_DECIMAL, .name = text, .integer = 1, .places = 2}),
        BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_VOID, .name = text}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_TABLE, .name = text}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(NULL, &(bh_value){.type = BH_TYPE_ARRAY, .name = text}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_end(NULL), BH_ERR_ARGUMENT);
    bh_delivery_free(NULL);
}
END_TEST

START_TEST(a_value_of_the_wrong_kind_is_refused_and_nothing_is_pushed)
{
    bh_delivery *d = NULL;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    bh_bytes name = bh_str("n");
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_STRING, .name = name, .integer = 1}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_DOUBLE, .name = name, .integer = 1}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = (bh_type)0, .name = name, .integer = 1}), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_INT64, .name = name, .number = 1}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_TABLE, .name = name, .string = name}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_push(d, &(bh_value){.type = BH_TYPE_INT64, .name = name, .string = name}),
                     BH_ERR_ARGUMENT);
    ck_assert_int_eq(header_of(d, name).type, 0);
    ck_assert_int_eq(bh_delivery_has_property(d, BH_PROPERTY_HEADERS), 0);
    ck_assert_int_eq(bh_delivery_set_property(d, BH_PROPERTY_HEADERS, name), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_property(d, BH_PROPERTY_PRIORITY, name), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_property(d, BH_PROPERTY_LAST, name), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_property(d, (bh_property)-1, name), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_number(d, BH_PROPERTY_TYPE, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_number(d, BH_PROPERTY_HEADERS, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_set_number(d, BH_PROPERTY_LAST, 1), BH_ERR_ARGUMENT);
    ck_assert_int_eq(bh_delivery_header_bytes(d), 2);
    bh_delivery_free(d);
}
END_TEST

START_TEST(an_end_without_a_begin_is_refused)
{
    bh_delivery *d = NULL;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_delivery_end(d), BH_ERR_STATE);
    ck_assert_int_eq(push_open(d, BH_TYPE_TABLE, "t"), BH_OK);
    ck_assert_int_eq(bh_delivery_end(d), BH_OK);
    ck_assert_int_eq(bh_delivery_end(d), BH_ERR_STATE);
    bh_delivery_free(d);
}
END_TEST

START_TEST(clear_forgets_everything_and_an_open_table_too)
{
    bh_delivery *d = NULL;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(bh_delivery_set_address(d, bh_str("e"), bh_str("r")), BH_OK);
    ck_assert_int_eq(bh_delivery_set_property(d, BH_PROPERTY_TYPE, bh_str("t")), BH_OK);
    ck_assert_int_eq(bh_delivery_set_number(d, BH_PROPERTY_PRIORITY, 3), BH_OK);
    ck_assert_int_eq(push_open(d, BH_TYPE_TABLE, "t"), BH_OK);
    bh_delivery_clear(d);
    ck_assert_int_eq(bh_delivery_end(d), BH_ERR_STATE);
    ck_assert_uint_eq(delivery_view_of(d).exchange.size, 0);
    ck_assert_uint_eq(delivery_view_of(d).routing_key.size, 0);
    ck_assert_int_eq(bh_delivery_has_property(d, BH_PROPERTY_TYPE), 0);
    ck_assert_int_eq(bh_delivery_has_property(d, BH_PROPERTY_PRIORITY), 0);
    ck_assert_int_eq(bh_delivery_has_property(d, BH_PROPERTY_HEADERS), 0);
    ck_assert_int_eq(header_of(d, bh_str("t")).type, 0);
    ck_assert_int_eq(bh_delivery_header_bytes(d), 2);
    bh_delivery_free(d);
}
END_TEST

START_TEST(beyond_the_last_value_there_is_nothing)
{
    bh_delivery *d = NULL;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    ck_assert_int_eq(push_text(d, "a", "b"), BH_OK);
    const bh_delivery *deliveries[] = {d, NULL};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(delivery_view_of(deliveries[i]).value_count, 1 - i);
        for (size_t index = 1 - i; index < 3; index++) {
            ck_assert_int_eq(value_at(deliveries[i], index).type, 0);
            ck_assert_uint_eq(value_at(deliveries[i], index).name.size, 0);
            ck_assert_uint_eq(value_at(deliveries[i], index).end, 0);
            ck_assert_uint_eq(value_at(deliveries[i], index).string.size, 0);
            ck_assert_int_eq(value_at(deliveries[i], index).integer, 0);
            ck_assert(value_at(deliveries[i], index).number == 0);
            ck_assert_int_eq(value_at(deliveries[i], index).places, 0);
        }
    }
    bh_delivery_free(d);
}
END_TEST

START_TEST(what_was_pushed_is_copied)
{
    bh_delivery *d = NULL;
    ck_assert_int_eq(bh_delivery_new(&d), BH_OK);
    char name[] = "name";
    char value[] = "value";
    ck_assert_int_eq(push_text(d, name, value), BH_OK);
    ck_assert_int_eq(bh_delivery_set_address(d, bh_str(value), bh_str("")), BH_OK);
    memset(name, 'x', 4);
    memset(value, 'x', 5);
    ck_assert_str_eq(header_of(d, bh_str("name")).string.data, "value");
    ck_assert_str_eq(delivery_view_of(d).exchange.data, "value");
    bh_delivery_free(d);
}
END_TEST

Suite *suite_delivery(void)
{
    all = vectors_load("delivery");
    Suite *suite = suite_create("delivery");
    vectors_add(suite, &all, a_vector);
    TCase *calls = tcase_create("calls");
    tcase_add_test(calls, missing_arguments_are_refused);
    tcase_add_test(calls, a_value_of_the_wrong_kind_is_refused_and_nothing_is_pushed);
    tcase_add_test(calls, an_end_without_a_begin_is_refused);
    tcase_add_test(calls, clear_forgets_everything_and_an_open_table_too);
    tcase_add_test(calls, beyond_the_last_value_there_is_nothing);
    tcase_add_test(calls, what_was_pushed_is_copied);
    suite_add_tcase(suite, calls);
    return suite;
}
