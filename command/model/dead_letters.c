/*
 * Dead letters. At most once: published without a confirm; an unroutable one is lost. At least
 * once: it stays in its queue until all targets have it. RabbitMQ's worker has 32 in flight, and
 * sends the unconfirmed ones again after three minutes. So one full target holds up everything
 * behind it.
 */
#include "model/dead_letters.h"

#include "model/deaths.h"
#include "model/exchange.h"
#include "model/letters.h"
#include "model/limits.h"
#include "model/queue.h"

#include <stdlib.h>

enum { MOST_IN_FLIGHT = 32, DOUBLES = 32 /* one of so many dead letters, by the tape */ };

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

/* Publishes a letter to the queues that have not got it. Returns 1 if all have it now, and there is
 * one. */
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
    model_letter_free(letter);
    return 1;
}

/* Returns 1 if the entry left the queue. */
static int resend(model_queue *queue, model_entry *entry)
{
    model *broker = queue->vhost->broker;
    if (entry->letter && entry->letter->due_ms > broker->now_ms)
        return 0;
    if (!entry->letter)
        entry->letter = model_letter_new(queue, entry, entry->reason);
    if (!entry->letter)
        return 0;
    if (!publish(entry->letter, 1)) {
        entry->letter->due_ms = model_later(broker->now_ms, broker->settings.resend_ms);
        return 0;
    }
    if (model_choose(broker, DOUBLES) == DOUBLES - 1) { /* RabbitMQ missed the confirm */
        model_note(broker, MODEL_FATE_DOUBLED, queue, entry->message);
        model_letters_forget(entry);
        entry->letter = model_letter_new(queue, entry, entry->reason);
        if (entry->letter)
            entry->letter->due_ms = model_later(broker->now_ms, broker->settings.resend_ms);
        return 0;
    }
    model_list_remove(&queue->discards, entry);
    model_letters_forget(entry);
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
            model_letters_forget(entry);
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
