#include "setups.h"
#include "../reading.h"
#include "suites.h"

#include <backhop/adapter/delivery.h>
#include <backhop/adapter/history.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_STRING_255                                                                                               \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"             \
    "0123456789012345678901234567890123456789012345678901234"

/* A message of the rig's work queue, and the broker's own copy of it in a sibling, to compare
 * with. */
typedef struct pair {
    message original;
    message copy;
} pair;

static void free_pair(pair *self)
{
    message_free(&self->original);
    message_free(&self->copy);
}

/* Publishes to the rig and fails once, or parks. *out is what then waits in the work queue, or in
 * the parked queue. */
static void go_round_once(rig *r, const amqp_basic_properties_t *properties, int is_parked, pair *out)
{
    const char *control = rig_sibling(r, "control", "work.#");
    broker_publish(r->broker, r->exchange, "work.a", properties, bh_str("body"));
    broker_get(r->broker, control, &out->original);
    rig_take(r, NULL);
    if (is_parked)
        rig_park(r, "no");
    else
        rig_fail(r, "507");
    rig_stop_worker(r);
    broker_get(r->broker, is_parked ? r->parked : r->queue, &out->copy);
}

static void expect_same_body(const pair *self)
{
    ck_assert_uint_eq(self->copy.body.size, self->original.body.size);
    ck_assert(memcmp(self->copy.body.data, self->original.body.data, self->original.body.size) == 0);
}

/* All 14 basic properties, headers of every type. Each table and array lives as long as the
 * process. */
static amqp_basic_properties_t every_property(void)
{
    static amqp_field_value_t values[20];
    static amqp_table_entry_t inner[4], middle[3], headers[32];
    static const char bytes[] = {0, 1, (char)0x80, (char)0xFF, 'S', 0};
    const bh_bytes binary = {bytes, sizeof bytes};

    amqp_table_entry_t decimal = {.key = amqp_cstring_bytes("decimal"), .value = {.kind = AMQP_FIELD_KIND_DECIMAL}};
    decimal.value.value.decimal.decimals = 3;
    decimal.value.value.decimal.value = 123456789;
    amqp_table_entry_t single = {.key = amqp_cstring_bytes("float"), .value = {.kind = AMQP_FIELD_KIND_F32}};
    single.value.value.f32 = -0.1F;
    amqp_table_entry_t twice = {.key = amqp_cstring_bytes("double"), .value = {.kind = AMQP_FIELD_KIND_F64}};
    twice.value.value.f64 = 1e300;
    amqp_table_entry_t zero = {.key = amqp_cstring_bytes("minus zero"), .value = {.kind = AMQP_FIELD_KIND_F64}};
    zero.value.value.f64 = -0.0;

    int count = 0;
    headers[count++] = entry_number("boolean", AMQP_FIELD_KIND_BOOLEAN, 1);
    headers[count++] = entry_number("int8", AMQP_FIELD_KIND_I8, -128);
    headers[count++] = entry_number("uint8", AMQP_FIELD_KIND_U8, 255);
    headers[count++] = entry_number("int16", AMQP_FIELD_KIND_I16, -32768);
    headers[count++] = entry_number("uint16", AMQP_FIELD_KIND_U16, 65535);
    headers[count++] = entry_number("int32", AMQP_FIELD_KIND_I32, INT32_MIN);
    headers[count++] = entry_number("uint32", AMQP_FIELD_KIND_U32, UINT32_MAX);
    headers[count++] = entry_number("int64", AMQP_FIELD_KIND_I64, INT64_MIN);
    headers[count++] = single;
    headers[count++] = twice;
    headers[count++] = zero;
    headers[count++] = decimal;
    headers[count++] = entry_string("string", "gr\xC3\xBC\xC3\x9F Gott");
    headers[count++] = entry_bytes("string that is no text", AMQP_FIELD_KIND_UTF8, binary);
    headers[count++] = entry_string("empty string", "");
    headers[count++] = entry_bytes("bytes", AMQP_FIELD_KIND_BYTES, binary);
    headers[count++] = entry_bytes("no bytes", AMQP_FIELD_KIND_BYTES, bh_str(""));
    headers[count++] = entry_number("timestamp", AMQP_FIELD_KIND_TIMESTAMP, INT64_C(4102444800));
    headers[count++] = entry_number("void", AMQP_FIELD_KIND_VOID, 0);
    headers[count++] = entry_string(SHORT_STRING_255, "a long name");

    for (int i = 0; i < 12; i++)
        values[i] = headers[i].value;
    inner[0] = entry_number("inner timestamp", AMQP_FIELD_KIND_TIMESTAMP, 1);
    inner[1] = entry_array("array of every number", values, 12);
    inner[2] = entry_array("empty array", NULL, 0);
    inner[3] = entry_table("empty table", NULL, 0);
    middle[0] = entry_table("inner", inner, 4);
    middle[1] = entry_string("inner", "a sibling by another type");
    middle[1].key = amqp_cstring_bytes("other");
    middle[2] = entry_bytes("inner bytes", AMQP_FIELD_KIND_BYTES, binary);
    values[12] = entry_table("", middle, 3).value;
    values[13] = entry_array("", values, 12).value;
    headers[count++] = entry_table("table", middle, 3);
    headers[count++] = entry_array("array of a table and an array", values + 12, 2);
    headers[count++] = entry_array("no elements", NULL, 0);
    headers[count++] = entry_table("no entries", NULL, 0);

    amqp_basic_properties_t properties = {._flags = 0xFFFC,
                                          .content_type = amqp_cstring_bytes("application/json"),
                                          .content_encoding = amqp_cstring_bytes("gzip"),
                                          .headers = {count, headers},
                                          .delivery_mode = 1,
                                          .priority = 7,
                                          .correlation_id = amqp_cstring_bytes(SHORT_STRING_255),
                                          .reply_to = amqp_cstring_bytes("answers"),
                                          .expiration = amqp_cstring_bytes("3600000"),
                                          .message_id = amqp_cstring_bytes("4711"),
                                          .timestamp = 1700000000,
                                          .type = amqp_cstring_bytes("cdn.purge"),
                                          .app_id = amqp_cstring_bytes("live tests"),
                                          .cluster_id = amqp_cstring_bytes("a cluster")};
    static char user[256];
    struct amqp_connection_info info;
    char *url = strdup(broker_url());
    ck_assert_ptr_nonnull(url);
    ck_assert_int_eq(amqp_parse_url(url, &info), AMQP_STATUS_OK);
    snprintf(user, sizeof user, "%s", info.user);
    free(url);
    properties.user_id = amqp_cstring_bytes(user);
    return properties;
}

