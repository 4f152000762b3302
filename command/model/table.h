/*
 * Table: AMQP field tables as bytes, so that values keep their wire types. Nothing here recurses: a nested table is a value
 * of some size. Internal.
 */
#ifndef BACKHOP_COMMAND_MODEL_TABLE_H
#define BACKHOP_COMMAND_MODEL_TABLE_H

#include "base/buffer.h"

/* The parts borrow from the table. */
typedef struct model_field {
    bh_bytes name;
    char type;      /* AMQP's tag */
    bh_bytes value; /* after the tag; strings, tables and arrays without their length */
    bh_bytes whole; /* name, tag and value, as on the wire */
} model_field;

/* Reads the next field of a table, whose bytes are without its length, and moves *rest behind it. Returns 0 at the end;
 * -1 if the field is malformed. */
int model_table_next(bh_bytes *rest, model_field *out);
/* Reads the next value of an array, which has no name. */
int model_array_next(bh_bytes *rest, model_field *out);
/* Returns 1 if all fields are well-formed. Does not look into nested tables. */
int model_table_is_valid(bh_bytes table);
/* Finds the first field of a name. Returns 0 if there is none. */
int model_table_find(bh_bytes table, const char *name, model_field *out);
/* Returns 1 if the field is an integer that fits int64_t, in *out. */
int model_field_integer(const model_field *field, int64_t *out);
/* Returns RabbitMQ's name of a field's type: "longstr", "signedint". */
const char *model_field_type(const model_field *field);

/* Append fields. Return 0 if memory runs out. A name has at most 255 bytes. */
int model_put_string(bh__buffer *out, const char *name, bh_bytes value);
int model_put_long(bh__buffer *out, const char *name, int64_t value);
int model_put_boolean(bh__buffer *out, const char *name, int value);
int model_put_timestamp(bh__buffer *out, const char *name, int64_t seconds);
int model_put_bytes(bh__buffer *out, bh_bytes bytes);
/* Begin a table or an array ('F', 'A'), as a field, or as a value of an array if `name` is NULL; and end it.
 * model_begin returns the start for model_end; 0 if memory runs out. */
size_t model_begin(bh__buffer *out, const char *name, char type);
void model_end(bh__buffer *out, size_t start);
/* Appends a string as a value of an array. */
int model_put_item(bh__buffer *out, bh_bytes value);

/* Appends the fields of both tables, sorted by name. If `is_set`, a name that occurs again is left out; `first`
 * comes before `second`. Returns 0 if memory runs out. */
int model_table_merge(bh__buffer *out, bh_bytes first, bh_bytes second, int is_set);

#endif
