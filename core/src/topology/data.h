/* The data of a topology, for the files of this folder. Internal. */
#ifndef BACKHOP_TOPOLOGY_DATA_H
#define BACKHOP_TOPOLOGY_DATA_H

#include "base/report.h"
#include "topology/internal.h"

#define BH__PARKED_SUFFIX ".parked"

/* An argument of a declaration. Its strings are offsets because their store grows. */
typedef struct bh__draft_argument {
    bh__text name;
    bh_type type;
    bh__text string;
    int64_t number;
} bh__draft_argument;

typedef struct bh__draft_arguments {
    bh__store store;
    bh__draft_argument *items;
    size_t count;
    size_t capacity;
} bh__draft_arguments;

/* A declaration. Its strings are in bh_topology.store, its arguments in bh_topology.arguments. */
typedef struct bh__draft {
    bh_declaration_kind kind;
    bh__text name;
    bh__text type;
    bh__text source;
    bh__text routing_key;
    int64_t rung_ms;
    int is_on_demand;
    size_t first_argument;
    size_t argument_count;
} bh__draft;

struct bh_topology {
    /* settings */
    bh__store settings;
    bh__text queue;
    bh__text name_space; /* empty: the default of the queue type */
    bh_strategy strategy;
    bh_queue_type queue_type;
    bh_series series;
    int stripes;
    int declares_work_queue;
    bh_queue_type work_queue_type;
    bh__draft_arguments work_queue;
    bh_policy **further; /* added policies, without the policy of bh_topology_build */
    size_t further_count;
    size_t further_capacity;
    int is_relays; /* 1: for all work queues of a relay; its own queue is <ns>.rejected */
    /*
     * the work queue that bh__topology_select_queue selected; the store is empty if none is
     * selected
     */
    bh__store selected;
    bh__text selected_queue;
    bh__text selected_key;
    bh__text selected_parked;
    /* results of bh_topology_build */
    int is_built;
    bh_policy *policy; /* a copy */
    bh__store store;
    bh__draft *declarations;
    size_t count;
    size_t capacity;
    bh__draft_argument *arguments;
    size_t argument_count;
    size_t argument_capacity;
    bh_argument *sealed; /* the arguments with their strings, once the store is complete */
    bh__rungs rungs;
    bh__text return_key;
    bh__text parked_queue;
    bh__text unroutable_queue;
    bh__text return_exchange;
    bh__text wait_exchange;
    int64_t worst_lateness_ms;
    int64_t fixed_ms;      /* reject, native: the first delay in the work queue's arguments */
    int64_t fixed_most_ms; /* native: the highest delay in the work queue's arguments */
    bh__store definitions; /* JSON; its size excludes the terminating zero byte */
    bh__report permission; /* the result of bh__topology_permission */
    int no_memory;
    char error[1024];
};

/* Stores the sentence for bh_topology_error and returns the status. */
bh_status bh__topology_fail(bh_topology *self, bh_status status, const char *sentence);
/* Returns a text of the store; "" if self is NULL. */
bh_bytes bh__topology_text(const bh_topology *self, bh__text text);
/* Returns the namespace that is in force if the user sets none. */
bh_bytes bh__default_namespace(const bh_topology *self);
/* Sets the rungs and the fixed delays that all policies of the topology need. */
bh_status bh__topology_find_demand(bh_topology *self);
/* Fills `sealed` from the arguments. Returns 0 if memory runs out. */
int bh__topology_seal_arguments(bh_topology *self);
/* Sets the names that all strategies share. */
void bh__topology_make_names(bh_topology *self);
/* Adds the declarations of the strategy. */
bh_status bh__topology_declare_all(bh_topology *self);

#endif
