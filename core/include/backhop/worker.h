/*
 * Worker: consumes, asks for the plan and carries it out, on connections of its own. Blocking; one thread at a time.
 *
 *     bh_worker *worker;
 *     bh_worker_new(&worker, policy, topology);
 *     bh_worker_connect(worker, bh_str("amqp://guest:guest@localhost/"));
 *     bh_worker_declare(worker, BH_MODE_CREATE);
 *     bh_worker_run(worker, handle, NULL);         until the handler or a signal calls bh_worker_stop
 *
 * A message is acknowledged after its copy was confirmed, never before. What goes wrong in between leaves the original
 * with the broker, which delivers it again: a duplicate is possible there, a loss is not.
 */
#ifndef BACKHOP_WORKER_H
#define BACKHOP_WORKER_H

#include <backhop/plan.h>

BH_BEGIN_DECLS

/* How declaring treats the broker. */
typedef enum bh_mode {
    BH_MODE_CREATE, /* make what is missing */
    BH_MODE_VERIFY, /* change nothing; what is missing or different is an error */
    BH_MODE_NONE    /* ask nothing: it is all there */
} bh_mode;

typedef struct bh_worker bh_worker;

/* Says what to do with the message taken: returns the outcome; for BH_OUTCOME_FAILED and _PERMANENT it may have
 * called bh_worker_fail with more. */
typedef bh_outcome (*bh_handler)(bh_worker *worker, void *data);

/*
 * A new worker in *out for the topology's work queue; free it with bh_worker_free. Policy and topology (built) are
 * borrowed and must outlive it. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT, BH_ERR_NO_LIBRABBITMQ.
 */
BH_API bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, bh_topology *topology);
/* Closes the connections and frees the worker; what was taken and not settled goes back to the queue, by basic.nack,
 * which RabbitMQ 4.3 does not count as a failed delivery. NULL is allowed. */
BH_API void bh_worker_free(bh_worker *self);

/* PEM file of the CAs to trust with amqps:// instead of the system's; the peer's certificate and name are always
 * verified. BH_ERR_NO_MEMORY. */
BH_API bh_status bh_worker_set_ca_file(bh_worker *self, bh_bytes path);
/* Unsettled deliveries that the broker sends ahead: 1 to 65535; default 100. BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_prefetch(bh_worker *self, int count);
/* How long to wait for a connection (default 10 000 ms) and for a confirm (default 30 000 ms): 1 to 3 600 000.
 * BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_connect_timeout_ms(bh_worker *self, int64_t timeout_ms);
BH_API bh_status bh_worker_set_confirm_timeout_ms(bh_worker *self, int64_t timeout_ms);
/* As bh_history_set_legacy_counter and bh_history_add_wait_queue, for what this worker reads. */
BH_API bh_status bh_worker_set_legacy_counter(bh_worker *self, bh_bytes header);
BH_API bh_status bh_worker_add_wait_queue(bh_worker *self, bh_bytes queue);

/*
 * Opens two connections (consume; publish) and closes those before: the broker delivers again what was not settled.
 * `uri` is amqp:// or amqps:// (TLS) with user:password@host:port/vhost, each percent-escaped, IPv6 in brackets, and
 * ?heartbeat=seconds (default 60; 0: off). No vhost, or "/": the vhost "/"; "/%2f" too. BH_ERR_URI, BH_ERR_CONNECTION,
 * BH_ERR_TLS, BH_ERR_ACCESS, BH_ERR_NO_MEMORY, BH_ERR_BROKER (it cannot serve the strategy), BH_ERR_STATE (the
 * topology is not built).
 */
BH_API bh_status bh_worker_connect(bh_worker *self, bh_bytes uri);
/* The broker's product and version, from its server-properties; "" before connecting. */
BH_API bh_bytes bh_worker_broker_product(const bh_worker *self);
BH_API bh_bytes bh_worker_broker_version(const bh_worker *self);

/*
 * Makes or checks the topology. BH_ERR_CLASH (exists with other arguments), BH_ERR_MISSING (verify; or the work queue
 * is not there), BH_ERR_ACCESS, BH_ERR_BROKER (no x-delayed-message plugin), BH_ERR_CONNECTION, BH_ERR_CHANNEL,
 * BH_ERR_STATE (not connected), BH_ERR_NO_MEMORY. AMQP shows no bindings, so verify cannot check them; without the
 * permission to configure, it sees only whether a queue or exchange exists. The mode stays: with BH_MODE_CREATE,
 * settling declares a rung on demand before its first use, and the topology again where a part of it was deleted.
 */
BH_API bh_status bh_worker_declare(bh_worker *self, bh_mode mode);

