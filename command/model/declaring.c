/* Declaring: queues. exchanging.c has exchanges and bindings. */
#include "model/declaring.h"

#include "model/arguments.h"
#include "model/closing.h"
#include "model/output.h"
#include "model/queue.h"
#include "model/table.h"
#include "model/users.h"

#include <stdio.h>
#include <stdlib.h>

#define SHOWN(bytes) (int)(bytes).size, (bytes).data

static const char *word_of(int is_on)
{
    return is_on ? "true" : "false";
}

int model_may_use(model_channel *channel, const model_queue *queue, int is_strict)
{
    const model_link *link = channel->link;
    if (queue->owner == link || (!queue->is_exclusive && !is_strict))
        return 1;
    model_refuse(channel, 405,
                 "cannot obtain exclusive access to locked queue '%.*s' in vhost '%s'. It could be originally declared "
                 "on another connection or the exclusive property value does not match that of the original "
                 "declaration.",
                 SHOWN(queue->name), link->vhost->text);
    return 0;
}

bh_bytes model_queue_name(model_channel *channel, bh_bytes name, int *is_there)
{
    *is_there = name.size > 0 || channel->last_queue;
    if (!*is_there)
        model_refuse(channel, 404, "no previously declared queue");
    return name.size > 0 || !channel->last_queue ? name : bh_str(channel->last_queue);
}

static model_queue *find_or_refuse(model_channel *channel, bh_bytes name)
{
    model_queue *queue = model_queue_find(channel->link->vhost, name);
    if (!queue)
        model_refuse(channel, 404, "no queue '%.*s' in vhost '%s'", SHOWN(name), channel->link->vhost->text);
    return queue;
}

model_queue *model_find_queue(model_channel *channel, bh_bytes name)
{
    model_queue *queue = find_or_refuse(channel, name);
    return queue && model_may_use(channel, queue, 0) ? queue : NULL;
}

/* Keeps the name for methods that name no queue. */
static void keep_last(model_channel *channel, bh_bytes name)
{
    char *copy = model_name_copy(name);
    if (!copy) {
        channel->link->is_broken = 1;
        return;
    }
    free(channel->last_queue);
    channel->last_queue = copy;
}

/* A quorum queue counts a message of basic.get as a consumer until it is settled. */
static uint32_t count_consumers(const model_queue *queue)
{
    return (uint32_t)(queue->consumer_count + queue->got_count);
}

static void answer(model_channel *channel, const model_queue *queue, int has_no_wait)
{
    amqp_queue_declare_ok_t ok = {.queue = bh__to_amqp(queue->name),
                                  .message_count = has_no_wait ? 0 : (uint32_t)queue->ready_count,
                                  .consumer_count = has_no_wait ? 0 : count_consumers(queue)};
    keep_last(channel, queue->name);
    if (!has_no_wait)
        model_send(channel->link, channel->number, AMQP_QUEUE_DECLARE_OK_METHOD, &ok);
}

static void declare_again(model_channel *channel, model_queue *queue, const amqp_queue_declare_t *method,
                          bh_bytes arguments)
{
    int is_durable = method->durable && !method->exclusive;
    if (queue->is_exclusive != (method->exclusive != 0) || (queue->is_exclusive && queue->owner != channel->link)) {
        model_may_use(channel, queue, 1);
        if (!channel->is_closing) /* the connection's own, declared without "exclusive" */
            model_refuse(channel, 405,
                         "cannot obtain exclusive access to locked queue '%.*s' in vhost '%s'. It could be originally "
                         "declared on another connection or the exclusive property value does not match that of the "
                         "original declaration.",
                         SHOWN(queue->name), channel->link->vhost->text);
        return;
    }
    if (!model_arguments_compare_text(channel, "queue", queue->name, "durable", word_of(queue->is_durable),
                                      word_of(is_durable)) ||
        !model_arguments_compare_text(channel, "queue", queue->name, "auto_delete", word_of(queue->is_auto_delete),
                                      word_of(method->auto_delete)) ||
        !model_arguments_compare(channel, queue, arguments))
        return;
    if (!queue->is_quorum) /* whose lease a declaration does not renew */
        queue->used_ms = channel->link->broker->now_ms;
    answer(channel, queue, method->nowait);
}

/* Refuses what a quorum queue cannot be, and what 4.3 denies. */
static int check_kind(model_channel *channel, const amqp_queue_declare_t *method, bh_bytes name, int is_quorum)
{
    const char *property = method->auto_delete ? "auto-delete" : method->exclusive ? "exclusive-owner" : "non-durable";
    if (is_quorum && (method->auto_delete || method->exclusive || !method->durable)) {
        model_refuse(channel, 406, "invalid property '%s' for queue '%.*s' in vhost '%s'", property, SHOWN(name),
                     channel->link->vhost->text);
        return 0;
    }
    if (!method->durable && !method->exclusive && !channel->link->broker->version->permits_transient) {
        model_refuse(channel, 541,
                     "Feature `transient_nonexcl_queues` is deprecated.\nThis feature is not permitted by default.");
        return 0;
    }
    return 1;
}

