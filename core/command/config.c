#include "config.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <yaml.h>

enum { DEEPEST = 8 }; /* an alias can lead back to what it is in */

typedef struct config_file {
    const char *path;
    yaml_document_t document;
} config_file;

_Noreturn static void refuse(const config_file *file, const yaml_mark_t *at, const char *what)
{
    complain("%s, line %zu: %s", file->path, at->line + 1, what);
    exit(EX_DATAERR);
}

static json_t *make(config_file *file, int id, int depth);

static bh_bytes text_of(const yaml_node_t *node)
{
    return (bh_bytes){(const char *)node->data.scalar.value, node->data.scalar.length};
}

/* A plain "null", "~" or nothing is null; all else is its text, whatever YAML would take it for. */
static json_t *make_scalar(const yaml_node_t *node)
{
    bh_bytes text = text_of(node);
    int is_plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (is_plain && (text.size == 0 || strcmp(text.data, "~") == 0 || strcmp(text.data, "null") == 0))
        return must(json_null());
    return must(json_stringn(text.data, text.size));
}

static json_t *make_mapping(config_file *file, const yaml_node_t *node, int depth)
{
    json_t *object = must(json_object());
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start; pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&file->document, pair->key);
        if (key->type != YAML_SCALAR_NODE || memchr(key->data.scalar.value, '\0', key->data.scalar.length))
            refuse(file, &key->start_mark, "a key is no text");
        const char *name = (const char *)key->data.scalar.value;
        if (json_object_get(object, name))
            refuse(file, &key->start_mark, "this key is there already");
        if (json_object_set_new(object, name, make(file, pair->value, depth + 1)))
            refuse(file, &key->start_mark, "a key is no UTF-8");
    }
    return object;
}

static json_t *make_sequence(config_file *file, const yaml_node_t *node, int depth)
{
    json_t *array = must(json_array());
    for (const yaml_node_item_t *item = node->data.sequence.items.start; item < node->data.sequence.items.top; item++)
        json_array_append_new(array, make(file, *item, depth + 1));
    return array;
}

static json_t *make(config_file *file, int id, int depth)
{
    const yaml_node_t *node = yaml_document_get_node(&file->document, id);
    if (depth > DEEPEST)
        refuse(file, &node->start_mark, "this is deeper than any setting");
    switch (node->type) {
    case YAML_MAPPING_NODE:
        return make_mapping(file, node, depth);
    case YAML_SEQUENCE_NODE:
        return make_sequence(file, node, depth);
    default:
        return make_scalar(node);
    }
}

json_t *config_load(const char *path)
{
    config_file file = {.path = path};
    yaml_parser_t parser;
    FILE *stream = fopen(path, "r");
    if (!stream) {
        complain("%s cannot be read", path);
        exit(EX_NOINPUT);
    }
    if (!yaml_parser_initialize(&parser))
        must(NULL);
    yaml_parser_set_input_file(&parser, stream);
    if (!yaml_parser_load(&parser, &file.document))
        refuse(&file, &parser.problem_mark, parser.problem ? parser.problem : "no YAML");
    if (!yaml_document_get_root_node(&file.document)) {
        complain("%s is empty", path);
        exit(EX_DATAERR);
    }
    json_t *made = make(&file, 1, 0);
    yaml_document_delete(&file.document);
    yaml_parser_delete(&parser);
    fclose(stream);
    return made;
}
