#include "worker/procedures/runner.h"

#include "worker/engine/pacing.h"
#include "topology/internal.h"
#include "worker/wire/login.h"
#include "worker/wire/lookup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NAME = 300 }; /* bytes of a connection's name */

/* --------------------------------------------------------------------------------------- socket */

/* Pumps once for the socket. Returns 0 after the deadline. */
static int go_on(bh__runner *self, int64_t deadline_ms)
{
    if (bh__engine_is_interrupted(&self->engine) || bh__monotonic_ms() >= deadline_ms)
        return 0;
    bh__engine_pump(&self->engine, deadline_ms);
    return 1;
}

/* Looks up the addresses of the host; free them with freeaddrinfo. */
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
                              "the name service did not return the address of %s within %lld ms; check that it works",
                              uri->host, (long long)self->context->settings->connect_timeout_ms);
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

/* Tries the host's addresses. Each gets an equal share of the time. */
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
                              uri->port, (long long)self->context->settings->connect_timeout_ms);
    return bh__report_set(&self->problem, BH_ERR_CONNECTION,
                          "no connection to %s:%d (%s); check that RabbitMQ runs and listens there", uri->host,
                          uri->port, strerror(error));
}

static bh_status secure(bh__runner *self, bh__link *link, const bh__uri *uri, int64_t deadline_ms)
{
    bh__step step = BH__AGAIN;
    const bh__settings *settings = self->context->settings;
    const bh__tls_files files = {settings->ca_file, settings->cert, settings->key};
    bh_status status = bh__socket_begin_tls(&link->socket, uri, &files, &self->problem);
    link->phase = BH__SECURING;
    while (status == BH_OK && step != BH__DONE) {
        status = bh__socket_handshake(&link->socket, uri, &step, &self->problem);
        if (status == BH_OK && step == BH__AGAIN && !go_on(self, deadline_ms))
            status = bh__report_set(&self->problem, BH_ERR_TLS,
                                    "no TLS with %s:%d within %lld ms; check that this port uses TLS (often 5671)",
                                    uri->host, uri->port, (long long)self->context->settings->connect_timeout_ms);
    }
    return status;
}

/* ---------------------------------------------------------------------------------------- login */

/* Waits for the broker's next method on channel 0. */
static bh_status await_method(bh__runner *self, bh__link *link, amqp_method_number_t reply, int64_t deadline_ms)
{
    return bh__call_within(self, link, 0, 0, NULL, reply, 0, deadline_ms - bh__monotonic_ms());
}

/* Sends user and password: of bh_worker_set_credentials, or of the URI. */
static bh_status introduce(bh__runner *self, bh__link *link, const bh__uri *uri, const char *name)
{
    bh__uri as = *uri;
    char *credentials;
    if (!bh__mailbox_copy_credentials(self->context->mailbox, &credentials))
        return bh__report_set(&self->problem, BH_ERR_NO_MEMORY, "no memory for a login");
    if (credentials) {
        as.has_user = 1;
        as.user = credentials;
        as.password = credentials + strlen(credentials) + 1;
    }
    bh__login_introduce(link, &as, self->context->settings->cert != NULL, name);
    free(credentials);
    return BH_OK;
}

static bh_status log_in(bh__runner *self, const bh__connection *connection, bh__link *link, const bh__uri *uri,
                        int64_t deadline_ms)
{
    amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes(uri->vhost)};
    link->phase = BH__TALKING;
    snprintf(link->user, sizeof link->user, "%s", uri->user);
    link->sent_ms = link->received_ms = bh__monotonic_ms();
    bh__link_greet(link);
    bh_status status = await_method(self, link, AMQP_CONNECTION_START_METHOD, deadline_ms);
    if (status == BH_OK) {
        char name[LONGEST_NAME];
        snprintf(name, sizeof name, "backhop %s %s", connection->role,
                 bh__topology_queue(self->context->settings->topology).data);
        status = introduce(self, link, uri, name);
    }
    if (status == BH_OK)
        status = await_method(self, link, AMQP_CONNECTION_TUNE_METHOD, deadline_ms);
    if (status == BH_OK) {
        bh__login_tune(link, uri, BH__CHANNEL_MAX);
        status = bh__call_within(self, link, 0, AMQP_CONNECTION_OPEN_METHOD, &open, AMQP_CONNECTION_OPEN_OK_METHOD, 0,
                                 deadline_ms - bh__monotonic_ms());
    }
    link->is_open = status == BH_OK && !bh__link_is_broken(link);
    return status;
}

static bh_status check_broker(bh__runner *self, const bh__link *link)
{
    bh_status status =
        bh_topology_check_broker(self->context->settings->topology, bh_str(link->product), bh_str(link->version));
    return status == BH_OK ? BH_OK
                           : bh__report_set(&self->problem, status, "%s",
                                            bh_topology_error(self->context->settings->topology).data);
}

bh_status bh__connect(bh__runner *self, bh__connection *connection, const bh__uri *uri)
{
    bh__link *link = &connection->link;
    int64_t deadline_ms = bh__monotonic_ms() + self->context->settings->connect_timeout_ms;
    connection->uri = uri;
    connection->has_worked = 0;
    bh_status status = open_socket(self, link, uri, deadline_ms);
    if (status == BH_OK && uri->tls)
        status = secure(self, link, uri, deadline_ms);
    if (status == BH_OK) {
        status = log_in(self, connection, link, uri, deadline_ms);
        if (status != BH_OK)
            status = bh__login_explain(link, uri, &self->problem);
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
    int is_open = link->is_open && !bh__link_is_broken(link);
    if (is_open && link->is_blocked) { /* the broker answers after the alarm */
        bh__link_send(link, 0, AMQP_CONNECTION_CLOSE_METHOD, &close);
        bh__link_flush(link, bh__monotonic_ms());
    } else if (is_open) {
        bh__call_within(self, link, 0, AMQP_CONNECTION_CLOSE_METHOD, &close, AMQP_CONNECTION_CLOSE_OK_METHOD, 0,
                        BH__GOODBYE_MS);
    }
    bh__link_close(link);
}

int bh__is_one_broker(const bh__runner *self)
{
    const bh__connection *consume = &self->context->consume, *publish = &self->context->publish;
    return strcmp(consume->uri->vhost, publish->uri->vhost) == 0 &&
           strcmp(consume->link.cluster, publish->link.cluster) == 0;
}
