/*
 * Declaring: its state, for the steps (declaring.c) and the broker's refusals (refusals.c).
 * Internal.
 */
#ifndef BACKHOP_TOPOLOGY_DECLARING_H
#define BACKHOP_TOPOLOGY_DECLARING_H

#include "base/report.h"
#include "topology/internal.h"

#include <backhop/adapter/declaring.h>

/* AMQP's reply codes of a channel that the broker closed. */
enum { ACCESS_REFUSED = 403, NOT_FOUND = 404, RESOURCE_LOCKED = 405, PRECONDITION_FAILED = 406 };

/* The purpose of a step: check a name, compare an exchange or queue, remove a binding, or create
 * one. */
typedef enum bh__purpose { BH__TO_FIND, BH__TO_COMPARE, BH__TO_UNBIND, BH__TO_CREATE } bh__purpose;

/* The phase of a look: bind the work queue, find the exchange, or declare the whole topology. */
typedef enum bh__look { BH__LOOK_NONE, BH__LOOK_BIND, BH__LOOK_FIND, BH__LOOK_MEND } bh__look;

struct bh_declaring {
    bh_topology *topology;
    bh_declared *declared; /* or NULL */
    bh_dialect dialect;
    int makes_rungs;
    bh_mode mode;
    bh__look look;
    int64_t rung_ms;
    /* index of the step's declaration; their count: the work queue that the user declares */
    size_t at;
    bh_declaration step;    /* the declaration, with the arguments of the topology */
    bh_argument *arguments; /* room for the arguments of a comparing step */
    bh__purpose purpose;
    int is_pending; /* the step was returned, and the broker has not refused it */
    int has_ended;
    int has_begun_again; /* as a binding's exchange was deleted meanwhile */
    /* results of BH_MODE_VERIFY */
    bh__report different; /* status BH_OK: no differences */
    bh__report missing;
    int64_t missing_rungs; /* number of missing rungs on demand */
    int64_t last_rung_ms;  /* the last of the missing rungs on demand */
    int may_declare;
    bh__report result;
};

/* Returns 1 if the step is the work queue that the user declares. */
static inline int bh__declaring_is_users_queue(const bh_declaring *self)
{
    return self->at == bh__topology_count(self->topology);
}

/* Returns 1 if the broker refused a binding, and not because the queue is missing. */
int bh__declaring_lacks_exchange(const bh_declaring *self, int code, bh_bytes text);
/* Each ends or notes a step that the broker refused: a step that creates, that compares, that finds
 * nothing, any. */
void bh__declaring_not_created(bh_declaring *self, int code, bh_bytes text);
void bh__declaring_not_compared(bh_declaring *self, int code, bh_bytes text);
void bh__declaring_note_missing(bh_declaring *self);
void bh__declaring_fail(bh_declaring *self, int code, bh_bytes text);
/* Ends, and reports what BH_MODE_VERIFY found missing or different. */
void bh__declaring_report(bh_declaring *self);
/* Ends a look after the exchange was missing, and reports that. */
void bh__declaring_report_look(bh_declaring *self);

#endif
