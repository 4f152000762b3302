#include "common/connection.h"

#include "base/memory.h"
#include "common/command.h"
#include "common/options.h"
#include "common/output.h"
#include "worker/wire/login.h"

#include <backhop/version.h>

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    CONNECT_MS = 10000,
    ANSWER_MS = 30000,
    GOODBYE_MS = 2000,
    LONGEST_POLL_MS = 1000,
    SILENCE_MS = 200, /* if a quorum queue's leader is busy for 250 ms, RabbitMQ answers 0 messages and 0 consumers */
    LONGEST_SILENCE_MS = 5000
};

/* ----------------------------------------------------------------------------------- interrupts */

static volatile sig_atomic_t interrupts;

/* A second Ctrl-C ends the program. A second SIGTERM does not: a supervisor may send it to a
 * program and its parent, which passes it on. */
static void on_interrupt(int number)
{
    interrupts++;
    if (interrupts > 1 && number == SIGINT)
        _exit(128 + number);
}

void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* without SA_RESTART: poll ends */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int is_interrupted(void)
{
    return interrupts > 0;
}

/* --------------------------------------------------------------------------------------- frames */

static void on_method(connection *self, const amqp_method_t *method)
{
    if (method->id == AMQP_CONNECTION_CLOSE_METHOD)
        bh__link_answer_close(&self->link, method->decoded);
    else if (method->id == AMQP_CONNECTION_BLOCKED_METHOD)
        self->link.is_blocked = 1;
    else if (method->id == AMQP_CONNECTION_UNBLOCKED_METHOD)
        self->link.is_blocked = 0;
}

static void dispatch(connection *self, const bh__frame *frame)
{
    amqp_method_t method = {0, NULL};
    int is_method = frame->type == AMQP_FRAME_METHOD;
    if (frame->type == AMQP_FRAME_HEARTBEAT || (is_method && !bh__link_decode(&self->link, frame, &method)))
        return;
    if (is_method && self->link.reply.decoded == method.decoded && self->link.reply.id == method.id)
        return; /* await_reply() returns it */
    if (frame->channel == 0)
        on_method(self, &method);
    else if (self->on_frame)
        self->on_frame(self->data, frame, is_method ? &method : NULL);
}

static bh_status report_link(connection *self)
{
    return bh__report_set(&self->problem, self->link.problem.status, "%s", bh__report_text(&self->link.problem).data);
}

bh_status connection_pump(connection *self, int64_t until_ms)
{
    bh__link *link = &self->link;
    bh__frame frame;
    int64_t now_ms = bh__monotonic_ms(), beat_ms = bh__link_next_beat_ms(link);
    bh__link_flush(link, now_ms);
    int64_t remaining_ms = (until_ms < beat_ms ? until_ms : beat_ms) - now_ms;
    struct pollfd polled = {.fd = link->socket.fd, .events = bh__link_events(link)};
    int timeout_ms = link->has_more || remaining_ms < 0 ? 0
                     : remaining_ms > LONGEST_POLL_MS   ? LONGEST_POLL_MS
                                                        : (int)remaining_ms;
    int is_ready = poll(&polled, 1, timeout_ms) > 0;
    now_ms = bh__monotonic_ms();
    if (is_ready || link->has_more) {
        bh__link_flush(link, now_ms);
        bh__link_read(link, now_ms);
        while (bh__link_next(link, &frame))
            dispatch(self, &frame);
    }
    bh__link_beat(link, now_ms);
    bh__link_flush(link, now_ms);
    return bh__link_is_broken(link) ? report_link(self) : BH_OK;
}

/* ---------------------------------------------------------------------------------------- calls */

void connection_report_waiting(connection *self)
{
    if (!self->has_waited)
        complain("%s:%d has not answered for %d s; waiting for it", self->uri.host, self->uri.port,
                 CONNECTION_PATIENT_MS / 1000);
    self->has_waited = 1;
}

