/*
 * Answers: whether the broker answers a request that needs its cluster.
 *
 * A node of RabbitMQ 4.3 that lost its cluster keeps its clients, and answers how many messages a
 * queue had. It does not answer a change of bindings. So the request unbinds a binding that does
 * not exist, as the worker's probe does.
 */
#ifndef BACKHOP_COMMAND_ANSWERS_H
#define BACKHOP_COMMAND_ANSWERS_H

#include "common/connection.h"
#include "observe/depths.h"

enum { ANSWERS_LATE_MS = 3000 }; /* after such a silence numbers are stale */

typedef struct answers {
    connection *broker;
    int is_open;        /* the channel */
    int64_t refused_ms; /* monotonic: when the request was refused last, as without a permission; 0: never */
    int64_t sent_ms;    /* monotonic; 0: no answer is outstanding */
} answers;

/* Begins on a new connection, whose frames it takes from now on. */
void answers_begin(answers *self, connection *broker);
/* Sends the request for the first work queue, unless an answer is outstanding. Without a work queue
 * it sends nothing. After a refusal it sends one a minute, because the broker logs each one. */
void answers_request(answers *self, const depths *queues);
/* Returns how long the broker has not answered, in ms; 0: it has. */
int64_t answers_silence_ms(const answers *self);
/* Waits for the answer until `until_ms` at most (monotonic). BH_ERR_CONNECTION. */
bh_status answers_wait(const answers *self, int64_t until_ms);

#endif
