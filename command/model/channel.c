/* Channel: methods to functions. consuming.c has the methods of consumers and deliveries. */
#include "model/channel.h"

#include "model/closing.h"
#include "model/consuming.h"
#include "model/declaring.h"
#include "model/output.h"
#include "model/publishing.h"
#include "model/transactions.h"

#include <stdlib.h>

model_channel *model_channel_find(const model_link *link, int number)
{
    return (size_t)number < link->channel_capacity ? link->channels[number] : NULL;
}

void model_channel_open(model_link *link, int number)
{
    model_channel *self = calloc(1, sizeof *self);
    if ((size_t)number >= link->channel_capacity) {
        size_t capacity = (size_t)number + 16;
        model_channel **channels = self ? realloc(link->channels, capacity * sizeof *channels) : NULL;
        if (!channels) {
            free(self);
            link->is_broken = 1;
            return;
        }
        memset(channels + link->channel_capacity, 0, (capacity - link->channel_capacity) * sizeof *channels);
        link->channels = channels;
        link->channel_capacity = capacity;
    }
    if (!self) {
        link->is_broken = 1;
        return;
    }
    *self = (model_channel){.number = number, .link = link, .next_tag = 1, .next_number = 1};
    link->channels[number] = self;
    amqp_channel_open_ok_t ok = {.channel_id = amqp_empty_bytes};
    model_send(link, number, AMQP_CHANNEL_OPEN_OK_METHOD, &ok);
}

void model_channel_forget(model_channel *channel)
{
    channel->link->channels[channel->number] = NULL;
    free(channel);
}

static void bind_queue(model_channel *channel, const amqp_queue_bind_t *method, bh_bytes table)
{
    int is_there;
    model_binding_request request = {
        .source = bh__from_amqp(method->exchange), .key = bh__from_amqp(method->routing_key), .arguments = table};
    request.destination = model_queue_name(channel, bh__from_amqp(method->queue), &is_there);
    if (!is_there)
        return;
    if (method->queue.len == 0 && request.key.size == 0)
        request.key = request.destination;
    amqp_queue_bind_ok_t ok = {0};
    if (model_bind(channel, &request) && !method->nowait)
        model_send(channel->link, channel->number, AMQP_QUEUE_BIND_OK_METHOD, &ok);
}

static void unbind_queue(model_channel *channel, const amqp_queue_unbind_t *method, bh_bytes table)
{
    int is_there;
    model_binding_request request = {.is_removal = 1,
                                     .source = bh__from_amqp(method->exchange),
                                     .key = bh__from_amqp(method->routing_key),
                                     .arguments = table};
    request.destination = model_queue_name(channel, bh__from_amqp(method->queue), &is_there);
    if (!is_there)
        return;
    if (method->queue.len == 0 && request.key.size == 0)
        request.key = request.destination;
    amqp_queue_unbind_ok_t ok = {0};
    if (model_bind(channel, &request))
        model_send(channel->link, channel->number, AMQP_QUEUE_UNBIND_OK_METHOD, &ok);
}

static void bind_exchange(model_channel *channel, const amqp_exchange_bind_t *method, bh_bytes table)
{
    model_binding_request request = {.to_exchange = 1,
                                     .source = bh__from_amqp(method->source),
                                     .destination = bh__from_amqp(method->destination),
                                     .key = bh__from_amqp(method->routing_key),
                                     .arguments = table};
    amqp_exchange_bind_ok_t ok = {0};
    if (model_bind(channel, &request) && !method->nowait)
        model_send(channel->link, channel->number, AMQP_EXCHANGE_BIND_OK_METHOD, &ok);
}

static void unbind_exchange(model_channel *channel, const amqp_exchange_unbind_t *method, bh_bytes table)
{
    model_binding_request request = {.is_removal = 1,
                                     .to_exchange = 1,
                                     .source = bh__from_amqp(method->source),
                                     .destination = bh__from_amqp(method->destination),
                                     .key = bh__from_amqp(method->routing_key),
                                     .arguments = table};
    amqp_exchange_unbind_ok_t ok = {0};
    if (model_bind(channel, &request) && !method->nowait)
        model_send(channel->link, channel->number, AMQP_EXCHANGE_UNBIND_OK_METHOD, &ok);
}

static void close_channel(model_channel *channel)
{
    model_link *link = channel->link;
    int number = channel->number;
    amqp_channel_close_ok_t ok = {0};
    model_end_channel(channel);
    model_send(link, number, AMQP_CHANNEL_CLOSE_OK_METHOD, &ok);
}