static void expect_every_property(const pair *self)
{
    for (int i = 0; i < BH_PROPERTY_LAST; i++)
        ck_assert_msg(self->original.properties[i].data != NULL, "property %d was not sent", i);
    expect_same_body(self);
    expect_same_properties(&self->copy, &self->original);
    expect_same_headers(&self->copy, &self->original);
    bh_bytes user = self->original.properties[BH_PROPERTY_USER_ID];
    bh_bytes kept = message_string(&self->copy, "backhop-user-id");
    ck_assert_uint_eq(kept.size, user.size);
    ck_assert(memcmp(kept.data, user.data, user.size) == 0);
    expect_bytes(message_string(&self->copy, "backhop-expiration"), "3600000");
    expect_bytes(message_string(&self->copy, "backhop-id"), "4711");
}

START_TEST(a_retried_copy_has_every_property_and_header_type_as_it_was)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    amqp_basic_properties_t properties = every_property();
    pair found;
    go_round_once(r, &properties, 0, &found);
    expect_every_property(&found);
    expect_history(&found.copy, r, 1, "507");
    ck_assert_int_eq(message_int(&found.copy, "backhop-delay"), RIG_DELAY_MS);
    expect_bytes(message_string(&found.copy, "backhop-exchange"), r->exchange);
    expect_bytes(message_string(&found.copy, "backhop-routing-key"), "work.a");
    ck_assert_uint_eq(message_header(&found.copy, "BCC").size, 0);
    ck_assert_uint_eq(message_header(&found.copy, "CC").size, 0);
    free_pair(&found);
    rig_free(r);
}
END_TEST

