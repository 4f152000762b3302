#include "event_internal.h"

#include "memory.h"

#include <stdlib.h>

bh_bytes bh_event_name(int kind)
{
#define NAME(name, word, meaning)                                                                                      \
    case name:                                                                                                         \
        return bh_str(word);
    switch (kind) {
        BH_EVENT_LIST(NAME)
    default:
        return bh_str("");
    }
#undef NAME
}

bh_event *bh__event_new(bh_event_kind kind, bh_status status, bh_bytes text, bh_bytes id, bh_bytes connection,
                        bh_bytes host)
{
    bh_event *self = calloc(1, sizeof *self + text.size + id.size + connection.size + host.size + 4);
    if (!self)
        return NULL;
    char *at = self->data;
    self->kind = kind;
    self->status = status;
    self->text = bh__keep(&at, text);
    self->id = bh__keep(&at, id);
    self->connection = bh__keep(&at, connection);
    self->host = bh__keep(&at, host);
    return self;
}

void bh_event_free(bh_event *self)
{
    free(self);
}

bh_event_kind bh_event_what(const bh_event *self)
{
    return self ? self->kind : BH_EVENT_LAST;
}

bh_status bh_event_status(const bh_event *self)
{
    return self ? self->status : BH_OK;
}

bh_bytes bh_event_text(const bh_event *self)
{
    return self ? self->text : bh_str("");
}

bh_bytes bh_event_id(const bh_event *self)
{
    return self ? self->id : bh_str("");
}

bh_bytes bh_event_connection(const bh_event *self)
{
    return self ? self->connection : bh_str("");
}

bh_bytes bh_event_host(const bh_event *self)
{
    return self ? self->host : bh_str("");
}

int64_t bh_event_attempts(const bh_event *self)
{
    return self ? self->attempts : 0;
}

int64_t bh_event_delay_ms(const bh_event *self)
{
    return self ? self->delay_ms : 0;
}

int64_t bh_event_count(const bh_event *self)
{
    return self ? self->count : 0;
}
