#include "rig.h"

#include "model/properties.h"
#include "model/table.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    FRAME_METHOD = 1,
    FRAME_HEADER = 2,
    FRAME_BODY = 3,
    FRAME_END = 0xCE,
    FRAME_START = 7,
    POOL_BYTES = 4096,
    ROOM_BYTES = 65536
};

static void *must(void *pointer)
{
    ck_assert_ptr_nonnull(pointer);
    return pointer;
}

static amqp_bytes_t text_of(const char *text)
{
    return bh__to_amqp(bh_str(text));
}

/* --------------------------------------------------------------------------------------- frames */

static void flush(rig *self)
{
    model_receive(self->link, self->out.data + self->out.begin, bh__buffer_size(&self->out));
    bh__buffer_clear(&self->out);
}

void rig_write(rig *self, const void *bytes, size_t size)
{
    model_receive(self->link, bytes, size);
}

/* Replaces ck_assert, which allocates: a test of failing allocations writes too. */
static void require(int is_true)
{
    if (!is_true)
        abort();
}

static void put_frame(rig *self, int type, int channel, bh_bytes payload)
{
    require(bh__buffer_reserve(&self->out, payload.size + FRAME_START + 1));
    bh__put_number(&self->out, (uint64_t)type, 1);
    bh__put_number(&self->out, (uint64_t)channel, 2);
    bh__put_counted(&self->out, payload, 4);
    bh__put_number(&self->out, FRAME_END, 1);
}

void rig_write_frame(rig *self, int type, int channel, bh_bytes payload)
{
    put_frame(self, type, channel, payload);
    flush(self);
}

static void put_method(rig *self, int channel, amqp_method_number_t method, void *arguments)
{
    static char bytes[1 << 16];
    bh__buffer id = {.data = bytes, .capacity = sizeof bytes};
    bh__put_number(&id, method, 4);
    int size = amqp_encode_method(method, arguments, (amqp_bytes_t){sizeof bytes - 4, bytes + 4});
    require(size >= 0);
    put_frame(self, FRAME_METHOD, channel, (bh_bytes){bytes, (size_t)size + 4});
}

void rig_send(rig *self, int channel, amqp_method_number_t method, void *arguments)
{
    put_method(self, channel, method, arguments);
    flush(self);
}

/* Reads the next frame. Returns 0 if there is none. */
static int read_frame(rig *self)
{
    bh_bytes there = model_output(self->link);
    if (there.size < FRAME_START)
        return 0;
    size_t size = bh__get_number(there.data + 3, 4), whole = FRAME_START + size + 1;
    ck_assert_uint_ge(there.size, whole);
    ck_assert_int_eq((unsigned char)there.data[whole - 1], FRAME_END);
    bh__buffer_clear(&self->in);
    ck_assert(bh__buffer_reserve(&self->in, size));
    bh__put_bytes(&self->in, (bh_bytes){there.data + FRAME_START, size});
    self->frame = (rig_frame){.type = (unsigned char)there.data[0],
                              .channel = (int)bh__get_number(there.data + 1, 2),
                              .payload = {self->in.data, size}};
    model_sent(self->link, whole);
    if (self->frame.type != FRAME_METHOD)
        return 1;
    recycle_amqp_pool(&self->pool);
    self->frame.method.id = (uint32_t)bh__get_number(self->in.data, 4);
    bh_bytes arguments = {self->in.data + 4, size - 4};
    ck_assert_int_ge(
        amqp_decode_method(self->frame.method.id, &self->pool, bh__to_amqp(arguments), &self->frame.method.decoded), 0);
    return 1;
}

void *rig_expect(rig *self, amqp_method_number_t method)
{
    ck_assert_msg(read_frame(self), "nothing came instead of %s", amqp_method_name(method));
    ck_assert_int_eq(self->frame.type, FRAME_METHOD);
    if (self->frame.method.id == AMQP_CHANNEL_CLOSE_METHOD && method != AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *close = self->frame.method.decoded;
        ck_abort_msg("%.*s instead of %s", (int)close->reply_text.len, (char *)close->reply_text.bytes,
                     amqp_method_name(method));
    }
    ck_assert_str_eq(amqp_method_name(self->frame.method.id), amqp_method_name(method));
    return self->frame.method.decoded;
}

