#include "broker.h"

#include <check.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHANNEL = 1, FRAME_MAX = 131072, NACKED = 1, POLL_MS = 5, NACKED_MS = 10000 };

struct broker {
    amqp_connection_state_t state;
    uint64_t published; /* on the channel: the delivery tag of the last one */
};

/* ----------------------------------------------------------------------------------------- time */

static int64_t clock_ms(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int64_t now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

int64_t epoch_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

void pause_ms(int64_t ms)
{
    struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

/* ------------------------------------------------------------------------ the broker under test */

static struct {
    char version[64];
    int major, minor;
    int has_delayed_exchange;
} facts;

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

const char *broker_url(void)
{
    return setting("AMQP_URL");
}

const char *broker_tls_url(void)
{
    return setting("AMQPS_URL");
}

const char *broker_ca_file(void)
{
    return setting("BACKHOP_CA_FILE");
}

const char *broker_node_url(int node)
{
    enum { MOST_NODES = 8 };
    static char urls[MOST_NODES + 1][256];
    const char *at = setting("AMQP_URLS");
    for (int i = 1; i < node && *at; i++) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    node = node < MOST_NODES ? node : MOST_NODES;
    snprintf(urls[node], sizeof urls[node], "%.*s", (int)strcspn(at, " "), at);
    return urls[node];
}

int broker_can_be_controlled(void)
{
    return setting("BACKHOP_BROKER_CTL")[0] != '\0';
}

const char *broker_version(void)
{
    return facts.version;
}

int broker_is_at_least(int major, int minor)
{
    return facts.major > major || (facts.major == major && facts.minor >= minor);
}

int broker_has_delayed_exchange(void)
{
    return facts.has_delayed_exchange;
}

extern char **environ;

static void run_ctl(const char *words, int is_shown)
{
    char *line = strdup(words), *arguments[16];
    size_t count = 0;
    ck_assert_ptr_nonnull(line);
    arguments[count++] = getenv("BACKHOP_BROKER_CTL");
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        ck_assert_uint_lt(count, 15);
        arguments[count++] = word;
    }
    arguments[count] = NULL;
    posix_spawn_file_actions_t files;
    ck_assert_int_eq(posix_spawn_file_actions_init(&files), 0);
    if (is_shown)
        ck_assert_int_eq(posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO), 0);
    else
        ck_assert_int_eq(posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0), 0);
    pid_t child = -1;
    ck_assert_int_eq(posix_spawn(&child, arguments[0], &files, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    free(line);
    ck_assert_msg(status == 0, "$BACKHOP_BROKER_CTL %s failed", words);
}

void broker_ctl(const char *words)
{
    run_ctl(words, 0);
}

/* Has RabbitMQ evaluate an expression without spaces. `rabbitmqctl` needs a hundred times as
 * long. */
__attribute__((format(printf, 1, 2))) static void evaluate(const char *format, ...)
{
    char words[1000] = "eval ";
    size_t used = strlen(words);
    va_list values;
    va_start(values, format);
    int size = vsnprintf(words + used, sizeof words - used, format, values);
    va_end(values);
    ck_assert_int_lt(size, (int)(sizeof words - used));
    broker_ctl(words);
}

static void permit(const char *user, const char *vhost, const char *configure)
{
    evaluate("ok=rabbit_auth_backend_internal:set_permissions(<<\"%s\">>,<<\"%s\">>,<<\"%s\">>,<<\".*\">>,<<\".*\">>,"
             "<<\"test\">>).",
             user, vhost, configure);
}

void broker_add_vhost(const char *name)
{
    evaluate("ok=rabbit_vhost:add(<<\"%s\">>,<<\"test\">>).", name);
    permit("guest", name, ".*");
}

void broker_delete_vhost(const char *name)
{
    evaluate("rabbit_vhost:delete(<<\"%s\">>,<<\"test\">>).", name);
}

void broker_add_user(const char *name, const char *password, const char *vhost, const char *configure)
{
    evaluate("ok=rabbit_auth_backend_internal:add_user(<<\"%s\">>,<<\"%s\">>,<<\"test\">>).", name, password);
    permit(name, vhost, configure);
}

void broker_delete_user(const char *name)
{
    evaluate("rabbit_auth_backend_internal:delete_user(<<\"%s\">>,<<\"test\">>).", name);
}

void broker_set_password(const char *user, const char *password)
{
    evaluate("ok=rabbit_auth_backend_internal:change_password(<<\"%s\">>,<<\"%s\">>,<<\"test\">>).", user, password);
}

void broker_name_cluster(const char *name)
{
    evaluate("rabbit_nodes:set_cluster_name(<<\"%s\">>,<<\"test\">>).", name);
}

void broker_show_queues(void)
{
    if (broker_can_be_controlled())
        run_ctl("rabbitmqctl list_queues name type messages messages_ready messages_unacknowledged", 1);
}

/* As one word: `rabbitmqctl import_definitions` wants a file that the broker's machine has. */
void broker_import(bh_bytes definitions)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t size = definitions.size * 4 / 3 + 200;
    char *words = malloc(size);
    ck_assert_ptr_nonnull(words);
    size_t used = (size_t)snprintf(words, size, "eval rabbit_definitions:import_raw(base64:decode(<<\"");
    for (size_t i = 0; i < definitions.size; i += 3) {
        unsigned char in[3] = {0, 0, 0};
        size_t have = definitions.size - i < 3 ? definitions.size - i : 3;
        memcpy(in, definitions.data + i, have);
        words[used++] = digits[in[0] >> 2];
        words[used++] = digits[(in[0] & 3) << 4 | in[1] >> 4];
        words[used++] = have > 1 ? digits[(in[1] & 15) << 2 | in[2] >> 6] : '=';
        words[used++] = have > 2 ? digits[in[2] & 63] : '=';
    }
    snprintf(words + used, size - used, "\">>)).");
    broker_ctl(words);
    free(words);
}

