/* Relay, as its sources and the worker see it. Internal. */
#ifndef BACKHOP_RELAY_INTERNAL_H
#define BACKHOP_RELAY_INTERNAL_H

#include "memory.h"
#include "report.h"

#include <backhop/relay.h>

/* A name or pattern, and its policy. */
typedef struct bh__served {
    bh__text name;
    int is_pattern;
    bh_policy *policy;
} bh__served;

struct bh_relay {
    /* settings */
    bh__store names;
    bh__served *served;
    size_t served_count;
    size_t served_capacity;
    bh_outcome outcomes[BH_DEATH_OTHER + 1];
    bh_topology *topology;
    int is_built;
    /* what was read last */
    int is_read;
    bh__store read;
    bh__text queue; /* of the broker's record, served or not */
    bh__text word;
    const bh__served *by; /* NULL: it is not served */
    bh_death death;
    bh__report words;
    bh__store policy_line;
    bh__report problem; /* of the last call that failed */
};

/* A copy of all that was set and built, which shares nothing with the original, in *out; NULL there: BH_ERR_NO_MEMORY. Free
 * it with bh_relay_free. */
bh_status bh__relay_copy(bh_relay **out, const bh_relay *from);
/* Whether a name or pattern of the relay has this queue; NULL: none. */
const bh__served *bh__relay_find(const bh_relay *self, bh_bytes queue);
/* Whether a pattern's beginning leaves room for the name of one of the relay's own queues. */
int bh__relay_may_meet_own(const bh_relay *self, const bh__served *served);
bh_bytes bh__relay_name_of(const bh_relay *self, const bh__served *served);
/* A topology for one of the work queues, to be declared and freed. BH_ERR_NO_MEMORY. */
bh_status bh__relay_topology_of(bh_topology **out, const bh_relay *self, bh_bytes queue);

#endif
