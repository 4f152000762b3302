#include "procedures/runner.h"

#include "engine/pacing.h"
#include "topology_internal.h"
#include "wire/lookup.h"

#include <backhop/version.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_NAME = 300 }; /* of a connection */

/* ----------------------------------------------------------------------------------------------------------- socket */

/* Pumps until the socket may have gone on. False: the time is over. */
static int go_on(bh__runner *self, int64_t deadline_ms)
{
    if (bh__engine_is_interrupted(&self->engine) || bh__monotonic_ms() >= deadline_ms)
        return 0;
    bh__engine_pump(&self->engine, deadline_ms);
    return 1;
}

/* The addresses of the host, to be freed with freeaddrinfo. */
static bh_status resolve(bh__runner *self, bh__link *link, const bh__uri *uri, int64_t deadline_ms,
                         struct addrinfo **out)
{
    bh__lookup *lookup = bh__lookup_begin(&link->socket.fd, uri);
    if (!lookup)
        return bh__report_set(&self->problem, BH_ERR_NO_MEMORY, "no memory, descriptor or thread to look up a host");
    link->phase = BH__RESOLVING;
    int is_in_time = 1;
    while (is_in_time && !bh__lookup_is_done(lookup))
        is_in_time = go_on(self, deadline_ms);
    int error = bh__lookup_end(lookup, out);
    bh__link_close(link);
    if (error == 0)
        return BH_OK;
    if (!is_in_time)
        return bh__report_set(&self->problem, BH_ERR_CONNECTION,
                              "the name service did not tell the address of %s within %lld ms; check that it works",
                              uri->host, (long long)self->engine.context.settings->connect_timeout_ms);
    return bh__report_set(&self->problem, BH_ERR_CONNECTION,
                          "the host %s is not known to the name service (%s); check its name", uri->host,
                          gai_strerror(error));
}

static int connect_to(bh__runner *self, bh__link *link, const struct addrinfo *address, int64_t deadline_ms)
{
    if (!bh__socket_begin(&link->socket, address))
        return 0;
    link->phase = BH__CONNECTING;
    bh__step step;
    while ((step = bh__socket_connected(&link->socket)) == BH__AGAIN)
        if (!go_on(self, deadline_ms)) {
            errno = ETIMEDOUT;
            break;
        }
    if (step == BH__DONE)
        return 1;
    int error = errno;
    bh__link_close(link);
    errno = error;
    return 0;
}

/* Tries the host's addresses, each with its share of the time. */
static bh_status open_socket(bh__runner *self, bh__link *link, const bh__uri *uri, int64_t deadline_ms)
{
    struct addrinfo *addresses = NULL;
    bh_status status = resolve(self, link, uri, deadline_ms, &addresses);
    if (status != BH_OK)
        return status;
    int count = 0, is_open = 0;
    for (const struct addrinfo *each = addresses; each; each = each->ai_next)
        count++;
    for (const struct addrinfo *each = addresses; each && !is_open; each = each->ai_next, count--) {
        int64_t now_ms = bh__monotonic_ms();
        is_open = connect_to(self, link, each, now_ms + (deadline_ms - now_ms) / count);
    }
    int error = errno;
    freeaddrinfo(addresses);
    if (is_open)
        return BH_OK;
    if (error == ETIMEDOUT)
        return bh__report_set(&self->problem, BH_ERR_CONNECTION,
                              "%s:%d did not answer within %lld ms; check host, port and firewall", uri->host,
                              uri->port, (long long)self->engine.context.settings->connect_timeout_ms);
    return bh__report_set(&self->problem, BH_ERR_CONNECTION,
                          "no connection to %s:%d (%s); check that RabbitMQ runs and listens there", uri->host,
                          uri->port, strerror(error));
}

