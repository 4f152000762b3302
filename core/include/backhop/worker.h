/*
 * Worker: consumes a work queue and retries failed messages, on its own connections and in its own
 * thread.
 *
 *     bh_worker *worker;
 *     bh_worker_new(&worker, policy, topology);
 *     bh_worker_add_uri(worker, bh_str("amqp://guest:guest@localhost/"));
 *     bh_worker_run(worker, handle, listen, NULL);
 *
 * bh_worker_run calls your handler for each message. It returns after bh_worker_stop, which you can
 * call from the handler, from a signal handler or from another thread. An event loop does the same
 * without blocking:
 *
 *     bh_worker_start(worker);
 *     whenever bh_worker_fd(worker) is readable:
 *         while (bh_worker_take(worker, &message, 0) == BH_OK) ...
 *         while (bh_worker_take_event(worker, &event) == BH_OK) ...
 *     bh_settlement failed = {.outcome = BH_OUTCOME_FAILED, .error = bh_str("507 queue is full")};
 *     bh_worker_settle(worker, message, &failed);
 *
 * The worker acknowledges the original after the broker confirms the copy. If something fails in
 * between, the broker delivers the original again: a message can be duplicated, but not lost. The
 * worker reconnects for as long as it runs.
 *
 * Threads: one thread at a time may call the settings, bh_worker_start, bh_worker_run and
 * bh_worker_free. Any thread may call the other functions. After fork(), every call in the child
 * returns BH_ERR_FORKED; the child can only free the worker.
 */
#ifndef BACKHOP_WORKER_H
#define BACKHOP_WORKER_H

#include <backhop/breaker.h>
#include <backhop/metrics.h>
#include <backhop/topology.h>

BH_BEGIN_DECLS

#define BH_WORKER_MOST_EVENTS 1024 /* events that a worker keeps until they are taken */

typedef struct bh_worker bh_worker;
typedef struct bh_delivery bh_delivery;
typedef struct bh_history bh_history;

/* A message that a worker delivered. It is immutable, so any thread may read it. */
typedef struct bh_message bh_message;

/* The outcome of a message, and details about it. Zeroed fields are empty. Strings are copied. */
typedef struct bh_settlement {
    bh_outcome outcome;
    bh_bytes error;          /* text of the error: goes into the copy, events and logs */
    bh_bytes error_class;    /* for events and metrics: "TimeoutError" */
    int64_t retry_after_ms;  /* shortest delay before the retry; 0 or less: none */
    const bh_policy *policy; /* one of the topology's, copied; NULL: the worker's */
    bh_bytes traceparent;    /* W3C span of this attempt: goes into the copy's headers */
    int is_own_fault; /* 1: the failure is the message's fault, not the downstream's: no failure for the breaker */
    int whole_queue;  /* 1: a throttled outcome also opens the breaker for retry_after_ms */
} bh_settlement;

/* Versions of librabbitmq: the one that Backhop was compiled with, and the one that is loaded. */
typedef struct bh_librabbitmq {
    bh_bytes compiled;
    bh_bytes loaded;
} bh_librabbitmq;

