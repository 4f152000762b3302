#include "worker_internal.h"

#include "memory.h"
#include "worker_declare.h"

static int knows_rung(const bh_worker *self, int64_t wait_ms)
{
    const int64_t *rungs = self->rungs;
    for (size_t i = 0; i < self->rung_count; i++)
        if (rungs[i] == wait_ms)
            return 1;
    return 0;
}

/* Declares the rung that the plan needs, once. */
static bh_status declare_rung(bh_worker *self)
{
    int64_t wait_ms = bh_plan_delay_ms(self->plan);
    if (!bh_plan_on_demand(self->plan) || self->mode != BH_MODE_CREATE || knows_rung(self, wait_ms))
        return BH_OK;
    if (!bh__reserve(&self->rungs, &self->rung_capacity, sizeof(int64_t), self->rung_count + 1))
        return bh__report_set(&self->report, BH_ERR_NO_MEMORY, "no memory for a rung");
    bh_status status = bh__declare_rung(&self->publisher.connection, self->topology, wait_ms, &self->report);
    if (status == BH_OK)
        ((int64_t *)self->rungs)[self->rung_count++] = wait_ms;
    return status;
}

/* Something of the topology is gone: makes it again, so that the next try succeeds. */
static bh_status repair(bh_worker *self, bh_status failure)
{
    if (self->mode != BH_MODE_CREATE) {
        bh__report_add(&self->report, "; declare the topology with BH_MODE_CREATE, or import its definitions");
        return failure;
    }
    bh__report met = self->report;
    self->report = (bh__report){.size = 0};
    bh_status status = bh__worker_declare(self);
    if (status == BH_OK)
        status = declare_rung(self);
    if (status == BH_OK) {
        bh__report_free(&self->report);
        self->report = met;
        bh__report_add(&self->report, "; the topology was declared again, so settle again");
        return self->report.status = BH_ERR_PUBLISH;
    }
    bh__report_free(&met);
    return status;
}

static bh_status prepare(bh_worker *self, const bh__message *message)
{
    bh_status status = bh__encode(&self->copy, self->plan, message->properties);
    if (status != BH_OK)
        return bh__report_set(&self->report, status, "no memory for a copy");
    return declare_rung(self);
}

/* Publishes the plan's copy of the message, where it is not pending, and waits for its confirm. */
static bh_status publish(bh_worker *self, const bh__message *message)
{
    bh_status status = self->publisher.is_pending ? BH_OK : prepare(self, message);
    if (status != BH_OK)
        return status;
    bh__publication publication = {.exchange = bh_plan_exchange(self->plan),
                                   .routing_key = bh_plan_routing_key(self->plan),
                                   .mandatory = bh_plan_mandatory(self->plan),
                                   .properties = &self->copy.properties,
                                   .body = {message->body, message->body_size}};
    status = bh__publisher_publish(&self->publisher, &publication, self->confirm_timeout_ms, &self->report);
    if (status == BH_ERR_ACCESS)
        bh__report_add(&self->report, "; grant the user write permission on that exchange");
    if (status == BH_ERR_MISSING || (status == BH_ERR_PUBLISH && self->publisher.was_returned))
        status = repair(self, status);
    return status;
}

/* What remains once a copy, where there is one, is safe. */
static bh_status answer(bh_worker *self, bh__connection *connection, const bh__message *message)
{
    int sent;
    switch (bh_plan_action(self->plan)) {
    case BH_ACTION_REJECT:
        sent = amqp_basic_nack(connection->state, message->channel, message->delivery_tag, 0, 0);
        break;
    case BH_ACTION_RETURN: /* 4.3 counts it, which it does not for basic.nack */
        sent = amqp_basic_reject(connection->state, message->channel, message->delivery_tag, 1);
        break;
    default:
        sent = amqp_basic_ack(connection->state, message->channel, message->delivery_tag, 0);
        break;
    }
    return sent == AMQP_STATUS_OK ? BH_OK : bh__connection_failed(connection, sent, "settling", &self->report);
}

