#define _GNU_SOURCE /* POLLRDHUP. NOLINT(bugprone-reserved-identifier) */

#include "worker_connection.h"

#include "worker_clock.h"

#include <backhop/version.h>

#include <poll.h>
#include <stdio.h>

enum {
    CHANNEL_MAX = 16,
    FRAME_MAX =
        131072, /* RabbitMQ's default; librabbitmq before 0.14 decodes nested headers by recursion: 3 MiB of it */
    GOODBYE_MS = 2000,
    OLDEST_TLS_ERROR = -0x0200,
    NEWEST_TLS_ERROR = -0x02FF
};

static struct timeval interval(int64_t ms)
{
    struct timeval time = {(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
    return time;
}

static bh_bytes borrow(amqp_bytes_t bytes)
{
    bh_bytes borrowed = {bytes.len ? bytes.bytes : "", bytes.len};
    return borrowed;
}

static void discard(bh__connection *self)
{
    if (self->state)
        amqp_destroy_connection(self->state);
    *self = (bh__connection){.state = NULL};
}

void bh__connection_hurry(bh__connection *self)
{
    struct timeval goodbye = interval(GOODBYE_MS);
    amqp_set_rpc_timeout(self->state, &goodbye);
}

void bh__connection_close(bh__connection *self)
{
    if (bh__connection_is_open(self)) {
        bh__connection_hurry(self);
        amqp_connection_close(self->state, AMQP_REPLY_SUCCESS);
    }
    discard(self);
}

int bh__connection_is_open(const bh__connection *self)
{
    return self->state && !self->is_broken;
}

void bh__connection_probe(bh__connection *self)
{
    struct pollfd socket = {.fd = bh__connection_fd(self), .events = POLLRDHUP}; /* POLLERR and POLLHUP come unasked */
    if (bh__connection_is_open(self) && poll(&socket, 1, 0) > 0)
        self->is_broken = 1;
}

int bh__connection_fd(const bh__connection *self)
{
    return self->state ? amqp_get_sockfd(self->state) : -1;
}

void bh__connection_property(const bh__connection *self, const char *name, char *value, size_t room)
{
    const amqp_table_t *properties = amqp_get_server_properties(self->state);
    value[0] = '\0';
    for (int i = 0; i < properties->num_entries; i++) {
        const amqp_table_entry_t *entry = &properties->entries[i];
        if (entry->value.kind == AMQP_FIELD_KIND_UTF8 && entry->key.len == strlen(name) &&
            memcmp(entry->key.bytes, name, entry->key.len) == 0) {
            bh_bytes text = borrow(entry->value.value.bytes);
            snprintf(value, room, "%.*s", (int)text.size, text.data);
        }
    }
}

static int is_tls_error(int status)
{
    return status <= OLDEST_TLS_ERROR && status >= NEWEST_TLS_ERROR;
}

static bh_status open_socket(bh__connection *self, const bh__settings *settings, bh__report *report)
{
    const bh__uri *uri = settings->uri;
    amqp_socket_t *socket = uri->tls ? amqp_ssl_socket_new(self->state) : amqp_tcp_socket_new(self->state);
    if (!socket)
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for a socket");
    if (uri->tls) {
        amqp_ssl_socket_set_verify_peer(socket, 1);
        amqp_ssl_socket_set_verify_hostname(socket, 1);
        const char *ca_file = settings->ca_file;
        if (ca_file && amqp_ssl_socket_set_cacert(socket, ca_file) != AMQP_STATUS_OK)
            return bh__report_set(
                report, BH_ERR_TLS,
                "the CA file %s cannot be used; it must be readable and hold certificates in PEM form", ca_file);
        if (!ca_file && bh__trust_system(socket) != AMQP_STATUS_OK)
            return bh__report_set(
                report, BH_ERR_TLS,
                "the system's CA certificates cannot be used; install them (ca-certificates), or name a "
                "file with bh_worker_set_ca_file");
    }
    struct timeval timeout = interval(settings->connect_timeout_ms);
    int status = amqp_socket_open_noblock(socket, uri->host, uri->port, &timeout);
    const char *error = amqp_error_string2(status);
    switch (status) {
    case AMQP_STATUS_OK:
        return BH_OK;
    case AMQP_STATUS_NO_MEMORY:
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for a socket");
    case AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED:
        return bh__report_set(report, BH_ERR_CONNECTION, "the host %s is not known to the name service; check its name",
                              uri->host);
    case AMQP_STATUS_TIMEOUT:
        return bh__report_set(report, BH_ERR_CONNECTION,
                              "%s:%d did not answer within %lld ms; check host, port and firewall", uri->host,
                              uri->port, (long long)settings->connect_timeout_ms);
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
        return bh__report_set(
            report, BH_ERR_TLS,
            "the certificate of %s:%d is not signed by a trusted CA, or is not valid now; name its CA with "
            "bh_worker_set_ca_file",
            uri->host, uri->port);
    case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED:
        return bh__report_set(report, BH_ERR_TLS,
                              "the certificate of %s:%d is for another host; connect with a name that it holds",
                              uri->host, uri->port);
    default:
        if (is_tls_error(status))
            return bh__report_set(report, BH_ERR_TLS,
                                  "no TLS with %s:%d (%s); check that this port speaks TLS (often 5671)", uri->host,
                                  uri->port, error);
        return bh__report_set(report, BH_ERR_CONNECTION,
                              "no connection to %s:%d (%s); check that RabbitMQ runs and listens there", uri->host,
                              uri->port, error);
    }
}

static amqp_table_entry_t text_entry(const char *name, const char *text)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(text);
    return entry;
}

static amqp_table_entry_t true_entry(const char *name)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = AMQP_FIELD_KIND_BOOLEAN}};
    entry.value.value.boolean = 1;
    return entry;
}