static bh_status await_reply(connection *self, int64_t deadline_ms)
{
    bh__link *link = &self->link;
    int64_t patient_ms = bh__monotonic_ms() + CONNECTION_PATIENT_MS;
    while (link->reply.id == 0 && !bh__link_is_broken(link)) {
        if (is_interrupted() && !link->is_open) /* nothing is held that would have to be given back */
            bh__link_fail(link, BH_ERR_CONNECTION, "interrupted");
        else if (bh__monotonic_ms() >= deadline_ms)
            bh__link_fail(link, BH_ERR_CONNECTION,
                          "the broker did not answer in time; this node may have lost its cluster");
        else
            connection_pump(self, deadline_ms);
        if (link->reply.id == 0 && bh__monotonic_ms() >= patient_ms)
            connection_report_waiting(self);
    }
    return link->reply.id ? BH_OK : report_link(self);
}

static bh_status call_within(connection *self, int channel, amqp_method_number_t method, void *arguments,
                             amqp_method_number_t reply, amqp_method_number_t other, int64_t timeout_ms)
{
    bh__link *link = &self->link;
    link->reply = (amqp_method_t){0, NULL};
    link->reply_channel = (amqp_channel_t)channel;
    link->awaited = reply;
    link->awaited_too = other;
    if (method)
        bh__link_send(link, (amqp_channel_t)channel, method, arguments);
    bh_status status = await_reply(self, bh__monotonic_ms() + timeout_ms);
    link->awaited = link->awaited_too = 0;
    return status;
}

bh_status connection_call(connection *self, int channel, amqp_method_number_t method, void *arguments,
                          amqp_method_number_t reply, amqp_method_number_t other, const char *what)
{
    self->code = 0;
    self->text[0] = '\0';
    bh_status status = call_within(self, channel, method, arguments, reply, other, ANSWER_MS);
    if (status != BH_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", bh__report_text(&self->problem).data);
        self->code = self->link.close_code;
        snprintf(self->text, sizeof self->text, "%s", self->link.close_text);
        return bh__report_set(&self->problem, status, "%s failed: %s", what, reason);
    }
    if (self->link.reply.id != AMQP_CHANNEL_CLOSE_METHOD)
        return BH_OK;
    const amqp_channel_close_t *close = self->link.reply.decoded;
    bh_bytes text = bh__from_amqp(close->reply_text);
    self->code = close->reply_code;
    snprintf(self->text, sizeof self->text, "%.*s", (int)text.size, text.data);
    return bh__link_answer_channel_close(&self->link, (amqp_channel_t)channel, close, what, &self->problem);
}

bh_status connection_open_channel(connection *self, int channel)
{
    amqp_channel_open_t open = {.out_of_band = amqp_empty_bytes};
    return connection_call(self, channel, AMQP_CHANNEL_OPEN_METHOD, &open, AMQP_CHANNEL_OPEN_OK_METHOD, 0,
                           "opening a channel");
}

bh_status connection_close_channel(connection *self, int channel)
{
    amqp_channel_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_empty_bytes};
    return connection_call(self, channel, AMQP_CHANNEL_CLOSE_METHOD, &close, AMQP_CHANNEL_CLOSE_OK_METHOD, 0,
                           "closing a channel");
}

bh_status connection_read_depth(connection *self, int channel, const char *queue, int64_t *ready, int64_t *consumers)
{
    amqp_queue_declare_t declare = {.queue = amqp_cstring_bytes(queue), .passive = 1};
    char what[320];
    snprintf(what, sizeof what, "looking at queue \"%s\"", queue);
    int64_t until_ms = bh__monotonic_ms() + LONGEST_SILENCE_MS, sent_ms;
    amqp_queue_declare_ok_t ok;
    do {
        sent_ms = bh__monotonic_ms();
        bh_status status =
            connection_call(self, channel, AMQP_QUEUE_DECLARE_METHOD, &declare, AMQP_QUEUE_DECLARE_OK_METHOD, 0, what);
        if (status != BH_OK)
            return status;
        ok = *(const amqp_queue_declare_ok_t *)self->link.reply.decoded;
    } while (ok.message_count == 0 && ok.consumer_count == 0 && bh__monotonic_ms() - sent_ms >= SILENCE_MS &&
             bh__monotonic_ms() < until_ms && !is_interrupted());
    *ready = ok.message_count;
    if (consumers)
        *consumers = ok.consumer_count;
    return BH_OK;
}