/* The strings of *info are in `copy`, which the caller frees. */
static char *parse(const char *url, struct amqp_connection_info *info)
{
    char *copy = strdup(url);
    if (!copy || amqp_parse_url(copy, info) != AMQP_STATUS_OK) {
        fprintf(stderr, "the broker's URL is not one that librabbitmq understands\n");
        exit(EXIT_FAILURE);
    }
    static char root[] = "/";
    if (info->vhost[0] == '\0') /* by the letter, a URL that ends in "/" names the vhost "" */
        info->vhost = root;
    return copy;
}

int broker_port(int tls)
{
    struct amqp_connection_info info;
    char *copy = parse(tls ? broker_tls_url() : broker_url(), &info);
    free(copy);
    return info.port;
}

const char *broker_host(void)
{
    static char host[256];
    struct amqp_connection_info info;
    char *copy = parse(broker_url(), &info);
    snprintf(host, sizeof host, "%s", info.host);
    free(copy);
    return host;
}

static void escape(char *to, size_t size, const char *from)
{
    size_t used = 0;
    to[0] = '\0';
    for (; *from && used + 4 < size; from++)
        used += (size_t)snprintf(to + used, size - used, "%%%02X", (unsigned)(unsigned char)*from);
}

void broker_make_url(char *url, size_t size, const char *user, const char *password, const char *host, int port)
{
    struct amqp_connection_info info;
    char *copy = parse(broker_url(), &info);
    char own_user[1024], own_password[1024], vhost[1024];
    escape(own_user, sizeof own_user, info.user);
    escape(own_password, sizeof own_password, info.password);
    escape(vhost, sizeof vhost, info.vhost);
    int length = snprintf(url, size, "amqp://%s:%s@%s:%d/%s", user ? user : own_user,
                          password ? password : own_password, host ? host : info.host, port ? port : info.port, vhost);
    ck_assert_int_lt(length, (int)size);
    free(copy);
}

/* ---------------------------------------------------------------------------------- connections */

static const char *explain(amqp_rpc_reply_t reply)
{
    static char text[512];
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        return amqp_error_string2(reply.library_error);
    if (reply.reply_type != AMQP_RESPONSE_SERVER_EXCEPTION)
        return "no error";
    const amqp_channel_close_t *close = reply.reply.decoded;
    if (reply.reply.id != AMQP_CHANNEL_CLOSE_METHOD && reply.reply.id != AMQP_CONNECTION_CLOSE_METHOD)
        return "an unexpected method";
    snprintf(text, sizeof text, "%d %.*s", close->reply_code, (int)close->reply_text.len, /* the same in both methods */
             (const char *)close->reply_text.bytes);
    return text;
}

