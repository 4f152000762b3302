/* Definition: a reader for {"key": "text", "other": 12}. */
#include "model/definition.h"

#include "base/memory.h"

#include <stdlib.h>

void model_definition_free(model_definition *self)
{
    for (size_t i = 0; i < self->count; i++) {
        free(self->items[i].name);
        free(self->items[i].text);
    }
    free(self->items);
    *self = (model_definition){.items = NULL};
}

const model_setting *model_definition_find(const model_definition *self, const char *name)
{
    for (size_t i = 0; i < self->count; i++)
        if (strcmp(self->items[i].name, name) == 0)
            return &self->items[i];
    return NULL;
}

static void skip_spaces(const char **at)
{
    while (**at && strchr(" \t\r\n", **at))
        (*at)++;
}

/* Skips spaces, then one character if it is the wanted one. Returns 1 if it was. */
static int skip(const char **at, char wanted)
{
    skip_spaces(at);
    if (**at != wanted)
        return 0;
    (*at)++;
    return 1;
}

/* Reads a string whose quote is behind *at. \u is not known: names of RabbitMQ need none. */
static bh_status read_string(const char **at, char **out)
{
    size_t size = 0;
    char *text = malloc(strlen(*at) + 1);
    if (!text)
        return BH_ERR_NO_MEMORY;
    *out = text;
    for (; **at && **at != '"'; (*at)++) {
        if (**at == '\\') {
            (*at)++;
            if (!**at || **at == 'u')
                return BH_ERR_ARGUMENT;
        }
        text[size++] = **at;
    }
    text[size] = '\0';
    return skip(at, '"') ? BH_OK : BH_ERR_ARGUMENT;
}

static int skip_word(const char **at, const char *word)
{
    size_t size = strlen(word);
    if (strncmp(*at, word, size) != 0)
        return 0;
    *at += size;
    return 1;
}

static bh_status read_value(const char **at, model_setting *out)
{
    if (skip(at, '"'))
        return read_string(at, &out->text);
    if (skip_word(at, "true")) {
        out->number = 1;
        return BH_OK;
    }
    if (skip_word(at, "false"))
        return BH_OK;
    char *end;
    out->number = strtoll(*at, &end, 10);
    if (end == *at)
        return BH_ERR_ARGUMENT;
    *at = end;
    return BH_OK;
}

static bh_status read_setting(model_definition *self, const char **at)
{
    void *items = self->items;
    int is_there = bh__reserve(&items, &self->capacity, sizeof *self->items, self->count + 1);
    self->items = items;
    if (!is_there)
        return BH_ERR_NO_MEMORY;
    model_setting *added = &self->items[self->count++];
    *added = (model_setting){.name = NULL};
    bh_status status = skip(at, '"') ? read_string(at, &added->name) : BH_ERR_ARGUMENT;
    if (!added->name) {
        self->count--;
        return status;
    }
    if (status == BH_OK && !skip(at, ':'))
        status = BH_ERR_ARGUMENT;
    return status == BH_OK ? read_value(at, added) : status;
}

bh_status model_definition_read(model_definition *out, const char *text)
{
    *out = (model_definition){.items = NULL};
    if (!skip(&text, '{'))
        return BH_ERR_ARGUMENT;
    if (skip(&text, '}'))
        return BH_OK;
    do {
        bh_status status = read_setting(out, &text);
        if (status != BH_OK)
            return status;
    } while (skip(&text, ','));
    return skip(&text, '}') ? BH_OK : BH_ERR_ARGUMENT;
}
