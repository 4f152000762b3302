/*
 * Worker: consumes, asks for the plan and carries it out, on connections of its own that a background thread keeps.
 *
 *     bh_worker *worker;
 *     bh_worker_new(&worker, policy, topology);
 *     bh_worker_add_uri(worker, bh_str("amqp://guest:guest@localhost/"));
 *     bh_worker_run(worker, handle, listen, NULL);   until bh_worker_stop, in the handler, a signal or another thread
 *
 * bh_worker_run is for a program that has nothing else to do. An event loop does the same without blocking:
 *
 *     bh_worker_start(worker);
 *     whenever bh_worker_fd(worker) is readable:
 *         while (bh_worker_take(worker, &message, 0) == BH_OK) ...
 *         while (bh_worker_take_event(worker, &event) == BH_OK) ...
 *     bh_worker_settle(worker, message, BH_OUTCOME_FAILED, bh_str("507 queue is full"), 0);
 *
 * A message is acknowledged after its copy was confirmed, never before. What goes wrong in between leaves the original
 * with the broker, which delivers it again: a duplicate is possible there, a loss is not. Lost connections are made
 * again, for as long as the worker runs.
 *
 * Threads: settings, start, run and free are for one thread at a time; take, settle, settle_by, fail, fail_by, set_error_class, set_traceparent,
 * read, attempt, take_event, read_metrics, copies, replay and stop for any. After fork() the child gets BH_ERR_FORKED for each, and can only free the worker.
 */
#ifndef BACKHOP_WORKER_H
#define BACKHOP_WORKER_H

#include <backhop/declaring.h>
#include <backhop/metrics.h>
#include <backhop/relay.h>

BH_BEGIN_DECLS

#define BH_WORKER_MOST_EVENTS 1024 /* the last events, which a worker keeps until they are taken */

typedef struct bh_worker bh_worker;

/* A message that a worker took. Its content never changes, so any thread may read it. */
typedef struct bh_message bh_message;

/* Says what became of the message; for BH_OUTCOME_FAILED and _PERMANENT it may have called bh_worker_fail with more. */
typedef bh_outcome (*bh_handler)(bh_worker *worker, bh_message *message, void *data);
/* Is told what happened; the event is freed after it returns. */
typedef void (*bh_listener)(bh_worker *worker, const bh_event *event, void *data);

/*
 * A new worker in *out for the topology's work queue; free it with bh_worker_free. It copies policy and topology.
 * BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT, BH_ERR_STATE (the topology is not built), BH_ERR_FOREIGN_POLICY (it was built for
 * other policies), BH_ERR_NO_LIBRABBITMQ.
 */
BH_API bh_status bh_worker_new(bh_worker **out, const bh_policy *policy, const bh_topology *topology);
/*
 * The same for a relay, which is copied: it consumes <ns>.rejected, and decides on each dead letter itself; nobody takes or
 * settles. It declares what all work queues share, and for each of them its parked queue and its way back: for those that the
 * relay names when it connects, for others when their first dead letter arrives; and every 30 s again, as a work queue that
 * was deleted and made anew has lost its way back. A work queue is never declared; one that is missing is BH_EVENT_UNAVAILABLE, and
 * its dead letters go to <ns>.unroutable. Several relays may run side by side. Prefetch: 1000; handler of bh_worker_run: may
 * be NULL; bh_worker_replay: BH_ERR_STATE. BH_ERR_STATE (the relay is not built), others as bh_worker_new.
 */
BH_API bh_status bh_worker_new_relay(bh_worker **out, const bh_relay *relay);
/* Stops where it runs, with a limit of 0 (see bh_worker_stop), and frees the worker: what was taken and not settled goes
 * back to the queue, what was settled takes effect. Messages and events that were taken stay readable until they are
 * freed. NULL is allowed. */
BH_API void bh_worker_free(bh_worker *self);

/*
 * Settings, before bh_worker_start; each returns BH_ERR_STATE once the worker runs.
 *
 * A broker: amqp:// or amqps:// (TLS) with user:password@host:port/vhost, each percent-escaped, IPv6 in brackets, and
 * ?heartbeat=seconds (default 60; 0: off). No vhost, or "/": the vhost "/"; "/%2f" too. More of them are tried in turn.
 * BH_ERR_URI, BH_ERR_NO_MEMORY.
 */
BH_API bh_status bh_worker_add_uri(bh_worker *self, bh_bytes uri);
/* PEM file of the CAs to trust with amqps:// instead of the system's; the peer's certificate and name are always
 * verified. BH_ERR_NO_MEMORY. */
