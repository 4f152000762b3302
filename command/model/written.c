/* A message as RabbitMQ writes it for a delivery: its own headers, and the headers that the broker
 * adds. */
#include "model/message.h"

#include "model/deaths.h"
#include "model/properties.h"
#include "model/table.h"

/* Appends the headers that RabbitMQ adds to a delivery. */
static int put_notes(bh__buffer *out, const model_message *self, const model_version *version, model_counts counts)
{
    int is_put = version->reads_death_header || model_deaths_write(out, self);
    if (counts.acquired >= 0)
        is_put = is_put && model_put_long(out, "x-acquired-count", counts.acquired);
    if (counts.delivery >= 0)
        is_put = is_put && model_put_long(out, "x-delivery-count", counts.delivery);
    return is_put;
}

/* Merges the notes with the message's own headers, as the version does: 3.10 replaces one header,
 * and sorts only then. */
static int put_headers(bh__buffer *out, const model_version *version, bh_bytes notes, bh_bytes headers)
{
    if (version->sorts_headers)
        return model_table_merge(out, notes, headers, 1);
    if (notes.size == 0)
        return model_put_bytes(out, headers);
    bh__buffer others = {.data = NULL};
    model_field field;
    int is_put = bh__buffer_reserve(&others, headers.size);
    for (bh_bytes rest = headers; is_put && model_table_next(&rest, &field) > 0;)
        if (!bh__same(field.name, bh_str("x-delivery-count")))
            bh__put_bytes(&others, field.whole);
    is_put = is_put && model_table_merge(out, notes, (bh_bytes){others.data, others.end}, 0);
    bh__buffer_free(&others);
    return is_put;
}

int model_message_write(bh__buffer *out, const model_message *self, const model_version *version, model_counts counts)
{
    model_properties properties;
    bh_bytes bytes = model_message_properties(self);
    if (!model_properties_read(&properties, bytes))
        return model_put_bytes(out, bytes);
    bh__buffer notes = {.data = NULL}, headers = {.data = NULL};
    bh_bytes own = properties.is_set[MODEL_HEADERS] ? properties.value[MODEL_HEADERS] : bh_str("");
    int is_put = put_notes(&notes, self, version, counts);
    is_put = is_put && put_headers(&headers, version, (bh_bytes){notes.data, notes.end}, own);
    if (is_put && headers.end > 0) {
        properties.is_set[MODEL_HEADERS] = 1;
        properties.value[MODEL_HEADERS] = (bh_bytes){headers.data, headers.end};
    }
    char digits[BH__DIGITS];
    if (version->sorts_headers && properties.is_set[MODEL_EXPIRATION])
        properties.value[MODEL_EXPIRATION] = bh__decimal(digits, self->ttl_ms);
    is_put = is_put && model_properties_write(out, &properties);
    bh__buffer_free(&notes);
    bh__buffer_free(&headers);
    return is_put;
}
