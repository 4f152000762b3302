#include "parked/groups.h"
#include "history/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds a group of the last queue. */
static group *find(groups *self, int is_rest, const char *reason, const char *kind)
{
    for (size_t i = self->begin; i < self->count; i++) {
        group *each = &self->items[i];
        if (each->is_rest == is_rest && strcmp(each->kind, kind) == 0 && strcmp(each->reason, reason) == 0)
            return each;
    }
    return NULL;
}

static group *add(groups *self, const char *queue, int is_rest, const char *reason, const char *kind)
{
    group *grown = realloc(self->items, (self->count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    self->items = grown;
    group *made = &self->items[self->count++];
    *made = (group){.is_rest = is_rest, .first_ms = -1, .last_ms = -1, .least_attempts = INT64_MAX};
    snprintf(made->queue, sizeof made->queue, "%s", queue);
    snprintf(made->reason, sizeof made->reason, "%s", reason);
    snprintf(made->kind, sizeof made->kind, "%s", kind);
    return made;
}

void group_reason(char out[32], const bh_history *history)
{
    bh_past past;
    bh_history_past(history, &past);
    snprintf(out, 32, "%.*s", (int)(past.parked.size < 32 ? past.parked.size : 31), past.parked.data);
}

/* Returns 1 if both have the same error and reason, in whichever queues. */
static int is_alike(const group *one, const group *other)
{
    return one->is_rest == other->is_rest && strcmp(one->kind, other->kind) == 0 &&
           strcmp(one->reason, other->reason) == 0 && strcmp(one->class, other->class) == 0;
}

static void set_class(group *self, bh_bytes class)
{
    snprintf(self->class, sizeof self->class, "%.*s", (int)(class.size < KIND_BYTES ? class.size : KIND_BYTES),
             class.data);
}

/* Adds a message to the rest of its queue. The rest has a class only if all its messages have
 * it. */
static group *add_to_rest(groups *self, const char *queue, bh_bytes class)
{
    group wanted;
    set_class(&wanted, class);
    group *found = find(self, 1, "several", "(other errors)");
    if (found && strcmp(found->class, wanted.class) != 0)
        found->class[0] = '\0';
    if (!found && (found = add(self, queue, 1, "several", "(other errors)")))
        set_class(found, class);
    return found;
}

static void count_time(const groups *self, group *found, int64_t parked_ms)
{
    int64_t bucket = self->bucket_ms ? (parked_ms - self->from_ms) / self->bucket_ms : -1;
    if (parked_ms >= self->from_ms && bucket >= 0)
        found->over_time[bucket < GROUPS_BUCKETS ? bucket : GROUPS_BUCKETS - 1]++;
}

int groups_add(groups *self, const char *queue, const bh_history *history, int64_t parked_ms)
{
    char kind[KIND_BYTES + 1], reason[32];
    bh_past past;
    bh_history_past(history, &past);
    bh_bytes class = error_class(past.last_error), id = bh__history_id(history);
    int64_t first_ms = past.first_failure_ms, attempts = past.attempts;
    error_kind(kind, past.last_error);
    group_reason(reason, history);
    if (self->begin < self->count && strcmp(self->items[self->begin].queue, queue) != 0)
        self->begin = self->count;
    size_t limit = self->count < GROUPS_MOST ? GROUPS_OF_QUEUE : GROUPS_LEAST;
    group *found = find(self, 0, reason, kind);
    if (!found && self->count - self->begin >= limit) {
        found = add_to_rest(self, queue, class);
    } else if (!found) {
        found = add(self, queue, 0, reason, kind);
        if (found) {
            set_class(found, class);
            snprintf(found->id, sizeof found->id, "%.*s", (int)(id.size < 255 ? id.size : 255), id.data);
        }
    }
    if (!found)
        return 0;
    found->count++;
    count_time(self, found, parked_ms);
    if (first_ms >= 0 && (found->first_ms < 0 || first_ms < found->first_ms))
        found->first_ms = first_ms;
    if (first_ms > found->last_ms)
        found->last_ms = first_ms;
    if (attempts < found->least_attempts)
        found->least_attempts = attempts;
    if (attempts > found->most_attempts)
        found->most_attempts = attempts;
    return 1;
}

int64_t groups_cut(const groups *self)
{
    int64_t cut = 0;
    for (size_t i = 0; i < self->count; i++)
        cut += self->items[i].is_rest;
    return cut;
}

int groups_copy(groups *out, const groups *self)
{
    *out = *self;
    if (self->count == 0)
        return 1;
    out->items = malloc(self->count * sizeof *out->items);
    if (out->items)
        memcpy(out->items, self->items, self->count * sizeof *out->items);
    return out->items != NULL;
}

static int larger(const void *a, const void *b)
{
    const group *one = a, *other = b;
    if (one->count != other->count)
        return one->count < other->count ? 1 : -1;
    int order = strcmp(one->queue, other->queue);
    return order ? order : strcmp(one->kind, other->kind);
}

void groups_sort(groups *self)
{
    if (self->count > 0)
        qsort(self->items, self->count, sizeof *self->items, larger);
}

static int other_error(const void *a, const void *b)
{
    const group *one = a, *other = b;
    int order = strcmp(one->kind, other->kind);
    order = order ? order : strcmp(one->reason, other->reason);
    order = order ? order : strcmp(one->class, other->class);
    return order ? order : one->is_rest - other->is_rest;
}

static int larger_error(const void *a, const void *b)
{
    const group *one = a, *other = b;
    if (one->total != other->total)
        return one->total < other->total ? 1 : -1;
    int order = other_error(a, b);
    return order ? order : larger(a, b);
}

size_t groups_end_of_error(const groups *self, size_t begin)
{
    size_t end = begin + 1;
    while (end < self->count && is_alike(&self->items[begin], &self->items[end]))
        end++;
    return end;
}

void groups_join(groups *self)
{
    if (self->count == 0)
        return;
    qsort(self->items, self->count, sizeof *self->items, other_error);
    for (size_t begin = 0, end; begin < self->count; begin = end) {
        int64_t total = 0;
        end = groups_end_of_error(self, begin);
        for (size_t i = begin; i < end; i++)
            total += self->items[i].count;
        for (size_t i = begin; i < end; i++)
            self->items[i].total = total;
    }
    qsort(self->items, self->count, sizeof *self->items, larger_error);
}

void groups_free(groups *self)
{
    free(self->items);
    *self = (groups){.items = NULL};
}