static amqp_connection_state_t try_connect(const char *url)
{
    struct amqp_connection_info info;
    char *copy = parse(url, &info);
    amqp_connection_state_t state = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(state);
    amqp_rpc_reply_t reply = {.reply_type = AMQP_RESPONSE_NONE};
    if (socket && amqp_socket_open(socket, info.host, info.port) == AMQP_STATUS_OK)
        reply = amqp_login(state, info.vhost, 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, info.user, info.password);
    free(copy);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return state;
    amqp_destroy_connection(state);
    return NULL;
}

static void open_channel(broker *self)
{
    amqp_channel_open(self->state, CHANNEL);
    ck_assert_msg(amqp_get_rpc_reply(self->state).reply_type == AMQP_RESPONSE_NORMAL, "no channel: %s",
                  explain(amqp_get_rpc_reply(self->state)));
    amqp_confirm_select(self->state, CHANNEL);
    ck_assert_int_eq(amqp_get_rpc_reply(self->state).reply_type, AMQP_RESPONSE_NORMAL);
    self->published = 0;
}

broker *broker_open_url(const char *url)
{
    broker *self = calloc(1, sizeof *self);
    ck_assert_ptr_nonnull(self);
    self->state = try_connect(url);
    ck_assert_msg(self->state != NULL, "the broker cannot be reached");
    open_channel(self);
    return self;
}

broker *broker_open(void)
{
    return broker_open_url(broker_url());
}

void broker_close(broker *self)
{
    if (!self)
        return;
    amqp_connection_close(self->state, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(self->state);
    free(self);
}

void broker_cut(broker *self)
{
    amqp_destroy_connection(self->state);
    free(self);
}

void broker_reopen(broker *self)
{
    amqp_destroy_connection(self->state);
    self->state = try_connect(broker_url());
    ck_assert_msg(self->state != NULL, "the broker cannot be reached");
    open_channel(self);
}

int broker_probe(void)
{
    amqp_connection_state_t state = broker_url()[0] ? try_connect(broker_url()) : NULL;
    if (!state) {
        fprintf(stderr, "AMQP_URL does not name a broker that answers; tests/broker/broker runs one\n");
        return 0;
    }
    const amqp_table_t *properties = amqp_get_server_properties(state);
    for (int i = 0; i < properties->num_entries; i++) {
        amqp_table_entry_t entry = properties->entries[i];
        if (entry.key.len == 7 && memcmp(entry.key.bytes, "version", 7) == 0)
            snprintf(facts.version, sizeof facts.version, "%.*s", (int)entry.value.value.bytes.len,
                     (const char *)entry.value.value.bytes.bytes);
    }
    char *end;
    facts.major = (int)strtol(facts.version, &end, 10);
    facts.minor = *end == '.' ? (int)strtol(end + 1, NULL, 10) : 0;

    char name[64];
    snprintf(name, sizeof name, "live.%ld.probe", (long)getpid());
    amqp_table_entry_t type = entry_string("x-delayed-type", "fanout");
    amqp_channel_open(state, CHANNEL);
    amqp_exchange_declare(state, CHANNEL, amqp_cstring_bytes(name), amqp_cstring_bytes("x-delayed-message"), 0, 1, 1, 0,
                          (amqp_table_t){1, &type});
    facts.has_delayed_exchange = amqp_get_rpc_reply(state).reply_type == AMQP_RESPONSE_NORMAL;
    if (facts.has_delayed_exchange) {
        amqp_exchange_delete(state, CHANNEL, amqp_cstring_bytes(name), 0);
        amqp_connection_close(state, AMQP_REPLY_SUCCESS);
    }
    amqp_destroy_connection(state);
    return 1;
}

/* --------------------------------------------------------------------------------------- tables */

amqp_bytes_t amqp_bytes_of(bh_bytes bytes)
{
    amqp_bytes_t result = {bytes.size, (void *)(uintptr_t)bytes.data};
    return result;
}

amqp_table_entry_t entry_bytes(const char *name, int type, bh_bytes value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = (uint8_t)type}};
    entry.value.value.bytes = amqp_bytes_of(value);
    return entry;
}

amqp_table_entry_t entry_string(const char *name, const char *value)
{
    return entry_bytes(name, AMQP_FIELD_KIND_UTF8, bh_str(value));
}