static amqp_rpc_reply_t login(bh__connection *self, const bh__uri *uri, const char *name)
{
    amqp_table_entry_t capabilities[] = {true_entry("consumer_cancel_notify"), true_entry("connection.blocked"),
                                         true_entry("publisher_confirms"), true_entry("basic.nack")};
    amqp_table_entry_t properties[] = {
        text_entry("product", "Backhop"),
        text_entry("version", bh_version()),
        text_entry("information", "librabbitmq"),
        text_entry("connection_name", name),
        {.key = amqp_cstring_bytes("capabilities"), .value = {.kind = AMQP_FIELD_KIND_TABLE}}};
    properties[4].value.value.table = (amqp_table_t){4, capabilities};
    amqp_table_t table = {5, properties};
    return amqp_login_with_properties(self->state, uri->vhost, CHANNEL_MAX, FRAME_MAX, uri->heartbeat_s, &table,
                                      AMQP_SASL_METHOD_PLAIN, uri->user, uri->password);
}

static bh_status report_login(const amqp_rpc_reply_t *reply, const bh__uri *uri, bh__report *report)
{
    if (reply->reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply->reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = reply->reply.decoded;
        bh_bytes text = borrow(close->reply_text);
        int is_access = close->reply_code == AMQP_ACCESS_REFUSED || close->reply_code == AMQP_NOT_ALLOWED;
        return bh__report_set(
            report, is_access ? BH_ERR_ACCESS : BH_ERR_CONNECTION,
            "%s:%d refused user %s and vhost %s (%d %.*s); check user, password, vhost and permissions", uri->host,
            uri->port, uri->user, uri->vhost, close->reply_code, (int)text.size, text.data);
    }
    int status = reply->library_error;
    if (status == AMQP_STATUS_NO_MEMORY)
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for a connection");
    return bh__report_set(report, is_tls_error(status) ? BH_ERR_TLS : BH_ERR_CONNECTION,
                          "%s:%d did not log user %s in (%s); check that RabbitMQ listens there, and %s", uri->host,
                          uri->port, uri->user, amqp_error_string2(status),
                          uri->tls ? "whether it wants a client certificate" : "whether the port wants TLS (amqps://)");
}

bh_status bh__connection_open(bh__connection *self, const bh__settings *settings, const char *name, bh__report *report)
{
    *self = (bh__connection){.state = amqp_new_connection(), .sent_ms = bh__monotonic_ms()};
    if (!self->state)
        return bh__report_set(report, BH_ERR_NO_MEMORY, "no memory for a connection");
    bh_status status = open_socket(self, settings, report);
    if (status == BH_OK) {
        struct timeval timeout = interval(settings->connect_timeout_ms);
        struct timeval reply_timeout = interval(settings->reply_timeout_ms);
        amqp_set_handshake_timeout(self->state, &timeout);
        amqp_set_rpc_timeout(self->state, &reply_timeout);
        amqp_rpc_reply_t reply = login(self, settings->uri, name);
        if (reply.reply_type != AMQP_RESPONSE_NORMAL)
            status = report_login(&reply, settings->uri, report);
    }
    if (status != BH_OK)
        discard(self);
    return status;
}

bh_status bh__connection_failed(bh__connection *self, int status, const char *what, bh__report *report)
{
    self->is_broken = 1;
    if (status == AMQP_STATUS_NO_MEMORY)
        return bh__report_set(report, BH_ERR_NO_MEMORY, "%s failed: no memory", what);
    const char *hint =
        status == AMQP_STATUS_BAD_AMQP_DATA
            ? "; librabbitmq 0.14 and later end here where a message's headers nest deeper than 100: take "
              "such a message out of its queue by hand"
            : "";
    return bh__report_set(report, BH_ERR_CONNECTION, "%s failed: the connection was lost (%s)%s", what,
                          amqp_error_string2(status), hint);
}

