/*
 * Pacing: how long the worker's thread waits for more to do at once, and how much it has under way. Times were
 * measured with bench-worker (core/bench): two cores, which RabbitMQ 4.3.6 shares, messages of 256 bytes, prefetch 1000. Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_PACING_H
#define BACKHOP_WORKER_ENGINE_PACING_H

enum {
    /* After something was settled, before the next look: what is settled meanwhile is acknowledged together, as the
     * broker's work for an acknowledgement is the same for one message and for a hundred. Consuming 60,000 messages took
     * 1.03 s with the nap and 1.67 s without (medians of three). */
    BH__NAP_MS = 1,
    /* After messages were offered to the callers, before the next read: a broker sends in small pieces, and waking another
     * thread for each costs more than what is in it. Only while the broker may still send as much again. Consuming 60,000
     * messages took 1.03 s with the rest and 2.11 s without. */
    BH__REST_NS = 200000,
    /* A caller wakes the napping thread once so large a part of the prefetch is settled: the broker has the rest of it to
     * go on with. */
    BH__MANY_OF_PREFETCH = 4,
    /* What is done behind a message whose confirm is about to come waits for that one: so long, or until it is this part of
     * the prefetch. It spares the broker single acknowledgements; in the rate of retries no difference was seen (3.9 s with
     * and without for 60,000). */
    BH__GAP_MS = 50,
    BH__GAP_OF_PREFETCH = 2,
    /* Bytes that were written to the link and that its socket did not take: further copies wait for these, so that memory
     * is bounded and acknowledgements are not behind them. */
    BH__MOST_UNSENT_BYTES = 262144,
    /* No answer is waited for longer: a broker that is alive, and has its cluster, answers within some ms. */
    BH__ANSWER_MS = 10000,
    /* After the last delivery, confirm or answer, a worker with nothing in hand asks whether the broker is there with its
     * cluster, and waits so long for the answer: within 10 s it is on its way to the next URI. A question costs a cluster of
     * three a transaction of 1 to 10 ms (372 to 526 a second, on two cores that all three share). */
    BH__SILENCE_MS = 4000,
    BH__PROBE_MS = 6000,
    /* At the end: for an answer to the goodbye, and for confirms of copies that are under way. */
    BH__GOODBYE_MS = 2000,
    /* Between the last acknowledgements and the end of their channel: RabbitMQ 4.3.6 can lose some of a burst where the channel
     * is closed right after it (89 of 6,000, once), which doubles messages. */
    BH__LINGER_MS = 50,
    /* A connection that has lasted so long has worked, though nothing came over it: the next one is tried at once. */
    BH__LASTED_MS = 10000,
    /* While a copy of the guard's is not confirmed, no message is offered to the callers, for so long at most: one of them
     * may kill the process, and a copy whose original was not acknowledged by then is there twice. */
    BH__GUARD_MS = 1000,
    /* The longest poll: clocks and counters of other systems end at some point. */
    BH__LONGEST_POLL_MS = 3600000
};

#endif
