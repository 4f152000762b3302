/*
 * Ledger: the data that its sources share. Internal.
 *
 *     ledger       a new ledger, settings, reports of the consuming side, counts
 *     orphans      messages whose channel closed before their settlement was sent
 *     entries      entries: the table of transitions, their lists, the heap of those that wait
 *     publishes    publishers, the publishes in flight, answers, endings; rungs
 *     setup        what copies need before the first publish: a publisher, and the topology
 *     steps        bh_ledger_next: which step comes next, and when the next one becomes due
 *     text         the sentence of a step
 */
#ifndef BACKHOP_LEDGER_DATA_H
#define BACKHOP_LEDGER_DATA_H

#include "ledger/internal.h"
#include "base/memory.h"
#include "base/report.h"
#include "flow/back_off.h"

#define BH__NO_INDEX UINT32_MAX

/* The neighbours of an item in a list, by their indices. */
typedef struct bh__ledger_links {
    uint32_t previous;
    uint32_t next;
} bh__ledger_links;

typedef struct bh__ledger_list {
    uint32_t first;
    uint32_t last;
    size_t count;
} bh__ledger_list;

static inline bh__ledger_list bh__ledger_empty_list(void)
{
    return (bh__ledger_list){.first = BH__NO_INDEX, .last = BH__NO_INDEX};
}

/* The lists of entries. An entry can be on one list of each kind. */
typedef enum bh__ledger_entry_list {
    BH__BY_ORDER, /* of its channel, by delivery */
    BH__BY_GROUP, /* of its group */
    BH__BY_EVENT, /* of entries with an event to emit */
    BH__ENTRY_LISTS
} bh__ledger_entry_list;

/* The groups of entries that await a step. */
typedef enum bh__ledger_group {
    BH__GROUP_NONE,      /* arrived, taken, sent or waiting */
    BH__GROUP_DISMISSED, /* settled: to be rejected or given back */
    BH__GROUP_DUE,       /* due, in sending order */
    BH__GROUP_HELD,      /* due when the rung is declared */
    BH__GROUP_ABANDONED, /* abandoned, the oldest first */
    BH__GROUP_DONE       /* settled or confirmed: to be acknowledged. Each channel has its own list */
} bh__ledger_group;

/* An entry of the table: a message in hand, or a free row. */
typedef struct bh__ledger_entry {
    uint32_t generation;      /* counts the messages that used this row; 0: none yet */
    unsigned char state;      /* a bh_state; BH_STATE_NONE: the row is free */
    unsigned char group;      /* a bh__ledger_group */
    unsigned char action;     /* the bh_action of the plan; BH_ACTION_NONE: given back */
    unsigned char is_suspect; /* its copy may have closed a channel or the connection: it is sent alone */
    unsigned char losses;     /* of the connection while only this suspect was in flight */
    unsigned char is_orphan;  /* its channel closed; `tag` and `channel` are of no use */
    unsigned char is_lost;    /* an orphan that is not bound: it ends with its next event */
    unsigned char next_group; /* of an orphan: the bh__ledger_group to enter when it is bound */
    short event;              /* the bh_event_kind to emit; -1: none */
    int event_status;
    uint32_t channel;                        /* its index */
    bh__ledger_links links[BH__ENTRY_LISTS]; /* of a free row: `next` of BH__BY_GROUP is the next free row */
    uint32_t heap_at;                        /* its index in the heap, while it waits */
    int64_t tag;                             /* of its delivery */
    uint64_t message;                        /* the fingerprint of the message; 0: not known */
    int64_t orphaned_ms;
    int64_t rung_ms;      /* of its copy; 0: none */
    uint64_t fingerprint; /* of its copy's id, exchange and routing key */
    int64_t failures;     /* to publish its copy */
    int64_t wait_ms;      /* its last delay of the back-off */
    int64_t due_ms;       /* while it waits: when it is due; abandoned: since when */
    int64_t probe;        /* the ledger's number of the probe that its copy was last; 0: none */
} bh__ledger_entry;

/* A channel for deliveries, or a free row. */
typedef struct bh__ledger_channel {
    int64_t number;         /* 0: not open */
    bh__ledger_links links; /* on the list `with_done`; of a free row: `next` is the next free row */
    int64_t last_tag;
    bh__ledger_list order; /* all of its entries */
    bh__ledger_list done;
    int64_t gap_ms;  /* when acknowledgements stop waiting for the oldest entry; BH_LEDGER_NEVER: not set */
    int is_complete; /* every delivery arrived here, in order */
    int is_flushing; /* no acknowledgement waits for others */
} bh__ledger_channel;