bh_status connection_look(connection *self, const char *queue, int64_t *ready, int64_t *consumers)
{
    bh_status status = connection_open_channel(self, CHANNEL_CALL);
    if (status == BH_OK)
        status = connection_read_depth(self, CHANNEL_CALL, queue, ready, consumers);
    return status == BH_OK ? connection_close_channel(self, CHANNEL_CALL) : status;
}

int connection_complain(const connection *self)
{
    return complain_status(self->problem.status, bh__report_text(&self->problem));
}

/* -------------------------------------------------------------------------------------- opening */

static void wait_for_socket(const bh__link *link, int64_t deadline_ms)
{
    struct pollfd polled = {.fd = link->socket.fd, .events = bh__link_events(link)};
    int64_t remaining_ms = deadline_ms - bh__monotonic_ms();
    poll(&polled, 1, remaining_ms > 0 ? (int)remaining_ms : 0);
}

static int is_over(int64_t deadline_ms)
{
    return is_interrupted() || bh__monotonic_ms() >= deadline_ms;
}

/* Tries one address. Returns 0 with errno set if it fails. */
static int connect_to(bh__link *link, const struct addrinfo *address, int64_t deadline_ms)
{
    bh__step step = BH__BROKEN;
    if (!bh__socket_begin(&link->socket, address))
        return 0;
    link->phase = BH__CONNECTING;
    while ((step = bh__socket_connected(&link->socket)) == BH__AGAIN && !is_over(deadline_ms))
        wait_for_socket(link, deadline_ms);
    if (step == BH__DONE)
        return 1;
    int error = step == BH__AGAIN ? ETIMEDOUT : errno;
    bh__link_close(link);
    errno = error;
    return 0;
}

static bh_status open_socket(connection *self, int64_t deadline_ms)
{
    const bh__uri *uri = &self->uri;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    char port[8];
    int is_open = 0, count = 0;
    snprintf(port, sizeof port, "%d", uri->port);
    int error = getaddrinfo(uri->host, port, &hints, &addresses);
    if (error)
        return bh__report_set(&self->problem, BH_ERR_CONNECTION,
                              "the host %s is not known to the name service (%s); check its name", uri->host,
                              gai_strerror(error));
    for (const struct addrinfo *each = addresses; each; each = each->ai_next)
        count++;
    for (const struct addrinfo *each = addresses; each && !is_open; each = each->ai_next, count--) {
        int64_t now_ms = bh__monotonic_ms();
        is_open = connect_to(&self->link, each, now_ms + (deadline_ms - now_ms) / count);
    }
    error = errno;
    freeaddrinfo(addresses);
    return is_open ? BH_OK
                   : bh__report_set(&self->problem, BH_ERR_CONNECTION,
                                    "no connection to %s:%d (%s); check that RabbitMQ runs and listens there",
                                    uri->host, uri->port, strerror(error));
}

static bh_status secure(connection *self, const bh__tls_files *files, int64_t deadline_ms)
{
    bh__link *link = &self->link;
    bh__step step = BH__AGAIN;
    bh_status status = bh__socket_begin_tls(&link->socket, &self->uri, files, &self->problem);
    link->phase = BH__SECURING;
    while (status == BH_OK && step != BH__DONE) {
        status = bh__socket_handshake(&link->socket, &self->uri, &step, &self->problem);
        if (status == BH_OK && step == BH__AGAIN && is_over(deadline_ms))
            status = bh__report_set(&self->problem, BH_ERR_TLS,
                                    "no TLS with %s:%d in time; check that this port uses TLS (often 5671)",
                                    self->uri.host, self->uri.port);
        else if (status == BH_OK && step == BH__AGAIN)
            wait_for_socket(link, deadline_ms);
    }
    return status;
}