START_TEST(a_parked_copy_has_every_property_and_header_type_as_it_was)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    amqp_basic_properties_t properties = every_property();
    pair found;
    go_round_once(r, &properties, 1, &found);
    expect_every_property(&found);
    expect_history(&found.copy, r, 1, "no");
    free_pair(&found);
    rig_free(r);
}
END_TEST

/* RabbitMQ reads L as l, and writes it so if it writes headers anew: the bytes are the same. */
START_TEST(a_uint64_comes_back_with_its_bytes)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    amqp_table_entry_t header = entry_number("uint64", AMQP_FIELD_KIND_U64, INT64_MAX - 1);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    pair found;
    go_round_once(r, &properties, 0, &found);
    bh_bytes original = message_header(&found.original, "uint64"), copy = message_header(&found.copy, "uint64");
    ck_assert_uint_eq(original.size, 9);
    ck_assert_uint_eq(copy.size, 9);
    ck_assert(memcmp(copy.data + 1, original.data + 1, 8) == 0);
    ck_assert(copy.data[0] == 'L' || copy.data[0] == 'l');
    free_pair(&found);
    rig_free(r);
}
END_TEST

START_TEST(a_message_without_properties_gets_an_id_that_all_its_copies_share)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    amqp_basic_properties_t none = {._flags = 0};
    pair found;
    go_round_once(r, &none, 0, &found);
    ck_assert_ptr_null(found.original.properties[BH_PROPERTY_HEADERS].data);
    expect_same_properties(&found.copy, &found.original);
    expect_history(&found.copy, r, 1, "507");
    bh_bytes id = message_string(&found.copy, "backhop-id");
    ck_assert_uint_eq(id.size, 32);
    ck_assert(bh_event_string(r->event, BH_FIELD_ID).size == 32 &&
              memcmp(bh_event_string(r->event, BH_FIELD_ID).data, id.data, 32) == 0);
    broker_reject(r->broker, &found.copy, 1);
    rig_make_worker(r);
    rig_connect(r);
    rig_take(r, "body");
    expect_attempt(r, 2);
    rig_park(r, "no");
    message parked;
    broker_get(r->broker, r->parked, &parked);
    bh_bytes parked_id = message_string(&parked, "backhop-id");
    ck_assert(parked_id.size == 32 && memcmp(parked_id.data, id.data, 32) == 0);
    message_free(&parked);
    free_pair(&found);
    rig_free(r);
}
END_TEST

START_TEST(bodies_come_back_as_they_were)
{
    static const size_t sizes[] = {0, 1, 300, 131072 - 8, 131072 - 7, 10 * 1024 * 1024};
    rig *r = setup_rig(_i);
    rig_start(r);
    char *body = malloc(sizes[5]);
    ck_assert_ptr_nonnull(body);
    uint32_t random = 1;
    for (size_t i = 0; i < sizes[5]; i++) {
        random = random * 1664525 + 1013904223;
        body[i] = (char)(random >> 24); /* one in 256 is a zero byte */
    }
    body[0] = '\0';
    amqp_basic_properties_t properties = {._flags = 0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        bh_bytes sent = {body, sizes[i]};
        broker_publish(r->broker, r->exchange, "work.a", &properties, sent);
        for (int attempt = 1; attempt <= 2; attempt++) {
            rig_take(r, NULL);
            bh_bytes got = bh_message_body(r->message);
            expect_attempt(r, attempt);
            ck_assert_uint_eq(got.size, sent.size);
            ck_assert(memcmp(got.data, sent.data, sent.size) == 0);
            if (attempt == 1)
                rig_fail(r, "507");
        }
        rig_park(r, "");
        message parked;
        broker_get(r->broker, r->parked, &parked);
        ck_assert_uint_eq(parked.body.size, sent.size);
        ck_assert(memcmp(parked.body.data, sent.data, sent.size) == 0);
        broker_ack(r->broker, &parked);
        message_free(&parked);
    }
    free(body);
    rig_free(r);
}
END_TEST

