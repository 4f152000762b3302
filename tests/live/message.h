/*
 * Message: what the broker sent, with its properties as the bytes that were on the wire. They are
 * taken apart here, not by the library under test nor by librabbitmq, so that a mistake there
 * shows.
 */
#ifndef BACKHOP_LIVE_MESSAGE_H
#define BACKHOP_LIVE_MESSAGE_H

#include <backhop/adapter/delivery.h>

typedef struct message {
    uint64_t tag; /* of the delivery, for ack and reject */
    int redelivered;
    char exchange[256];
    char routing_key[256];
    bh_bytes body;
    bh_bytes properties[BH_PROPERTY_LAST]; /* encoded, a short string without its length byte; data NULL: absent */
    bh_bytes raw;                          /* flags and properties; owned, as the body is */
} message;

/* Takes `raw` and `body` over, which malloc gave, and finds the properties. */
void message_set(message *self, bh_bytes raw, bh_bytes body);
void message_free(message *self);

/* A header's value as it was on the wire: its type, then its bytes; size 0 if there is none. */
bh_bytes message_header(const message *self, const char *name);
/* The next header's name, and its value as above; begin with *position 0; 0 after the last. */
int message_next_header(const message *self, size_t *position, bh_bytes *name, bh_bytes *value);
/* A long string or an integer of type l. Fails the test if the header is something else. */
bh_bytes message_string(const message *self, const char *name);
int64_t message_int(const message *self, const char *name);

#endif
