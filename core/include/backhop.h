/*
 * Backhop: retries for RabbitMQ consumers. A failed message goes away, waits and comes back: later
 * each time, only to the queue that failed, unchanged, never lost. After its last attempt it is
 * parked.
 *
 * These headers are for an application that runs a worker. Code that drives another AMQP client
 * includes <backhop/adapter.h>. All functions but the worker's are pure: no clock, no randomness,
 * no sockets, no threads, no globals. One thread at a time may use such an object.
 */
#ifndef BACKHOP_H
#define BACKHOP_H

#include <backhop/version.h>
#include <backhop/bytes.h>
#include <backhop/status.h>
#include <backhop/policy.h>   /* delays and limits */
#include <backhop/breaker.h>  /* spares a downstream that is down */
#include <backhop/topology.h> /* the exchanges, queues and bindings that a strategy needs */
#include <backhop/worker.h>   /* consumes, retries and parks, on librabbitmq */
#include <backhop/event.h>    /* what happened, for logs and listeners */
#include <backhop/metrics.h>  /* counts of what happened, for Prometheus and OpenTelemetry */

#endif
