/*
 * Engine: the pump, and the parts that it drives. One message's life:
 *
 *   bh__link_read, bh__link_next          reads its frames from the consume link
 *   bh__assembler_add                     assembles them to a bh_message
 *   bh__consumer_on_frame, on_delivery    enters it in the ledger (arrived); the guard may decide on it
 *   bh__settle_dead_letter                for a relay: decides on it, like on a failure; otherwise
 *   offer_arrived, bh__mailbox_offer      offers it to callers: bh_worker_take, in a caller's thread
 *   bh_worker_settle, bh__mailbox_settle  hands its outcome back
 *   bh__mailbox_collect, bh__decide       succeeded: acknowledged in the ledger
 *   decide, record_plan                   failed: reads delivery and history, makes the plan and the
 *                                         copy, records them in the ledger (due)
 *   bh_ledger_next, on_publish_step       publishes the copy when the ledger says so:
 *                                         bh__publisher_send writes it to the publish link (sent)
 *   bh__publisher_on_frame, on_confirm    the broker confirms the copy (confirmed), or nacks or
 *                                         returns it (waiting, then due again)
 *   on_emit_step                          emits RETRIED or PARKED, and frees the message; the ledger
 *                                         keeps its delivery tag
 *   on_ack_step                           acknowledges the original, with others if possible
 *
 * And if something fails:
 *
 *   on_emit_step, bh__abandon             no broker accepts the copy: abandons the message, and
 *                                         requeues it ten minutes later
 *   bh__consumer_end                      the channel is closed: the broker delivers the message
 *                                         again, and settling it is stale
 *   bh__publisher_end                     the publish link is lost: copies in flight are due again
 *   bh__consumer_give_back_all            the worker ends: requeues all unsettled messages
 *   bh__mailbox_take, bh__gate_update     the breaker is open: holds what no caller took; later cancels
 *                                         the consumer and defers it
 *
 * Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_ENGINE_H
#define BACKHOP_WORKER_ENGINE_ENGINE_H

#include "worker/engine/consumer.h"
#include "worker/engine/gate.h"
#include "worker/engine/parked_reader.h"
#include "worker/engine/probe.h"
#include "worker/engine/publisher.h"

/* The stages of a run. A stop interrupts procedures while working; its limit, while draining;
 * nothing, while closing. */
typedef enum bh__stage { BH__WORKING, BH__DRAINING, BH__CLOSING } bh__stage;

typedef struct bh__engine {
    bh__context context;
    bh__consumer consumer;
    bh__publisher publisher;
    bh__parked_reader parked_reader;
    bh__probe probe;
    bh__gate gate;
    bh__stage stage;
    int64_t *wanted_rungs; /* that copies need and that are not declared yet, in ms */
    size_t wanted_count;
    size_t wanted_capacity;
    size_t waiting_count; /* dead letters in `consumer.arrived` whose work queue is checked */
    int has_settled;      /* callers settled messages in the last round, so more are likely to follow */
    int is_woken;         /* the last poll ended without a socket event */
    int64_t settled_ms;   /* when it last decided on settled messages */
    int64_t busy_ms;      /* progress_ms of the last BH_EVENT_BUSY */
} bh__engine;

void bh__engine_free(bh__engine *self);
/* Returns 1 if procedures must end because of a stop. */
int bh__engine_is_interrupted(const bh__engine *self);

/* Runs one round: decides, publishes, acknowledges, writes, polls until `until_ms` at most, and
 * reads. */
void bh__engine_pump(bh__engine *self, int64_t until_ms);
/* Returns a number that changes with each state that procedures wait for. These states are a
 * broken link, the end of a consumer, a parked message and the end of its replay. Also a rung to
 * declare, a work queue to check, and the last settlement of a drain. */
unsigned bh__engine_state(const bh__engine *self);
/* Decides on the messages that callers settled. */
void bh__engine_collect(bh__engine *self);
/* Executes the ledger's steps. */
void bh__engine_advance(bh__engine *self);

#endif
