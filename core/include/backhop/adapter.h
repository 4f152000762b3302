/*
 * Adapter: the headers for code that drives another AMQP client than the worker's, in the order of
 * the pipeline:
 *
 *     delivery -> history -> (policy) -> plan -> (topology) declaring -> ledger
 */
#ifndef BACKHOP_ADAPTER_H
#define BACKHOP_ADAPTER_H

#include <backhop.h>
#include <backhop/adapter/delivery.h>     /* one arrival of a message */
#include <backhop/adapter/history.h>      /* its failed attempts, read from its headers */
#include <backhop/adapter/plan.h>         /* the decision for it, and its copy */
#include <backhop/adapter/declaring.h>    /* declares or verifies a topology, step by step */
#include <backhop/adapter/ledger.h>       /* every message in hand, and the next step */
#include <backhop/adapter/flow.h>         /* what a consumer does while its breaker is not closed */
#include <backhop/adapter/subscription.h> /* when a consumer declares, consumes, waits or gives up */
#include <backhop/adapter/silence.h>      /* when a broker that does not answer counts as unavailable */
#include <backhop/adapter/calls.h>        /* which delivery needs no call, because an earlier one had it */
#include <backhop/adapter/replay.h>       /* the limits of moving parked messages back */
#include <backhop/adapter/event.h>        /* makes events */
#include <backhop/adapter/duration.h>     /* time spans as text */

#endif
