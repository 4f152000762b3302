#include "common/config.h"

#include "common/options.h"
#include "common/output.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <yaml.h>

enum { DEEPEST = 8 };

/* The lines of keys and texts. */
static struct {
    const char *path;
    struct {
        const char *text;
        size_t line;
    } * items;
    size_t count;
} places;

static void add_place(const char *text, const yaml_mark_t *at)
{
    places.items = must(realloc(places.items, (places.count + 1) * sizeof *places.items));
    places.items[places.count].text = text;
    places.items[places.count++].line = at->line + 1;
}

void config_at(const char *text)
{
    char place[512];
    options_at("");
    for (size_t i = 0; text && i < places.count; i++)
        if (places.items[i].text == text) {
            snprintf(place, sizeof place, "%s, line %zu: ", places.path, places.items[i].line);
            options_at(place);
        }
}

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
    json_t *made = must(json_stringn(text.data, text.size));
    add_place(json_string_value(made), &node->start_mark);
    return made;
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
        add_place(json_object_iter_key(json_object_iter_at(object, name)), &key->start_mark);
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

/*
 * Refuses aliases, a second document and deep nesting before the document is built: an alias that
 * stands for aliases can take any memory. Rewinds the file.
 */
static void check_events(const config_file *file, FILE *stream)
{
    yaml_parser_t parser;
    yaml_event_t event;
    int depth = 0, documents = 0, is_end = 0;
    if (!yaml_parser_initialize(&parser))
        must(NULL);
    yaml_parser_set_input_file(&parser, stream);
    while (!is_end) {
        if (!yaml_parser_parse(&parser, &event))
            refuse(file, &parser.problem_mark, parser.problem ? parser.problem : "no YAML");
        int opens = event.type == YAML_MAPPING_START_EVENT || event.type == YAML_SEQUENCE_START_EVENT;
        depth += opens - (event.type == YAML_MAPPING_END_EVENT || event.type == YAML_SEQUENCE_END_EVENT);
        documents += event.type == YAML_DOCUMENT_START_EVENT;
        if (event.type == YAML_ALIAS_EVENT)
            refuse(file, &event.start_mark, "aliases are not supported: write the value again");
        if (documents > 1)
            refuse(file, &event.start_mark, "a second document begins here: remove '---', or use two files");
        if (depth > DEEPEST)
            refuse(file, &event.start_mark, "this is deeper than any setting");
        is_end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    rewind(stream);
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
    check_events(&file, stream);
    yaml_parser_set_input_file(&parser, stream);
    if (!yaml_parser_load(&parser, &file.document))
        refuse(&file, &parser.problem_mark, parser.problem ? parser.problem : "no YAML");
    if (!yaml_document_get_root_node(&file.document)) {
        complain("%s is empty", path);
        exit(EX_DATAERR);
    }
    places.path = path;
    json_t *made = make(&file, 1, 0);
    yaml_document_delete(&file.document);
    yaml_parser_delete(&parser);
    fclose(stream);
    return made;
}
