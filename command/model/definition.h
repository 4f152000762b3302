/* Definition: the settings of a policy, a JSON object without nested values. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_DEFINITION_H
#define BACKHOP_COMMAND_MODEL_DEFINITION_H

#include <backhop/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct model_setting {
    char *name;
    char *text;     /* NULL: no string */
    int64_t number; /* of a number; 1 and 0 of true and false */
} model_setting;

typedef struct model_definition {
    model_setting *items;
    size_t count;
    size_t capacity;
} model_definition;

/* Reads a text. BH_ERR_ARGUMENT if it is no such object; BH_ERR_NO_MEMORY. Free it in any case. */
bh_status model_definition_read(model_definition *out, const char *text);
const model_setting *model_definition_find(const model_definition *self, const char *name);
void model_definition_free(model_definition *self);

#endif
