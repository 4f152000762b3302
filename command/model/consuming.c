/* Consuming: consume, cancel, get, qos, and the settlements. */
#include "model/consuming.h"

#include "model/arguments.h"
#include "model/closing.h"
#include "model/consumers.h"
#include "model/declaring.h"
#include "model/expiry.h"
#include "model/holding.h"
#include "model/output.h"
#include "model/queue.h"
#include "model/settling.h"
#include "model/table.h"
#include "model/transactions.h"
#include "model/users.h"

#include <stdio.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data

/* Returns the queue that a channel may read; NULL: the method was refused. */
static model_queue *find_readable(model_channel *channel, bh_bytes given)
{
    int is_there;
    bh_bytes name = model_queue_name(channel, given, &is_there);
    if (bh__same(name, bh_str("amq.rabbitmq.reply-to"))) {
        model_refuse(channel, 540, "direct reply-to is not in this model of RabbitMQ");
        return NULL;
    }
    if (!is_there || !model_user_may(channel, MODEL_READ, "queue", name))
        return NULL;
    return model_find_queue(channel, name);
}

/* Returns 0 and refuses a consumer if the queue has an exclusive one, or it would be exclusive
 * beside others. */
static int may_consume(model_channel *channel, const model_queue *queue, int is_exclusive)
{
    int is_taken = is_exclusive && queue->settings.is_single_active;
    if (queue->consumer_count > 0)
        is_taken = is_taken || is_exclusive || queue->consumers[0]->is_exclusive;
    if (is_taken && !queue->is_quorum) {
        model_refuse(channel, 403, "queue '%.*s' in vhost '%s' in exclusive use", SHOWN(queue->name),
                     queue->vhost->text);
        return 0;
    }
    if (queue->is_quorum && channel->shared_prefetch > 0) {
        model_refuse(channel, 540, "queue '%.*s' in vhost '%s' does not support global qos", SHOWN(queue->name),
                     queue->vhost->text);
        return 0;
    }
    return 1;
}

static int64_t find_integer(bh_bytes table, const char *name, int64_t otherwise)
{
    model_field field;
    int64_t number = otherwise;
    if (model_table_find(table, name, &field))
        model_field_integer(&field, &number);
    return number;
}

static void consume(model_channel *channel, const amqp_basic_consume_t *method, bh_bytes table)
{
    char generated[40];
    model *broker = channel->link->broker;
    bh_bytes tag = bh__from_amqp(method->consumer_tag);
    if (tag.size > 0 && model_consumers_find(channel, tag)) {
        model_refuse(channel, 530, "attempt to reuse consumer tag '%.*s'", SHOWN(tag));
        return;
    }
    model_queue *queue = find_readable(channel, bh__from_amqp(method->queue));
    if (!queue || !may_consume(channel, queue, method->exclusive) ||
        !model_arguments_check_consumer(channel, queue, table))
        return;
    if (tag.size == 0) {
        snprintf(generated, sizeof generated, "amq.ctag-%022llu", (unsigned long long)++broker->name_count);
        tag = bh_str(generated);
    }
    model_consuming consuming = {.tag = tag,
                                 .has_no_ack = method->no_ack,
                                 .is_exclusive = method->exclusive,
                                 .priority = find_integer(table, "x-priority", 0),
                                 .timeout_ms = -1};
    if (queue->is_quorum && broker->version->cancels_on_timeout)
        consuming.timeout_ms = find_integer(table, "x-consumer-timeout", -1);
    if (!model_consumers_add(channel, queue, &consuming)) {
        channel->link->is_broken = 1;
        return;
    }
    amqp_basic_consume_ok_t ok = {.consumer_tag = bh__to_amqp(tag)};
    if (!method->nowait)
        model_send(channel->link, channel->number, AMQP_BASIC_CONSUME_OK_METHOD, &ok);
}

static void cancel(model_channel *channel, const amqp_basic_cancel_t *method)
{
    bh_bytes tag = bh__from_amqp(method->consumer_tag);
    model_consumer *consumer = model_consumers_find(channel, tag);
    amqp_basic_cancel_ok_t ok = {.consumer_tag = method->consumer_tag};
    if (consumer)
        model_end_consumer(consumer);
    if (!method->nowait)
        model_send(channel->link, channel->number, AMQP_BASIC_CANCEL_OK_METHOD, &ok);
}

static void answer_get(model_channel *channel, model_queue *queue, model_entry *entry)
{
    int is_redelivered;
    model_message *message = entry->message;
    model_counts counts = model_consumers_counts(entry, 1, &is_redelivered);
    amqp_basic_get_ok_t ok = {.delivery_tag = channel->next_tag,
                              .redelivered = is_redelivered,
                              .exchange = bh__to_amqp(model_message_text(message, message->exchange)),
                              .routing_key = bh__to_amqp(model_message_key(message, 0)),
                              .message_count = (uint32_t)queue->ready_count};
    model_send_content(channel->link, channel->number, AMQP_BASIC_GET_OK_METHOD, &ok, message, counts);
}

