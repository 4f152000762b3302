#include "topology/declared.h"

#include "base/memory.h"

#include <stdlib.h>

enum { MOST_DECLARATIONS = 10000 }; /* rungs of about a hundred namespaces */

struct bh_declared {
    size_t owners;
    bh__store store;   /* the keys */
    bh__text *entries; /* hash table by the hash of the key; an entry without bytes is free */
    size_t capacity;   /* a power of two, at least twice the count; or 0 */
    size_t count;
    bh__store key; /* the key of the declaration to find or add */
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
    bh__store_free(&self->key);
    free(self->entries);
    free(self);
}

void bh_declared_clear(bh_declared *self)
{
    if (!self)
        return;
    self->store.size = self->count = 0;
    if (self->capacity)
        memset(self->entries, 0, self->capacity * sizeof *self->entries);
}

/* Adds a text behind its size, so that different declarations never have the same key. */
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

/*
 * Writes the key of a declaration: everything that the broker compares. Returns 0 if memory runs
 * out.
 */
static int write_key(bh_declared *self, const bh_declaration *it)
{
    bh__store *out = &self->key;
    out->size = 0;
    if (it->kind == BH_DECLARE_NONE)
        return add_text(out, it->name);
    int is_written = add_number(out, it->kind) && add_text(out, it->name) && add_text(out, it->type) &&
                     add_text(out, it->source) && add_text(out, it->routing_key);
    for (size_t i = 0; is_written && i < it->argument_count; i++) {
        const bh_argument *argument = &it->arguments[i];
        is_written =
            add_text(out, argument->name) && add_number(out, argument->type) &&
            (argument->type == BH_TYPE_INT64 ? add_number(out, argument->integer) : add_text(out, argument->string));
    }
    return is_written;
}

/* Returns the entry of a key, or the free entry for it. */
static bh__text *find(const bh_declared *self, bh__text *entries, size_t capacity, bh_bytes text)
{
    size_t at = bh__hash(text) & (capacity - 1);
    while (entries[at].size && !bh__same(bh__store_get(&self->store, entries[at]), text))
        at = (at + 1) & (capacity - 1);
    return &entries[at];
}

static int reserve_entry(bh_declared *self)
{
    if (2 * (self->count + 1) <= self->capacity)
        return 1;
    size_t capacity = self->capacity ? 2 * self->capacity : 256;
    bh__text *entries = calloc(capacity, sizeof *entries);
    if (!entries)
        return 0;
    for (size_t i = 0; i < self->capacity; i++)
        if (self->entries[i].size)
            *find(self, entries, capacity, bh__store_get(&self->store, self->entries[i])) = self->entries[i];
    free(self->entries);
    self->entries = entries;
    self->capacity = capacity;
    return 1;
}

static bh_bytes key_of(const bh_declared *self)
{
    bh_bytes text = {self->key.data, self->key.size};
    return text;
}

int bh__declared_has(bh_declared *self, const bh_declaration *it)
{
    return self->count > 0 && write_key(self, it) && find(self, self->entries, self->capacity, key_of(self))->size > 0;
}

void bh__declared_add(bh_declared *self, const bh_declaration *it)
{
    bh__text added;
    if (self->count >= MOST_DECLARATIONS)
        bh_declared_clear(self);
    if (!write_key(self, it) || !reserve_entry(self))
        return;
    bh__text *entry = find(self, self->entries, self->capacity, key_of(self));
    if (entry->size > 0 || !bh__store_add(&self->store, &added, key_of(self)))
        return;
    *entry = added;
    self->count++;
}
