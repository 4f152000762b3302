/* Relay: what its sources share, and what the worker uses. Internal. */
#ifndef BACKHOP_RELAY_INTERNAL_H
#define BACKHOP_RELAY_INTERNAL_H

#include "base/memory.h"
#include "base/report.h"
#include "relay/relay.h"

/* A name or pattern, and its policy. */
typedef struct bh__served {
    bh__text name;
    int is_pattern;
    bh_policy *policy;
} bh__served;

struct bh__relay {
    /* settings */
    bh__store names;
    bh__served *served;
    size_t served_count;
    size_t served_capacity;
    bh_outcome outcomes[BH__DEATH_OTHER + 1];
    bh_topology *topology;
    int is_built;
    /* the message that was read last */
    int is_read;
    bh__store read;
    bh__text queue; /* of the broker's record, served or not */
    bh__text word;
    const bh__served *match; /* NULL: the queue is not served */
    bh__death_reason reason;
    bh__report text;
    bh__store policy_line;
    bh__report problem; /* of the last call that failed */
};

/*
 * Copies a built relay into *out; free the copy with bh__relay_free.
 * Errors: BH_ERR_NO_MEMORY, with NULL in *out.
 */
bh_status bh__relay_copy(bh__relay **out, const bh__relay *from);
/* Returns the work queue of the message that was read last; "" if it is not served, or `self` is
 * NULL. */
bh_bytes bh__relay_queue(const bh__relay *self);
/* Returns 1 if the pattern matches. A "*" in it stands for any text. */
int bh__relay_matches(bh_bytes pattern, bh_bytes text);
/* Returns the name or pattern that serves this queue; NULL: none. */
const bh__served *bh__relay_find(const bh__relay *self, bh_bytes queue);
/* Returns 1 if the name is one of the relay's own wait queues. */
int bh__relay_is_wait_queue(const bh__relay *self, bh_bytes name);
/* Returns 1 if the relay itself declares this queue, for all work queues. */
int bh__relay_is_own(const bh__relay *self, bh_bytes name);
/* Returns 1 if the pattern could match the name of one of the relay's own queues. */
int bh__relay_may_meet_own(const bh__relay *self, const bh__served *served);
bh_bytes bh__relay_name_of(const bh__relay *self, const bh__served *served);
/*
 * Makes the topology of one work queue, to be declared and freed.
 * Errors: BH_ERR_NO_MEMORY; BH_ERR_ARGUMENT if the queue is not served.
 */
bh_status bh__relay_topology_of(bh_topology **out, const bh__relay *self, bh_bytes queue);

#endif
