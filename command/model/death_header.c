/* Death header: a client's x-death continues, however it got there. Values of a wrong type count as
 * missing. */
#include "model/death_header.h"

#include "model/table.h"

#include <stdlib.h>

static int is_string(bh_bytes table, const char *name, bh_bytes value)
{
    model_field field;
    return model_table_find(table, name, &field) && field.type == 'S' && bh__same(field.value, value);
}

static int is_of(const model_field *record, const model_dying *dying)
{
    return record->type == 'F' && is_string(record->value, "queue", dying->queue) &&
           is_string(record->value, "reason", bh_str(model_reason_name(dying->reason)));
}

static int64_t read_count(bh_bytes table)
{
    model_field field;
    int64_t count = 0;
    if (!model_table_find(table, "count", &field) || !model_field_integer(&field, &count))
        return 0;
    return count < INT64_MAX ? count : 0;
}

/* Appends the fields of the first death of a queue and reason. */
static int put_record(bh__buffer *out, const model_message *from, const model_dying *dying)
{
    int is_put = model_put_long(out, "count", 1) &&
                 model_put_string(out, "reason", bh_str(model_reason_name(dying->reason))) &&
                 model_put_string(out, "queue", dying->queue) && model_put_timestamp(out, "time", dying->now_s) &&
                 model_put_string(out, "exchange", model_message_text(from, from->exchange));
    size_t keys = is_put ? model_begin(out, "routing-keys", 'A') : 0;
    is_put = is_put && keys != 0;
    for (size_t i = 0; i < from->visible_count && is_put; i++)
        is_put = model_put_item(out, model_message_key(from, i));
    if (!is_put)
        return 0;
    model_end(out, keys);
    model_properties properties;
    if (model_properties_read(&properties, model_message_properties(from)) && properties.is_set[MODEL_EXPIRATION])
        return model_put_string(out, "original-expiration", properties.value[MODEL_EXPIRATION]);
    return 1;
}

/* Appends a known death with a new count. */
static int put_again(bh__buffer *out, bh_bytes known, int64_t count)
{
    bh__buffer fields = {.data = NULL};
    model_field field;
    int is_put = model_put_long(&fields, "count", count);
    for (bh_bytes rest = known; is_put && model_table_next(&rest, &field) > 0;)
        if (!bh__same(field.name, bh_str("count")))
            is_put = model_put_bytes(&fields, field.whole);
    is_put = is_put && model_table_merge(out, (bh_bytes){fields.data, fields.end}, bh_str(""), 0);
    bh__buffer_free(&fields);
    return is_put;
}

/* Appends the record in hand, as a table of the array. */
static int put_first(bh__buffer *out, const model_field *deaths, const model_message *from, const model_dying *dying)
{
    model_field record;
    bh_bytes known = {NULL, 0};
    int64_t count = 0, found = 0;
    bh_bytes rest = deaths ? deaths->value : bh_str("");
    while (model_array_next(&rest, &record) > 0)
        if (is_of(&record, dying)) {
            found++;
            known = known.data ? known : record.value;
        }
    if (known.data)
        count = read_count(known);
    count = (count > 0 ? count : found) + 1;
    size_t table = model_begin(out, NULL, 'F');
    int is_put = table != 0;
    if (known.data) {
        is_put = is_put && put_again(out, known, count);
    } else if (deaths) {
        bh__buffer fields = {.data = NULL};
        is_put = is_put && put_record(&fields, from, dying) &&
                 model_table_merge(out, (bh_bytes){fields.data, fields.end}, bh_str(""), 0);
        bh__buffer_free(&fields);
    } else {
        is_put = is_put && put_record(out, from, dying);
    }
    if (is_put)
        model_end(out, table);
    return is_put;
}

/* Appends the records of an array that are not of the death in hand. RabbitMQ's grouping turns them
 * round, if there are several. */
static int put_older(bh__buffer *out, bh_bytes array, const model_dying *dying)
{
    model_field record;
    size_t count = 0, at = 0;
    for (bh_bytes rest = array; model_array_next(&rest, &record) > 0;)
        count++;
    bh_bytes *records = malloc((count + 1) * sizeof *records);
    if (!records)
        return 0;
    int is_put = 1;
    for (bh_bytes rest = array; at < count && model_array_next(&rest, &record) > 0; at++)
        records[at] = is_of(&record, dying) ? bh_str("") : record.whole;
    while (at-- > 0 && is_put)
        is_put = model_put_bytes(out, records[at]);
    free(records);
    return is_put;
}