/* Dead letters need permission to read the queue and to write to the exchange. */
static int may_dead_letter(model_channel *channel, bh_bytes name, bh_bytes arguments)
{
    model_field field;
    if (!model_table_find(arguments, "x-dead-letter-exchange", &field))
        return 1;
    if (field.type != 'S') {
        model_refuse(channel, 406, "invalid type '%s' for arg 'x-dead-letter-exchange' in queue '%.*s' in vhost '%s'",
                     model_field_type(&field), SHOWN(name), channel->link->vhost->text);
        return 0;
    }
    return model_user_may(channel, MODEL_READ, "queue", name) &&
           model_user_may(channel, MODEL_WRITE, "exchange", field.value);
}

static void declare_new(model_channel *channel, const amqp_queue_declare_t *method, bh_bytes name, bh_bytes arguments)
{
    int is_quorum = model_arguments_are_quorum(arguments) == 1;
    if (!may_dead_letter(channel, name, arguments) || !model_arguments_check(channel, name, arguments) ||
        !check_kind(channel, method, name, is_quorum))
        return;
    model_queue *queue = model_queue_add(channel->link->vhost, name, is_quorum, arguments);
    if (!queue) {
        channel->link->is_broken = 1;
        return;
    }
    queue->is_durable = method->durable && !method->exclusive;
    queue->is_auto_delete = method->auto_delete;
    queue->is_exclusive = method->exclusive;
    queue->owner = method->exclusive ? channel->link : NULL;
    answer(channel, queue, method->nowait);
}

/* Makes a name as the broker does: amq.gen- and 22 characters. */
static bh_bytes make_name(model *broker, char text[32])
{
    snprintf(text, 32, "amq.gen-%022llu", (unsigned long long)++broker->name_count);
    return bh_str(text);
}

void model_declare_queue(model_channel *channel, const amqp_queue_declare_t *method, bh_bytes arguments)
{
    char generated[32];
    model_link *link = channel->link;
    bh_bytes name = bh__from_amqp(method->queue);
    model_queue *queue = model_queue_find(link->vhost, name);
    if (method->passive) {
        if (link->broker->version->checks_passive && !model_user_may_look(channel, "queue", name))
            return;
        queue = model_find_queue(channel, name);
        if (queue && !queue->is_quorum)
            queue->used_ms = link->broker->now_ms;
        if (queue)
            answer(channel, queue, method->nowait);
        return;
    }
    if (name.size == 0 && model_arguments_are_quorum(arguments) == 1) {
        model_refuse(channel, 406, "Cannot declare a server-named queue for type rabbit_quorum_queue");
    } else if (bh__begins(name, "amq.")) {
        model_refuse(channel, 403, "queue name '%.*s' contains reserved prefix 'amq.*'", SHOWN(name));
    } else {
        name = name.size ? name : make_name(link->broker, generated);
        if (!model_user_may(channel, MODEL_CONFIGURE, "queue", name))
            return;
        if (queue)
            declare_again(channel, queue, method, arguments);
        else
            declare_new(channel, method, name, arguments);
    }
}

void model_delete_queue(model_channel *channel, const amqp_queue_delete_t *method)
{
    int is_there;
    bh_bytes name = model_queue_name(channel, bh__from_amqp(method->queue), &is_there);
    if (!is_there || !model_user_may(channel, MODEL_CONFIGURE, "queue", name))
        return;
    model_queue *queue = model_queue_find(channel->link->vhost, name);
    if (queue && !model_may_use(channel, queue, 0))
        return;
    if (queue && queue->is_quorum && (method->if_unused || method->if_empty)) {
        model_refuse(channel, 540,
                     "cannot delete queue '%.*s' in vhost '%s'. queue.delete operations with %s flag set are not "
                     "supported by quorum queues",
                     SHOWN(name), channel->link->vhost->text, method->if_unused ? "if-unused" : "if-empty");
    } else if (queue && method->if_unused && queue->consumer_count > 0) {
        model_refuse(channel, 406, "queue '%.*s' in vhost '%s' in use", SHOWN(name), channel->link->vhost->text);
    } else if (queue && method->if_empty && queue->ready_count > 0) {
        model_refuse(channel, 406, "queue '%.*s' in vhost '%s' not empty", SHOWN(name), channel->link->vhost->text);
    } else {
        amqp_queue_delete_ok_t ok = {.message_count = queue ? (uint32_t)model_end_queue(queue) : 0};
        if (!method->nowait)
            model_send(channel->link, channel->number, AMQP_QUEUE_DELETE_OK_METHOD, &ok);
    }
}

void model_purge_queue(model_channel *channel, const amqp_queue_purge_t *method)
{
    int is_there;
    bh_bytes name = model_queue_name(channel, bh__from_amqp(method->queue), &is_there);
    if (!is_there || !model_user_may(channel, MODEL_READ, "queue", name))
        return;
    model_queue *queue = model_find_queue(channel, name);
    if (!queue)
        return;
    amqp_queue_purge_ok_t ok = {
        .message_count = (uint32_t)model_queue_purge(queue, channel->link->broker->version->purges_discards)};
    model_queue_touch(queue);
    if (!method->nowait)
        model_send(channel->link, channel->number, AMQP_QUEUE_PURGE_OK_METHOD, &ok);
}
