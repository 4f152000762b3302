/*
 * Versions: the differences as a table. `facts` are the sections of the collection of RabbitMQ's
 * behaviour that tests/vectors/broker repeats.
 */
#include "model/versions.h"

#include <stddef.h>
#include <string.h>

#define AMQP_0_9_1 "AMQP\0\0\011\001"
#define AMQP_1_0 "AMQP\003\001\0\0"
#define MIB (INT64_C(1) << 20)

static const model_version versions[] = {
    {
        .name = "3.10",
        .full = "3.10.8",
        .mechanisms = "AMQPLAIN PLAIN",
        .preferred = AMQP_0_9_1,
        .reads_death_header = 1,          /* 1.3 a copied x-death continues its counters */
        .sorts_headers = 0,               /* 1.4 */
        .drops_cc = 1,                    /* 0.1 CC goes if a dead-letter routing key is set */
        .delivery_limit = INT64_MAX,      /* 5.1 */
        .counting = MODEL_COUNTS_RETURNS, /* 5.2 */
        .has_delayed_retry = 0,           /* 5.4 */
        .quorum_levels = 1,               /* 4 */
        .cancels_on_timeout = 0,          /* 8.1 the channel is closed, for queues of all types */
        .permits_transient = 1,           /* 3.4 */
        .permits_global_qos = 1,          /* 3.4 */
        .frame_min = 4096,                /* 8.2 */
        .max_message_bytes = 128 * MIB,   /* 8.2 */
        .unknown_type_code = 503,         /* 0.2 */
        .counts_first_get = 1,            /* 0.2 x-delivery-count 0 on a first basic.get */
    },
    {
        .name = "4.0",
        .full = "4.0.5",
        .mechanisms = "ANONYMOUS PLAIN AMQPLAIN",
        .preferred = AMQP_1_0,
        .reads_death_header = 0,
        .sorts_headers = 1,
        .drops_cc = 0,
        .delivery_limit = 20,
        .has_negative_limits = 1,
        .counting = MODEL_COUNTS_ACQUIRED,
        .has_delayed_retry = 0,
        .quorum_levels = 2,
        .cancels_on_timeout = 0,
        .permits_transient = 1,
        .permits_global_qos = 1,
        .frame_min = 4096,
        .max_message_bytes = 16 * MIB,
        .unknown_type_code = 406,
        .adds_queue_type = 1,
        .names_access = 1,
    },
    {
        .name = "4.3",
        .full = "4.3.6",
        .mechanisms = "ANONYMOUS PLAIN AMQPLAIN",
        .preferred = AMQP_1_0,
        .reads_death_header = 0,
        .sorts_headers = 1,
        .drops_cc = 0,
        .delivery_limit = 20,
        .has_negative_limits = 1,
        .counting = MODEL_COUNTS_FAILURES,
        .counts_in_classic = 1, /* 5.3 */
        .has_delayed_retry = 1,
        .quorum_levels = 32,
        .cancels_on_timeout = 1, /* 8.1 basic.cancel, of quorum queues alone */
        .permits_transient = 1,
        .permits_global_qos = 0,
        .frame_min = 8192,
        .max_message_bytes = 16 * MIB,
        .unknown_type_code = 406,
        .adds_queue_type = 1,
        .names_access = 1,
        .checks_passive = 1,  /* 8.5 */
        .purges_discards = 1, /* 0.2 */
    },
};

const model_version *model_version_find(const char *name)
{
    size_t count = sizeof versions / sizeof *versions;
    if (!name)
        return &versions[count - 1];
    for (size_t i = 0; i < count; i++)
        if (strcmp(versions[i].name, name) == 0)
            return &versions[i];
    return NULL;
}
