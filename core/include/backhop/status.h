/* Status: the result of a call that can fail, and the sentence for each code. */
#ifndef BACKHOP_STATUS_H
#define BACKHOP_STATUS_H

#include <backhop/bytes.h>

BH_BEGIN_DECLS

/*
 * X(name, code, sentence): every status. Each language raises one class for each failure.
 *
 * An object's own text says more: bh_policy_error, bh_topology_error, bh_worker_error,
 * bh_event_text.
 */
#define BH_STATUS_LIST(X)                                                                                              \
    X(BH_OK, 0, "no error")                                                                                            \
    X(BH_ERR_NO_MEMORY, -1, "memory could not be allocated; nothing was changed")                                      \
    X(BH_ERR_ARGUMENT, -2, "an argument is missing or out of the range that the function's comment gives")             \
    X(BH_ERR_STATE, -3, "called at the wrong time: close every table and array, build the topology, connect first")    \
    X(BH_ERR_POLICY, -4, "the policy cannot be used; bh_policy_error names the field and what to do")                  \
    X(BH_ERR_NAME, -5, "a name is empty, too long (a work queue's: 247 bytes), not UTF-8, or begins with amq.")        \
    X(BH_ERR_STRATEGY, -6, "the strategy cannot serve this policy; bh_topology_error names one that does")             \
    X(BH_ERR_BROKER, -7, "the broker cannot serve this strategy; bh_topology_error names one that it can")             \
    X(BH_ERR_FRAME, -8, "the message's own headers do not fit this connection's frame_max; publish over a larger one") \
    X(BH_ERR_URI, -9, "the URI is not of the form amqp[s]://user:password@host:port/vhost?heartbeat=seconds")          \
    X(BH_ERR_NO_LIBRABBITMQ, -10, "built without librabbitmq: install librabbitmq-dev and build backhop again")        \
    X(BH_ERR_CONNECTION, -11, "the broker could not be reached or the connection was lost; connect again")             \
    X(BH_ERR_TLS, -12, "TLS failed; check the CA file, the certificate's host name and the port")                      \
    X(BH_ERR_ACCESS, -13, "the broker refused the user, its password, the vhost or a permission")                      \
    X(BH_ERR_CLASH, -14, "an exchange or queue exists with other arguments; the event's text has the remedy")          \
    X(BH_ERR_MISSING, -15, "an exchange or queue does not exist; the event's text names it")                           \
    X(BH_ERR_PUBLISH, -16, "a publish was returned, nacked or not confirmed in time; the original stays unacked")      \
    X(BH_ERR_CANCELLED, -17, "the broker cancelled the consumer")                                                      \
    X(BH_ERR_TIMEOUT, -18, "nothing arrived in the time given")                                                        \
    X(BH_ERR_CHANNEL, -19, "the broker closed the channel; the event's text holds its reply code and text")            \
    X(BH_ERR_FORKED, -20, "the process forked after this object was made: make a new one in the child process")        \
    X(BH_ERR_CONTENT, -21, "the message's own properties are malformed; it stays unacked, move or remove it by hand")  \
    X(BH_ERR_FOREIGN_POLICY, -22,                                                                                      \
      "the topology lacks a wait of this policy: build it for the policy, or add that before")

#define BH_STATUS_ENUM(name, code, sentence) name = (code),
typedef enum bh_status { BH_STATUS_LIST(BH_STATUS_ENUM) BH_STATUS_LAST = -23 } bh_status;
#undef BH_STATUS_ENUM

/* The code's name, as "BH_ERR_POLICY"; "" for a number that is no status. */
BH_API bh_bytes bh_status_name(int status);

/* One sentence: what went wrong and what to do. A number that is no status gets a sentence that
 * says so. */
BH_API bh_bytes bh_status_text(int status);

BH_END_DECLS

#endif
