/* Versions: the differences between the versions of RabbitMQ. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_VERSIONS_H
#define BACKHOP_COMMAND_MODEL_VERSIONS_H

#include <stdint.h>

/* How a quorum queue counts a returned message. */
typedef enum model_counting {
    MODEL_COUNTS_RETURNS,  /* each return; header x-delivery-count */
    MODEL_COUNTS_ACQUIRED, /* each return; the count has no meaning outside of the queue but travels with dead letters */
    MODEL_COUNTS_FAILURES  /* basic.reject and lost consumers; the returns are in x-acquired-count */
} model_counting;

/* The fields are the rows of versions.c. */
typedef struct model_version {
    const char *name;
    const char *full;
    int reads_death_header;
    int sorts_headers;
    int drops_cc;
    int64_t delivery_limit;  /* INT64_MAX: none */
    int has_negative_limits; /* a negative delivery limit is none */
    model_counting counting;
    int counts_in_classic; /* failed deliveries, for the quorum queues after it */
    int has_delayed_retry;
    int quorum_levels; /* of priority: 1, 2 or 32 */
    int cancels_on_timeout;
    int64_t disconnected_ms;
    int permits_transient;
    int permits_global_qos;
    int frame_min; /* octets */
    int64_t max_message_bytes;
    int unknown_type_code; /* the reply code for an unknown exchange type */
    int counts_first_get;
    int purges_discards;    /* pending dead letters too */
    int adds_queue_type;    /* a declaration without a type is one of a classic queue */
    int names_access;       /* a refusal says which permission is missing */
    const char *mechanisms; /* of logins */
    const char *preferred;  /* the 8 octets of the protocol that a client of another one is offered */
    int checks_passive;     /* a passive declaration needs some permission */
} model_version;

/* Returns a version by its name: "3.10", "4.0", "4.3"; NULL is the newest. Returns NULL if it is
 * unknown. */
const model_version *model_version_find(const char *name);

#endif
