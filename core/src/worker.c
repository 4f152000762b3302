#define _DEFAULT_SOURCE

#include "worker_internal.h"

#include "memory.h"
#include "worker_declare.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PREFETCH = 100,
    CONNECT_TIMEOUT_MS = 10000,
    CONFIRM_TIMEOUT_MS = 30000,
    LONGEST_TIMEOUT_MS = 3600000,
    BACK_OFF_INITIAL_MS = 100,
    BACK_OFF_MAX_MS = 10000,
    LONGEST_NAME = 300 /* of a connection */
};

static int open_pipe(int ends[2])
{
    if (pipe(ends) != 0) {
        ends[0] = ends[1] = -1;
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    return 1;
}

static bh_status make_back_off(bh_policy **out)
{
    bh_status status = bh_policy_new(out);
    if (status == BH_OK)
        status = bh_policy_set_initial_ms(*out, BACK_OFF_INITIAL_MS);
    if (status == BH_OK)
        status = bh_policy_set_max_ms(*out, BACK_OFF_MAX_MS);
    if (status == BH_OK)
        status = bh_policy_set_jitter(*out, BH_JITTER_EQUAL, 0);
    return status;
}

bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, bh_topology *topology)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!policy || !topology)
        return BH_ERR_ARGUMENT;
    bh_worker *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    self->policy = policy;
    self->topology = topology;
    self->prefetch = PREFETCH;
    self->connect_timeout_ms = CONNECT_TIMEOUT_MS;
    self->confirm_timeout_ms = CONFIRM_TIMEOUT_MS;
    self->mode = BH_MODE_NONE;
    self->publisher.others[0] = &self->consumer;
    self->publisher.others[1] = &self->replayer;
    atomic_init(&self->is_stopped, 0);
    bh_status status = open_pipe(self->wake) ? BH_OK : BH_ERR_NO_MEMORY;
    if (status == BH_OK)
        status = bh_delivery_new(&self->delivery);
    if (status == BH_OK)
        status = bh_history_new(&self->history);
    if (status == BH_OK)
        status = bh_plan_new(&self->plan);
    if (status == BH_OK)
        status = make_back_off(&self->back_off);
    if (status != BH_OK) {
        bh_worker_free(self);
        return status;
    }
    *out = self;
    return BH_OK;
}

void bh__worker_release(bh_worker *self)
{
    self->is_current = 0;
    bh__publisher_forget(&self->publisher);
    bh__message_release(&self->message);
    if (self->consumer.state)
        amqp_maybe_release_buffers(self->consumer.state);
}

static void disconnect(bh_worker *self)
{
    bh__worker_release(self);
    bh__worker_leave(self);
    self->has_channel = self->is_consuming = 0;
    self->rung_count = 0;
    bh__connection_close(&self->consumer);
    bh__publisher_close(&self->publisher);
}

void bh_worker_free(bh_worker *self)
{
    if (!self)
        return;
    disconnect(self);
    for (int i = 0; i < 2; i++)
        if (self->wake[i] >= 0)
            close(self->wake[i]);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
    bh_plan_free(self->plan);
    bh_policy_free(self->back_off);
    bh__copy_free(&self->copy);
    bh__message_free(&self->message);
    bh__uri_free(&self->uri);
    bh__report_free(&self->report);
    bh__report_free(&self->refusal);
    free(self->rungs);
    free(self->ca_file);
    free(self);
}

bh_status bh_worker_set_ca_file(bh_worker *self, bh_bytes path)
{
    if (!self || !path.data || memchr(path.data, '\0', path.size))
        return BH_ERR_ARGUMENT;
    char *copy = NULL;
    if (path.size) {
        copy = malloc(path.size + 1);
        if (!copy)
            return BH_ERR_NO_MEMORY;
        memcpy(copy, path.data, path.size);
        copy[path.size] = '\0';
    }
    free(self->ca_file);
    self->ca_file = copy;
    return BH_OK;
}

bh_status bh_worker_set_prefetch(bh_worker *self, int count)
{
    if (!self || count < 1 || count > UINT16_MAX)
        return BH_ERR_ARGUMENT;
    self->prefetch = count;
    return BH_OK;
}

static bh_status set_timeout(int64_t *timeout_ms, int64_t value_ms)
{
    if (value_ms < 1 || value_ms > LONGEST_TIMEOUT_MS)
        return BH_ERR_ARGUMENT;
    *timeout_ms = value_ms;
    return BH_OK;
}