bh_status bh__worker_carry_out(bh_worker *self, bh__connection *connection, const bh__message *message)
{
    bh_status status = bh_plan_publishes(self->plan) ? publish(self, message) : BH_OK;
    return status == BH_OK ? answer(self, connection, message) : status;
}

bh_status bh__worker_draw(bh_worker *self)
{
    return bh__random(self->random, sizeof self->random)
               ? BH_OK
               : bh__report_set(&self->report, BH_ERR_STATE, "the system gives no random bytes (getentropy)");
}

int bh__worker_is_refusal(bh_status status)
{
    return status == BH_ERR_FRAME || status == BH_ERR_CHANNEL;
}

void bh__worker_keep_refusal(bh_worker *self)
{
    if (self->refusal.status != BH_OK)
        return;
    bh__report_free(&self->refusal);
    self->refusal = self->report;
    self->report = (bh__report){.size = 0};
}

bh_status bh__worker_end_refusals(bh_worker *self)
{
    if (self->refusal.status == BH_OK)
        return BH_OK;
    bh__report_free(&self->report);
    self->report = self->refusal;
    self->refusal = (bh__report){.size = 0};
    return self->report.status;
}

bh_status bh__worker_no_plan(bh_worker *self, bh_status status)
{
    return bh__report_set(&self->report, status, "no plan could be made: %s", bh_status_text(status).data);
}

/* The broker dropped one of the connections, or both. A copy published over a new one could not be followed by the
 * ack of the original: it would be a duplicate. */
static bh_status lost(bh_worker *self)
{
    bh__report_add(&self->report, "; connect again, and the broker will deliver the message again");
    return self->report.status = BH_ERR_CONNECTION;
}

static bh_status open_connections(bh_worker *self)
{
    bh__connection_probe(&self->consumer);
    if (self->consumer.is_broken || self->publisher.connection.is_broken)
        return bh__report_set(&self->report, BH_ERR_CONNECTION, "the connection was lost");
    return bh_plan_publishes(self->plan) ? bh__worker_open_publisher(self) : BH_OK;
}

/* A copy that is pending is what its plan says: that plan stays. */
static bh_status make_plan(bh_worker *self, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms)
{
    if (self->publisher.is_pending)
        return BH_OK;
    bh_bytes random = {self->random, sizeof self->random};
    bh_status status = bh_plan_set_frame_max(self->plan, amqp_get_frame_max(self->consumer.state));
    if (status == BH_OK)
        status = bh_plan_make(self->plan, self->delivery, self->history, self->policy, self->topology, outcome, error,
                              retry_after_ms, bh__epoch_ms(), random);
    return status == BH_OK ? BH_OK : bh__worker_no_plan(self, status);
}

static bh_status carry_out(bh_worker *self)
{
    bh_status status = open_connections(self);
    if (status != BH_OK)
        return lost(self);
    status = bh_plan_publishes(self->plan) ? bh__worker_verify_hold(self) : BH_OK;
    if (status == BH_ERR_CHANNEL || status == BH_ERR_CANCELLED)
        bh__worker_release(self);
    if (status == BH_OK)
        status = bh__worker_carry_out(self, &self->consumer, &self->message);
    return status == BH_ERR_CONNECTION ? lost(self) : status;
}

bh_status bh_worker_settle(bh_worker *self, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    if (!self->is_current)
        return bh__report_set(&self->report, BH_ERR_STATE, "no message is taken; call bh_worker_take first");
    bh_status status = make_plan(self, outcome, error, retry_after_ms);
    if (status != BH_OK)
        return status;
    status = carry_out(self);
    if (status == BH_ERR_CONNECTION)
        self->consumer.is_broken = 1;
    if (status == BH_OK || status == BH_ERR_CONNECTION)
        bh__worker_release(self);
    return status;
}

bh_action bh_worker_last_action(const bh_worker *self)
{
    return self ? bh_plan_action(self->plan) : BH_ACTION_NONE;
}

int64_t bh_worker_last_delay_ms(const bh_worker *self)
{
    return self ? bh_plan_delay_ms(self->plan) : 0;
}

bh_bytes bh_worker_last_reason(const bh_worker *self)
{
    return self ? bh_plan_reason(self->plan) : bh_str("");
}
