/*
 * Backhop: retries for RabbitMQ consumers. A failed message goes away, waits, and comes back: later each time, only to
 * the queue that failed, unchanged, never lost, and parked for a person after its last attempt.
 *
 * The pipeline, in reading order. All but the worker are pure: no clock, no randomness, no sockets, no threads, no
 * globals; an object may be used by one thread at a time.
 */
#ifndef BACKHOP_H
#define BACKHOP_H

#include <backhop/version.h>
#include <backhop/bytes.h>
#include <backhop/status.h>
#include <backhop/delivery.h>  /* what arrived */
#include <backhop/history.h>   /* what its headers tell */
#include <backhop/policy.h>    /* how long, how often, how random, when to give up */
#include <backhop/plan.h>      /* the decision as data */
#include <backhop/topology.h>  /* the exchanges and queues that a strategy needs */
#include <backhop/declaring.h> /* how they are made, verified, and what refusals mean */
#include <backhop/relay.h>     /* for consumers that can only reject */
#include <backhop/ledger.h>    /* every message in hand, and what to do next */
#include <backhop/worker.h>    /* runs it all on librabbitmq */
#include <backhop/event.h>     /* what happened, for logs */
#include <backhop/metrics.h>   /* and what it adds up to */

#endif
