/* Kinds and fields of events, and how a listener reads them. */
#include "events/internal.h"

#include <stdlib.h>

bh_bytes bh_event_name(int kind)
{
#define NAME(name, word, level, meaning)                                                                               \
    case name:                                                                                                         \
        return bh_str(word);
    switch (kind) {
        BH_EVENT_LIST(NAME)
    default:
        return bh_str("");
    }
#undef NAME
}

static const struct {
    bh_bytes word;
    int is_string;
} fields[] = {
#define STRING 1
#define INT 0
#define FIELD(name, word, type, meaning) [name] = {BH__LITERAL(word), type},
    BH_FIELD_LIST(FIELD)
#undef FIELD
#undef INT
#undef STRING
};

static int is_field(int field)
{
    return field >= 0 && field < BH_FIELD_LAST;
}

bh_bytes bh_event_field(int field)
{
    return is_field(field) ? fields[field].word : bh_str("");
}

int bh_event_field_is_string(int field)
{
    return is_field(field) && fields[field].is_string;
}

/* -------------------------------------------------------------------------------------- reading */

void bh_event_free(bh_event *self)
{
    if (!self)
        return;
    bh__store_free(&self->store);
    bh__report_free(self->line);
    free(self);
}

bh_event_kind bh_event_what(const bh_event *self)
{
    return self ? self->kind : BH_EVENT_LAST;
}

int64_t bh_event_message(const bh_event *self)
{
    return self ? self->message : 0;
}

int bh_event_has(const bh_event *self, bh_field field)
{
    return self && is_field((int)field) && self->has >> field & 1;
}

bh_bytes bh_event_string(const bh_event *self, bh_field field)
{
    return bh_event_has(self, field) && fields[field].is_string
               ? bh__store_get(&self->store, self->fields[field].string)
               : bh_str("");
}

int64_t bh_event_int(const bh_event *self, bh_field field)
{
    return bh_event_has(self, field) && !fields[field].is_string ? self->fields[field].number : 0;
}

/* ---------------------------------------------------------------------------------------- level */

int bh__needs_a_person(bh_status status)
{
    switch (status) {
    case BH_ERR_ACCESS:
    case BH_ERR_MISSING:
    case BH_ERR_CLASH:
    case BH_ERR_BROKER:
    case BH_ERR_TLS:
        return 1;
    default:
        return 0;
    }
}

bh_level bh_event_level(const bh_event *self)
{
    static const bh_level levels[] = {
#define LEVEL(name, word, level, meaning) [name] = BH_LEVEL_##level,
        BH_EVENT_LIST(LEVEL)
#undef LEVEL
    };
    if (!self)
        return BH_LEVEL_DEBUG;
    bh_status status = (bh_status)bh_event_int(self, BH_FIELD_STATUS);
    switch (self->kind) {
    case BH_EVENT_UNAVAILABLE:
    case BH_EVENT_DRAINED:
        return bh__needs_a_person(status) ? BH_LEVEL_ERROR : status != BH_OK ? BH_LEVEL_WARNING : levels[self->kind];
    case BH_EVENT_RETURNED: /* no error if an exchange is missing: it can be declared meanwhile */
        return status == BH_ERR_ACCESS ? BH_LEVEL_ERROR : levels[self->kind];
    case BH_EVENT_REPLAYED:
        if (status == BH_ERR_ACCESS)
            return BH_LEVEL_ERROR;
        /* It has a text without a status if retries had come back to no queue. */
        return status != BH_OK || bh_event_string(self, BH_FIELD_TEXT).size ? BH_LEVEL_WARNING : levels[self->kind];
    default:
        return levels[self->kind];
    }
}