amqp_table_entry_t entry_number(const char *name, int type, int64_t value)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = (uint8_t)type}};
    switch (type) {
    case AMQP_FIELD_KIND_BOOLEAN:
        entry.value.value.boolean = value != 0;
        break;
    case AMQP_FIELD_KIND_I8:
        entry.value.value.i8 = (int8_t)value;
        break;
    case AMQP_FIELD_KIND_U8:
        entry.value.value.u8 = (uint8_t)value;
        break;
    case AMQP_FIELD_KIND_I16:
        entry.value.value.i16 = (int16_t)value;
        break;
    case AMQP_FIELD_KIND_U16:
        entry.value.value.u16 = (uint16_t)value;
        break;
    case AMQP_FIELD_KIND_I32:
        entry.value.value.i32 = (int32_t)value;
        break;
    case AMQP_FIELD_KIND_U32:
        entry.value.value.u32 = (uint32_t)value;
        break;
    case AMQP_FIELD_KIND_U64:
    case AMQP_FIELD_KIND_TIMESTAMP:
        entry.value.value.u64 = (uint64_t)value;
        break;
    case AMQP_FIELD_KIND_VOID:
        break;
    default:
        ck_assert_int_eq(type, AMQP_FIELD_KIND_I64);
        entry.value.value.i64 = value;
        break;
    }
    return entry;
}

amqp_table_entry_t entry_int(const char *name, int64_t value)
{
    return entry_number(name, AMQP_FIELD_KIND_I64, value);
}

amqp_table_entry_t entry_table(const char *name, amqp_table_entry_t *entries, int count)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = AMQP_FIELD_KIND_TABLE}};
    entry.value.value.table = (amqp_table_t){count, entries};
    return entry;
}

amqp_table_entry_t entry_array(const char *name, amqp_field_value_t *values, int count)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = AMQP_FIELD_KIND_ARRAY}};
    entry.value.value.array = (amqp_array_t){count, values};
    return entry;
}

/* --------------------------------------------------------------------------------- declarations */

static struct {
    pid_t process;
    size_t count;
    char names[1024][256];
} made;

/* Deletes every queue and exchange of these names. Neither deletion fails if there is none. */
static void remove_made(void)
{
    if (made.process != getpid())
        return;
    amqp_connection_state_t state = try_connect(broker_url());
    if (!state)
        return;
    amqp_channel_open(state, CHANNEL);
    for (size_t i = 0; i < made.count; i++) {
        amqp_queue_delete(state, CHANNEL, amqp_cstring_bytes(made.names[i]), 0, 0);
        amqp_exchange_delete(state, CHANNEL, amqp_cstring_bytes(made.names[i]), 0);
    }
    amqp_connection_close(state, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(state);
}

void broker_remove_later(const char *name)
{
    if (made.process != getpid()) { /* each test is a process of its own */
        made.process = getpid();
        made.count = 0;
        atexit(remove_made);
    }
    for (size_t i = 0; i < made.count; i++)
        if (strcmp(made.names[i], name) == 0)
            return;
    ck_assert_uint_lt(made.count, sizeof made.names / sizeof made.names[0]);
    snprintf(made.names[made.count++], sizeof made.names[0], "%s", name);
}

/* Returns the outcome of the last method: 0, or the broker's reply code, and then the channel is
 * open anew. */
static int settle_method(broker *self)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(self->state);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return 0;
    ck_assert_msg(reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD,
                  "the connection is lost: %s", explain(reply));
    int code = ((amqp_channel_close_t *)reply.reply.decoded)->reply_code;
    amqp_channel_close_ok_t ok = {.dummy = 0};
    amqp_send_method(self->state, CHANNEL, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    open_channel(self);
    return code;
}

static void expect_done(broker *self, const char *what, const char *name)
{
    int code = settle_method(self);
    ck_assert_msg(code == 0, "%s %s: the broker refuses it with %d", what, name, code);
}

void broker_declare_exchange_with(broker *self, const char *name, const char *type, amqp_table_entry_t *arguments,
                                  int count)
{
    broker_remove_later(name);
    amqp_exchange_declare(self->state, CHANNEL, amqp_cstring_bytes(name), amqp_cstring_bytes(type), 0, 1, 0, 0,
                          (amqp_table_t){count, arguments});
    expect_done(self, "declaring exchange", name);
}

void broker_declare_exchange(broker *self, const char *name, const char *type)
{
    broker_declare_exchange_with(self, name, type, NULL, 0);
}

int broker_try_queue(broker *self, const char *name, amqp_table_entry_t *arguments, int count)
{
    broker_remove_later(name);
    amqp_queue_declare(self->state, CHANNEL, amqp_cstring_bytes(name), 0, 1, 0, 0, (amqp_table_t){count, arguments});
    return settle_method(self);
}

void broker_declare_queue(broker *self, const char *name, amqp_table_entry_t *arguments, int count)
{
    int code = broker_try_queue(self, name, arguments, count);
    ck_assert_msg(code == 0, "declaring queue %s: the broker refuses it with %d", name, code);
}

void broker_declare_quorum(broker *self, const char *name)
{
    amqp_table_entry_t type = entry_string("x-queue-type", "quorum");
    broker_declare_queue(self, name, &type, 1);
}

void broker_declare_classic(broker *self, const char *name)
{
    amqp_table_entry_t type = entry_string("x-queue-type", "classic");
    broker_declare_queue(self, name, &type, 1);
}

void broker_bind(broker *self, const char *queue, const char *exchange, const char *routing_key)
{
    amqp_queue_bind(self->state, CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange),
                    amqp_cstring_bytes(routing_key), amqp_empty_table);
    expect_done(self, "binding", queue);
}