static void select_confirms(model_channel *channel, const amqp_confirm_select_t *method)
{
    amqp_confirm_select_ok_t ok = {0};
    if (channel->is_transactional) {
        model_refuse(channel, 406, "cannot switch from tx to confirm mode");
        return;
    }
    channel->is_confirming = 1;
    if (!method->nowait)
        model_send(channel->link, channel->number, AMQP_CONFIRM_SELECT_OK_METHOD, &ok);
}

static void select_transactions(model_channel *channel)
{
    amqp_tx_select_ok_t ok = {0};
    if (channel->is_confirming) {
        model_refuse(channel, 406, "cannot switch from confirm to tx mode");
        return;
    }
    channel->is_transactional = 1;
    model_send(channel->link, channel->number, AMQP_TX_SELECT_OK_METHOD, &ok);
}

/* Commits the transaction, or rolls it back. */
static void end_transaction(model_channel *channel, int is_commit)
{
    amqp_tx_commit_ok_t committed = {0};
    amqp_tx_rollback_ok_t rolled_back = {0};
    model_pending *pending;
    if (!channel->is_transactional) {
        model_refuse(channel, 406, "channel is not transactional");
        return;
    }
    while (is_commit && (pending = model_transactions_take(channel)) != NULL) {
        if (pending->message)
            model_publishing_commit(channel, pending->message, pending->is_mandatory);
        else /* a delivery that was settled twice is settled already */
            model_settling_do(channel, pending->tag, pending->is_multiple, pending->verdict);
        model_pending_free(pending);
    }
    model_transactions_clear(channel);
    if (is_commit)
        model_send(channel->link, channel->number, AMQP_TX_COMMIT_OK_METHOD, &committed);
    else
        model_send(channel->link, channel->number, AMQP_TX_ROLLBACK_OK_METHOD, &rolled_back);
}

static void flow(model_channel *channel, const amqp_channel_flow_t *method)
{
    amqp_channel_flow_ok_t ok = {.active = 1};
    if (method->active)
        model_send(channel->link, channel->number, AMQP_CHANNEL_FLOW_OK_METHOD, &ok);
    else
        model_refuse(channel, 540, "active=false");
}

/* Methods of exchanges, queues and channels. Returns 0 for others. */
static int do_declaring(model_channel *channel, const amqp_method_t *method, bh_bytes table)
{
    switch (method->id) {
    case AMQP_EXCHANGE_DECLARE_METHOD:
        model_declare_exchange(channel, method->decoded, table);
        break;
    case AMQP_EXCHANGE_DELETE_METHOD:
        model_delete_exchange(channel, method->decoded);
        break;
    case AMQP_EXCHANGE_BIND_METHOD:
        bind_exchange(channel, method->decoded, table);
        break;
    case AMQP_EXCHANGE_UNBIND_METHOD:
        unbind_exchange(channel, method->decoded, table);
        break;
    case AMQP_QUEUE_DECLARE_METHOD:
        model_declare_queue(channel, method->decoded, table);
        break;
    case AMQP_QUEUE_BIND_METHOD:
        bind_queue(channel, method->decoded, table);
        break;
    case AMQP_QUEUE_UNBIND_METHOD:
        unbind_queue(channel, method->decoded, table);
        break;
    case AMQP_QUEUE_PURGE_METHOD:
        model_purge_queue(channel, method->decoded);
        break;
    case AMQP_QUEUE_DELETE_METHOD:
        model_delete_queue(channel, method->decoded);
        break;
    default:
        return 0;
    }
    return 1;
}

static void publish(model_channel *channel, const amqp_basic_publish_t *method)
{
    model_publishing_begin(channel, bh__from_amqp(method->exchange), bh__from_amqp(method->routing_key),
                           method->mandatory, method->immediate);
}

void model_channel_do(model_channel *channel, const amqp_method_t *method, bh_bytes table)
{
    switch (method->id) {
    case AMQP_BASIC_PUBLISH_METHOD:
        publish(channel, method->decoded);
        return;
    case AMQP_CHANNEL_OPEN_METHOD:
        model_refuse(channel, 504, "second 'channel.open' seen");
        return;
    case AMQP_CHANNEL_CLOSE_METHOD:
        close_channel(channel);
        return;
    case AMQP_CHANNEL_FLOW_METHOD:
        flow(channel, method->decoded);
        return;
    case AMQP_CONFIRM_SELECT_METHOD:
        select_confirms(channel, method->decoded);
        return;
    case AMQP_TX_SELECT_METHOD:
        select_transactions(channel);
        return;
    case AMQP_TX_COMMIT_METHOD:
    case AMQP_TX_ROLLBACK_METHOD:
        end_transaction(channel, method->id == AMQP_TX_COMMIT_METHOD);
        return;
    default:
        if (!do_declaring(channel, method, table) && !model_consuming_do(channel, method, table))
            model_refuse(channel, 503, "unimplemented method");
    }
}
