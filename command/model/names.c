/* Names: a list, and a hash table of its indices with linear probing. */
#include "model/names.h"

#include <stdlib.h>

char *model_name_copy(bh_bytes name)
{
    char *copy = malloc(name.size + 1), *end = copy;
    if (copy)
        bh__keep(&end, name);
    return copy;
}

void model_names_free(model_names *self)
{
    free(self->items);
    free(self->slots);
    *self = (model_names){.items = NULL};
}

/* Returns the slot of a name, or the free slot for it. There is always a free one. */
static size_t find_slot(const model_names *self, bh_bytes name)
{
    size_t slot = bh__hash(name) % self->slot_count;
    while (self->slots[slot] && !bh__same(self->items[self->slots[slot] - 1].name, name))
        slot = (slot + 1) % self->slot_count;
    return slot;
}

static void fill_slots(model_names *self)
{
    for (size_t i = 0; i < self->count; i++)
        self->slots[find_slot(self, self->items[i].name)] = i + 1;
}

/* Makes at least twice as many slots as there will be items. */
static int grow(model_names *self)
{
    if (self->slot_count > 2 * (self->count + 1))
        return 1;
    size_t count = self->slot_count ? 2 * self->slot_count : 16;
    size_t *slots = calloc(count, sizeof *slots);
    if (!slots)
        return 0;
    free(self->slots);
    self->slots = slots;
    self->slot_count = count;
    fill_slots(self);
    return 1;
}

void *model_names_find(const model_names *self, bh_bytes name)
{
    if (self->count == 0)
        return NULL;
    size_t slot = find_slot(self, name);
    return self->slots[slot] ? self->items[self->slots[slot] - 1].object : NULL;
}

int model_names_add(model_names *self, bh_bytes name, void *object)
{
    void *items = self->items;
    int is_there = bh__reserve(&items, &self->capacity, sizeof *self->items, self->count + 1);
    self->items = items;
    if (!is_there || !grow(self))
        return 0;
    size_t slot = find_slot(self, name);
    self->items[self->count++] = (model_named){name, object};
    self->slots[slot] = self->count;
    return 1;
}

/* Closes the gap at a slot: moves items that were probed past it. */
static void close_gap(model_names *self, size_t gap)
{
    self->slots[gap] = 0;
    for (size_t slot = (gap + 1) % self->slot_count; self->slots[slot]; slot = (slot + 1) % self->slot_count) {
        size_t item = self->slots[slot];
        self->slots[slot] = 0;
        self->slots[find_slot(self, self->items[item - 1].name)] = item;
    }
}

void model_names_remove(model_names *self, bh_bytes name)
{
    if (self->count == 0)
        return;
    size_t slot = find_slot(self, name), item = self->slots[slot];
    if (!item)
        return;
    close_gap(self, slot);
    if (item < self->count) { /* the last one takes its place */
        slot = find_slot(self, self->items[self->count - 1].name);
        self->items[item - 1] = self->items[self->count - 1];
        self->slots[slot] = item;
    }
    self->count--;
}