void broker_unbind(broker *self, const char *queue, const char *exchange, const char *routing_key)
{
    amqp_queue_unbind(self->state, CHANNEL, amqp_cstring_bytes(queue), amqp_cstring_bytes(exchange),
                      amqp_cstring_bytes(routing_key), amqp_empty_table);
    expect_done(self, "unbinding", queue);
}

void broker_delete_queue(broker *self, const char *name)
{
    amqp_queue_delete(self->state, CHANNEL, amqp_cstring_bytes(name), 0, 0);
    expect_done(self, "deleting queue", name);
}

void broker_delete_exchange(broker *self, const char *name)
{
    amqp_exchange_delete(self->state, CHANNEL, amqp_cstring_bytes(name), 0);
    expect_done(self, "deleting exchange", name);
}

void broker_purge(broker *self, const char *queue)
{
    amqp_queue_purge(self->state, CHANNEL, amqp_cstring_bytes(queue));
    expect_done(self, "purging queue", queue);
}

/* Messages that are ready; -1: no such queue. */
static int look(broker *self, const char *queue, int *consumers)
{
    const amqp_queue_declare_ok_t *ok =
        amqp_queue_declare(self->state, CHANNEL, amqp_cstring_bytes(queue), 1, 1, 0, 0, amqp_empty_table);
    int depth = ok ? (int)ok->message_count : -1;
    *consumers = ok ? (int)ok->consumer_count : 0;
    int code = settle_method(self);
    ck_assert_msg(code == 0 || code == AMQP_NOT_FOUND, "looking at queue %s: the broker refuses it with %d", queue,
                  code);
    amqp_maybe_release_buffers(self->state);
    return depth;
}

int broker_has_queue(broker *self, const char *name)
{
    int consumers;
    return look(self, name, &consumers) >= 0;
}

int broker_has_exchange(broker *self, const char *name)
{
    amqp_exchange_declare(self->state, CHANNEL, amqp_cstring_bytes(name), amqp_cstring_bytes("fanout"), 1, 1, 0, 0,
                          amqp_empty_table);
    int code = settle_method(self);
    ck_assert_msg(code == 0 || code == AMQP_NOT_FOUND, "looking at exchange %s: the broker refuses it with %d", name,
                  code);
    return code == 0;
}

static int look_at_existing(broker *self, const char *queue, int *consumers)
{
    int depth = look(self, queue, consumers);
    ck_assert_msg(depth >= 0, "there is no queue %s", queue);
    return depth;
}

int broker_depth(broker *self, const char *queue)
{
    int consumers;
    return look_at_existing(self, queue, &consumers);
}

void broker_await_depth(broker *self, const char *queue, int depth)
{
    int64_t limit = now_ms() + LIMIT_MS;
    int found;
    while ((found = broker_depth(self, queue)) != depth) {
        ck_assert_msg(now_ms() < limit, "%s has %d messages instead of %d", queue, found, depth);
        pause_ms(POLL_MS);
    }
}

