/* Login: PLAIN and AMQPLAIN, and the limits that client and broker agree on. */
#include "model/login.h"

#include "model/closing.h"
#include "model/output.h"
#include "model/table.h"
#include "model/users.h"

#include <stdlib.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data
enum { CHANNEL_MAX = 2047, FRAME_MAX = 131072, HEARTBEAT_S = 60 };

static amqp_table_entry_t text_entry(const char *key, const char *text)
{
    amqp_table_entry_t entry = {.key = bh__to_amqp(bh_str(key))};
    entry.value.kind = AMQP_FIELD_KIND_UTF8;
    entry.value.value.bytes = bh__to_amqp(bh_str(text));
    return entry;
}

static void start(model_link *link)
{
    static const char *const abilities[] = {
        "publisher_confirms",           "exchange_exchange_bindings", "basic.nack",
        "consumer_cancel_notify",       "connection.blocked",         "consumer_priorities",
        "authentication_failure_close", "per_consumer_qos",           "direct_reply_to"};
    enum { ABILITY_COUNT = sizeof abilities / sizeof *abilities };
    amqp_table_entry_t able[ABILITY_COUNT];
    for (size_t i = 0; i < ABILITY_COUNT; i++) {
        able[i] = (amqp_table_entry_t){.key = bh__to_amqp(bh_str(abilities[i]))};
        able[i].value.kind = AMQP_FIELD_KIND_BOOLEAN;
        able[i].value.value.boolean = 1;
    }
    amqp_table_entry_t properties[] = {
        {.key = bh__to_amqp(bh_str("capabilities"))},
        text_entry("cluster_name", link->broker->cluster),
        text_entry("copyright", "Copyright (c) 2007-2026, as RabbitMQ says it; this is a model of it"),
        text_entry("information", "Licensed under the MPL 2.0. Website: https://rabbitmq.com"),
        text_entry("platform", "Erlang/OTP 27, modelled"),
        text_entry("product", "RabbitMQ"),
        text_entry("version", link->broker->version->full),
    };
    properties[0].value.kind = AMQP_FIELD_KIND_TABLE;
    properties[0].value.value.table = (amqp_table_t){ABILITY_COUNT, able};
    amqp_connection_start_t method = {.version_major = 0,
                                      .version_minor = 9,
                                      .server_properties = {sizeof properties / sizeof *properties, properties},
                                      .mechanisms = bh__to_amqp(bh_str(link->broker->version->mechanisms)),
                                      .locales = bh__to_amqp(bh_str("en_US"))};
    model_send(link, 0, AMQP_CONNECTION_START_METHOD, &method);
    link->stage = MODEL_AT_START;
}

void model_login_header(model_link *link, bh_bytes header)
{
    static const char expected[] = {'A', 'M', 'Q', 'P', 0, 0, 9, 1};
    if (memcmp(header.data, expected, sizeof expected) == 0) {
        start(link);
        return;
    }
    model_send_bytes(link, (bh_bytes){link->broker->version->preferred, sizeof expected});
    link->stage = MODEL_CLOSED;
}

/* User and password, as a client sent them. */
typedef struct credentials {
    bh_bytes user;
    bh_bytes password;
} credentials;

/* Reads "\0user\0password". */
static int read_plain(bh_bytes response, credentials *out)
{
    if (response.size < 2 || response.data[0] != '\0')
        return 0;
    const char *begin = response.data + 1, *end = response.data + response.size;
    const char *zero = memchr(begin, '\0', (size_t)(end - begin));
    if (!zero)
        return 0;
    out->user = (bh_bytes){begin, (size_t)(zero - begin)};
    out->password = (bh_bytes){zero + 1, (size_t)(end - zero - 1)};
    return 1;
}

/* Reads a table without its length. */
static int read_amqplain(bh_bytes response, credentials *out)
{
    model_field user, password;
    if (!model_table_is_valid(response) || !model_table_find(response, "LOGIN", &user) ||
        !model_table_find(response, "PASSWORD", &password))
        return 0;
    *out = (credentials){user.value, password.value};
    return 1;
}

static int is_able(bh_bytes capabilities, const char *name)
{
    model_field field;
    return model_table_find(capabilities, name, &field) && field.type == 't' && field.value.data[0];
}

static void read_properties(model_link *link, bh_bytes table)
{
    model_field field;
    if (model_table_find(table, "capabilities", &field) && field.type == 'F') {
        link->has_cancel_notify = is_able(field.value, "consumer_cancel_notify");
        link->has_failure_close = is_able(field.value, "authentication_failure_close");
        link->has_blocked = is_able(field.value, "connection.blocked");
    }
    if (!model_table_find(table, "connection_name", &field) || field.type != 'S')
        return;
    free(link->name);
    link->name = model_name_copy(field.value);
}

