/*
 * Ledger: the data that its sources share. Internal.
 *
 *     ledger_entries     messages: the table of transitions, their lists, those that wait
 *     ledger_publishes   publishers, what is in flight on them, answers, endings; rungs
 *     ledger_steps       bh_ledger_next: what is to be done next, and when to ask again
 *     ledger_words       what is told, as a sentence
 *     ledger             a new one, settings, the consuming side, getters
 */
#ifndef BACKHOP_LEDGER_DATA_H
#define BACKHOP_LEDGER_DATA_H

#include "ledger_internal.h"
#include "memory.h"
#include "report.h"

#define BH__NO_SLOT UINT32_MAX

/* What a list knows of each of its items, which are named by their slots. */
typedef struct bh__ledger_links {
    uint32_t before;
    uint32_t behind;
} bh__ledger_links;

typedef struct bh__ledger_list {
    uint32_t first;
    uint32_t last;
    size_t count;
} bh__ledger_list;

static inline bh__ledger_list bh__ledger_empty_list(void)
{
    return (bh__ledger_list){.first = BH__NO_SLOT, .last = BH__NO_SLOT};
}

/* The lists that an entry can be on, one of each kind: its channel's, in the order of delivery; the one of its place; the
 * news. */
typedef enum bh__ledger_entry_list { BH__BY_ORDER, BH__BY_PLACE, BH__BY_NEWS, BH__ENTRY_LISTS } bh__ledger_entry_list;

/* The list that an entry is on for its state. */
typedef enum bh__ledger_place {
    BH__PLACE_NONE, /* arrived, taken, sent, waiting */
    BH__PLACE_OUT,  /* settled: to be rejected or given back */
    BH__PLACE_DUE,  /* due, in the order in which copies are sent */
    BH__PLACE_HELD, /* due, once its rung is declared */
    BH__PLACE_LEFT, /* left, the longest first */
    BH__PLACE_DONE  /* settled or confirmed, to be acknowledged: the one list here that is the channel's own */
} bh__ledger_place;

/* A message in hand, or a free slot for one. */
typedef struct bh__ledger_entry {
    uint32_t serial;          /* of the message among those that had this slot; 0: the slot was never used */
    unsigned char state;      /* a bh_state; BH_STATE_NONE: the slot is free */
    unsigned char place;      /* a bh__ledger_place */
    unsigned char action;     /* a bh_action: of the plan; BH_ACTION_NONE where it is given back */
    unsigned char is_suspect; /* its copy may be what ended a channel or the connection: it goes alone */
    unsigned char losses;     /* of the connection, while it was alone in flight as a suspect */
    short news;               /* a bh_event_kind that is to be told; -1: none */
    int news_status;
    uint32_t channel;                        /* its index */
    bh__ledger_links links[BH__ENTRY_LISTS]; /* of a free slot: `behind` of BH__BY_PLACE is the next one that is free */
    uint32_t heap_at;                        /* where it waits: its index in the heap */
    int64_t tag;                             /* of its delivery */
    int64_t rung_ms;                         /* that its copy needs; 0: none */
    uint64_t print;                          /* of its copy's id, exchange and routing key */
    int64_t failures;                        /* to publish its copy */
    int64_t wait_ms;                         /* its last delay of the back-off */
    int64_t due_ms;                          /* where it waits: when it is due; where it is left: since when */
} bh__ledger_entry;

/* A channel on which deliveries come, or a free slot for one. */
typedef struct bh__ledger_channel {
    int64_t number; /* 0: not open */
    bh__ledger_links
        links; /* among those that have something done; of a free slot: `behind` is the next one that is free */
    int64_t last_tag;
    bh__ledger_list order; /* all of its messages */
    bh__ledger_list done;
    int64_t gap_ms;  /* when what is done behind the oldest message goes without it; BH_LEDGER_NEVER: not known yet */
    int is_whole;    /* every delivery was entered, in its order */
    int is_flushing; /* nothing that is done waits for others */
} bh__ledger_channel;

/* The lists of publishes: all of a publisher, in the order of their tags; those of one bucket by tag, and by print. */
typedef enum bh__ledger_chain { BH__OF_ALL, BH__OF_TAG, BH__OF_PRINT, BH__CHAINS } bh__ledger_chain;

/* A publish that was not answered yet. */
typedef struct bh__ledger_publish {
    int64_t tag;
    int64_t entry; /* its number: the message may have ended meanwhile */
    uint64_t print;
    int64_t sent_ms;
    int is_returned;
    bh__ledger_links links[BH__CHAINS];
} bh__ledger_publish;

/* A channel with confirms, on which copies go. Its memory is kept for the next one that is opened. */
typedef struct bh__ledger_publisher {
    int64_t number; /* 0: not open */
    bh__ledger_publish *pool;
    size_t capacity;          /* of the pool */
    size_t most;              /* of the pool that this publisher may use */
    size_t used;              /* of the pool, ever */
    uint32_t first_free;      /* linked by BH__OF_ALL */
    bh__ledger_list *buckets; /* 2 * bucket_count: by tag, and then by print */
    size_t bucket_count;      /* a power of two */
    bh__ledger_list sent;
    int64_t next_tag;
} bh__ledger_publisher;

/* A rung that copies go through. */
typedef struct bh__ledger_rung {
    int64_t wait_ms;
    enum { BH__RUNG_UNKNOWN, BH__RUNG_ASKED, BH__RUNG_THERE } is; /* ASKED: BH_STEP_DECLARE named it */
} bh__ledger_rung;

struct bh_ledger {
    /* settings */
    bh_policy *back_off;
    uint64_t random;
    int64_t confirm_timeout_ms;
    size_t most_sent;
    size_t most_acks;
    int64_t ack_gap_ms;
    size_t most_left;
    int64_t left_ms;
    /* messages */
    bh__ledger_entry *entries;
    size_t entry_count; /* that were ever used */
    size_t entry_capacity;
    uint32_t first_free;
    bh__ledger_list places[BH__PLACE_DONE];
    bh__ledger_list news;
    uint32_t *heap; /* those that wait, the earliest first */
    size_t heap_count;
    size_t heap_capacity;
    int64_t counts[BH_STATE_LAST];
    /* channels */
    int64_t last_number; /* of channels and publishers */
    bh__ledger_channel *channels;
    size_t channel_count; /* that were ever open at once */
    size_t channel_capacity;
    uint32_t first_free_channel;
    bh__ledger_list with_done; /* channels that have something done */
    bh__ledger_publisher publishers[BH_LEDGER_MOST_PUBLISHERS];
    size_t turn; /* whose it is among the publishers */
    /* rungs */
    bh__ledger_rung *rungs; /* that copies were ever settled for */
    size_t rung_count;
    size_t rung_capacity;
    /* the broker */
    int is_blocked; /* it takes no publishes */
    int64_t unblocked_ms;
    int is_doubtful;       /* a confirm did not come in time, and none has come since */
    int is_probing;        /* in doubt: a probe is in flight, and has time left to be confirmed */
    int probes;            /* since something was confirmed */
    int64_t doubted_ms;    /* when a confirm was missed, or the last probe was sent */
    int64_t suspects_sent; /* messages that are sent and suspect */

    struct {
        bh_step kind;
        int64_t entry, channel, publisher, tag, delay_ms, count;
        int multiple;
        bh_event_kind event;
        bh_status status;
    } step;
    bh__report words; /* of the last step */
};

#endif
