/* Closing: with RabbitMQ's texts, which are cut at 255 bytes. */
#include "model/closing.h"

#include "model/consumers.h"
#include "model/exchange.h"
#include "model/output.h"
#include "model/queue.h"
#include "model/settling.h"
#include "model/transactions.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 255, CLOSE_LIMIT_MS = 30000 };

/* Returns the name of a reply code; *is_hard: it closes the connection. */
static const char *reply_name(int code, int *is_hard)
{
    static const struct {
        int code;
        int is_hard;
        const char *name;
    } replies[] = {
        {311, 0, "CONTENT_TOO_LARGE"}, {312, 0, "NO_ROUTE"},
        {320, 1, "CONNECTION_FORCED"}, {402, 1, "INVALID_PATH"},
        {403, 0, "ACCESS_REFUSED"},    {404, 0, "NOT_FOUND"},
        {405, 0, "RESOURCE_LOCKED"},   {406, 0, "PRECONDITION_FAILED"},
        {501, 1, "FRAME_ERROR"},       {502, 1, "SYNTAX_ERROR"},
        {503, 1, "COMMAND_INVALID"},   {504, 1, "CHANNEL_ERROR"},
        {505, 1, "UNEXPECTED_FRAME"},  {506, 1, "RESOURCE_ERROR"},
        {530, 1, "NOT_ALLOWED"},       {540, 1, "NOT_IMPLEMENTED"},
        {541, 1, "INTERNAL_ERROR"},
    };
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++)
        if (replies[i].code == code) {
            *is_hard = replies[i].is_hard;
            return replies[i].name;
        }
    *is_hard = 1;
    return "INTERNAL_ERROR";
}

__attribute__((format(printf, 3, 0))) static void write_text(char text[MOST_TEXT + 1], const char *name,
                                                             const char *format, va_list arguments)
{
    int size = snprintf(text, MOST_TEXT + 1, "%s - ", name);
    size += vsnprintf(text + size, MOST_TEXT + 1 - (size_t)size, format, arguments);
    if (size > MOST_TEXT)
        memcpy(text + MOST_TEXT - 3, "...", 3);
}

void model_link_close(model_link *link, int code, const char *text)
{
    if (link->stage >= MODEL_CLOSING)
        return;
    amqp_connection_close_t close = {.reply_code = (uint16_t)code,
                                     .reply_text = bh__to_amqp(bh_str(text)),
                                     .class_id = (uint16_t)(link->method >> 16),
                                     .method_id = (uint16_t)link->method};
    model_end_link(link);
    model_send(link, 0, AMQP_CONNECTION_CLOSE_METHOD, &close);
    link->stage = MODEL_CLOSING;
    link->close_by_ms = model_later(link->broker->now_ms, CLOSE_LIMIT_MS);
}

__attribute__((format(printf, 3, 0))) static void refuse_link(model_link *link, int code, const char *format,
                                                              va_list arguments)
{
    int is_hard;
    char text[MOST_TEXT + 1];
    write_text(text, reply_name(code, &is_hard), format, arguments);
    model_link_close(link, code, text);
}

void model_link_refuse(model_link *link, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    refuse_link(link, code, format, arguments);
    va_end(arguments);
}

__attribute__((format(printf, 3, 0))) static void refuse_channel(model_channel *channel, int code, const char *format,
                                                                 va_list arguments)
{
    int is_hard;
    char text[MOST_TEXT + 1];
    model_link *link = channel->link;
    write_text(text, reply_name(code, &is_hard), format, arguments);
    amqp_channel_close_t close = {.reply_code = (uint16_t)code,
                                  .reply_text = bh__to_amqp(bh_str(text)),
                                  .class_id = (uint16_t)(link->method >> 16),
                                  .method_id = (uint16_t)link->method};
    model_send(link, channel->number, AMQP_CHANNEL_CLOSE_METHOD, &close);
    channel->is_closing = 1;
    model_end_channel(channel);
}

void model_refuse(model_channel *channel, int code, const char *format, ...)
{
    int is_hard;
    va_list arguments;
    if (channel->is_closing || channel->link->stage != MODEL_RUNNING)
        return;
    reply_name(code, &is_hard);
    va_start(arguments, format);
    if (is_hard)
        refuse_link(channel->link, code, format, arguments);
    else
        refuse_channel(channel, code, format, arguments);
    va_end(arguments);
}

void model_end_consumer(model_consumer *consumer)
{
    model_queue *queue = consumer->queue;
    if (model_consumers_remove(consumer))
        model_end_queue(queue);
}

/* Removes the queue from the list of the dirty. */
static void clean(model_queue *queue)
{
    model *broker = queue->vhost->broker;
    model_queue **at = &broker->first_dirty, *previous = NULL;
    for (; *at && *at != queue; at = &(*at)->next_dirty)
        previous = *at;
    if (!*at)
        return;
    *at = queue->next_dirty;
    if (broker->last_dirty == queue)
        broker->last_dirty = previous;
}

static void cancel(model_consumer *consumer)
{
    model_link *link = consumer->channel->link;
    amqp_basic_cancel_t notice = {.consumer_tag = bh__to_amqp(consumer->tag), .nowait = 1};
    if (link->has_cancel_notify && !consumer->channel->is_closing)
        model_send(link, consumer->channel->number, AMQP_BASIC_CANCEL_METHOD, &notice);
    model_consumers_remove(consumer);
}

size_t model_end_queue(model_queue *queue)
{
    size_t ready = queue->ready_count;
    while (queue->consumer_count > 0)
        cancel(queue->consumers[0]);
    model_exchange_forget_queue(queue);
    model_names_remove(&queue->vhost->queues, queue->name);
    clean(queue);
    model_queue_free(queue);
    return ready;
}

/* Frees what only an open channel has. */
static void empty(model_channel *channel)
{
    channel->link->broker->unconfirmed_count -= channel->unconfirmed_count;
    model_transactions_clear(channel);
    free(channel->unconfirmed);
    free(channel->held);
    free(channel->consumers);
    free(channel->last_queue);
    free(channel->body);
    bh__store_free(&channel->publish);
    *channel = (model_channel){.number = channel->number, .link = channel->link, .is_closing = channel->is_closing};
}

void model_end_channel(model_channel *channel)
{
    int is_closing = channel->is_closing;
    model_link *link = channel->link;
    channel->is_closing = 1; /* no more deliveries */
    while (channel->consumer_count > 0)
        model_end_consumer(channel->consumers[channel->consumer_count - 1]);
    model_settling_all(channel, MODEL_LOST);
    channel->is_closing = is_closing;
    empty(channel);
    if (!is_closing) {
        link->channels[channel->number] = NULL;
        free(channel);
    }
}

static void delete_exclusive_queues(model_link *link)
{
    for (size_t i = link->vhost ? link->vhost->queues.count : 0; i-- > 0;) {
        model_queue *queue = link->vhost->queues.items[i].object;
        if (queue->owner == link)
            model_end_queue(queue);
    }
}

void model_end_link(model_link *link)
{
    for (size_t i = 0; i < link->channel_capacity; i++)
        if (link->channels[i]) {
            link->channels[i]->is_closing = 0;
            model_end_channel(link->channels[i]);
        }
    delete_exclusive_queues(link);
    free(link->channels);
    link->channels = NULL;
    link->channel_capacity = 0;
}
