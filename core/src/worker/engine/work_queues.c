#include "worker/engine/work_queues.h"

#include "base/memory.h"

#include <stdlib.h>

void bh__work_queues_free(bh__work_queues *self)
{
    for (size_t i = 0; i < self->count; i++)
        free(self->items[i].name);
    free(self->items);
}

static void make_due(bh__work_queues *self, bh__work_queue *known)
{
    self->due_count += !known->is_due;
    known->is_due = 1;
}

int bh__work_queues_add(bh__work_queues *self, bh_bytes queue, int is_named)
{
    void *items = self->items;
    if (!bh__reserve(&items, &self->capacity, sizeof *self->items, self->count + 1))
        return 0;
    self->items = items;
    bh__work_queue *added = &self->items[self->count];
    *added = (bh__work_queue){.name = bh__duplicate(queue.data, queue.size), .size = queue.size, .is_named = is_named};
    if (!added->name)
        return 0;
    self->count++;
    make_due(self, added);
    return 1;
}

bh__work_queue *bh__work_queues_find(bh__work_queues *self, bh_bytes queue)
{
    size_t i = 0;
    while (i < self->count && !bh__same((bh_bytes){self->items[i].name, self->items[i].size}, queue))
        i++;
    return i < self->count ? &self->items[i] : NULL;
}

bh__presence bh__work_queues_look_up(bh__work_queues *self, bh_bytes queue, int64_t now_ms)
{
    bh__work_queue *known = bh__work_queues_find(self, queue);
    if (known) {
        if (known->presence == BH__MISSING && now_ms - known->checked_ms >= BH__MISSING_FOR_MS) {
            known->presence = BH__UNKNOWN;
            make_due(self, known);
        } else if (known->presence == BH__PRESENT && now_ms - known->checked_ms >= BH__PRESENT_FOR_MS) {
            make_due(self, known);
        }
        return known->presence;
    }
    return self->count < BH__MOST_WORK_QUEUES && bh__work_queues_add(self, queue, 0) ? BH__UNKNOWN : BH__MISSING;
}

void bh__work_queues_check_all(bh__work_queues *self, int64_t now_ms)
{
    size_t kept = 0;
    self->due_count = 0;
    for (size_t i = 0; i < self->count; i++) {
        bh__work_queue *known = &self->items[i];
        if (known->presence == BH__MISSING && !known->is_named) {
            free(known->name);
            continue;
        }
        known->is_due = 1;
        self->due_count++;
        self->items[kept++] = *known;
    }
    self->count = kept;
    self->recheck_ms = now_ms + BH__RECHECK_MS;
}

bh__work_queue *bh__work_queues_next(bh__work_queues *self)
{
    for (size_t i = 0; self->due_count && i < self->count; i++)
        if (self->items[i].is_due)
            return &self->items[i];
    return NULL;
}

void bh__work_queues_record(bh__work_queues *self, bh__work_queue *queue, bh__presence presence, int64_t now_ms)
{
    self->due_count -= (size_t)queue->is_due;
    queue->is_due = 0;
    queue->presence = queue->last = presence;
    queue->checked_ms = now_ms;
}