/* The lists of publishes: all of a publisher by tag, and the hash buckets by tag and by
 * fingerprint. */
typedef enum bh__ledger_chain { BH__OF_ALL, BH__OF_TAG, BH__OF_FINGERPRINT, BH__CHAINS } bh__ledger_chain;

/* A publish in flight. */
typedef struct bh__ledger_publish {
    int64_t tag;
    int64_t entry; /* which may have ended since */
    uint64_t fingerprint;
    int64_t sent_ms;
    int is_returned;
    bh__ledger_links links[BH__CHAINS];
} bh__ledger_publish;

/* A channel with confirms. A publisher that is opened later reuses its memory. */
typedef struct bh__ledger_publisher {
    int64_t number; /* 0: not open */
    bh__ledger_publish *pool;
    size_t capacity;          /* of the pool */
    size_t most;              /* publishes in flight */
    size_t used;              /* rows of the pool, so far */
    uint32_t first_free;      /* linked by BH__OF_ALL */
    bh__ledger_list *buckets; /* 2 * bucket_count: by tag, then by fingerprint */
    size_t bucket_count;      /* a power of two */
    bh__ledger_list sent;
    int64_t next_tag;
} bh__ledger_publisher;

typedef struct bh__ledger_rung {
    int64_t wait_ms;
    enum { BH__RUNG_UNKNOWN, BH__RUNG_REQUESTED, BH__RUNG_DECLARED } state;
} bh__ledger_rung;

/* The setup of a publisher and the topology. */
typedef struct bh__ledger_setup {
    enum { BH__SETUP_IDLE, BH__SETUP_OPENING, BH__SETUP_DECLARING } awaits; /* the answer to this step */
    int can_declare;                                                        /* the topology */
    int is_forgotten;                                                       /* the topology may be missing */
    bh__back_off back_off;
    bh_status failure; /* to be emitted; BH_OK: none */
    int64_t delay_ms;  /* of that event: a confirm may clear the back-off before */
} bh__ledger_setup;

struct bh_ledger {
    /* settings */
    bh_policy *back_off;
    uint64_t random;
    int64_t confirm_timeout_ms;
    size_t most_sent;
    size_t most_acks;
    int64_t ack_gap_ms;
    size_t most_abandoned;
    int64_t abandon_ms;
    size_t most_orphans; /* 0: a closed channel ends its entries */
    int64_t orphan_ms;
    /* entries */
    bh__ledger_entry *entries;
    size_t entry_count; /* rows in use, so far */
    size_t entry_capacity;
    uint32_t first_free;
    bh__ledger_list groups[BH__GROUP_DONE];
    bh__ledger_list events;
    bh__ledger_list orphans; /* BH__BY_ORDER: the oldest first. A lost one is not on it */
    bh__ledger_list lost;    /* BH__BY_ORDER: the oldest first */
    int64_t now_ms;          /* of the last bh_ledger_next */
    uint32_t *heap;          /* entries that wait, the earliest first */
    size_t heap_count;
    size_t heap_capacity;
    int64_t counts[BH_STATE_LAST];
    /* channels */
    int64_t last_number; /* of channels and publishers */
    bh__ledger_channel *channels;
    size_t channel_count; /* rows in use, so far */
    size_t channel_capacity;
    uint32_t first_free_channel;
    bh__ledger_list with_done; /* channels with entries to acknowledge */
    bh__ledger_publisher publishers[BH_LEDGER_MOST_PUBLISHERS];
    size_t turn; /* of the publishers */
    /* rungs */
    bh__ledger_rung *rungs; /* that copies needed so far */
    size_t rung_count;
    size_t rung_capacity;
    /* what the first publish needs */
    bh__ledger_setup setup;
    /* the broker */
    int is_blocked; /* it accepts no publishes */
    int64_t unblocked_ms;
    int is_doubtful;       /* a confirm is late, and no confirm came since */
    int is_probing;        /* in doubt: a probe is in flight and not late */
    int probes;            /* since the last confirm */
    int64_t last_probe;    /* counts probes */
    int64_t doubted_ms;    /* when a confirm was late, or when the last probe was sent */
    int64_t suspects_sent; /* suspects in flight */

    bh_step step;    /* the last one */
    bh__report text; /* of the last step */
};

#endif