static bh_status secure(bh__runner *self, bh__link *link, const bh__uri *uri, int64_t deadline_ms)
{
    bh__step step = BH__AGAIN;
    bh_status status = bh__socket_begin_tls(&link->socket, uri, self->engine.context.settings->ca_file, &self->problem);
    link->phase = BH__SECURING;
    while (status == BH_OK && step != BH__DONE) {
        status = bh__socket_handshake(&link->socket, uri, &step, &self->problem);
        if (status == BH_OK && step == BH__AGAIN && !go_on(self, deadline_ms))
            status = bh__report_set(&self->problem, BH_ERR_TLS,
                                    "no TLS with %s:%d within %lld ms; check that this port speaks TLS (often 5671)",
                                    uri->host, uri->port, (long long)self->engine.context.settings->connect_timeout_ms);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------------------------ login */

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

static void copy_property(const amqp_table_t *properties, const char *name, char *value, size_t room)
{
    value[0] = '\0';
    for (int i = 0; i < properties->num_entries; i++) {
        const amqp_table_entry_t *entry = &properties->entries[i];
        bh_bytes text =
            entry->value.kind == AMQP_FIELD_KIND_UTF8 ? bh__from_amqp(entry->value.value.bytes) : bh_str("");
        if (bh__same(bh__from_amqp(entry->key), bh_str(name)))
            snprintf(value, room, "%.*s", (int)text.size, text.data);
    }
}

/* connection.start: who the broker is; start-ok: who we are. */
static void introduce(const bh__runner *self, const bh__connection *connection, bh__link *link, const bh__uri *uri)
{
    const amqp_connection_start_t *start = link->reply.decoded;
    copy_property(&start->server_properties, "product", link->product, sizeof link->product);
    copy_property(&start->server_properties, "version", link->version, sizeof link->version);
    copy_property(&start->server_properties, "cluster_name", link->cluster, sizeof link->cluster);

    char name[LONGEST_NAME];
    snprintf(name, sizeof name, "backhop %s %s", connection->role,
             bh_topology_queue(self->engine.context.settings->topology).data);
    size_t user = strlen(uri->user), password = strlen(uri->password);
    char *secret = calloc(1, user + password + 3);
    if (!secret) {
        bh__link_fail(link, BH_ERR_NO_MEMORY, "no memory for a login");
        return;
    }
    memcpy(secret + 1, uri->user, user);
    memcpy(secret + 1 + user + 1, uri->password, password);
    amqp_table_entry_t capabilities[] = {
        true_entry("consumer_cancel_notify"),     true_entry("connection.blocked"),
        true_entry("publisher_confirms"),         true_entry("basic.nack"),
        true_entry("exchange_exchange_bindings"), true_entry("authentication_failure_close")};
    amqp_table_entry_t properties[] = {
        text_entry("product", "Backhop"),
        text_entry("version", bh_version()),
        text_entry("information", "librabbitmq"),
        text_entry("connection_name", name),
        {.key = amqp_cstring_bytes("capabilities"), .value = {.kind = AMQP_FIELD_KIND_TABLE}}};
    properties[4].value.value.table = (amqp_table_t){sizeof capabilities / sizeof capabilities[0], capabilities};
    amqp_connection_start_ok_t start_ok = {.client_properties = {sizeof properties / sizeof properties[0], properties},
                                           .mechanism = amqp_cstring_bytes("PLAIN"),
                                           .response = {user + password + 2, secret},
                                           .locale = amqp_cstring_bytes("en_US")};
    bh__link_send(link, 0, AMQP_CONNECTION_START_OK_METHOD, &start_ok);
    free(secret);
}

static uint32_t lower(uint32_t ours, uint32_t theirs)
{
    return theirs == 0 || ours < theirs ? ours : theirs; /* 0: no limit */
}

static void tune(bh__link *link, const bh__uri *uri)
{
    const amqp_connection_tune_t *tune = link->reply.decoded;
    if (tune->frame_max && tune->frame_max < BH__LEAST_FRAME_MAX)
        bh__link_fail(link, BH_ERR_CONNECTION, "the broker's frame_max of %u is below AMQP's least, %d",
                      tune->frame_max, BH__LEAST_FRAME_MAX);
    amqp_connection_tune_ok_t tune_ok = {.channel_max = (uint16_t)lower(BH__CHANNEL_MAX, tune->channel_max),
                                         .frame_max = lower(BH__FRAME_MAX, tune->frame_max)};
    if (uri->heartbeat_s)
        tune_ok.heartbeat = (uint16_t)lower((uint32_t)uri->heartbeat_s, tune->heartbeat);
    link->channel_max = tune_ok.channel_max;
    link->frame_max = tune_ok.frame_max;
    link->heartbeat_ms = (int64_t)tune_ok.heartbeat * 1000;
    bh__link_send(link, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &tune_ok);
}

/* Waits for the broker's next word on channel 0. */
static bh_status hear(bh__runner *self, bh__link *link, amqp_method_number_t reply, int64_t deadline_ms)
{
    return bh__call_within(self, link, 0, 0, NULL, reply, 0, deadline_ms - bh__monotonic_ms());
}

static bh_status log_in(bh__runner *self, const bh__connection *connection, bh__link *link, const bh__uri *uri,
                        int64_t deadline_ms)
{
    amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes(uri->vhost)};
    link->phase = BH__TALKING;
    link->sent_ms = link->received_ms = bh__monotonic_ms();
    bh__link_greet(link);
    bh_status status = hear(self, link, AMQP_CONNECTION_START_METHOD, deadline_ms);
    if (status == BH_OK) {
        introduce(self, connection, link, uri);
        status = hear(self, link, AMQP_CONNECTION_TUNE_METHOD, deadline_ms);
    }
    if (status == BH_OK) {
        tune(link, uri);
        status = bh__call_within(self, link, 0, AMQP_CONNECTION_OPEN_METHOD, &open, AMQP_CONNECTION_OPEN_OK_METHOD, 0,
                                 deadline_ms - bh__monotonic_ms());
    }
    link->is_open = status == BH_OK && !bh__link_is_broken(link);
    return status;
}

static bh_status explain_login(bh__runner *self, const bh__link *link, const bh__uri *uri)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", bh__report_text(&self->problem).data);
    if (link->close_code == AMQP_ACCESS_REFUSED || link->close_code == AMQP_NOT_ALLOWED)
        return bh__report_set(&self->problem, BH_ERR_ACCESS,
                              "%s:%d refused user %s and vhost %s: %s; check user, password, vhost and permissions",
                              uri->host, uri->port, uri->user, uri->vhost, reason);
    return bh__report_set(&self->problem, self->problem.status,
                          "%s:%d did not log user %s in: %s; check that RabbitMQ listens there, and %s", uri->host,
                          uri->port, uri->user, reason,
                          uri->tls ? "whether it wants a client certificate" : "whether the port wants TLS (amqps://)");
}

