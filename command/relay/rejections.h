/* Rejections: checks that RabbitMQ dead-letters the rejected messages of a relay's work queues to
 * the relay. */
#ifndef BACKHOP_COMMAND_REJECTIONS_H
#define BACKHOP_COMMAND_REJECTIONS_H

#include "common/options.h"

#include "relay/relay.h"

/*
 * Complains about each work queue of the relay that has no dead letter exchange, or another one.
 * Reads the management API.
 *
 * Returns EX_OK; EX_UNAVAILABLE if it found such a queue; or the exit code of an API that cannot be
 * read, after a complaint.
 */
int rejections_check(const bh__relay *relay, const char *url, const broker_options *broker);

#endif
