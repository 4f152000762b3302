/* Worker: what its sources share. Internal. */
#ifndef BACKHOP_WORKER_INTERNAL_H
#define BACKHOP_WORKER_INTERNAL_H

#include "worker_clock.h"
#include "worker_codec.h"
#include "worker_connection.h"
#include "worker_message.h"
#include "worker_publish.h"

#include <backhop/worker.h>

#include <stdatomic.h>

struct bh_worker {
    const bh_policy *policy;
    bh_topology *topology;
    char *ca_file; /* NULL: the system's */
    int prefetch;
    int64_t connect_timeout_ms;
    int64_t confirm_timeout_ms;
    bh__uri uri;
    char product[64]; /* the broker's, from its server-properties */
    char version[64];

    bh__connection consumer;
    amqp_channel_t channel; /* of the consumer */
    int has_channel;
    int is_consuming;
    char consumer_tag[32];
    int left_count;          /* messages that this consumer left unacked: they take up its prefetch */
    unsigned consumer_count; /* numbers the tags: no two are the same */
    int is_cancelled;        /* the work queue was gone, and its bindings with it, since the topology was declared */
    bh__publisher publisher;
    bh__connection replayer; /* open during bh_worker_replay */
    bh_mode mode;
    void *rungs; /* int64_t: the rungs on demand that were declared, in ms */
    size_t rung_count;
    size_t rung_capacity;

    bh__message message; /* being received, or the current one */
    int is_current;
    int64_t drained_ms;                /* monotonic: no message that was received and not settled is older */
    char random[BH_PLAN_RANDOM_BYTES]; /* for the plans of the message in hand: its copies have one backhop-id */
    bh_delivery *delivery;             /* of the message in hand, as are history and plan */
    bh_history *history;
    bh_plan *plan;
    bh__copy copy;

    bh_policy *back_off; /* of bh_worker_run, where a publish failed */
    char error[BH_HISTORY_MOST_ERROR_BYTES +
               4]; /* from bh_worker_fail; a little more than the plan keeps, so that it cuts */
    size_t error_size;
    int64_t retry_after_ms;
    int is_running;
    atomic_int is_stopped;
    int wake[2]; /* a pipe; bh_worker_stop writes to the second end */

    bh__report report;
    bh__report refusal; /* the first message that run or replay left behind; BH_OK: none */
};

bh_status bh__worker_not_connected(bh_worker *self);
/* Opens a connection with the worker's settings; `role` is for those who look at the broker's connections. */
bh_status bh__worker_open(bh_worker *self, bh__connection *connection, const char *role);
/* Opens the publisher where it is not open. */
bh_status bh__worker_open_publisher(bh_worker *self);
/* Makes or checks the topology as the mode says; the publisher is open. */
bh_status bh__worker_declare(bh_worker *self);
/* Reads delivery and history of a message. */
bh_status bh__worker_read(bh_worker *self, const bh__message *message);
/* Ends the current message, and forgets a copy of it that is pending. */
void bh__worker_release(bh_worker *self);
/* Sends heartbeats where they are due, and hears the publisher. BH_OK, BH_ERR_CONNECTION, BH_ERR_NO_MEMORY. */
bh_status bh__worker_service(bh_worker *self);
/* As bh_worker_take; returns BH_ERR_TIMEOUT early where bh_worker_run was told to stop. */
bh_status bh__worker_take(bh_worker *self, int64_t timeout_ms);
/* Makes sure that the broker still holds the current message for this worker, so that its ack will count. After
 * BH_ERR_CHANNEL, BH_ERR_CANCELLED and BH_ERR_CONNECTION it does not. BH_ERR_NO_MEMORY. */
bh_status bh__worker_verify_hold(bh_worker *self);
/* Leaves the current message unacked. A consumer with nothing else in its prefetch ends; the next take begins another. */
bh_status bh__worker_leave_behind(bh_worker *self);
/* Ends consuming, and gives back what is not settled: RabbitMQ 4.3 counts no basic.nack as a failed delivery. */
void bh__worker_leave(bh_worker *self);
/* Draws the random bytes for a message. BH_ERR_STATE. */
bh_status bh__worker_draw(bh_worker *self);
bh_status bh__worker_no_plan(bh_worker *self, bh_status status);
/* Does what the plan says with a message that `connection` received; the publisher is open where the plan publishes. */
bh_status bh__worker_carry_out(bh_worker *self, bh__connection *connection, const bh__message *message);
/* Whether this status of carrying out is about that message alone. */
int bh__worker_is_refusal(bh_status status);
/* Keeps the report of a message that is left behind, if it is the first. */
void bh__worker_keep_refusal(bh_worker *self);
/* BH_OK, or the refusal that was kept, with its report. */
bh_status bh__worker_end_refusals(bh_worker *self);

#endif
