/* Message: made of a publish, and its properties as a client gets them. */
#include "model/message.h"

#include "model/deaths.h"
#include "model/table.h"

#include <stdlib.h>

model_body *model_body_new(char *data, size_t size)
{
    model_body *self = malloc(sizeof *self);
    if (self)
        *self = (model_body){.references = 1, .size = size, .data = data};
    return self;
}

void model_body_release(model_body *self)
{
    if (!self || --self->references > 0)
        return;
    free(self->data);
    free(self);
}

const char *model_reason_name(model_reason reason)
{
    static const char *const names[] = {"rejected", "expired", "maxlen", "delivery_limit"};
    return names[reason];
}

model_message *model_message_blank(model_body *body)
{
    model_message *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    *self = (model_message){.references = 1, .body = body, .priority = -1, .ttl_ms = -1, .failed = -1};
    body->references++;
    return self;
}

model_message *model_message_hold(model_message *self)
{
    self->references++;
    return self;
}

void model_message_release(model_message *self)
{
    if (!self || --self->references > 0)
        return;
    model_body_release(self->body);
    bh__store_free(&self->store);
    free(self->texts);
    free(self->deaths);
    free(self);
}

int model_message_add_text(model_message *self, bh_bytes text)
{
    void *texts = self->texts;
    int is_there = bh__reserve(&texts, &self->text_capacity, sizeof *self->texts, self->text_count + 1);
    self->texts = texts;
    if (!is_there || !bh__store_add(&self->store, &self->texts[self->text_count], text))
        return 0;
    self->text_count++;
    return 1;
}

bh_bytes model_message_text(const model_message *self, bh__text text)
{
    return bh__store_get(&self->store, text);
}

bh_bytes model_message_key(const model_message *self, size_t i)
{
    return bh__store_get(&self->store, self->texts[i]);
}

bh_bytes model_message_properties(const model_message *self)
{
    return bh__store_get(&self->store, self->properties);
}

size_t model_message_size(const model_message *self)
{
    return self->body->size;
}

bh_bytes model_message_headers(const model_message *self, int *is_there)
{
    model_properties properties;
    *is_there = model_properties_read(&properties, model_message_properties(self)) && properties.is_set[MODEL_HEADERS];
    return *is_there ? properties.value[MODEL_HEADERS] : bh_str("");
}

/* Adds the strings of a header CC or BCC to the keys. */
static model_making add_routes(model_message *self, bh_bytes headers, const char *name, const char **header,
                               const char **type)
{
    model_field field, item;
    if (!model_table_find(headers, name, &field))
        return MODEL_MADE;
    if (field.type != 'A') {
        *header = name;
        *type = model_field_type(&field);
        return MODEL_BAD_ROUTES;
    }
    for (bh_bytes rest = field.value; model_array_next(&rest, &item) > 0;)
        if (item.type == 'S' && !model_message_add_text(self, item.value))
            return MODEL_NO_MEMORY;
    return MODEL_MADE;
}

/* Returns the number of a decimal without a sign or anything else; -1 if it is none. publishing.c
 * has refused others. */
static int64_t read_ttl(bh_bytes text)
{
    int64_t number = 0;
    size_t i = text.size > 1 && text.data[0] == '+';
    for (; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || number > INT64_MAX / 10 - 9)
            return -1;
        number = 10 * number + (text.data[i] - '0');
    }
    return text.size ? number : -1;
}

static void read_properties(model_message *self, const model_properties *properties)
{
    if (properties->is_set[MODEL_DELIVERY_MODE])
        self->is_persistent = properties->value[MODEL_DELIVERY_MODE].data[0] == 2;
    if (properties->is_set[MODEL_PRIORITY])
        self->priority = (unsigned char)properties->value[MODEL_PRIORITY].data[0];
    if (properties->is_set[MODEL_EXPIRATION])
        self->ttl_ms = read_ttl(properties->value[MODEL_EXPIRATION]);
}

/* Keeps the properties without BCC. */
static int keep_properties(model_message *self, model_properties *properties, bh_bytes bytes)
{
    model_field field;
    if (!model_table_find(properties->value[MODEL_HEADERS], "BCC", &field))
        return bh__store_add(&self->store, &self->properties, bytes);
    bh__buffer headers = {.data = NULL}, list = {.data = NULL};
    int is_kept = bh__buffer_reserve(&headers, properties->value[MODEL_HEADERS].size);
    bh_bytes rest = properties->value[MODEL_HEADERS];
    while (is_kept && model_table_next(&rest, &field) > 0)
        if (!bh__same(field.name, bh_str("BCC")))
            bh__put_bytes(&headers, field.whole);
    if (is_kept) {
        properties->value[MODEL_HEADERS] = (bh_bytes){headers.data, headers.end};
        is_kept = model_properties_write(&list, properties) &&
                  bh__store_add(&self->store, &self->properties, (bh_bytes){list.data, list.end});
    }
    bh__buffer_free(&headers);
    bh__buffer_free(&list);
    return is_kept;
}

/* Adds exchange, keys and properties. */
static model_making fill(model_message *self, bh_bytes exchange, bh_bytes routing_key, bh_bytes bytes,
                         const char **header, const char **type)
{
    model_properties properties;
    if (!model_properties_read(&properties, bytes))
        return MODEL_MALFORMED;
    read_properties(self, &properties);
    if (!properties.is_set[MODEL_HEADERS])
        properties.value[MODEL_HEADERS] = bh_str("");
    if (!bh__store_add(&self->store, &self->exchange, exchange) || !model_message_add_text(self, routing_key))
        return MODEL_NO_MEMORY;
    model_making made = add_routes(self, properties.value[MODEL_HEADERS], "CC", header, type);
    self->visible_count = self->text_count;
    if (made == MODEL_MADE)
        made = add_routes(self, properties.value[MODEL_HEADERS], "BCC", header, type);
    self->key_count = self->text_count;
    self->first_hidden = self->visible_count;
    self->hidden_count = self->key_count - self->visible_count;
    if (made == MODEL_MADE && !keep_properties(self, &properties, bytes))
        made = MODEL_NO_MEMORY;
    return made;
}

model_making model_message_new(model_message **out, bh_bytes exchange, bh_bytes routing_key, bh_bytes properties,
                               model_body *body, const char **header, const char **type)
{
    model_message *self = model_message_blank(body);
    if (!self)
        return MODEL_NO_MEMORY;
    model_making made = fill(self, exchange, routing_key, properties, header, type);
    if (made == MODEL_MADE)
        *out = self;
    else
        model_message_release(self);
    return made;
}