void broker_await_consumers(broker *self, const char *queue, int count)
{
    int found;
    int64_t limit = now_ms() + LIMIT_MS;
    for (look_at_existing(self, queue, &found); found != count; look_at_existing(self, queue, &found)) {
        ck_assert_msg(now_ms() < limit, "%s has %d consumers instead of %d", queue, found, count);
        pause_ms(POLL_MS);
    }
}

/* ------------------------------------------------------------------------------------- messages */

static void read_frame(broker *self, amqp_frame_t *frame)
{
    struct timeval timeout = {LIMIT_MS / 1000, 0};
    int status = amqp_simple_wait_frame_noblock(self->state, frame, &timeout);
    ck_assert_msg(status == AMQP_STATUS_OK, "the broker does not answer: %s", amqp_error_string2(status));
}

static char *allocate(size_t size)
{
    char *memory = malloc(size + 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

/* The content after basic.get-ok, basic.return or basic.deliver. */
static void read_content(broker *self, message *out)
{
    amqp_frame_t frame;
    read_frame(self, &frame);
    ck_assert_int_eq(frame.frame_type, AMQP_FRAME_HEADER);
    size_t size = (size_t)frame.payload.properties.body_size, have = 0;
    amqp_bytes_t raw = frame.payload.properties.raw;
    char *properties = allocate(raw.len), *body = allocate(size);
    memcpy(properties, raw.bytes, raw.len);
    while (have < size) {
        read_frame(self, &frame);
        ck_assert_int_eq(frame.frame_type, AMQP_FRAME_BODY);
        amqp_bytes_t fragment = frame.payload.body_fragment;
        ck_assert_uint_le(fragment.len, size - have);
        memcpy(body + have, fragment.bytes, fragment.len);
        have += fragment.len;
        amqp_maybe_release_buffers(self->state);
    }
    message_set(out, (bh_bytes){properties, raw.len}, (bh_bytes){body, size});
    amqp_maybe_release_buffers(self->state);
}

int broker_try_publish(broker *self, const char *exchange, const char *routing_key,
                       const amqp_basic_properties_t *properties, bh_bytes body)
{
    int status = amqp_basic_publish(self->state, CHANNEL, amqp_cstring_bytes(exchange), amqp_cstring_bytes(routing_key),
                                    1, 0, properties, amqp_bytes_of(body));
    ck_assert_msg(status == AMQP_STATUS_OK, "publishing to %s: %s", exchange, amqp_error_string2(status));
    self->published++;
    int result = 0;
    for (;;) {
        amqp_frame_t frame;
        read_frame(self, &frame);
        ck_assert_int_eq(frame.frame_type, AMQP_FRAME_METHOD);
        switch (frame.payload.method.id) {
        case AMQP_BASIC_RETURN_METHOD: {
            message returned;
            result = ((amqp_basic_return_t *)frame.payload.method.decoded)->reply_code;
            read_content(self, &returned);
            message_free(&returned);
            break;
        }
        case AMQP_BASIC_ACK_METHOD:
            amqp_maybe_release_buffers(self->state);
            return result;
        case AMQP_BASIC_NACK_METHOD:
            return NACKED;
        case AMQP_CHANNEL_CLOSE_METHOD: {
            amqp_channel_close_ok_t ok = {.dummy = 0};
            result = ((amqp_channel_close_t *)frame.payload.method.decoded)->reply_code;
            amqp_send_method(self->state, CHANNEL, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
            open_channel(self);
            return result;
        }
        default:
            ck_abort_msg("publishing to %s: %s instead of a confirm", exchange,
                         amqp_method_name(frame.payload.method.id));
        }
    }
}

void broker_publish(broker *self, const char *exchange, const char *routing_key,
                    const amqp_basic_properties_t *properties, bh_bytes body)
{
    int64_t limit = now_ms() + NACKED_MS;
    int code;
    /* While RabbitMQ makes a quorum queue of the name of one that was just deleted, it nacks. */
    while ((code = broker_try_publish(self, exchange, routing_key, properties, body)) == NACKED && now_ms() < limit)
        pause_ms(POLL_MS);
    ck_assert_msg(code == 0, "publishing to %s with %s: the broker refuses it with %d", exchange, routing_key, code);
}

void broker_publish_text(broker *self, const char *exchange, const char *routing_key, const char *body)
{
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    broker_publish(self, exchange, routing_key, &properties, bh_str(body));
}

void broker_publish_with_id(broker *self, const char *exchange, const char *routing_key, const char *body)
{
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_MESSAGE_ID_FLAG,
                                          .delivery_mode = 2,
                                          .message_id = amqp_cstring_bytes(body)};
    broker_publish(self, exchange, routing_key, &properties, bh_str(body));
}

/* The confirms of the publishes after tag `before`: each sets its one in `confirmed`. How many are
 * new. */
static int read_confirm(broker *self, uint64_t before, char *confirmed)
{
    amqp_frame_t frame;
    read_frame(self, &frame);
    ck_assert_int_eq(frame.frame_type, AMQP_FRAME_METHOD);
    ck_assert_uint_eq(frame.payload.method.id, AMQP_BASIC_ACK_METHOD);
    const amqp_basic_ack_t *ack = frame.payload.method.decoded;
    int count = 0;
    for (uint64_t tag = ack->multiple ? before + 1 : ack->delivery_tag; tag <= ack->delivery_tag; tag++) {
        count += !confirmed[tag - before - 1];
        confirmed[tag - before - 1] = 1;
    }
    amqp_maybe_release_buffers(self->state);
    return count;
}

void broker_publish_filled(broker *self, const char *exchange, const char *routing_key, size_t spare, bh_bytes body)
{
    static char filler[FRAME_ROOM];
    for (size_t i = 0; i < sizeof filler; i++)
        filler[i] = (char)i;
    bh_bytes value = {filler, sizeof filler - FILLER_OVERHEAD - spare};
    amqp_table_entry_t header = entry_bytes("filler", AMQP_FIELD_KIND_BYTES, value);
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {1, &header}};
    broker_publish(self, exchange, routing_key, &properties, body);
}

void broker_publish_numbers(broker *self, const char *queue, int count)
{
    enum { AHEAD = 1000 };
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    uint64_t before = self->published;
    char *confirmed = calloc((size_t)count, 1);
    ck_assert_ptr_nonnull(confirmed);
    for (int number = 0, done = 0; done < count;) {
        if (number < count && number - done < AHEAD) {
            char body[16];
            snprintf(body, sizeof body, "%d", number++);
            int status = amqp_basic_publish(self->state, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue), 0, 0,
                                            &properties, amqp_cstring_bytes(body));
            ck_assert_msg(status == AMQP_STATUS_OK, "publishing to %s: %s", queue, amqp_error_string2(status));
            self->published++;
        } else
            done += read_confirm(self, before, confirmed);
    }
    free(confirmed);
}