/*
 * Waits up to `timeout_ms` for the next message (the first call begins to consume) and makes it the current one.
 * BH_ERR_TIMEOUT, BH_ERR_STATE (the current one is not settled; not connected), BH_ERR_CANCELLED, BH_ERR_CHANNEL,
 * BH_ERR_CONNECTION, BH_ERR_MISSING (no such queue), BH_ERR_ACCESS, BH_ERR_NO_MEMORY. Heartbeats go out only while a
 * call waits. After BH_ERR_CONNECTION connect again; after the others the next call begins to consume again. Where the
 * queue was gone and the mode is BH_MODE_CREATE, it then declares the topology again, with the errors of
 * bh_worker_declare: the bindings went with the queue.
 */
BH_API bh_status bh_worker_take(bh_worker *self, int64_t timeout_ms);
/* The current message: its body, and its delivery, filled into the caller's own object. BH_ERR_STATE where there is
 * none. */
BH_API bh_bytes bh_worker_body(const bh_worker *self);
BH_API int bh_worker_redelivered(const bh_worker *self);
BH_API bh_status bh_worker_delivery(const bh_worker *self, bh_delivery *out);
/* Which attempt this is: 1 for the first. */
BH_API int64_t bh_worker_attempt(const bh_worker *self);
/* Where the message was first published. */
BH_API bh_bytes bh_worker_exchange(const bh_worker *self);
BH_API bh_bytes bh_worker_routing_key(const bh_worker *self);

/*
 * Settles the current message: makes the plan and carries it out. Where that fails the message stays current, and can
 * be settled again after a while: BH_ERR_PUBLISH (the copy was returned, nacked or not confirmed in time),
 * BH_ERR_CHANNEL (the broker refused the copy for what it is), BH_ERR_MISSING (no such exchange, and the mode is not
 * BH_MODE_CREATE), BH_ERR_CLASH (a rung on demand), BH_ERR_ACCESS, BH_ERR_FRAME, BH_ERR_NO_MEMORY. BH_ERR_STATE (none is
 * current), BH_ERR_ARGUMENT.
 *
 * Before a copy is published the broker is asked whether it still holds the message for this worker. Where it does not,
 * nothing is published, none is current, and the broker will deliver the message again: after BH_ERR_CONNECTION connect
 * again, after BH_ERR_CANCELLED (it was held longer than the consumer timeout) or the consumer's own BH_ERR_CHANNEL take
 * again. From RabbitMQ 4.3 on, one that may be with this worker for more than 30 s has those behind it given back.
 *
 * A copy that was sent and not confirmed because the broker blocks publishers (memory or disk run low) is not sent twice:
 * settling again waits for its confirm, whatever the outcome is then.
 */
BH_API bh_status bh_worker_settle(bh_worker *self, bh_outcome outcome, bh_bytes error, int64_t retry_after_ms);
/* The last plan: its action, delay in ms, and reason for parking. */
BH_API bh_action bh_worker_last_action(const bh_worker *self);
BH_API int64_t bh_worker_last_delay_ms(const bh_worker *self);
BH_API bh_bytes bh_worker_last_reason(const bh_worker *self);

/* For a handler under bh_worker_run: the error's text, and the delay asked for at least, in ms (0: none).
 * BH_ERR_STATE (none is current), BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_fail(bh_worker *self, bh_bytes error, int64_t retry_after_ms);
/*
 * Takes, handles and settles until bh_worker_stop; where settling gives BH_ERR_PUBLISH, it is tried again with
 * back-off, up to 10 s apart, without end. Returns BH_OK when stopped, else as bh_worker_take and bh_worker_settle. A
 * message whose copy could not be published before the stop stays current; the next run begins with it.
 *
 * A message whose copy no broker would take as it is (BH_ERR_FRAME, or BH_ERR_CHANNEL for what it is) stops nobody: it
 * stays unacknowledged until the worker is freed or connects again, and then goes back to the
 * queue. The status and text of the first such message are returned when the run is stopped.
 */
BH_API bh_status bh_worker_run(bh_worker *self, bh_handler handler, void *data);
/* Ends bh_worker_run after the message in hand. May be called from a signal handler or another thread. */
BH_API void bh_worker_stop(bh_worker *self);

/*
 * Sends parked messages back to the work queue: up to `most`, and none that is parked after this call began; *count of
 * them went, also where it fails. One that does not go stays parked; where it is refused for what it is (BH_ERR_FRAME,
 * BH_ERR_CHANNEL), those behind it go, and the first such failure is returned in the end. Errors as bh_worker_connect
 * and bh_worker_settle; BH_ERR_STATE where a message is current.
 */
BH_API bh_status bh_worker_replay(bh_worker *self, int64_t most, int64_t *count);

/* What the last failed call met, and what to do. Never holds a password. */
BH_API bh_bytes bh_worker_error(const bh_worker *self);
/* Versions of librabbitmq: what it was compiled with and what is loaded; "" without librabbitmq. */
BH_API bh_bytes bh_worker_librabbitmq_compiled(void);
BH_API bh_bytes bh_worker_librabbitmq_loaded(void);

BH_END_DECLS

#endif