static void get(model_channel *channel, const amqp_basic_get_t *method)
{
    model_queue *queue = find_readable(channel, bh__from_amqp(method->queue));
    if (!queue)
        return;
    if (queue->is_quorum && queue->settings.is_single_active) {
        model_refuse(channel, 405,
                     "cannot obtain access to queue '%.*s' in vhost '%s'. basic.get operations are not supported by "
                     "quorum queues with single active consumer",
                     SHOWN(queue->name), queue->vhost->text);
        return;
    }
    queue->used_ms = channel->link->broker->now_ms;
    model_queue_touch(queue);
    model_expiry_run(queue);
    model_entry *entry = model_holding_reserve(channel) ? model_queue_pop(queue) : NULL;
    amqp_basic_get_empty_t empty = {.cluster_id = amqp_empty_bytes};
    if (!entry) {
        model_send(channel->link, channel->number, AMQP_BASIC_GET_EMPTY_METHOD, &empty);
        return;
    }
    answer_get(channel, queue, entry);
    if (method->no_ack)
        model_entry_free(entry);
    else
        model_holding_add(channel, entry, NULL);
    channel->next_tag++;
}

static void touch_consumed(const model_channel *channel)
{
    for (size_t i = 0; i < channel->consumer_count; i++)
        model_queue_touch(channel->consumers[i]->queue);
}

static void set_qos(model_channel *channel, const amqp_basic_qos_t *method)
{
    int is_global = method->global && channel->link->broker->version->permits_global_qos;
    if (method->prefetch_size != 0) {
        model_refuse(channel, 540, "prefetch_size!=0 (%lu)", (unsigned long)method->prefetch_size);
        return;
    }
    if (is_global)
        channel->shared_prefetch = method->prefetch_count;
    else
        channel->prefetch = method->prefetch_count;
    touch_consumed(channel);
    amqp_basic_qos_ok_t ok = {0};
    model_send(channel->link, channel->number, AMQP_BASIC_QOS_OK_METHOD, &ok);
}

static void settle(model_channel *channel, uint64_t tag, int is_multiple, model_verdict verdict)
{
    model_pending pending = {.tag = tag, .is_multiple = is_multiple, .verdict = verdict};
    if (channel->is_transactional && ((tag == 0 && is_multiple) || model_holding_find(channel, tag) >= 0)) {
        if (!model_transactions_add(channel, &pending))
            channel->link->is_broken = 1;
        return;
    }
    if (!model_settling_do(channel, tag, is_multiple, verdict))
        model_refuse(channel, 406, "unknown delivery tag %llu", (unsigned long long)tag);
    else
        touch_consumed(channel); /* a prefetch that consumers share has room again */
}

static void recover(model_channel *channel, int is_requeue, int is_answered)
{
    if (!is_requeue) {
        model_refuse(channel, 540, "requeue=false");
        return;
    }
    model_settling_all(channel, MODEL_NACK_REQUEUE);
    amqp_basic_recover_ok_t ok = {0};
    if (is_answered)
        model_send(channel->link, channel->number, AMQP_BASIC_RECOVER_OK_METHOD, &ok);
}

static void nack(model_channel *channel, const amqp_basic_nack_t *method)
{
    settle(channel, method->delivery_tag, method->multiple, method->requeue ? MODEL_NACK_REQUEUE : MODEL_NACK_DISCARD);
}

static void reject(model_channel *channel, const amqp_basic_reject_t *method)
{
    settle(channel, method->delivery_tag, 0, method->requeue ? MODEL_REJECT_REQUEUE : MODEL_REJECT_DISCARD);
}

int model_consuming_do(model_channel *channel, const amqp_method_t *method, bh_bytes table)
{
    const amqp_basic_ack_t *ack = method->decoded;
    switch (method->id) {
    case AMQP_BASIC_CONSUME_METHOD:
        consume(channel, method->decoded, table);
        break;
    case AMQP_BASIC_CANCEL_METHOD:
        cancel(channel, method->decoded);
        break;
    case AMQP_BASIC_CANCEL_OK_METHOD:
    case AMQP_CHANNEL_FLOW_OK_METHOD:
        break;
    case AMQP_BASIC_GET_METHOD:
        get(channel, method->decoded);
        break;
    case AMQP_BASIC_QOS_METHOD:
        set_qos(channel, method->decoded);
        break;
    case AMQP_BASIC_ACK_METHOD:
        settle(channel, ack->delivery_tag, ack->multiple, MODEL_ACK);
        break;
    case AMQP_BASIC_NACK_METHOD:
        nack(channel, method->decoded);
        break;
    case AMQP_BASIC_REJECT_METHOD:
        reject(channel, method->decoded);
        break;
    case AMQP_BASIC_RECOVER_METHOD:
        recover(channel, ((const amqp_basic_recover_t *)method->decoded)->requeue, 1);
        break;
    case AMQP_BASIC_RECOVER_ASYNC_METHOD:
        recover(channel, ((const amqp_basic_recover_async_t *)method->decoded)->requeue, 0);
        break;
    default:
        return 0;
    }
    return 1;
}
