/* Names: objects by their names. They are in the order of adding, until one is removed.
 * Internal. */
#ifndef BACKHOP_COMMAND_MODEL_NAMES_H
#define BACKHOP_COMMAND_MODEL_NAMES_H

#include "base/memory.h"

typedef struct model_named {
    bh_bytes name; /* borrowed from the object */
    void *object;
} model_named;

/* All fields 0: empty. */
typedef struct model_names {
    model_named *items;
    size_t count;
    size_t capacity;
    size_t *slots; /* of a hash table: an item's index and 1; 0: free */
    size_t slot_count;
} model_names;

/* Returns a copy with a zero byte behind it; free it. NULL: no memory. */
char *model_name_copy(bh_bytes name);
void model_names_free(model_names *self);
/* Returns NULL if there is no object of that name. */
void *model_names_find(const model_names *self, bh_bytes name);
/* Adds an object whose name is new. Returns 0 if memory runs out. */
int model_names_add(model_names *self, bh_bytes name, void *object);
void model_names_remove(model_names *self, bh_bytes name);

#endif