BH_API bh_status bh_worker_set_ca_file(bh_worker *self, bh_bytes path);
/* How to treat the topology at each connect; default BH_MODE_CREATE. With BH_MODE_VERIFY rungs on demand have to be there
 * too. BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_mode(bh_worker *self, bh_mode mode);
/* Unsettled deliveries that the broker sends ahead, and so the most that can be taken at once: 1 to 65535; default 100.
 * 0 consumes nothing: for a worker that only replays. BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_prefetch(bh_worker *self, int count);
/* How long to wait for a connection (default 10 000 ms) and for a confirm (default 30 000 ms): 1 to 3 600 000.
 * BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_connect_timeout_ms(bh_worker *self, int64_t timeout_ms);
BH_API bh_status bh_worker_set_confirm_timeout_ms(bh_worker *self, int64_t timeout_ms);
/* Delays between attempts to connect, and to publish what was not taken; it is copied, and its limits on attempts and
 * age are ignored. Default: 100 ms, doubled up to 10 s, jitter equal. BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_back_off(bh_worker *self, const bh_policy *policy);
/* As bh_history_set_legacy_counter and bh_history_add_wait_queue, for what this worker reads. */
BH_API bh_status bh_worker_set_legacy_counter(bh_worker *self, bh_bytes header);
BH_API bh_status bh_worker_add_wait_queue(bh_worker *self, bh_bytes queue);
/* Whether events of this kind are told: 0 or 1. Default: 0 for those of each message that goes its way (delivered,
 * succeeded, failed, retried, dropped), which cost nothing then; 1 for all others. BH_ERR_ARGUMENT. */
BH_API bh_status bh_worker_set_event(bh_worker *self, bh_event_kind kind, int on);
/* Counts metrics from here on, of all kinds of events, told or not; the classes of errors that these metrics tell apart
 * are told apart, and what they have counted is the beginning. They are copied; NULL: none are counted, as at first. Who
 * counts for several metrics sets each: BH_ERR_ARGUMENT where those before tell other classes of errors apart, in whatever
 * order they are named. BH_ERR_NO_MEMORY. */
BH_API bh_status bh_worker_set_metrics(bh_worker *self, const bh_metrics *metrics);
/*
 * Whether a worker that was never ready gives up where that cannot mend itself: a refused password, vhost or permission,
 * a work queue that is missing and that it does not declare, a clash, a strategy that the broker cannot serve, a
 * certificate that does not match. It has drained then, within seconds, and BH_EVENT_DRAINED has the status and the
 * reason. A broker that is not up yet is waited for; once the worker was ready, everything is tried again without end. 0
 * or 1; default: 1 for bh_worker_run, which returns that status, and 0 for bh_worker_start. BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_worker_set_fail_fast(bh_worker *self, int on);

/*
 * Starts the background thread: it connects (two connections, to one broker or cluster: consume; publish), declares and
 * consumes. What goes well and wrong there are events. BH_ERR_STATE (it runs already; no URI), BH_ERR_NO_MEMORY. A worker that has drained can
 * be started again.
 */
BH_API bh_status bh_worker_start(bh_worker *self);
/* Readable while there is a message or an event to take: the same descriptor from bh_worker_new to bh_worker_free. Only
 * poll it; do not read it. -1 in a fork's child. */
BH_API int bh_worker_fd(bh_worker *self);
/*
 * Takes the next message in *out; free it with bh_message_free, once it is settled. Waits up to `timeout_ms` for one,
 * an hour at most; 0: not at all. BH_ERR_TIMEOUT, BH_ERR_STATE (stopped, or not started), BH_ERR_FORKED,
 * BH_ERR_ARGUMENT.
 */
BH_API bh_status bh_worker_take(bh_worker *self, bh_message **out, int64_t timeout_ms);
/*
 * Says what became of a message, and the delay that it asks for at least, in ms (0, or less: none); the background
 * thread makes the plan and carries it out. Never waits. Messages may be settled in any order. One of a connection that
 * is gone is ignored, as the broker delivers it again: BH_EVENT_STALE. BH_ERR_STATE (settled already; or the worker has
 * stopped, and the broker delivers it again), BH_ERR_ARGUMENT (also a message of another worker), BH_ERR_NO_MEMORY, BH_ERR_FORKED.
 */
BH_API bh_status bh_worker_settle(bh_worker *self, bh_message *message, bh_outcome outcome, bh_bytes error,
                                  int64_t retry_after_ms);
/* The same by another policy than the worker's, one of those that the topology serves (bh_topology_add_policy), as for a
 * class of errors. It is copied; NULL: the worker's. Also BH_ERR_FOREIGN_POLICY: the topology has not all of its waits. */
BH_API bh_status bh_worker_settle_by(bh_worker *self, bh_message *message, const bh_policy *policy, bh_outcome outcome,
                                     bh_bytes error, int64_t retry_after_ms);
/* Of a message that was taken, before it is settled: the class of its error, for events and metrics, as "TimeoutError";
 * and the span of this attempt, for its copy, as bh_plan_set_traceparent. BH_ERR_STATE (settled), BH_ERR_ARGUMENT,
 * BH_ERR_NO_MEMORY, BH_ERR_FORKED. */
BH_API bh_status bh_worker_set_error_class(bh_worker *self, bh_message *message, bh_bytes error_class);
BH_API bh_status bh_worker_set_traceparent(bh_worker *self, bh_message *message, bh_bytes traceparent);
/* Adds what the worker has counted to these metrics (bh_worker_set_metrics), as bh_metrics_add. BH_ERR_STATE (it counts
 * none), BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY, BH_ERR_FORKED. */