/* The settings of a worker. Strings are copied. A time without a comment is 1 to 3,600,000 ms. */
typedef struct bh_worker_settings {
    /*
     * The worker's way to declare the topology at each connect. BH_MODE_VERIFY also
     * verifies rungs that would otherwise be declared on demand. Default: BH_MODE_CREATE.
     */
    bh_mode mode;
    /*
     * The number of unsettled deliveries that the broker sends ahead: 1 to 65,535; default: 100. No
     * more messages can be in hand. 0: consumes nothing, for a worker that only replays.
     *
     * Use 20,000 at most. If 20,000 messages in hand failed at once, RabbitMQ 4.3 took 6 s to
     * settle them; for 65,535 it took 61 s.
     */
    int64_t prefetch;
    int64_t connect_timeout_ms; /* the wait for a connection; default: 10,000 */
    int64_t confirm_timeout_ms; /* the wait for a confirm; default: 30,000 */
    /*
     * The time limit of a handler: 1 to 86,400,000; 0, the default: no limit. If a message is
     * settled later, BH_OUTCOME_OK and BH_OUTCOME_DROPPED become BH_OUTCOME_FAILED. The error is
     * "the handler ran for longer than its limit of 30 s", its class "TimeoutError". The worker
     * aborts no handler. BH_EVENT_BUSY reports that all handlers were busy for that time.
     */
    int64_t handler_timeout_ms;
    /*
     * The delays between attempts to connect, and between attempts to publish a copy that the
     * broker refused; copied. Its limits on attempts and age are ignored. NULL, the default: 100
     * ms, doubled up to 10 s, jitter equal.
     */
    const bh_policy *back_off;
    /*
     * All histories that this worker reads get its legacy counter and wait queues, which are
     * copied. See bh_history_set_legacy_counter and bh_history_add_wait_queue. NULL, the default:
     * none.
     */
    const bh_history *history;
    /*
     * The PEM file of the CAs to trust with amqps://, in place of the system's CAs. The broker's
     * certificate and name are always verified. Empty, the default: the system's CAs.
     */
    bh_bytes ca_file;
    /*
     * The client's certificate for amqps://, if the broker requires one: the PEM file of the
     * certificate and its chain. Empty, the default: none. `key` is the PEM file of its private
     * key, without a passphrase. If `key` is empty, the key is in `cert`.
     *
     * A URI without user and password then logs in by SASL EXTERNAL: RabbitMQ reads the user from
     * the certificate. A URI with a user logs in with its password, as without a certificate. A
     * file that cannot be used is an error of the connect.
     */
    bh_bytes cert;
    bh_bytes key;
    /*
     * The circuit breaker of the downstream that the handlers call, without by_key; kept until the
     * worker is freed. It may serve other workers, too. NULL, the default: none. Each message that
     * is taken has its permit; the settlement records the call.
     *
     * While the breaker is open, messages are held. If it is still open after BH_FLOW_HOLD_MS (30
     * s, adapter/flow.h), the worker cancels its consumer. Each held message then waits without an
     * attempt, about as long as the breaker is open. Then one message at a time probes. No message
     * gets an attempt or is lost by waiting.
     */
    bh_breaker *breaker;
    /*
     * 1: the worker stops if its first start cannot succeed. 0: it tries again. -1, the default: 1
     * for bh_worker_run, which returns the status; 0 for bh_worker_start.
     *
     * It stops for errors that no retry can repair: a refused password, vhost or permission; a
     * missing work queue; a queue with other arguments. The missing queue counts if the worker does
     * not declare it. Two more are a strategy that the broker cannot serve, and a certificate that
     * does not match. The worker then drains within seconds and emits BH_EVENT_DRAINED with the
     * status and the reason.
     *
     * A broker that is not reachable yet never stops the worker. After the worker was ready once,
     * it retries all errors.
     */
    int fail_fast;
    /*
     * By bh_event_kind, 1: the worker emits events of this kind. Default: 0 for events of each
     * message (delivered, succeeded, failed, retried, deferred, dropped), 1 for the others. An
     * event that is off costs nothing.
     */
    int emits[BH_EVENT_LAST];
} bh_worker_settings;

/*
 * Handles a message under bh_worker_run and returns its outcome.
 *
 * To give more than the outcome, call bh_worker_settle before you return. The worker then ignores
 * the returned outcome. If that call fails, the message is settled with the returned outcome. A
 * value that bh_worker_settle would refuse is a failure: the message is retried, with an error that
 * says so.
 */
typedef bh_outcome (*bh_handler)(bh_worker *worker, bh_message *message, void *data);
/* Receives an event under bh_worker_run. The event is freed after the listener returns. */
typedef void (*bh_listener)(bh_worker *worker, const bh_event *event, void *data);

/*
 * Makes a worker in *out for the topology's work queue; free it with bh_worker_free. Policy and
 * topology are copied.
 *
 * Errors:
 *   BH_ERR_STATE: the topology is not built.
 *   BH_ERR_FOREIGN_POLICY: the topology was built for other policies.
 *   BH_ERR_NO_LIBRABBITMQ: the library was built without librabbitmq.
 *   BH_ERR_ARGUMENT: an argument is NULL.
 *   BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology);
/*
 * Stops the worker at once (bh_worker_stop with a limit of 0) and frees it. NULL is allowed.
 *
 * Messages that are not settled go back to the queue; settled ones take effect. Messages and events
 * that were taken stay readable until they are freed.
 */
BH_API void bh_worker_free(bh_worker *self);

/* --------------------------------------------------------------------------------- settings --- */

/* These return BH_ERR_STATE while the worker runs. bh_worker_error returns the reason of a
 * failure. */