bh_status bh_worker_set_connect_timeout_ms(bh_worker *self, int64_t timeout_ms)
{
    return self ? set_timeout(&self->connect_timeout_ms, timeout_ms) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_confirm_timeout_ms(bh_worker *self, int64_t timeout_ms)
{
    return self ? set_timeout(&self->confirm_timeout_ms, timeout_ms) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_set_legacy_counter(bh_worker *self, bh_bytes header)
{
    return self ? bh_history_set_legacy_counter(self->history, header) : BH_ERR_ARGUMENT;
}

bh_status bh_worker_add_wait_queue(bh_worker *self, bh_bytes queue)
{
    return self ? bh_history_add_wait_queue(self->history, queue) : BH_ERR_ARGUMENT;
}

static void name_connection(const bh_worker *self, const char *role, char name[LONGEST_NAME])
{
    snprintf(name, LONGEST_NAME, "backhop %s %s", role, bh_topology_queue(self->topology).data);
}

static bh__settings settings_of(const bh_worker *self)
{
    return (bh__settings){.uri = &self->uri,
                          .ca_file = self->ca_file,
                          .connect_timeout_ms = self->connect_timeout_ms,
                          .reply_timeout_ms = self->confirm_timeout_ms};
}

bh_status bh__worker_open(bh_worker *self, bh__connection *connection, const char *role)
{
    char name[LONGEST_NAME];
    name_connection(self, role, name);
    bh__settings settings = settings_of(self);
    return bh__connection_open(connection, &settings, name, &self->report);
}

bh_status bh__worker_open_publisher(bh_worker *self)
{
    char name[LONGEST_NAME];
    name_connection(self, "publish", name);
    bh__settings settings = settings_of(self);
    return bh__publisher_open(&self->publisher, &settings, name, &self->report);
}

static bh_status check_broker(bh_worker *self)
{
    bh__connection_property(&self->consumer, "product", self->product, sizeof self->product);
    bh__connection_property(&self->consumer, "version", self->version, sizeof self->version);
    bh_status status = bh_topology_check_broker(self->topology, bh_str(self->product), bh_str(self->version));
    if (status != BH_OK)
        bh__report_set(&self->report, status, "%s", bh_topology_error(self->topology).data);
    return status;
}

bh_status bh_worker_connect(bh_worker *self, bh_bytes uri)
{
    if (!self || !uri.data)
        return BH_ERR_ARGUMENT;
    disconnect(self);
    bh_status status = bh__uri_parse(&self->uri, uri, &self->report);
    if (status == BH_OK)
        status = bh__worker_open(self, &self->consumer, "consume");
    if (status == BH_OK)
        status = check_broker(self);
    if (status == BH_OK)
        status = bh__worker_open_publisher(self);
    if (status != BH_OK)
        disconnect(self);
    return status;
}

bh_bytes bh_worker_broker_product(const bh_worker *self)
{
    return self ? bh_str(self->product) : bh_str("");
}

bh_bytes bh_worker_broker_version(const bh_worker *self)
{
    return self ? bh_str(self->version) : bh_str("");
}

bh_status bh__worker_not_connected(bh_worker *self)
{
    return bh__report_set(&self->report, BH_ERR_STATE, "the worker is not connected; call bh_worker_connect first");
}

bh_status bh__worker_declare(bh_worker *self)
{
    self->rung_count = 0;
    switch (self->mode) {
    case BH_MODE_CREATE:
        return bh__declare_create(&self->publisher.connection, self->topology, &self->report);
    case BH_MODE_VERIFY:
        return bh__declare_verify(&self->publisher.connection, self->topology, &self->report);
    case BH_MODE_NONE:
        break;
    }
    return BH_OK;
}

bh_status bh_worker_declare(bh_worker *self, bh_mode mode)
{
    if (!self || (mode != BH_MODE_CREATE && mode != BH_MODE_VERIFY && mode != BH_MODE_NONE))
        return BH_ERR_ARGUMENT;
    if (!self->consumer.state)
        return bh__worker_not_connected(self);
    self->mode = mode;
    bh_status status = bh__worker_open_publisher(self);
    if (status == BH_OK)
        status = bh__worker_declare(self);
    if (status == BH_OK)
        self->is_cancelled = 0;
    if (self->publisher.connection.is_broken) /* by the broker, as its answer: the next use opens it again */
        bh__publisher_close(&self->publisher);
    return status;
}

bh_status bh__worker_read(bh_worker *self, const bh__message *message)
{
    bh_status status = bh__decode(self->delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK)
        status = bh_history_read(self->history, self->delivery, self->topology);
    return status == BH_OK ? BH_OK
                           : bh__report_set(&self->report, status, "reading a message's headers failed: %s",
                                            bh_status_text(status).data);
}

bh_bytes bh_worker_body(const bh_worker *self)
{
    if (!self || !self->is_current)
        return bh_str("");
    bh_bytes body = {self->message.body, self->message.body_size};
    return body;
}

int bh_worker_redelivered(const bh_worker *self)
{
    return self && self->is_current && self->message.redelivered;
}

bh_status bh_worker_delivery(const bh_worker *self, bh_delivery *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    if (!self->is_current)
        return BH_ERR_STATE;
    return bh__decode(out, self->message.exchange, self->message.routing_key, self->message.properties);
}

int64_t bh_worker_attempt(const bh_worker *self)
{
    return self && self->is_current ? bh_history_attempts(self->history) + 1 : 0;
}

bh_bytes bh_worker_exchange(const bh_worker *self)
{
    return self && self->is_current ? bh_history_exchange(self->history) : bh_str("");
}

bh_bytes bh_worker_routing_key(const bh_worker *self)
{
    return self && self->is_current ? bh_history_routing_key(self->history) : bh_str("");
}

bh_bytes bh_worker_error(const bh_worker *self)
{
    return self ? bh__report_text(&self->report) : bh_str("");
}

bh_bytes bh_worker_librabbitmq_compiled(void)
{
    return bh_str(AMQP_VERSION_STRING);
}

bh_bytes bh_worker_librabbitmq_loaded(void)
{
    return bh_str(amqp_version());
}
