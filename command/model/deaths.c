/* Deaths: noted beside the message, as RabbitMQ does since 3.13. death_header.c has the header of
 * 3.10. */
#include "model/deaths.h"

#include "model/death_header.h"
#include "model/table.h"

#include <stdlib.h>

static int copy_text(model_message *to, bh__text *out, const model_message *from, bh__text text)
{
    return bh__store_add(&to->store, out, model_message_text(from, text));
}

static int add_death(model_message *to, const model_death *death)
{
    void *deaths = to->deaths;
    int is_there = bh__reserve(&deaths, &to->death_capacity, sizeof *to->deaths, to->death_count + 1);
    to->deaths = deaths;
    if (is_there)
        to->deaths[to->death_count++] = *death;
    return is_there;
}

/* Copies a death with its texts. */
static int copy_death(model_message *to, const model_message *from, const model_death *death, int64_t count)
{
    model_death copy = *death;
    copy.count = count;
    copy.first_key = to->text_count;
    for (size_t i = 0; i < death->key_count; i++)
        if (!model_message_add_text(to, model_message_key(from, death->first_key + i)))
            return 0;
    return copy_text(to, &copy.queue, from, death->queue) && copy_text(to, &copy.exchange, from, death->exchange) &&
           add_death(to, &copy);
}

/* Counts a key among `count` texts from `first` on. */
static size_t count_key(const model_message *self, size_t first, size_t count, bh_bytes key)
{
    size_t found = 0;
    for (size_t i = first; i < first + count; i++)
        found += (size_t)bh__same(model_message_key(self, i), key);
    return found;
}

static int new_death(model_message *to, const model_message *from, const model_dying *dying)
{
    model_death death = {.reason = dying->reason, .count = 1, .time_s = dying->now_s, .ttl_ms = from->ttl_ms};
    death.first_key = to->text_count;
    for (size_t i = 0; i < from->key_count; i++) {
        bh_bytes key = model_message_key(from, i);
        /* RabbitMQ removes one equal key for each key of BCC, even if a queue gave the message that
         * key. */
        if (count_key(from, 0, i, key) < count_key(from, from->first_hidden, from->hidden_count, key))
            continue;
        if (!model_message_add_text(to, key))
            return 0;
        death.key_count++;
    }
    return bh__store_add(&to->store, &death.queue, dying->queue) &&
           copy_text(to, &death.exchange, from, from->exchange) && add_death(to, &death);
}

static int is_of(const model_message *self, const model_death *death, const model_dying *dying)
{
    return death->reason == dying->reason && bh__same(model_message_text(self, death->queue), dying->queue);
}

/* Notes the death in hand first, then the others in their order. */
static int record(model_message *to, const model_message *from, const model_dying *dying)
{
    const model_death *known = NULL;
    for (size_t i = 0; i < from->death_count && !known; i++)
        if (is_of(from, &from->deaths[i], dying))
            known = &from->deaths[i];
    int is_recorded = known ? copy_death(to, from, known, known->count + 1) : new_death(to, from, dying);
    for (size_t i = 0; i < from->death_count && is_recorded; i++)
        if (&from->deaths[i] != known)
            is_recorded = copy_death(to, from, &from->deaths[i], from->deaths[i].count);
    if (!is_recorded)
        return 0;
    if (from->death_count == 0) {
        to->first_reason = dying->reason;
        return bh__store_add(&to->store, &to->first_queue, dying->queue) &&
               copy_text(to, &to->first_exchange, from, from->exchange) &&
               copy_text(to, &to->last_exchange, from, from->exchange);
    }
    to->first_reason = from->first_reason;
    return copy_text(to, &to->first_queue, from, from->first_queue) &&
           copy_text(to, &to->first_exchange, from, from->first_exchange) &&
           copy_text(to, &to->last_exchange, from, from->exchange);
}

/* Keeps the properties without the expiration; the dead letter would expire again. */
static int keep_properties(model_message *to, const model_message *from)
{
    model_properties properties;
    bh_bytes bytes = model_message_properties(from);
    if (!model_properties_read(&properties, bytes) || !properties.is_set[MODEL_EXPIRATION])
        return bh__store_add(&to->store, &to->properties, bytes);
    properties.is_set[MODEL_EXPIRATION] = 0;
    bh__buffer list = {.data = NULL};
    int is_kept = model_properties_write(&list, &properties) &&
                  bh__store_add(&to->store, &to->properties, (bh_bytes){list.data, list.end});
    bh__buffer_free(&list);
    return is_kept;
}

