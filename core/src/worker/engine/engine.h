/*
 * Engine: the pump, and what it calls. One message's life:
 *
 *   bh__link_read, bh__link_next          its frames come over the consume link
 *   bh__assembler_add                     they become a bh_message
 *   bh__consumer_on_frame, on_delivery    entered in the ledger (arrived); the guard may decide on it at once
 *   relay_arrived, bh__relay              of a relay: decided on here, as on what failed; else
 *   offer_arrived, bh__mailbox_offer      to be taken: bh_worker_take, in a caller's thread
 *   bh_worker_settle, bh__mailbox_settle  its outcome comes back
 *   bh__mailbox_collect, bh__settle       succeeded: the ledger has it as settled
 *   decide, carry_out                     failed: delivery, history, plan; the copy is made, the ledger has it as due
 *   bh_ledger_next, on_publish_step       sent, when the ledger says so: bh__publisher_send writes it to the publish link
 *   bh__publisher_on_frame, on_confirm    the broker confirms (confirmed); nacks or returns (waiting, and due again)
 *   on_tell_step                          BH_EVENT_RETRIED, _PARKED: the message's memory is freed, its tag remains
 *   on_ack_step                           acknowledged, with others where that is right
 *
 * And where it goes wrong:
 *
 *   on_tell_step, bh__refuse              no broker takes the copy: left, its memory freed, given back ten minutes later
 *   bh__consumer_end                      its channel is gone: the broker delivers it again; settling it is stale
 *   bh__publisher_end                     the publish link is gone: what was sent is due again
 *   bh__consumer_give_back_all            the worker leaves: what is not settled is the broker's again
 *
 * Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_ENGINE_H
#define BACKHOP_WORKER_ENGINE_ENGINE_H

#include "engine/consumer.h"
#include "engine/getter.h"
#include "engine/probe.h"
#include "engine/publisher.h"

/* How far the thread is. Procedures are interrupted by a stop, by its limit, by nothing. */
typedef enum bh__stage { BH__WORKING, BH__DRAINING, BH__LEAVING } bh__stage;

typedef struct bh__engine {
    bh__context context;
    bh__consumer consumer;
    bh__publisher publisher;
    bh__getter getter;
    bh__probe probe;
    bh__stage stage;
    int64_t *wanted_rungs; /* that copies need and that are not declared yet, in ms */
    size_t wanted_count;
    size_t wanted_capacity;
    size_t waiting_count; /* of what arrived, dead letters whose work queue is looked for */
    int has_settled;      /* callers, just now: more is likely to follow at once */
    int is_woken;         /* from its last poll, not by a socket */
    int64_t settled_ms;   /* when it last carried out what was settled */
} bh__engine;

void bh__engine_free(bh__engine *self);
/* Whether procedures have to end, because the worker is to stop. */
int bh__engine_is_interrupted(const bh__engine *self);

/* One round: settles, publishes, acknowledges, writes; waits for something to happen until then at most; reads. */
void bh__engine_pump(bh__engine *self, int64_t until_ms);
/* Another number once there is something that the procedures have to look at, so that nothing waits before they did: a
 * link broke, a consumer ended, a parked message came or its replay ended, a copy needs a rung, a work queue is looked
 * for, the last message was settled while the worker drains. */
unsigned bh__engine_news(const bh__engine *self);
/* Carries out what callers have settled. */
void bh__engine_settle(bh__engine *self);
/* Does what the ledger says. */
void bh__engine_advance(bh__engine *self);

#endif