START_TEST(a_user_id_of_someone_else_goes_into_a_header)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    char url[4096];
    broker_add_user("live.other", "secret", "/", ".*");
    broker_make_url(url, sizeof url, "live.other", "secret", NULL, 0);
    broker *other = broker_open_url(url);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_USER_ID_FLAG,
                                          .user_id = amqp_cstring_bytes("live.other")};
    broker_publish(other, r->exchange, "work.a", &properties, bh_str("first"));
    broker_close(other);
    broker_delete_user("live.other");
    for (int attempt = 1; attempt <= 3; attempt++) {
        rig_take(r, "first");
        expect_attempt(r, attempt);
        rig_fail(r, "507"); /* the third time it is parked */
    }
    message parked;
    broker_get(r->broker, r->parked, &parked);
    ck_assert_ptr_null(parked.properties[BH_PROPERTY_USER_ID].data);
    expect_bytes(message_string(&parked, "backhop-user-id"), "live.other");
    message_free(&parked);
    rig_free(r);
}
END_TEST

START_TEST(cc_and_bcc_reach_their_queues_once_and_never_again)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    const char *cc_queue = rig_sibling(r, "cc", "copies.cc"), *bcc_queue = rig_sibling(r, "bcc", "copies.bcc");
    const char *victim = rig_name(r, "victim");
    char victim_key[300];
    snprintf(victim_key, sizeof victim_key, "backhop:%s", victim);
    broker_declare_classic(r->broker, victim);
    if (setups[_i].strategy != BH_STRATEGY_REJECT && setups[_i].strategy != BH_STRATEGY_NATIVE)
        broker_bind(r->broker, victim, rig_name(r, "return"), victim_key);

    amqp_field_value_t cc[2] = {entry_string("", "copies.cc").value, entry_string("", victim_key).value};
    amqp_field_value_t bcc[2] = {entry_string("", "copies.bcc").value, entry_string("", victim_key).value};
    amqp_table_entry_t headers[2] = {entry_array("CC", cc, 2), entry_array("BCC", bcc, 2)};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {2, headers}};
    broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str("first"));
    for (int attempt = 1; attempt <= 3; attempt++) {
        rig_take(r, "first");
        expect_attempt(r, attempt);
        expect_bytes(past_of(r->history).routing_key, "work.a");
        rig_fail(r, "507");
    }
    message control, parked;
    broker_get(r->broker, cc_queue, &control);
    broker_get(r->broker, r->parked, &parked);
    bh_bytes original = message_header(&control, "CC"), kept = message_header(&parked, "backhop-cc");
    ck_assert_uint_gt(original.size, 0);
    ck_assert_uint_eq(message_header(&parked, "CC").size, 0);
    ck_assert_uint_eq(kept.size, original.size);
    ck_assert(memcmp(kept.data, original.data, original.size) == 0);
    ck_assert_int_eq(broker_depth(r->broker, cc_queue), 0);
    broker_await_depth(r->broker, bcc_queue, 1);
    ck_assert_int_eq(broker_depth(r->broker, victim), 0);
    message_free(&control);
    message_free(&parked);
    rig_free(r);
}
END_TEST

START_TEST(an_expiration_ends_with_the_first_failure_and_stays_readable)
{
    enum { EXPIRATION = 400, DELAY = 600 };
    rig *r = setup_rig(_i);
    policy_set_initial_ms(r->policy, DELAY);
    rig_start(r);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_EXPIRATION_FLAG,
                                          .expiration = amqp_cstring_bytes("400")};
    int is_taken = 0;
    for (int i = 0; i < 20 && !is_taken; i++) { /* on a busy machine it may expire before it is taken */
        broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str("first"));
        is_taken = rig_try_take(r, EXPIRATION);
    }
    int64_t failed_at = now_ms();
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_waited(failed_at, DELAY);
    ck_assert(!bh_delivery_has_property(r->delivery, BH_PROPERTY_EXPIRATION));
    pause_ms(EXPIRATION); /* a message that the broker sent ahead does not expire, so let it */
    rig_stop_worker(r);
    message copy;
    broker_get(r->broker, r->queue, &copy);
    expect_bytes(message_string(&copy, "backhop-expiration"), "400");
    message_free(&copy);
    rig_free(r);
}
END_TEST

