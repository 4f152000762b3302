#include "engine/places.h"

#include "memory.h"

#include <stdlib.h>

void bh__places_free(bh__places *self)
{
    for (size_t i = 0; i < self->count; i++)
        free(self->items[i].name);
    free(self->items);
}

static void want(bh__places *self, bh__place *place)
{
    self->wanted_count += !place->is_wanted;
    place->is_wanted = 1;
}

int bh__places_add(bh__places *self, bh_bytes queue, int is_named)
{
    void *items = self->items;
    if (!bh__reserve(&items, &self->capacity, sizeof *self->items, self->count + 1))
        return 0;
    self->items = items;
    bh__place *added = &self->items[self->count];
    *added = (bh__place){.name = bh__duplicate(queue.data, queue.size), .size = queue.size, .is_named = is_named};
    if (!added->name)
        return 0;
    self->count++;
    want(self, added);
    return 1;
}

bh__place *bh__places_of(bh__places *self, bh_bytes queue)
{
    size_t i = 0;
    while (i < self->count && !bh__same((bh_bytes){self->items[i].name, self->items[i].size}, queue))
        i++;
    return i < self->count ? &self->items[i] : NULL;
}

bh__whereabouts bh__places_find(bh__places *self, bh_bytes queue, int64_t now_ms)
{
    bh__place *place = bh__places_of(self, queue);
    if (place) {
        if (place->state == BH__MISSING && now_ms - place->seen_ms >= BH__MISSED_FOR_MS) {
            place->state = BH__UNSEEN;
            want(self, place);
        } else if (place->state == BH__THERE && now_ms - place->seen_ms >= BH__SEEN_FOR_MS) {
            want(self, place);
        }
        return place->state;
    }
    return self->count < BH__MOST_PLACES && bh__places_add(self, queue, 0) ? BH__UNSEEN : BH__MISSING;
}

void bh__places_want_all(bh__places *self, int64_t now_ms)
{
    size_t kept = 0;
    self->wanted_count = 0;
    for (size_t i = 0; i < self->count; i++) {
        bh__place *place = &self->items[i];
        if (place->state == BH__MISSING && !place->is_named) {
            free(place->name);
            continue;
        }
        place->is_wanted = 1;
        self->wanted_count++;
        self->items[kept++] = *place;
    }
    self->count = kept;
    self->again_ms = now_ms + BH__LOOK_AGAIN_MS;
}

bh__place *bh__places_wanted(bh__places *self)
{
    for (size_t i = 0; self->wanted_count && i < self->count; i++)
        if (self->items[i].is_wanted)
            return &self->items[i];
    return NULL;
}

void bh__places_saw(bh__places *self, bh__place *place, bh__whereabouts state, int64_t now_ms)
{
    self->wanted_count -= (size_t)place->is_wanted;
    place->is_wanted = 0;
    place->state = place->was = state;
    place->seen_ms = now_ms;
}