static bh_status connection_closed(bh__connection *self, const amqp_connection_close_t *close, const char *what,
                                   bh__report *report)
{
    bh_bytes text = borrow(close->reply_text);
    bh__report_set(report, BH_ERR_CONNECTION, "%s failed: the broker closed the connection (%d %.*s)", what,
                   close->reply_code, (int)text.size, text.data);
    amqp_connection_close_ok_t ok = {0};
    amqp_send_method(self->state, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &ok);
    self->is_broken = 1;
    return BH_ERR_CONNECTION;
}

bh_status bh__channel_closed(bh__connection *self, amqp_channel_t channel, const amqp_channel_close_t *close,
                             const char *what, bh__report *report)
{
    static const struct {
        int code;
        bh_status status;
    } codes[] = {{AMQP_ACCESS_REFUSED, BH_ERR_ACCESS},
                 {AMQP_NOT_FOUND, BH_ERR_MISSING},
                 {AMQP_RESOURCE_LOCKED, BH_ERR_CLASH},
                 {AMQP_PRECONDITION_FAILED, BH_ERR_CLASH}};
    bh_status status = BH_ERR_CHANNEL;
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].code == close->reply_code)
            status = codes[i].status;
    bh_bytes text = borrow(close->reply_text);
    bh__report_set(report, status, "%s failed: the broker closed the channel (%d %.*s)", what, close->reply_code,
                   (int)text.size, text.data);
    amqp_channel_close_ok_t ok = {0};
    int sent = amqp_send_method(self->state, channel, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
    if (sent != AMQP_STATUS_OK)
        self->is_broken = 1;
    return status;
}

bh_status bh__connection_reply(bh__connection *self, amqp_channel_t channel, amqp_rpc_reply_t reply, const char *what,
                               int *code, bh__report *report)
{
    int none;
    code = code ? code : &none;
    *code = 0;
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return BH_OK;
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *close = reply.reply.decoded;
        *code = close->reply_code;
        return bh__channel_closed(self, channel, close, what, report);
    }
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = reply.reply.decoded;
        *code = close->reply_code;
        return connection_closed(self, close, what, report);
    }
    return bh__connection_failed(self, reply.library_error, what, report);
}

bh_status bh__connection_frame(bh__connection *self, int64_t timeout_ms, amqp_frame_t *frame, bh__report *report)
{
    int64_t deadline_ms = bh__monotonic_ms() + timeout_ms;
    for (;;) {
        struct timeval timeout = interval(timeout_ms);
        int status = amqp_simple_wait_frame_noblock(self->state, frame, &timeout);
        if (status == AMQP_STATUS_TIMEOUT)
            return BH_ERR_TIMEOUT;
        if (status != AMQP_STATUS_OK)
            return bh__connection_failed(self, status, "receiving", report);
        if (frame->channel != 0)
            return BH_OK;
        if (frame->frame_type == AMQP_FRAME_METHOD) {
            switch (frame->payload.method.id) {
            case AMQP_CONNECTION_BLOCKED_METHOD:
                self->is_blocked = 1;
                break;
            case AMQP_CONNECTION_UNBLOCKED_METHOD:
                self->is_blocked = 0;
                break;
            case AMQP_CONNECTION_CLOSE_METHOD:
                return connection_closed(self, frame->payload.method.decoded, "receiving", report);
            default:
                break;
            }
        }
        amqp_maybe_release_buffers_on_channel(self->state, 0);
        timeout_ms = deadline_ms - bh__monotonic_ms();
        if (timeout_ms < 0)
            timeout_ms = 0;
    }
}

/* librabbitmq sends heartbeats only while it waits for a frame. A frame read here could be a delivery that nobody
 * wants yet. */
void bh__connection_beat(bh__connection *self)
{
    if (!bh__connection_is_open(self))
        return;
    int64_t every_ms = (int64_t)amqp_get_heartbeat(self->state) * 1000 / 2;
    int64_t now_ms = bh__monotonic_ms();
    if (every_ms == 0 || now_ms - self->sent_ms < every_ms)
        return;
    amqp_frame_t heartbeat = {.frame_type = AMQP_FRAME_HEARTBEAT, .channel = 0};
    self->sent_ms = now_ms;
    if (amqp_send_frame(self->state, &heartbeat) != AMQP_STATUS_OK)
        self->is_broken = 1;
}
