/*
 * Pacing: how long the thread waits to batch work, and how much it keeps in flight.
 * Measured with bench-worker (bench/) on two cores that RabbitMQ 4.3.6 shares, with messages of 256
 * bytes and prefetch 1000. Internal.
 */
#ifndef BACKHOP_WORKER_ENGINE_PACING_H
#define BACKHOP_WORKER_ENGINE_PACING_H

enum {
    /* The thread naps after a settlement, to acknowledge messages together. The broker's work
     * for an acknowledgement is the same for one message and for a hundred. Consuming 60,000
     * messages took 1.03 s with the nap and 1.67 s without (medians of three). */
    BH__NAP_MS = 1,
    /* The thread rests after it offered messages, before the next read. A broker sends in small
     * pieces, and waking another thread for each costs more than the piece. It rests only if the
     * broker may send as much again. Consuming 60,000 messages took 1.03 s with the rest and
     * 2.11 s without. */
    BH__REST_NS = 200000,
    /* A caller wakes the napping thread when this part of the prefetch is settled. The broker
     * can work with the rest. */
    BH__MANY_OF_PREFETCH = 4,
    /* An acknowledgement waits for an earlier message whose confirm is near: for this time, or
     * until it holds back this part of the prefetch. This saves single acknowledgements. The
     * rate of retries did not change (3.9 s with and without for 60,000). */
    BH__GAP_MS = 50,
    BH__GAP_OF_PREFETCH = 2,
    /* Copies wait while so many bytes of the link are unsent. This bounds memory, and
     * acknowledgements do not wait behind copies. */
    BH__MOST_UNSENT_BYTES = 262144,
    /* The longest wait for an answer. A broker that has its cluster answers within some ms. */
    BH__ANSWER_MS = 10000,
    /* A worker with nothing in hand sends a probe after this silence, and waits for the answer.
     * Within 10 s it goes to the next URI. A probe costs a cluster of three a transaction of 1
     * to 10 ms: 372 to 526 per second, on two cores. */
    BH__SILENCE_MS = 4000,
    BH__PROBE_MS = 6000,
    /* At the end, the thread waits this long for the answer to connection.close, and for
     * confirms of copies in flight. */
    BH__GOODBYE_MS = 2000,
    /* The thread waits between the last acknowledgements and the close of their channel.
     * RabbitMQ 4.3.6 can lose acknowledgements if the channel is closed right after them (89 of
     * 6,000, once). Lost acknowledgements duplicate messages. */
    BH__LINGER_MS = 50,
    /* A connection that lasted this long counts as working, even if nothing arrived. The next
     * attempt to connect is immediate. */
    BH__LASTED_MS = 10000,
    /* While a copy of the guard is not confirmed, no message is offered to callers, for this
     * time at most. A message can kill the process; the original of an unconfirmed copy would
     * then be delivered again. */
    BH__GUARD_MS = 1000,
    /* Messages whose channel closed while a handler had them. The broker delivers them again, to
     * this worker or to another. A worker whose connection was lost is back within a minute. */
    BH__MOST_ORPHANS = 4096,
    BH__ORPHAN_MS = 300000,
    /* The longest poll. Clocks and counters of other systems can overflow. */
    BH__LONGEST_POLL_MS = 3600000
};

#endif