static void refuse_login(model_link *link, bh_bytes mechanism)
{
    link->method = 0;
    if (link->has_failure_close) {
        model_link_refuse(link, 403,
                          "Login was refused using authentication mechanism %.*s. For details see the broker logfile.",
                          SHOWN(mechanism));
        return;
    }
    link->stage = MODEL_CLOSED;
}

/* Returns the user who logs in; NULL: refused. */
static model_user *find_user(const model *broker, bh_bytes mechanism, bh_bytes response)
{
    credentials given = {bh_str(""), bh_str("")};
    if (bh__same(mechanism, bh_str("ANONYMOUS")))
        return model_users_find(broker, bh_str("guest"));
    int is_read = bh__same(mechanism, bh_str("PLAIN")) ? read_plain(response, &given) : read_amqplain(response, &given);
    model_user *user = is_read ? model_users_find(broker, given.user) : NULL;
    return user && bh__same(bh_str(user->password), given.password) ? user : NULL;
}

/* Returns 1 if the version offers a mechanism. */
static int is_offered(const model_version *version, bh_bytes mechanism)
{
    const char *at = version->mechanisms;
    while (*at) {
        size_t size = strcspn(at, " ");
        if (bh__same(mechanism, (bh_bytes){at, size}))
            return 1;
        at += size + (at[size] == ' ');
    }
    return 0;
}

static void do_start_ok(model_link *link, const amqp_connection_start_ok_t *method, bh_bytes table)
{
    bh_bytes mechanism = bh__from_amqp(method->mechanism);
    read_properties(link, table);
    if (!is_offered(link->broker->version, mechanism)) {
        link->is_broken = 1;
        return;
    }
    model_user *user = find_user(link->broker, mechanism, bh__from_amqp(method->response));
    if (!user) {
        refuse_login(link, mechanism);
        return;
    }
    link->user = user;
    link->stage = MODEL_AT_TUNE;
    amqp_connection_tune_t tune = {.channel_max = CHANNEL_MAX, .frame_max = FRAME_MAX, .heartbeat = HEARTBEAT_S};
    model_send(link, 0, AMQP_CONNECTION_TUNE_METHOD, &tune);
}

/* A client that takes another limit than the broker allows is cut without a word. */
static int is_allowed(long value, long least, long most)
{
    return value >= least && value <= most;
}

static void do_tune_ok(model_link *link, const amqp_connection_tune_ok_t *method)
{
    if (!is_allowed(method->channel_max, 1, CHANNEL_MAX) ||
        !is_allowed((long)method->frame_max, link->broker->version->frame_min, FRAME_MAX)) {
        link->is_broken = 1;
        return;
    }
    link->channel_max = method->channel_max;
    link->frame_max = method->frame_max;
    link->heartbeat_s = method->heartbeat;
    link->stage = MODEL_AT_OPEN;
}

static void do_open(model_link *link, const amqp_connection_open_t *method)
{
    bh_bytes name = bh__from_amqp(method->virtual_host);
    model_vhost *vhost = model_names_find(&link->broker->vhosts, name);
    if (!vhost) {
        model_link_refuse(link, 530, "vhost %.*s not found", SHOWN(name));
        return;
    }
    if (!model_user_may_enter(link->user, name)) {
        model_link_refuse(link, 530, "access to vhost '%.*s' refused for user '%s'", SHOWN(name), link->user->name);
        return;
    }
    link->vhost = vhost;
    link->stage = MODEL_RUNNING;
    amqp_connection_open_ok_t ok = {.known_hosts = amqp_empty_bytes};
    model_send(link, 0, AMQP_CONNECTION_OPEN_OK_METHOD, &ok);
}

void model_login_do(model_link *link, const amqp_method_t *method, bh_bytes table)
{
    if (link->stage == MODEL_AT_START && method->id == AMQP_CONNECTION_START_OK_METHOD)
        do_start_ok(link, method->decoded, table);
    else if (link->stage == MODEL_AT_TUNE && method->id == AMQP_CONNECTION_TUNE_OK_METHOD)
        do_tune_ok(link, method->decoded);
    else if (link->stage == MODEL_AT_OPEN && method->id == AMQP_CONNECTION_OPEN_METHOD)
        do_open(link, method->decoded);
    else
        model_link_refuse(link, 503, "method is not expected before connection.open");
}