/* Appends x-death; `deaths` is the one of the message, NULL if it has none that is an array. */
static int put_deaths(bh__buffer *out, const model_field *deaths, const model_message *from, const model_dying *dying)
{
    size_t array = model_begin(out, "x-death", 'A');
    int is_put = array != 0 && put_first(out, deaths, from, dying) && (!deaths || put_older(out, deaths->value, dying));
    if (is_put)
        model_end(out, array);
    return is_put;
}

static int put_first_death(bh__buffer *out, const model_message *from, const model_dying *dying)
{
    return model_put_string(out, "x-first-death-exchange", model_message_text(from, from->exchange)) &&
           model_put_string(out, "x-first-death-queue", dying->queue) &&
           model_put_string(out, "x-first-death-reason", bh_str(model_reason_name(dying->reason)));
}

/* Appends the headers that stay: x-death is written anew; CC goes if the queue sets the routing
 * key. */
static int put_others(bh__buffer *out, const model_version *version, bh_bytes headers, int has_death,
                      const model_dying *dying)
{
    static const char *const firsts[] = {"x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"};
    model_field field;
    for (bh_bytes rest = headers; model_table_next(&rest, &field) > 0;) {
        int is_left_out = bh__same(field.name, bh_str("x-death")) ||
                          (version->drops_cc && dying->has_key && bh__same(field.name, bh_str("CC")));
        for (size_t i = 0; i < 3 && !has_death; i++)
            is_left_out = is_left_out || bh__same(field.name, bh_str(firsts[i]));
        if (!is_left_out && !model_put_bytes(out, field.whole))
            return 0;
    }
    return 1;
}

static int put_headers(bh__buffer *out, const model_version *version, bh_bytes headers, const model_message *from,
                       const model_dying *dying)
{
    model_field deaths;
    int has_death = model_table_find(headers, "x-death", &deaths);
    int is_array = has_death && deaths.type == 'A';
    bh__buffer notes = {.data = NULL}, others = {.data = NULL};
    int is_put = put_deaths(&notes, is_array ? &deaths : NULL, from, dying) &&
                 (has_death || put_first_death(&notes, from, dying)) &&
                 put_others(&others, version, headers, has_death, dying) &&
                 model_table_merge(out, (bh_bytes){notes.data, notes.end}, (bh_bytes){others.data, others.end}, 0);
    bh__buffer_free(&notes);
    bh__buffer_free(&others);
    return is_put;
}

int model_death_header_write(model_message *to, const model_version *version, const model_message *from,
                             const model_dying *dying)
{
    model_properties properties;
    if (!model_properties_read(&properties, model_message_properties(from)))
        return bh__store_add(&to->store, &to->properties, model_message_properties(from));
    bh__buffer headers = {.data = NULL}, list = {.data = NULL};
    bh_bytes own = properties.is_set[MODEL_HEADERS] ? properties.value[MODEL_HEADERS] : bh_str("");
    int is_written = put_headers(&headers, version, own, from, dying);
    properties.is_set[MODEL_EXPIRATION] = 0;
    properties.is_set[MODEL_HEADERS] = 1;
    properties.value[MODEL_HEADERS] = (bh_bytes){headers.data, headers.end};
    is_written = is_written && model_properties_write(&list, &properties) &&
                 bh__store_add(&to->store, &to->properties, (bh_bytes){list.data, list.end});
    bh__buffer_free(&headers);
    bh__buffer_free(&list);
    return is_written;
}

int model_death_header_is_cycle(const model_message *letter, bh_bytes queue)
{
    int is_there;
    model_field deaths, record;
    bh_bytes headers = model_message_headers(letter, &is_there);
    if (!model_table_find(headers, "x-death", &deaths) || deaths.type != 'A')
        return 0;
    while (model_array_next(&deaths.value, &record) > 0) {
        /* Only a client writes an entry that is no table, so the cycle is not automatic. */
        if (record.type != 'F' || is_string(record.value, "reason", bh_str("rejected")))
            return 0;
        if (is_string(record.value, "queue", queue))
            return 1;
    }
    return 0;
}
