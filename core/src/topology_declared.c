#include "declared_internal.h"

#include "memory.h"

#include <stdlib.h>

enum { MOST_KNOWN = 10000 }; /* rungs of about a hundred namespaces */

struct bh_declared {
    size_t owners;
    bh__store store; /* the declarations, each as one text */
    bh__text *known; /* by the hash of their text; one without bytes is free */
    size_t slots;    /* a power of two, at least twice the count; or 0 */
    size_t count;
    bh__store wanted; /* the one that is looked for, as such a text */
};

bh_status bh_declared_new(bh_declared **out)
{
    if (!out)
        return BH_ERR_ARGUMENT;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return BH_ERR_NO_MEMORY;
    (*out)->owners = 1;
    return BH_OK;
}

bh_declared *bh__declared_share(bh_declared *self)
{
    self->owners++;
    return self;
}

void bh_declared_free(bh_declared *self)
{
    if (!self || --self->owners > 0)
        return;
    bh__store_free(&self->store);
    bh__store_free(&self->wanted);
    free(self->known);
    free(self);
}

void bh_declared_forget(bh_declared *self)
{
    if (!self)
        return;
    self->store.size = self->count = 0;
    if (self->slots)
        memset(self->known, 0, self->slots * sizeof *self->known);
}

/* ---------------------------------------------------------------------------------------------------------- the text */

/* Adds a text, so that no two rows of texts give the same bytes. */
static int add_text(bh__store *out, bh_bytes text)
{
    char digits[BH__DIGITS];
    bh__text added;
    return bh__store_join(out, &added, bh__decimal(digits, (int64_t)text.size), bh_str(":"), text);
}

static int add_number(bh__store *out, int64_t number)
{
    char digits[BH__DIGITS];
    return add_text(out, bh__decimal(digits, number));
}

/* Writes all that the broker would compare, and where it is; or, behind the last declaration, that the work queue was
 * declared with all that it needs. False: no memory. */
static int write_wanted(bh_declared *self, const bh_topology *topology, size_t index)
{
    bh__store *out = &self->wanted;
    out->size = 0;
    if (index == bh_topology_count(topology))
        return add_text(out, bh_topology_queue(topology));
    int is_written =
        add_number(out, bh_topology_declaration(topology, index)) && add_text(out, bh_topology_name(topology, index)) &&
        add_text(out, bh_topology_type(topology, index)) && add_text(out, bh_topology_source(topology, index)) &&
        add_text(out, bh_topology_routing_key(topology, index));
    for (size_t i = 0; is_written && i < bh_topology_argument_count(topology, index); i++) {
        bh_type type = bh_topology_argument_type(topology, index, i);
        is_written = add_text(out, bh_topology_argument_name(topology, index, i)) && add_number(out, type) &&
                     (type == BH_TYPE_INT64 ? add_number(out, bh_topology_argument_int(topology, index, i))
                                            : add_text(out, bh_topology_argument_string(topology, index, i)));
    }
    return is_written;
}

/* ------------------------------------------------------------------------------------------------------------ the set */

/* The text's slot, or the free one where it would be; there are more slots than texts. */
static bh__text *find(const bh_declared *self, bh__text *known, size_t slots, bh_bytes text)
{
    size_t at = bh__hash(text) & (slots - 1);
    while (known[at].size && !bh__same(bh__store_get(&self->store, known[at]), text))
        at = (at + 1) & (slots - 1);
    return &known[at];
}

static int reserve_slot(bh_declared *self)
{
    if (2 * (self->count + 1) <= self->slots)
        return 1;
    size_t slots = self->slots ? 2 * self->slots : 256;
    bh__text *known = calloc(slots, sizeof *known);
    if (!known)
        return 0;
    for (size_t i = 0; i < self->slots; i++)
        if (self->known[i].size)
            *find(self, known, slots, bh__store_get(&self->store, self->known[i])) = self->known[i];
    free(self->known);
    self->known = known;
    self->slots = slots;
    return 1;
}

static bh_bytes wanted(const bh_declared *self)
{
    bh_bytes text = {self->wanted.data, self->wanted.size};
    return text;
}

int bh__declared_has(bh_declared *self, const bh_topology *topology, size_t index)
{
    return self->count > 0 && write_wanted(self, topology, index) &&
           find(self, self->known, self->slots, wanted(self))->size > 0;
}

void bh__declared_add(bh_declared *self, const bh_topology *topology, size_t index)
{
    bh__text added;
    if (self->count >= MOST_KNOWN)
        bh_declared_forget(self);
    if (!write_wanted(self, topology, index) || !reserve_slot(self))
        return;
    bh__text *slot = find(self, self->known, self->slots, wanted(self));
    if (slot->size > 0 || !bh__store_add(&self->store, &added, wanted(self)))
        return;
    *slot = added;
    self->count++;
}