static bh_status log_in(connection *self, int has_certificate, const char *purpose, int64_t deadline_ms)
{
    bh__link *link = &self->link;
    amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes(self->uri.vhost)};
    char name[128];
    snprintf(name, sizeof name, "backhop %s", purpose);
    link->phase = BH__TALKING;
    link->sent_ms = link->received_ms = bh__monotonic_ms();
    bh__link_greet(link);
    bh_status status = call_within(self, 0, 0, NULL, AMQP_CONNECTION_START_METHOD, 0, deadline_ms - bh__monotonic_ms());
    if (status == BH_OK) {
        bh__login_introduce(link, &self->uri, has_certificate, name);
        status = call_within(self, 0, 0, NULL, AMQP_CONNECTION_TUNE_METHOD, 0, deadline_ms - bh__monotonic_ms());
    }
    if (status == BH_OK) {
        bh__login_tune(link, &self->uri, CHANNEL_COUNT);
        status = call_within(self, 0, AMQP_CONNECTION_OPEN_METHOD, &open, AMQP_CONNECTION_OPEN_OK_METHOD, 0,
                             deadline_ms - bh__monotonic_ms());
    }
    link->is_open = status == BH_OK && !bh__link_is_broken(link);
    return status == BH_OK ? BH_OK : bh__login_explain(link, &self->uri, &self->problem);
}

static void destroy(connection *self)
{
    bh__link_free(&self->link);
    bh__uri_free(&self->uri);
    bh__report_free(&self->problem);
    free(self);
}

const char *broker_uri(const broker_options *options)
{
    const char *uri = options->uri ? options->uri : getenv("AMQP_URL");
    if (options->uri && !*uri)
        options_refuse("the URI is empty: give amqp://user:password@host:port/vhost, or leave it out");
    return uri && *uri ? uri : "amqp://guest:guest@localhost/";
}

const char *broker_ca_file(const broker_options *options)
{
    const char *file = options->ca_file ? options->ca_file : getenv("BACKHOP_CA_FILE");
    return file && *file ? file : NULL;
}

int connection_open(connection **out, const broker_options *options, const char *purpose)
{
    const char *uri = broker_uri(options);
    const bh__tls_files files = {broker_ca_file(options), options->cert, options->key};
    *out = NULL;
    connection *self = must(calloc(1, sizeof *self));
    bh__link_init(&self->link);
    int64_t deadline_ms = bh__monotonic_ms() + CONNECT_MS;
    bh_status status = bh__uri_parse(&self->uri, bh_str(uri), &self->problem);
    if (status == BH_OK)
        status = open_socket(self, deadline_ms);
    if (status == BH_OK && self->uri.tls)
        status = secure(self, &files, deadline_ms);
    if (status == BH_OK)
        status = log_in(self, files.cert != NULL, purpose, deadline_ms);
    if (status == BH_OK) {
        *out = self;
        return EX_OK;
    }
    int code = is_interrupted() ? EXIT_INTERRUPTED : connection_complain(self);
    destroy(self);
    return code;
}

void connection_close(connection *self)
{
    amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_cstring_bytes("goodbye")};
    if (!self)
        return;
    if (self->link.is_open && !bh__link_is_broken(&self->link))
        call_within(self, 0, AMQP_CONNECTION_CLOSE_METHOD, &close, AMQP_CONNECTION_CLOSE_OK_METHOD, 0, GOODBYE_MS);
    destroy(self);
}

int connection_is_at_least(const connection *self, int major, int minor)
{
    int is_major = 0, is_minor = 0;
    if (sscanf(self->link.version, "%d.%d", &is_major, &is_minor) != 2) /* NOLINT(cert-err34-c): small numbers */
        return 0;
    return is_major > major || (is_major == major && is_minor >= minor);
}
