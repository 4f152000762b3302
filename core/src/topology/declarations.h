/*
 * Declarations: how the strategies add exchanges, queues, bindings and arguments. Internal.
 *
 * If memory runs out, these functions set bh_topology.no_memory and bh_topology_build fails.
 */
#ifndef BACKHOP_TOPOLOGY_DECLARATIONS_H
#define BACKHOP_TOPOLOGY_DECLARATIONS_H

#include "topology/data.h"

/*
 * Adds a text to the store: the three parts joined; one part; "<queue><suffix>";
 * "<namespace><suffix>".
 */
bh__text bh__make_text(bh_topology *self, bh_bytes first, bh_bytes second, bh_bytes third);
bh__text bh__save_text(bh_topology *self, const char *text);
bh__text bh__name_after_queue(bh_topology *self, const char *suffix);
bh__text bh__name_in_namespace(bh_topology *self, const char *suffix);

/* Adds a declaration. Returns 0 if memory runs out. */
int bh__add_declaration(bh_topology *self, bh_declaration_kind kind, bh__text name, const char *type);
void bh__declare_exchange(bh_topology *self, bh__text name, const char *type);
void bh__declare_binding(bh_topology *self, bh__text source, bh__text destination, const char *type,
                         bh__text routing_key);
/* Adds a queue without TTL and dead letters: parked, unroutable or rejected. */
void bh__declare_plain_queue(bh_topology *self, bh__text name);
/*
 * Adds a wait queue and its binding to the fanout exchange of the same name. ttl_ms 0: each message
 * has its own TTL.
 */
void bh__declare_wait_queue(bh_topology *self, bh__text name, int64_t ttl_ms, bh__text dead_letter_exchange);

/* Add an argument to the last declaration. */
void bh__add_text_argument(bh_topology *self, const char *name, bh__text value);
void bh__add_string_argument(bh_topology *self, const char *name, const char *value);
void bh__add_int_argument(bh_topology *self, const char *name, int64_t value);

/* Returns 1 if the user gave this argument for the work queue. */
int bh__has_own_argument(const bh_topology *self, const char *name);
/* Begins the declaration of the work queue. Returns 0 if memory runs out. */
int bh__begin_work_queue(bh_topology *self);
/*
 * Ends the declaration of the work queue with the user's arguments. BH_ERR_STRATEGY if the strategy
 * sets one of them.
 */
bh_status bh__end_work_queue(bh_topology *self);

#endif
