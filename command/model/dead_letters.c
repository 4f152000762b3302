/*
 * Dead letters. At most once: published without a confirm; an unroutable one is lost. At least once: it stays in its
 * queue until all targets have it. RabbitMQ's worker has 32 in flight, and sends the unconfirmed ones again after three
 * minutes. So one full target holds up everything behind it.
 */
#include "model/dead_letters.h"

#include "model/deaths.h"
#include "model/exchange.h"
#include "model/limits.h"
#include "model/queue.h"

#include <stdlib.h>

/* A topology can multiply a message that expires at once in each queue. So the hops within one event have a bound. */
enum { MOST_IN_FLIGHT = 32, MOST_HOPS = 10000, DOUBLES = 32 /* one of so many dead letters, by the tape */ };

struct model_letter {
    model_letter *next; /* of those at most once */
    model_vhost *vhost;
    model_message *message;
    model_reason reason;
    int64_t due_ms;  /* of one at least once: the next attempt */
    bh__store names; /* the targets that have it, each with a zero byte */
};

static void free_letter(model_letter *self)
{
    model_message_release(self->message);
    bh__store_free(&self->names);
    free(self);
}

void model_dead_letters_forget(model_entry *entry)
{
    if (entry->letter)
        free_letter(entry->letter);
    entry->letter = NULL;
}

void model_dead_letters_free(model *self)
{
    model_letter *letter;
    while ((letter = self->first_letter) != NULL) {
        self->first_letter = letter->next;
        free_letter(letter);
    }
    self->last_letter = NULL;
}

/* Returns the dead letter of a message that leaves the queue; NULL if memory ran out. */
static model_letter *new_letter(model_queue *queue, const model_entry *entry, model_reason reason)
{
    const model_queue_settings *settings = &queue->settings;
    model *broker = queue->vhost->broker;
    model_letter *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    model_dying dying = {.reason = reason,
                         .queue = queue->name,
                         .exchange = settings->exchange,
                         .routing_key = settings->key,
                         .has_key = settings->has_key,
                         .now_s = model_epoch_s(broker),
                         .failed = entry->failed};
    if (broker->version->counting == MODEL_COUNTS_RETURNS)
        dying.failed = -1;
    self->vhost = queue->vhost;
    self->reason = reason;
    self->message = model_death_record(broker->version, entry->message, &dying);
    if (!self->message) {
        free(self);
        return NULL;
    }
    return self;
}

void model_dead_letters_add(model_queue *queue, model_entry *entry, model_reason reason)
{
    model *broker = queue->vhost->broker;
    if (queue->settings.is_at_least_once && reason != MODEL_MAXLEN) {
        entry->reason = reason;
        model_list_append(&queue->discards, entry);
        model_queue_touch(queue);
        return;
    }
    int is_hop = entry->event == broker->event, is_lost = is_hop && ++broker->hops > MOST_HOPS;
    model_letter *letter = queue->settings.has_exchange && !is_lost ? new_letter(queue, entry, reason) : NULL;
    if (!letter) {
        model_note(broker, MODEL_FATE_DROPPED, queue, entry->message);
        model_entry_free(entry);
        return;
    }
    model_entry_free(entry);
    *(broker->last_letter ? &broker->last_letter->next : &broker->first_letter) = letter;
    broker->last_letter = letter;
}

static int is_named(const model_letter *letter, bh_bytes name)
{
    for (size_t at = 0; at < letter->names.size;) {
        bh_bytes each = {letter->names.data + at, strlen(letter->names.data + at)};
        if (bh__same(each, name))
            return 1;
        at += each.size + 1;
    }
    return 0;
}

/* Publishes a letter to the queues that have not got it. Returns 1 if all have it now, and there is one. */
static int publish(model_letter *letter, int is_at_least_once)
{
    model_message *message = letter->message;
    const model_version *version = letter->vhost->broker->version;
    model_exchange *exchange = model_exchange_find(letter->vhost, model_message_text(message, message->exchange));
    model_route route;
    if (!exchange)
        return 0;
    int is_done = model_exchange_route(exchange, message, &route) && route.count > 0;
    for (size_t i = 0; i < route.count; i++) {
        model_queue *queue = route.queues[i];
        bh__text name;
        if (is_named(letter, queue->name))
            continue;
        if (model_death_is_cycle(version, message, letter->reason, queue->name) ||
            !model_limits_publish(queue, message, is_at_least_once))
            is_done = 0;
        else if (is_at_least_once && !bh__store_add(&letter->names, &name, queue->name))
            is_done = 0;
    }
    model_route_free(&route);
    return is_done;
}

int model_dead_letters_publish(model *self)
{
    model_letter *letter = self->first_letter;
    if (!letter)
        return 0;
    self->first_letter = letter->next;
    if (!self->first_letter)
        self->last_letter = NULL;
    if (!publish(letter, 0))
        model_note(self, MODEL_FATE_DROPPED, NULL, letter->message);
    free_letter(letter);
    return 1;
}

/* Returns 1 if the entry left the queue. */
static int resend(model_queue *queue, model_entry *entry)
{
    model *broker = queue->vhost->broker;
    if (entry->letter && entry->letter->due_ms > broker->now_ms)
        return 0;
    if (!entry->letter)
        entry->letter = new_letter(queue, entry, entry->reason);
    if (!entry->letter)
        return 0;
    if (!publish(entry->letter, 1)) {
        entry->letter->due_ms = model_later(broker->now_ms, broker->settings.resend_ms);
        return 0;
    }
    if (model_choose(broker, DOUBLES) == DOUBLES - 1) { /* RabbitMQ missed the confirm */
        model_note(broker, MODEL_FATE_DOUBLED, queue, entry->message);
        model_dead_letters_forget(entry);
        entry->letter = new_letter(queue, entry, entry->reason);
        if (entry->letter)
            entry->letter->due_ms = model_later(broker->now_ms, broker->settings.resend_ms);
        return 0;
    }
    model_list_remove(&queue->discards, entry);
    model_dead_letters_forget(entry);
    model_entry_free(entry);
    return 1;
}

void model_dead_letters_resend(model_queue *queue)
{
    int in_flight = 0;
    model_entry *next;
    for (model_entry *entry = queue->discards.first; entry && in_flight < MOST_IN_FLIGHT; entry = next) {
        next = entry->next;
        if (!queue->settings.is_at_least_once) { /* by a policy: RabbitMQ drops the pending ones */
            model_list_remove(&queue->discards, entry);
            model_dead_letters_forget(entry);
            model_entry_free(entry);
        } else {
            in_flight += !resend(queue, entry);
        }
    }
}

int64_t model_dead_letters_next_ms(const model_queue *queue)
{
    int64_t next_ms = INT64_MAX;
    int in_flight = 0;
    for (const model_entry *entry = queue->discards.first; entry && in_flight++ < MOST_IN_FLIGHT; entry = entry->next)
        if (entry->letter)
            next_ms = model_earlier(next_ms, entry->letter->due_ms);
    return next_ms;
}