int broker_try_get(broker *self, const char *queue, message *out)
{
    amqp_rpc_reply_t reply = amqp_basic_get(self->state, CHANNEL, amqp_cstring_bytes(queue), 0);
    ck_assert_msg(reply.reply_type == AMQP_RESPONSE_NORMAL, "getting from %s: %s", queue, explain(reply));
    if (reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD) {
        amqp_maybe_release_buffers(self->state);
        return 0;
    }
    const amqp_basic_get_ok_t *ok = reply.reply.decoded;
    out->tag = ok->delivery_tag;
    out->redelivered = ok->redelivered;
    snprintf(out->exchange, sizeof out->exchange, "%.*s", (int)ok->exchange.len, (const char *)ok->exchange.bytes);
    snprintf(out->routing_key, sizeof out->routing_key, "%.*s", (int)ok->routing_key.len,
             (const char *)ok->routing_key.bytes);
    read_content(self, out);
    return 1;
}

void broker_get(broker *self, const char *queue, message *out)
{
    int64_t limit = now_ms() + LIMIT_MS;
    while (!broker_try_get(self, queue, out)) {
        ck_assert_msg(now_ms() < limit, "nothing arrives in %s", queue);
        pause_ms(POLL_MS);
    }
}

void broker_ack(broker *self, const message *taken)
{
    ck_assert_int_eq(amqp_basic_ack(self->state, CHANNEL, taken->tag, 0), AMQP_STATUS_OK);
}

void broker_reject(broker *self, const message *taken, int requeue)
{
    ck_assert_int_eq(amqp_basic_reject(self->state, CHANNEL, taken->tag, requeue), AMQP_STATUS_OK);
}
