#include "parked/marks.h"

#include "base/memory.h"
#include "common/output.h"

#include <stdlib.h>

enum { FEWEST = 1024 };

uint64_t mark_of(bh_bytes id, int64_t replays)
{
    uint64_t hash = bh__hash_on(BH__HASH_OF_NOTHING ^ (uint64_t)replays, id);
    hash ^= hash >> 32;
    return hash ? hash : 1;
}

/* Returns the place of the mark, or the free place for it. */
static uint64_t *find(const marks *self, uint64_t mark)
{
    size_t i = (size_t)mark & (self->capacity - 1);
    while (self->items[i] && self->items[i] != mark)
        i = (i + 1) & (self->capacity - 1);
    return &self->items[i];
}

void marks_init(marks *self, int64_t most)
{
    self->capacity = FEWEST;
    while ((int64_t)self->capacity < 2 * most)
        self->capacity *= 2;
    self->items = must(calloc(self->capacity, sizeof *self->items));
}

void marks_free(marks *self)
{
    free(self->items);
}

void marks_add(marks *self, uint64_t mark)
{
    *find(self, mark) = mark;
}

int marks_have(const marks *self, uint64_t mark)
{
    return *find(self, mark) != 0;
}