static int add_keys(model_message *to, const model_message *from, const model_dying *dying)
{
    to->key_count = dying->has_key ? 1 : from->key_count;
    to->visible_count = dying->has_key ? 1 : from->visible_count;
    for (size_t i = 0; i < to->key_count; i++)
        if (!model_message_add_text(to, dying->has_key ? dying->routing_key : model_message_key(from, i)))
            return 0;
    to->first_hidden = to->key_count;
    to->hidden_count = from->hidden_count;
    for (size_t i = 0; i < from->hidden_count; i++)
        if (!model_message_add_text(to, model_message_key(from, from->first_hidden + i)))
            return 0;
    return 1;
}

model_message *model_death_record(const model_version *version, const model_message *message, const model_dying *dying)
{
    model_message *self = model_message_blank(message->body);
    if (!self)
        return NULL;
    self->is_persistent = message->is_persistent;
    self->priority = message->priority;
    self->failed = dying->failed;
    int is_made = bh__store_add(&self->store, &self->exchange, dying->exchange) && add_keys(self, message, dying);
    if (version->reads_death_header)
        is_made = is_made && model_death_header_write(self, version, message, dying);
    else
        is_made = is_made && keep_properties(self, message) && record(self, message, dying);
    if (!is_made) {
        model_message_release(self);
        return NULL;
    }
    return self;
}

int model_death_is_cycle(const model_version *version, const model_message *letter, model_reason reason, bh_bytes queue)
{
    if (reason == MODEL_REJECTED)
        return 0;
    if (version->reads_death_header)
        return model_death_header_is_cycle(letter, queue);
    for (size_t i = 0; i < letter->death_count; i++) {
        if (letter->deaths[i].reason == MODEL_REJECTED)
            return 0;
        if (bh__same(model_message_text(letter, letter->deaths[i].queue), queue))
            return 1;
    }
    return 0;
}

static int write_death(bh__buffer *out, const model_message *self, const model_death *death)
{
    char digits[BH__DIGITS];
    size_t table = model_begin(out, NULL, 'F');
    int is_put = table != 0;
    if (death->ttl_ms >= 0)
        is_put = is_put && model_put_string(out, "original-expiration", bh__decimal(digits, death->ttl_ms));
    is_put = is_put && model_put_long(out, "count", death->count) &&
             model_put_string(out, "reason", bh_str(model_reason_name(death->reason))) &&
             model_put_string(out, "queue", model_message_text(self, death->queue)) &&
             model_put_timestamp(out, "time", death->time_s) &&
             model_put_string(out, "exchange", model_message_text(self, death->exchange));
    size_t keys = is_put ? model_begin(out, "routing-keys", 'A') : 0;
    is_put = is_put && keys != 0;
    for (size_t i = 0; i < death->key_count && is_put; i++)
        is_put = model_put_item(out, model_message_key(self, death->first_key + i));
    if (!is_put)
        return 0;
    model_end(out, keys);
    model_end(out, table);
    return 1;
}

int model_deaths_write(bh__buffer *out, const model_message *self)
{
    if (self->death_count == 0)
        return 1;
    const model_death *last = &self->deaths[0];
    size_t array = model_begin(out, "x-death", 'A');
    int is_put = array != 0;
    for (size_t i = 0; i < self->death_count && is_put; i++)
        is_put = write_death(out, self, &self->deaths[i]);
    if (!is_put)
        return 0;
    model_end(out, array);
    return model_put_string(out, "x-first-death-exchange", model_message_text(self, self->first_exchange)) &&
           model_put_string(out, "x-first-death-queue", model_message_text(self, self->first_queue)) &&
           model_put_string(out, "x-first-death-reason", bh_str(model_reason_name(self->first_reason))) &&
           model_put_string(out, "x-last-death-exchange", model_message_text(self, self->last_exchange)) &&
           model_put_string(out, "x-last-death-queue", model_message_text(self, last->queue)) &&
           model_put_string(out, "x-last-death-reason", bh_str(model_reason_name(last->reason)));
}