static bh_status check_broker(bh__runner *self, const bh__link *link)
{
    bh_status status =
        bh_topology_check_broker(self->engine.context.settings->topology, bh_str(link->product), bh_str(link->version));
    return status == BH_OK ? BH_OK
                           : bh__report_set(&self->problem, status, "%s",
                                            bh_topology_error(self->engine.context.settings->topology).data);
}

bh_status bh__connect(bh__runner *self, bh__connection *connection, const bh__uri *uri)
{
    bh__link *link = &connection->link;
    int64_t deadline_ms = bh__monotonic_ms() + self->engine.context.settings->connect_timeout_ms;
    connection->uri = uri;
    connection->has_worked = 0;
    bh_status status = open_socket(self, link, uri, deadline_ms);
    if (status == BH_OK && uri->tls)
        status = secure(self, link, uri, deadline_ms);
    if (status == BH_OK) {
        status = log_in(self, connection, link, uri, deadline_ms);
        if (status != BH_OK)
            status = explain_login(self, link, uri);
    }
    if (status == BH_OK)
        status = check_broker(self, link);
    if (status == BH_OK)
        connection->opened_ms = bh__monotonic_ms();
    else
        bh__link_close(link);
    return status;
}

void bh__disconnect(bh__runner *self, bh__connection *connection)
{
    bh__link *link = &connection->link;
    amqp_connection_close_t close = {.reply_code = AMQP_REPLY_SUCCESS, .reply_text = amqp_cstring_bytes("goodbye")};
    if (link->is_open && !bh__link_is_broken(link))
        bh__call_within(self, link, 0, AMQP_CONNECTION_CLOSE_METHOD, &close, AMQP_CONNECTION_CLOSE_OK_METHOD, 0,
                        BH__GOODBYE_MS);
    bh__link_close(link);
}

int bh__is_one_broker(const bh__runner *self)
{
    const bh__connection *consume = &self->engine.context.consume, *publish = &self->engine.context.publish;
    return strcmp(consume->uri->vhost, publish->uri->vhost) == 0 &&
           strcmp(consume->link.cluster, publish->link.cluster) == 0;
}