/* Fills the settings with their defaults. Does nothing if `out` is NULL. */
BH_API void bh_worker_defaults(bh_worker_settings *out);
/*
 * Sets all settings. If this fails, the settings stay as they were. Without this call a worker has
 * the defaults.
 *
 *     bh_worker_settings settings;
 *     bh_worker_defaults(&settings);
 *     settings.prefetch = 20;
 *     settings.emits[BH_EVENT_RETRIED] = 1;
 *     bh_worker_set(worker, &settings);
 *
 * Errors: BH_ERR_ARGUMENT if an argument is missing, a field is out of range or the breaker is by
 * key;
 *         BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_set(bh_worker *self, const bh_worker_settings *settings);
/*
 * Makes the worker count metrics of all events, even if their emission is off.
 *
 * metrics: copied, with its values and its error types; NULL: counts none, the default. To count
 * for several metrics, set each of them.
 * Errors: BH_ERR_ARGUMENT if the metrics that were set before have other error types, in any order;
 * BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_set_metrics(bh_worker *self, const bh_metrics *metrics);
/*
 * Adds a broker. Several brokers are tried in turn.
 *
 * uri: amqp://user:password@host:port/vhost, or amqps:// for TLS. Each part is percent-escaped; an
 * IPv6 address is in brackets. No vhost, "/" and "/%2f" are the vhost "/". The option
 * ?heartbeat=seconds defaults to 60; 0 turns it off.
 * Errors: BH_ERR_URI; BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_add_uri(bh_worker *self, bh_bytes uri);
/*
 * Sets user and password for a secret that changes. All URIs have them from the next login on. An
 * open connection stays. If the broker refuses the login, the worker tries again, with its
 * back-off.
 *
 * Any thread can call it, before the worker starts and while it runs. bh_worker_error gets no
 * reason. user, password: as they are, without percent-escapes. RabbitMQ takes an OAuth 2 token as
 * the password.
 * Errors: BH_ERR_ARGUMENT if one is missing or has a zero byte, or the user is empty;
 * BH_ERR_FORKED; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_set_credentials(bh_worker *self, bh_bytes user, bh_bytes password);

/* ---------------------------------------------------------------------------------- working --- */

/*
 * Starts the worker if it does not run. Calls the handler for one message after the other, until
 * the worker drained.
 *
 * handler: see bh_handler. listener: may be NULL.
 * Errors:
 *   BH_ERR_ACCESS, BH_ERR_MISSING, BH_ERR_CLASH, BH_ERR_BROKER, BH_ERR_TLS: the worker could not
 *     start (fail_fast of its settings), and bh_worker_error returns the reason.
 *   others: as bh_worker_start.
 */
BH_API bh_status bh_worker_run(bh_worker *self, bh_handler handler, bh_listener listener, void *data);
/*
 * Starts the background thread. A worker that drained can be started again.
 *
 * The thread opens two connections to one broker or cluster, one to consume and one to publish. It
 * declares the topology and consumes. Success and failure of these steps are events.
 * Errors: BH_ERR_STATE if the worker runs, or has no URI; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_start(bh_worker *self);
/*
 * Returns a descriptor that is readable while a message or an event can be taken. Poll it, but do
 * not read from it. It stays the same until bh_worker_close_fd, bh_worker_free or the end of
 * bh_worker_run.
 *
 * Returns -1 in a fork's child, or if the system gives no descriptor before the start.
 */
BH_API int bh_worker_fd(bh_worker *self);
/*
 * Closes the descriptor of bh_worker_fd. Without effect while the worker runs.
 *
 * Call it after BH_EVENT_DRAINED, when nothing polls the descriptor any more. The worker then has
 * no open descriptors. bh_worker_run does this at its end. The next start opens another descriptor.
 */
