#include "worker/interface/internal.h"
#include "worker/interface/relay.h"

#include "policy/internal.h"
#include "relay/internal.h"
#include "topology/internal.h"

#include <stdlib.h>
#include <unistd.h>

static bh_status init(bh_worker *self, const bh_policy *policy, const bh_topology *topology)
{
    bh__settings *settings = &self->settings;
    bh_status status = bh__mailbox_init(&self->mailbox) ? BH_OK : BH_ERR_NO_MEMORY;
    bh_status made = bh__runner_init(&self->runner, self, settings, &self->mailbox);
    if (status == BH_OK)
        status = made;
    if (status == BH_OK)
        status = bh__policy_copy(&settings->policy, policy);
    if (status == BH_OK)
        status = bh__topology_copy(&settings->topology, topology);
    bh_worker_settings defaults;
    bh_worker_defaults(&defaults);
    return status == BH_OK ? bh_worker_set(self, &defaults) : status;
}

bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!policy || !topology)
        return BH_ERR_ARGUMENT;
    if (!bh__topology_is_built(topology))
        return BH_ERR_STATE;
    if (!bh__topology_serves(topology, policy))
        return BH_ERR_FOREIGN_POLICY;
    bh_worker *self = calloc(1, sizeof *self);
    if (!self)
        return BH_ERR_NO_MEMORY;
    bh_status status = init(self, policy, topology);
    if (status != BH_OK) {
        bh_worker_free(self);
        return status;
    }
    *out = self;
    return BH_OK;
}

bh_status bh__worker_new_relay(bh_worker **out, const bh__relay *relay)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = NULL;
    if (!relay)
        return BH_ERR_ARGUMENT;
    if (!relay->is_built)
        return BH_ERR_STATE;
    bh_status status = bh_worker_new(out, relay->served[0].policy, relay->topology);
    if (status != BH_OK)
        return status;
    (*out)->settings.prefetch = BH__RELAY_PREFETCH;
    status = bh__relay_copy(&(*out)->settings.relay, relay);
    if (status == BH_OK)
        return BH_OK;
    bh_worker_free(*out);
    *out = NULL;
    return status;
}

/* Closes the descriptors. Memory that the thread was changing during the fork cannot be freed. */
static void close_in_child(const bh_worker *self)
{
    const bh__context *context = self->runner.context;
    const int descriptors[] = {context->consume.link.socket.fd, context->publish.link.socket.fd,
                               self->mailbox.signal[0],         self->mailbox.signal[1],
                               self->mailbox.wake[0],           self->mailbox.wake[1]};
    for (size_t i = 0; i < sizeof descriptors / sizeof descriptors[0]; i++)
        if (descriptors[i] >= 0)
            close(descriptors[i]);
}

static void free_settings(bh__settings *self)
{
    for (size_t i = 0; i < self->uri_count; i++)
        bh__uri_free(&self->uris[i]);
    free(self->uris);
    free(self->ca_file);
    free(self->cert);
    free(self->key);
    bh__relay_free(self->relay);
    bh_policy_free(self->policy);
    bh_topology_free(self->topology);
    bh_policy_free(self->back_off);
    bh_breaker_free(self->breaker);
    bh_history_free(self->reading);
}

void bh_worker_free(bh_worker *self)
{
    if (!self)
        return;
    if (bh__mailbox_is_forked(&self->mailbox)) {
        close_in_child(self);
        return;
    }
    if (self->mailbox.has_thread) {
        bh_worker_stop(self, 0);
        bh__worker_join(self);
    }
    bh__runner_free(&self->runner);
    bh__mailbox_free(&self->mailbox);
    free_settings(&self->settings);
    bh__report_free(&self->report);
    free(self);
}

bh_status bh_worker_read_metrics(bh_worker *self, bh_metrics *out)
{
    if (!self || !out)
        return BH_ERR_ARGUMENT;
    bh__mailbox *mailbox = &self->mailbox;
    if (bh__mailbox_is_forked(mailbox))
        return BH_ERR_FORKED;
    pthread_mutex_lock(&mailbox->counting);
    bh_status status = BH_ERR_STATE;
    if (mailbox->metrics)
        status =
            bh_metrics_set(mailbox->metrics, BH_METRIC_COPIES_UNCONFIRMED, atomic_load(&mailbox->unconfirmed_count));
    if (status == BH_OK)
        status = bh_metrics_add(out, mailbox->metrics);
    pthread_mutex_unlock(&mailbox->counting);
    if (status != BH_OK)
        return status;
    bh_health health;
    bh_worker_state(self, &health);
    return bh_metrics_add_consumer(out, bh__topology_queue(self->settings.topology), health.state == BH_HEALTH_READY);
}

void bh_worker_state(bh_worker *self, bh_health *out)
{
    if (!out)
        return;
    *out = (bh_health){.state = BH_HEALTH_STOPPED};
    if (!self || bh__mailbox_is_forked(&self->mailbox))
        return;
    pthread_mutex_lock(&self->mailbox.mutex);
    *out = self->mailbox.health;
    pthread_mutex_unlock(&self->mailbox.mutex);
}

int64_t bh_worker_copies(const bh_worker *self)
{
    return self && !bh__mailbox_is_forked(&self->mailbox) ? atomic_load(&self->mailbox.unconfirmed_count) : 0;
}

bh_bytes bh_worker_error(const bh_worker *self)
{
    return self ? bh__report_text(&self->report) : bh_str("");
}

void bh_worker_librabbitmq(bh_librabbitmq *out)
{
    if (out)
        *out = (bh_librabbitmq){bh_str(AMQP_VERSION_STRING), bh_str(amqp_version())};
}