START_TEST(a_routing_key_of_255_bytes_is_kept)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    char key[256];
    memset(key, 'k', 255);
    memcpy(key, "work.", 5);
    key[255] = '\0';
    rig_publish(r, key, "first");
    for (int attempt = 1; attempt <= 3; attempt++) {
        rig_take(r, "first");
        expect_attempt(r, attempt);
        expect_bytes(past_of(r->history).routing_key, key);
        expect_bytes(delivery_view_of(r->delivery).routing_key, key);
        rig_fail(r, "507");
    }
    message parked;
    broker_get(r->broker, r->parked, &parked);
    expect_bytes(message_string(&parked, "backhop-routing-key"), key);
    message_free(&parked);
    rig_free(r);
}
END_TEST

/* -------------------------------------------------------------------------------- large headers */

static void expect_filler(const message *found, size_t spare)
{
    bh_bytes value = message_header(found, "filler");
    size_t different = 0;
    ck_assert_uint_eq(value.size, 5 + FRAME_ROOM - FILLER_OVERHEAD - spare);
    for (size_t i = 5; i < value.size; i++)
        different += value.data[i] != (char)(i - 5);
    ck_assert_uint_eq(different, 0);
}

/* Messages that leave less and less room in the frame fail. The retried ones come back, although
 * the broker adds x-death to them. The others are parked, and keep their headers. */
static void fail_large_messages(rig *r, const char *routing_key)
{
    static const size_t spare[] = {8192, 4096, 3072, 2560, 2048, 1536, 1024, 768, 512, 384, 300, 200, 100, 50, 1};
    enum { GET_ADDS = 26 }; /* x-delivery-count: 3.10 adds it to its answer to basic.get */
    int retried = 0, parked = 0;
    for (size_t i = 0; i < sizeof spare / sizeof spare[0]; i++) {
        broker_publish_filled(r->broker, r->exchange, routing_key, spare[i], bh_str("first"));
        rig_take(r, "first");
        rig_fail(r, "an error that is the first to be left out");
        if (bh_event_what(r->event) == BH_EVENT_RETRIED) {
            retried++;
            ck_assert_msg(rig_try_take(r, LIMIT_MS), "with %zu bytes to spare it was retried and does not come back",
                          spare[i]);
            expect_attempt(r, 2);
            expect_bytes(past_of(r->history).routing_key, routing_key);
            rig_succeed(r);
            continue;
        }
        parked++;
        expect_parked(r, "oversized");
        broker_await_depth(r->broker, r->parked, 1);
        if (spare[i] > GET_ADDS) {
            message found;
            broker_get(r->broker, r->parked, &found);
            expect_filler(&found, spare[i]);
            broker_ack(r->broker, &found);
            message_free(&found);
        } else {
            broker_purge(r->broker, r->parked);
        }
    }
    ck_assert_int_ge(retried, 1);
    ck_assert_int_ge(parked, 1);
}

START_TEST(headers_near_frame_max_come_back_or_are_parked)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    fail_large_messages(r, "work.a");
    rig_free(r);
}
END_TEST

START_TEST(headers_near_frame_max_come_back_or_are_parked_with_the_longest_names)
{
    rig *r = setup_rig(_i);
    char ns[201], queue[BH_TOPOLOGY_LONGEST_NAME + 1], key[256];
    memset(ns, 'n', 200);
    memcpy(ns, r->ns, strlen(r->ns));
    memset(queue, 'q', BH_TOPOLOGY_LONGEST_NAME);
    memcpy(queue, r->ns, strlen(r->ns));
    memset(key, 'k', 255);
    memcpy(key, "work.", 5);
    ns[200] = queue[BH_TOPOLOGY_LONGEST_NAME] = key[255] = '\0';
    rig_rename(r, ns, queue);
    rig_start(r);
    fail_large_messages(r, key);
    rig_free(r);
}
END_TEST