BH_API void bh_worker_close_fd(bh_worker *self);
/*
 * Takes the next message in *out. Settle it, then free it with bh_message_free.
 *
 * timeout_ms: how long to wait, an hour at most; 0: returns at once.
 * Errors: BH_ERR_TIMEOUT if there is none; BH_ERR_STATE if the worker is stopped or not started;
 * BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_worker_take(bh_worker *self, bh_message **out, int64_t timeout_ms);
/*
 * Settles a message. The background thread makes the plan and executes it. Never blocks.
 *
 * BH_OUTCOME_RELEASED is for a handler that the stop aborted. The message goes back to its queue
 * without an attempt, and the worker emits BH_EVENT_STALE. If the worker was not stopped, this
 * outcome becomes BH_OUTCOME_FAILED: otherwise the message would come again without a delay.
 *
 * Messages may be settled in any order. If the message's channel or connection is lost, the broker
 * delivers the message again. If this worker gets it within five minutes and the message has an id,
 * no handler gets it again. The settlement holds for the new delivery, whether you made it before
 * or after. The id is the message-id, or backhop-id of a retry.
 *
 * Without an id, after that time, or after a stop, the settlement is ignored, and the worker emits
 * BH_EVENT_STALE. BH_OUTCOME_DEFERRED lets the message wait for about retry_after_ms, whatever the
 * policy's limits. It is for a handler that was not called, because the breaker of the message's
 * key is open. Errors:
 *   BH_ERR_STRATEGY: BH_OUTCOME_DEFERRED with the strategies reject and native.
 *   BH_ERR_STATE: the message is settled already; or the worker stopped, and the broker delivers
 *     the message again.
 *   BH_ERR_ARGUMENT: message of another worker, unknown outcome, or malformed traceparent.
 *   BH_ERR_FOREIGN_POLICY: the topology has not all rungs of the policy.
 *   BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_settle(bh_worker *self, bh_message *message, const bh_settlement *settlement);
/*
 * Takes the next event in *out; free it with bh_event_free.
 *
 * The worker keeps the last BH_WORKER_MOST_EVENTS events. If it dropped older ones, BH_EVENT_MISSED
 * has their number.
 * Errors: BH_ERR_TIMEOUT if there is none; BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_worker_take_event(bh_worker *self, bh_event **out);
/*
 * Replays parked messages to the work queue, in the background. BH_EVENT_REPLAYED has the number of
 * messages.
 *
 * Messages that are parked after the replay began stay. Then replays messages of this work queue
 * from the first 10 000 of the unroutable queue (bh_topology_view), if the user may
 * read it. A message that cannot be published stays in its queue. If the reason is the message
 * itself, the replay continues with the next.
 *
 * most: the most messages to replay.
 * Errors: BH_ERR_STATE if the worker does not run, or a replay runs; BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_worker_replay(bh_worker *self, int64_t most);
/*
 * Stops and drains the worker. May be called from a signal handler.
 *
 * No more messages are taken. Messages in hand can be settled for `limit_ms`; after that, they go
 * back to the queue. Settled messages take effect: copies in flight have up to 2 s to be confirmed,
 * and each connection 2 s to be closed. During an alarm of the broker no copy can be confirmed, and
 * the worker ends at the limit. BH_EVENT_DRAINED is the last event.
 *
 * Another call sets the limit again. If you call this before the first start, that start drains at
 * once. After the worker drained, a call has no effect on the next start.
 *
 * limit_ms: 0 to 3 600 000; 0: unsettled messages go back at once.
 * Errors: BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_worker_stop(bh_worker *self, int64_t limit_ms);

/* --------------------------------------------------------------------------------- messages --- */

/* Frees a message. If it is not settled, it stays unacknowledged until the worker stops. NULL is
 * allowed. */
BH_API void bh_message_free(bh_message *self);
BH_API bh_bytes bh_message_body(const bh_message *self);
BH_API int bh_message_redelivered(const bh_message *self);
/* Returns the number that events have of this message (bh_event_message): above 0, unique within
 * a run. */
BH_API int64_t bh_message_number(const bh_message *self);
/* Returns the number of this attempt; 1: the first. Returns 0 if the message cannot be read. */
BH_API int64_t bh_worker_attempt(bh_worker *self, const bh_message *message);
/*
 * Returns 1 if the message may be parked when it is settled like this: after its last attempt, for
 * its age, or as permanent. Returns 0 if not, and if the message cannot be read.
 *
 * If it returns 1, keep the exception for the event PARKED. Jitter can decide the age limit, so it
 * may be retried after all. A copy that is too large for the connection is parked even if this
 * returned 0.
 */
BH_API int bh_worker_may_park(bh_worker *self, const bh_message *message, const bh_settlement *settlement);
/*
 * Reads the message into your own objects, the history with the worker's settings.
 *
 * history: may be NULL.
 * Errors: BH_ERR_CONTENT if the properties are malformed; BH_ERR_ARGUMENT; BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_read(bh_worker *self, const bh_message *message, bh_delivery *delivery, bh_history *history);

/* ---------------------------------------------------------------------------------- looking --- */

/*
 * Adds the worker's counts to these metrics, like bh_metrics_add, and the worker to
 * BH_METRIC_CONSUMERS_READY.
 * Errors: BH_ERR_STATE if the worker counts none (bh_worker_set_metrics); BH_ERR_ARGUMENT;
 * BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_read_metrics(bh_worker *self, bh_metrics *out);
/*
 * Reads the state of the worker and its reason, from any thread. The state changes at once, also if
 * the events of the worker are not taken, or are off.
 */
BH_API void bh_worker_state(bh_worker *self, bh_health *out);
/* Returns the number of copies that are not confirmed yet. Their originals are unacknowledged. */
BH_API int64_t bh_worker_copies(const bh_worker *self);
/* Returns why the last setting, start or run failed, and what to do. Never contains a password. */
BH_API bh_bytes bh_worker_error(const bh_worker *self);
/* Reads the versions of librabbitmq into *out; "" if the library was built without it. */
BH_API void bh_worker_librabbitmq(bh_librabbitmq *out);

BH_END_DECLS

#endif