BH_API bh_status bh_worker_read_metrics(bh_worker *self, bh_metrics *out);
/* How many copies are not confirmed yet, whose originals are unacknowledged; 0 for NULL and in a fork's child. */
BH_API int64_t bh_worker_copies(const bh_worker *self);
/* Takes the next event in *out; free it with bh_event_free. BH_ERR_TIMEOUT (there is none), BH_ERR_FORKED,
 * BH_ERR_ARGUMENT. The worker keeps the last BH_WORKER_MOST_EVENTS; BH_EVENT_MISSED tells how many went before. */
BH_API bh_status bh_worker_take_event(bh_worker *self, bh_event **out);
/*
 * Sends parked messages back to the work queue: up to `most`, and none that is parked after this begins. Then, where the
 * user may read it, those of this work queue among the first 10 000 of bh_topology_unroutable_queue; others stay there. It
 * happens in the background, once there is a connection; BH_EVENT_REPLAYED tells how many went. One that does not go stays
 * where it is; where it is refused for what it is, those behind it go. BH_ERR_STATE (not running; a replay is under way),
 * BH_ERR_ARGUMENT, BH_ERR_FORKED.
 */
BH_API bh_status bh_worker_replay(bh_worker *self, int64_t most);
/*
 * Stops, draining: no more messages are taken; what was taken can be settled for `limit_ms` (0: not at all), then goes
 * back to the queue as the rest does. What was settled before takes effect in any case: copies that are under way then
 * have up to 2 s to be confirmed, and their originals are acknowledged. BH_EVENT_DRAINED is the last event. Stopping again sets the limit anew; a stop
 * before the first start makes that drain at once. May be called from a signal handler. BH_ERR_ARGUMENT (not 0 to
 * 3 600 000), BH_ERR_FORKED.
 */
BH_API bh_status bh_worker_stop(bh_worker *self, int64_t limit_ms);

/*
 * Starts the worker where it is not, and takes, handles and settles, one message after the other, until it has
 * drained. Listener may be NULL. As bh_worker_start; BH_ERR_ARGUMENT; where it gave up (bh_worker_set_fail_fast):
 * BH_ERR_ACCESS, BH_ERR_MISSING, BH_ERR_CLASH, BH_ERR_BROKER, BH_ERR_TLS, and bh_worker_error tells why.
 */
BH_API bh_status bh_worker_run(bh_worker *self, bh_handler handler, bh_listener listener, void *data);
/* For a handler under bh_worker_run, about its message: the error's text, and the delay asked for at least, in ms (0,
 * or less: none). BH_ERR_STATE (settled), BH_ERR_ARGUMENT, BH_ERR_NO_MEMORY, BH_ERR_FORKED. */
BH_API bh_status bh_worker_fail(bh_worker *self, bh_message *message, bh_bytes error, int64_t retry_after_ms);
/* The same, and the policy, as in bh_worker_settle_by. */
BH_API bh_status bh_worker_fail_by(bh_worker *self, bh_message *message, const bh_policy *policy, bh_bytes error,
                                   int64_t retry_after_ms);

/* Frees what bh_worker_take gave. One that is not settled stays unacknowledged until the worker stops. NULL is
 * allowed. */
BH_API void bh_message_free(bh_message *self);
BH_API bh_bytes bh_message_body(const bh_message *self);
BH_API int bh_message_redelivered(const bh_message *self);
/* By which events tell which message they are about (bh_event_message): above 0, and of one message alone from one start of
 * the worker to the next. */
BH_API int64_t bh_message_number(const bh_message *self);
/* Which attempt this is: 1 for the first. 0 where reading it failed. */
BH_API int64_t bh_worker_attempt(bh_worker *self, const bh_message *message);
/* 1 where the message may be parked if it is settled so, with what bh_worker_settle_by is given: for good, after its last
 * attempt, or for its age, which jitter may decide. What the event of that has to have, as the exception, is worth keeping then. A
 * copy that is too large for the connection is parked whatever this told. 0 too where reading the message failed. */
BH_API int bh_worker_may_park(bh_worker *self, const bh_message *message, const bh_policy *policy, bh_outcome outcome,
                              int64_t retry_after_ms);
/* Reads the message into the caller's own objects; the history as this worker counts. `history` may be NULL.
 * BH_ERR_NO_MEMORY, BH_ERR_ARGUMENT, BH_ERR_FORKED. */
BH_API bh_status bh_worker_read(bh_worker *self, const bh_message *message, bh_delivery *delivery, bh_history *history);

/* What the last setting, start or run that failed met, and what to do. Never holds a password. */
BH_API bh_bytes bh_worker_error(const bh_worker *self);
/* Versions of librabbitmq: what it was compiled with and what is loaded; "" without librabbitmq. */
BH_API bh_bytes bh_worker_librabbitmq_compiled(void);
BH_API bh_bytes bh_worker_librabbitmq_loaded(void);

BH_END_DECLS

#endif