START_TEST(headers_that_leave_no_room_at_all_stay_in_the_work_queue)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    broker_publish_filled(r->broker, r->exchange, "work.a", 0, bh_str("first"));
    static const bh_outcome outcomes[] = {BH_OUTCOME_FAILED, BH_OUTCOME_PERMANENT};
    for (size_t i = 0; i < sizeof outcomes / sizeof outcomes[0]; i++) {
        rig_take(r, "first");
        expect_attempt(r, 1);
        rig_settle(r, outcomes[i], "507", 0);
        expect_event(r, BH_EVENT_REFUSED, BH_ERR_FRAME, "frame_max");
        expect_status(r->worker, settle_as(r->worker, r->message, BH_OUTCOME_OK, "", 0), BH_ERR_STATE);
        rig_restart(r, BH_MODE_CREATE); /* its connection's end gives the message back */
    }
    rig_take(r, "first");
    expect_attempt(r, 1);
    rig_succeed(r);
    rig_stop_worker(r);
    ck_assert_int_eq(broker_depth(r->broker, r->queue), 0);
    ck_assert_int_eq(broker_depth(r->broker, r->parked), 0);
    rig_free(r);
}
END_TEST

/* ------------------------------------------------------------------------------- nested headers */

enum { DEEPEST = 64 };

/* A table in a table in a table: `depth` of them. */
static void publish_nested(const rig *r, int depth)
{
    static amqp_table_entry_t tables[DEEPEST + 1];
    tables[0] = entry_string("innermost", "here");
    for (int i = 1; i <= depth; i++)
        tables[i] = entry_table("nested", &tables[i - 1], 1);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &tables[depth]}};
    broker_publish(r->broker, r->exchange, "work.a", &properties, bh_str("first"));
}

START_TEST(deeply_nested_headers_come_back_as_they_were)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    const char *control = rig_sibling(r, "control", "work.#");
    publish_nested(r, BH_DELIVERY_MAX_DEPTH - 2);
    rig_take(r, "first");
    rig_fail(r, "507");
    expect_retried(r, RIG_DELAY_MS);
    rig_stop_worker(r);
    pair found;
    broker_get(r->broker, control, &found.original);
    broker_get(r->broker, r->queue, &found.copy);
    expect_same_headers(&found.copy, &found.original);
    free_pair(&found);
    rig_free(r);
}
END_TEST

START_TEST(headers_nested_too_deep_to_read_come_back_as_they_were)
{
    rig *r = setup_rig(_i);
    rig_start(r);
    const char *control = rig_sibling(r, "control", "work.#");
    publish_nested(r, DEEPEST);
    rig_take(r, "first");
    ck_assert(delivery_view_of(r->delivery).is_truncated);
    rig_fail(r, "507");
    rig_take(r, "first");
    expect_attempt(r, 2);
    rig_park(r, "no");
    pair found;
    broker_get(r->broker, control, &found.original);
    broker_get(r->broker, r->parked, &found.copy);
    expect_same_headers(&found.copy, &found.original);
    free_pair(&found);
    rig_free(r);
}
END_TEST

Suite *suite_copies(void)
{
    Suite *suite = suite_create("copies");
    const setup_test tests[] = {
        {a_retried_copy_has_every_property_and_header_type_as_it_was, 1},
        {a_parked_copy_has_every_property_and_header_type_as_it_was, 0},
        {a_uint64_comes_back_with_its_bytes, 1},
        {a_message_without_properties_gets_an_id_that_all_its_copies_share, 1},
        {bodies_come_back_as_they_were, 0},
        {cc_and_bcc_reach_their_queues_once_and_never_again, 0},
        {an_expiration_ends_with_the_first_failure_and_stays_readable, 1},
        {a_routing_key_of_255_bytes_is_kept, 0},
        {headers_near_frame_max_come_back_or_are_parked, 1},
        {headers_near_frame_max_come_back_or_are_parked_with_the_longest_names, 1},
        {headers_that_leave_no_room_at_all_stay_in_the_work_queue, 1},
        {deeply_nested_headers_come_back_as_they_were, 1},
        {headers_nested_too_deep_to_read_come_back_as_they_were, 0},
    };
    setup_add_tests(suite, tests, sizeof tests / sizeof tests[0]);
    if (broker_can_be_controlled())
        tcase_add_loop_test(add_case(suite, "user-id"), a_user_id_of_someone_else_goes_into_a_header, setup_first(),
                            setup_first() + 1);
    return suite;
}
