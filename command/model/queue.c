/* Queue: lists by priority, in the order of arrival. */
#include "model/queue.h"

#include "model/letters.h"
#include "model/policies.h"
#include "model/table.h"

#include <stdlib.h>

enum { DEFAULT_PRIORITY = 4, MOST_PRIORITY = 255 };

/* Inserts by position. A returned message is mostly older than the ready ones. */
static void insert(model_list *self, model_entry *entry)
{
    model_entry *next = self->first;
    while (next && next->position < entry->position)
        next = next->next;
    if (!next) {
        model_list_append(self, entry);
        return;
    }
    entry->next = next;
    entry->previous = next->previous;
    *(next->previous ? &next->previous->next : &self->first) = entry;
    next->previous = entry;
    self->count++;
}

/* Returns the number of levels: quorum queues have them by version, classic ones by argument. */
static size_t count_levels(const model_vhost *vhost, int is_quorum, bh_bytes arguments)
{
    model_field field;
    int64_t most = 0;
    if (is_quorum)
        return (size_t)vhost->broker->version->quorum_levels;
    if (model_table_find(arguments, "x-max-priority", &field))
        model_field_integer(&field, &most);
    return most > 0 && most <= MOST_PRIORITY ? (size_t)most + 1 : 1;
}

model_queue *model_queue_add(model_vhost *vhost, bh_bytes name, int is_quorum, bh_bytes arguments)
{
    model_queue *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->vhost = vhost;
    self->is_quorum = is_quorum;
    self->text = model_name_copy(name);
    self->argument_bytes = bh__duplicate(arguments.data, arguments.size);
    self->name = (bh_bytes){self->text, name.size};
    self->arguments = (bh_bytes){self->argument_bytes, arguments.size};
    self->level_count = count_levels(vhost, is_quorum, arguments);
    self->levels = calloc(self->level_count, sizeof *self->levels);
    self->used_ms = vhost->broker->now_ms;
    self->looks_ms = INT64_MAX;
    if (!self->text || !self->argument_bytes || !self->levels || !model_names_add(&vhost->queues, self->name, self)) {
        model_queue_free(self);
        return NULL;
    }
    model_policies_apply_to_queue(self);
    return self;
}

model_queue *model_queue_find(const model_vhost *vhost, bh_bytes name)
{
    return model_names_find(&vhost->queues, name);
}

static void free_list(model_list *self)
{
    model_entry *entry;
    while ((entry = self->first) != NULL) {
        model_list_remove(self, entry);
        model_letters_forget(entry);
        model_note(entry->queue->vhost->broker, MODEL_FATE_DELETED, entry->queue, entry->message);
        model_entry_free(entry);
    }
}

size_t model_queue_purge(model_queue *self, int with_discards)
{
    size_t count = self->ready_count + self->delayed.count;
    for (size_t i = 0; i < self->level_count && self->levels; i++)
        free_list(&self->levels[i]);
    free_list(&self->returns);
    free_list(&self->delayed);
    if (with_discards)
        free_list(&self->discards);
    self->ready_count = self->ready_bytes = 0;
    return count;
}

void model_queue_free(model_queue *self)
{
    if (!self)
        return;
    model_queue_purge(self, 1);
    model_entry *entry;
    while ((entry = self->unacked.first) != NULL) {
        model_list_remove(&self->unacked, entry);
        model_note(self->vhost->broker, MODEL_FATE_DELETED, self, entry->message);
        model_note(self->vhost->broker, MODEL_FATE_REMOVED, self, entry->message);
        entry->queue = NULL;
        entry->consumer = NULL;
    }
    free(self->levels);
    free(self->consumers);
    free(self->text);
    free(self->argument_bytes);
    free(self);
}

static int level_of(const model_queue *self, int priority)
{
    int most = (int)self->level_count - 1;
    if (most == 0)
        return 0;
    if (self->is_quorum && self->level_count == 2)
        return priority > DEFAULT_PRIORITY;
    if (priority < 0)
        priority = self->is_quorum ? DEFAULT_PRIORITY : 0;
    return priority > most ? most : priority;
}

int64_t model_queue_ttl(const model_queue *self, const model_message *message)
{
    int64_t ttl_ms = self->settings.ttl_ms;
    if (message->ttl_ms >= 0 && (ttl_ms < 0 || message->ttl_ms < ttl_ms))
        ttl_ms = message->ttl_ms;
    return ttl_ms;
}

static void count_ready(model_queue *self, const model_entry *entry)
{
    self->ready_count++;
    self->ready_bytes += model_message_size(entry->message);
}

model_entry *model_queue_push(model_queue *self, model_message *message)
{
    model_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    int64_t ttl_ms = model_queue_ttl(self, message);
    *entry = (model_entry){.queue = self, .expires_ms = INT64_MAX, .acquired = -1, .failed = -1};
    model_note(self->vhost->broker, MODEL_FATE_ADDED, self, message);
    entry->message = model_message_hold(message);
    entry->event = self->vhost->broker->event;
    entry->position = self->next_position++;
    entry->level = level_of(self, message->priority);
    entry->is_immediate = ttl_ms == 0 && !self->is_quorum;
    if (ttl_ms >= 0) /* a quorum queue keeps a message with TTL 0 for a millisecond */
        entry->expires_ms = model_later(self->vhost->broker->now_ms, ttl_ms == 0 && self->is_quorum ? 1 : ttl_ms);
    entry->is_fresh = 1;
    entry->failed = message->failed;
    model_list_append(&self->levels[entry->level], entry);
    count_ready(self, entry);
    self->has_new_head |= self->ready_count == 1;
    return entry;
}

void model_queue_return(model_queue *self, model_entry *entry, int is_back)
{
    entry->holder = NULL;
    entry->consumer = NULL;
    entry->is_redelivered = 1;
    entry->is_immediate = entry->is_fresh = 0;
    if (!self->is_quorum) {
        insert(&self->levels[entry->level], entry);
        self->has_new_head = 1;
    } else if (is_back) {
        entry->position = self->next_position++;
        if (self->level_count > 2)
            entry->level = DEFAULT_PRIORITY;
        model_list_append(&self->levels[entry->level], entry);
    } else {
        entry->level = -1;
        model_list_append(&self->returns, entry);
    }
    count_ready(self, entry);
}

/* Returns the level whose turn it is; -1 if all are empty. */
static int next_level(const model_queue *self)
{
    for (size_t i = self->level_count; i-- > 0;) {
        const model_entry *first = self->levels[i].first;
        if (!first)
            continue;
        const model_entry *lower = i == 1 && self->is_quorum && self->level_count == 2 ? self->levels[0].first : NULL;
        return lower && self->turns == 2 && first->position > lower->position ? 0 : (int)i;
    }
    return -1;
}

model_entry *model_queue_head(const model_queue *self)
{
    if (self->returns.first)
        return self->returns.first;
    int level = next_level(self);
    return level < 0 ? NULL : self->levels[level].first;
}

void model_queue_take(model_queue *self, model_entry *entry)
{
    model_list_remove(entry->level < 0 ? &self->returns : &self->levels[entry->level], entry);
    if (entry->level < 0)
        entry->level = level_of(self, entry->message->priority);
    self->ready_count--;
    self->ready_bytes -= model_message_size(entry->message);
}

model_entry *model_queue_pop(model_queue *self)
{
    model_entry *entry = model_queue_head(self);
    if (!entry)
        return NULL;
    if (entry->level >= 0 && self->is_quorum)
        self->turns = self->turns == 2 ? 0 : self->turns + 1;
    model_queue_take(self, entry);
    self->has_new_head = 1;
    return entry;
}
