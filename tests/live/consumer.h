/*
 * Consumer: a process of its own, with a worker, that can die. main.c runs it if it is called with
 * these arguments:
 *
 *     test-live consume URL NAMESPACE QUEUE INITIAL_MS MAX_MS PREFETCH KILLER
 *
 * It handles a message by acknowledging it, and writes its body and a line feed to standard output.
 * It kills itself with SIGKILL on the message whose body is KILLER; "*": on the first one. KILLER
 * "": it takes messages and settles nothing, and on SIGTERM stops in good order. The topology is
 * there already.
 */
#ifndef BACKHOP_LIVE_CONSUMER_H
#define BACKHOP_LIVE_CONSUMER_H

#include <backhop/policy.h>
#include <backhop/topology.h>

/* The policy and topology of the process, and of the test that declares them. */
bh_policy *consumer_policy(int64_t initial_ms, int64_t max_ms);
int consumer_run(char **arguments);

#endif