static void check_text(amqp_bytes_t text, const char *expected)
{
    char shown[256];
    snprintf(shown, sizeof shown, "%.*s", (int)text.len, (char *)text.bytes);
    ck_assert_str_eq(shown, expected);
}

void rig_expect_close(rig *self, int code, const char *text)
{
    ck_assert_msg(read_frame(self), "nothing came instead of a close: %s", text);
    if (self->frame.method.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = self->frame.method.decoded;
        check_text(close->reply_text, text);
        ck_assert_int_eq(close->reply_code, code);
        amqp_connection_close_ok_t ok = {0};
        rig_send(self, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
        ck_assert(model_is_closing(self->link));
        return;
    }
    ck_assert_str_eq(amqp_method_name(self->frame.method.id), "AMQP_CHANNEL_CLOSE_METHOD");
    const amqp_channel_close_t *close = self->frame.method.decoded;
    check_text(close->reply_text, text);
    ck_assert_int_eq(close->reply_code, code);
    int channel = self->frame.channel;
    amqp_channel_close_ok_t ok = {0};
    rig_send(self, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    rig_open_channel(self, channel);
}

void rig_expect_nothing(rig *self)
{
    int is_one = read_frame(self);
    ck_assert_msg(!is_one, "%s came",
                  is_one && self->frame.type == 1 ? amqp_method_name(self->frame.method.id) : "a frame");
}

/* ------------------------------------------------------------------------------------- sessions */

void rig_open_channel(rig *self, int channel)
{
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    amqp_confirm_select_t select = {0};
    rig_send(self, channel, AMQP_CHANNEL_OPEN_METHOD, &open);
    rig_expect(self, AMQP_CHANNEL_OPEN_OK_METHOD);
    rig_send(self, channel, AMQP_CONFIRM_SELECT_METHOD, &select);
    rig_expect(self, AMQP_CONFIRM_SELECT_OK_METHOD);
}

void rig_login(rig *self, int has_capabilities)
{
    amqp_table_entry_t able[] = {{.key = text_of("consumer_cancel_notify")},
                                 {.key = text_of("authentication_failure_close")},
                                 {.key = text_of("connection.blocked")}};
    for (size_t i = 0; i < 3; i++) {
        able[i].value.kind = AMQP_FIELD_KIND_BOOLEAN;
        able[i].value.value.boolean = 1;
    }
    amqp_table_entry_t capabilities = {.key = text_of("capabilities")};
    capabilities.value.kind = AMQP_FIELD_KIND_TABLE;
    capabilities.value.value.table = (amqp_table_t){3, able};
    amqp_connection_start_ok_t start = {.client_properties = {has_capabilities ? 1 : 0, &capabilities},
                                        .mechanism = text_of("PLAIN"),
                                        .response = bh__to_amqp((bh_bytes){"\0guest\0guest", 12}),
                                        .locale = text_of("en_US")};
    amqp_connection_tune_ok_t tune = {.channel_max = 2047, .frame_max = 131072};
    amqp_connection_open_t open = {.virtual_host = text_of("/"), .capabilities = amqp_empty_bytes};
    rig_write(self, "AMQP\0\0\x09\x01", 8);
    rig_expect(self, AMQP_CONNECTION_START_METHOD);
    rig_send(self, 0, AMQP_CONNECTION_START_OK_METHOD, &start);
    rig_expect(self, AMQP_CONNECTION_TUNE_METHOD);
    rig_send(self, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &tune);
    rig_send(self, 0, AMQP_CONNECTION_OPEN_METHOD, &open);
    rig_expect(self, AMQP_CONNECTION_OPEN_OK_METHOD);
    rig_open_channel(self, 1);
}

static rig *make(const model_settings *settings)
{
    rig *self = must(calloc(1, sizeof *self));
    init_amqp_pool(&self->pool, POOL_BYTES);
    ck_assert(bh__buffer_reserve(&self->out, ROOM_BYTES) && bh__buffer_reserve(&self->header, ROOM_BYTES));
    ck_assert_int_eq(model_new(&self->broker, settings), BH_OK);
    self->link = must(model_connect(self->broker));
    return self;
}

rig *rig_raw(const char *version)
{
    return make(&(model_settings){.version = version, .epoch_ms = INT64_C(1700000000000)});
}

rig *rig_new(const char *version)
{
    rig *self = rig_raw(version);
    rig_login(self, 1);
    return self;
}

rig *rig_with_tape(const char *version, const unsigned char *tape, size_t size)
{
    rig *self = make(&(model_settings){.version = version, .tape = tape, .tape_size = size});
    rig_login(self, 1);
    return self;
}

void rig_free(rig *self)
{
    model_free(self->broker);
    bh__buffer_free(&self->out);
    bh__buffer_free(&self->header);
    bh__buffer_free(&self->in);
    bh__buffer_free(&self->properties);
    bh__buffer_free(&self->body);
    empty_amqp_pool(&self->pool);
    free(self);
}

void rig_advance(rig *self, int64_t span_ms)
{
    model_advance(self->broker, model_now_ms(self->broker) + span_ms);
}

void rig_control(rig *self, const char *line)
{
    bh__report answer = {.status = BH_OK};
    bh_status status = model_control(self->broker, line, &answer);
    ck_assert_msg(status == BH_OK, "%s: %s", line, bh__report_text(&answer).data);
    bh__report_free(&answer);
}

/* --------------------------------------------------------------------------------------- queues */

static amqp_table_entry_t entry_of(const rig_entry *given)
{
    amqp_table_entry_t entry = {.key = text_of(given->name)};
    entry.value.kind = given->text ? AMQP_FIELD_KIND_UTF8 : AMQP_FIELD_KIND_I64;
    if (given->text)
        entry.value.value.bytes = text_of(given->text);
    else
        entry.value.value.i64 = given->number;
    return entry;
}

void rig_send_declare(rig *self, const char *queue, const char *type, const rig_entry *arguments, size_t count)
{
    amqp_table_entry_t entries[16];
    int used = 0;
    if (type)
        entries[used++] = entry_of(&(rig_entry){"x-queue-type", type, 0});
    for (size_t i = 0; i < count; i++)
        entries[used++] = entry_of(&arguments[i]);
    amqp_queue_declare_t declare = {.queue = text_of(queue), .durable = 1, .arguments = {used, entries}};
    rig_send(self, 1, AMQP_QUEUE_DECLARE_METHOD, &declare);
}

void rig_declare(rig *self, const char *queue, const char *type, const rig_entry *arguments, size_t count)
{
    rig_send_declare(self, queue, type, arguments, count);
    rig_expect(self, AMQP_QUEUE_DECLARE_OK_METHOD);
}

size_t rig_depth(rig *self, const char *queue)
{
    amqp_queue_declare_t declare = {.queue = text_of(queue), .passive = 1};
    rig_send(self, 1, AMQP_QUEUE_DECLARE_METHOD, &declare);
    const amqp_queue_declare_ok_t *ok = rig_expect(self, AMQP_QUEUE_DECLARE_OK_METHOD);
    return ok->message_count;
}

void rig_publish_raw(rig *self, const char *exchange, const char *key, const char *body, const bh__buffer *properties,
                     int is_mandatory)
{
    amqp_basic_publish_t publish = {
        .exchange = text_of(exchange), .routing_key = text_of(key), .mandatory = is_mandatory};
    bh__buffer *header = &self->header;
    bh_bytes list = properties ? (bh_bytes){properties->data + properties->begin, bh__buffer_size(properties)}
                               : (bh_bytes){"\0\0", 2};
    put_method(self, 1, AMQP_BASIC_PUBLISH_METHOD, &publish);
    bh__buffer_clear(header);
    require(bh__buffer_reserve(header, list.size + 12));
    bh__put_number(header, 60, 2);
    bh__put_number(header, 0, 2);
    bh__put_number(header, strlen(body), 8);
    bh__put_bytes(header, list);
    put_frame(self, FRAME_HEADER, 1, (bh_bytes){header->data, header->end});
    if (*body)
        put_frame(self, FRAME_BODY, 1, bh_str(body));
    flush(self);
}

void rig_publish(rig *self, const char *exchange, const char *key, const char *body, const char *expiration)
{
    bh__buffer list = {.data = NULL};
    model_properties properties = {.is_set = {0}};
    properties.is_set[MODEL_EXPIRATION] = expiration != NULL;
    properties.value[MODEL_EXPIRATION] = bh_str(expiration);
    ck_assert(model_properties_write(&list, &properties));
    rig_publish_raw(self, exchange, key, body, &list, 0);
    bh__buffer_free(&list);
    rig_expect(self, AMQP_BASIC_ACK_METHOD);
}

void rig_consume(rig *self, const char *queue, int prefetch)
{
    amqp_basic_qos_t qos = {.prefetch_count = (uint16_t)prefetch};
    amqp_basic_consume_t consume = {.queue = text_of(queue), .consumer_tag = amqp_empty_bytes};
    rig_send(self, 1, AMQP_BASIC_QOS_METHOD, &qos);
    rig_expect(self, AMQP_BASIC_QOS_OK_METHOD);
    rig_send(self, 1, AMQP_BASIC_CONSUME_METHOD, &consume);
    rig_expect(self, AMQP_BASIC_CONSUME_OK_METHOD);
}

/* Reads the header and the body after a method. */
static void read_content(rig *self, const char *body)
{
    ck_assert(read_frame(self));
    ck_assert_int_eq(self->frame.type, FRAME_HEADER);
    uint64_t size = bh__get_number(self->frame.payload.data + 4, 8);
    bh__buffer_clear(&self->properties);
    bh__buffer_clear(&self->body);
    ck_assert(bh__buffer_reserve(&self->properties, self->frame.payload.size));
    bh__put_bytes(&self->properties, (bh_bytes){self->frame.payload.data + 12, self->frame.payload.size - 12});
    while (bh__buffer_size(&self->body) < size) {
        ck_assert(read_frame(self));
        ck_assert_int_eq(self->frame.type, FRAME_BODY);
        ck_assert(bh__buffer_reserve(&self->body, self->frame.payload.size));
        bh__put_bytes(&self->body, self->frame.payload);
    }
    ck_assert_uint_eq(bh__buffer_size(&self->body), strlen(body));
    ck_assert_mem_eq(self->body.data ? self->body.data : "", body, strlen(body));
}

void rig_expect_delivery(rig *self, const char *body)
{
    const amqp_basic_deliver_t *deliver = rig_expect(self, AMQP_BASIC_DELIVER_METHOD);
    self->tag = deliver->delivery_tag;
    self->is_redelivered = deliver->redelivered;
    snprintf(self->key, sizeof self->key, "%.*s", (int)deliver->routing_key.len, (char *)deliver->routing_key.bytes);
    read_content(self, body);
}

void rig_get(rig *self, const char *queue, const char *body)
{
    amqp_basic_get_t get = {.queue = text_of(queue)};
    rig_send(self, 1, AMQP_BASIC_GET_METHOD, &get);
    const amqp_basic_get_ok_t *ok = rig_expect(self, body ? AMQP_BASIC_GET_OK_METHOD : AMQP_BASIC_GET_EMPTY_METHOD);
    if (!body)
        return;
    self->tag = ok->delivery_tag;
    self->is_redelivered = ok->redelivered;
    snprintf(self->key, sizeof self->key, "%.*s", (int)ok->routing_key.len, (char *)ok->routing_key.bytes);
    read_content(self, body);
}

void rig_ack(rig *self, uint64_t tag)
{
    amqp_basic_ack_t ack = {.delivery_tag = tag};
    rig_send(self, 1, AMQP_BASIC_ACK_METHOD, &ack);
}

void rig_nack(rig *self, uint64_t tag, int is_requeue)
{
    amqp_basic_nack_t nack = {.delivery_tag = tag, .requeue = is_requeue};
    rig_send(self, 1, AMQP_BASIC_NACK_METHOD, &nack);
}

void rig_reject(rig *self, uint64_t tag, int is_requeue)
{
    amqp_basic_reject_t reject = {.delivery_tag = tag, .requeue = is_requeue};
    rig_send(self, 1, AMQP_BASIC_REJECT_METHOD, &reject);
}
