#include "relay/rejections.h"

#include "common/output.h"
#include "common/policies.h"
#include "relay/internal.h"
#include "topology/internal.h"

#include <string.h>
#include <sysexits.h>

static const char *exchange_of(const json_t *queue)
{
    const char *by_policy = json_string_value(
                   json_object_get(json_object_get(queue, "effective_policy_definition"), "dead-letter-exchange")),
               *own = json_string_value(json_object_get(json_object_get(queue, "arguments"), "x-dead-letter-exchange"));
    return own ? own : by_policy; /* an argument goes before a policy */
}

/* Returns 1 if what consumers of the queue reject arrives at the exchange; else complains. */
static int arrives(const json_t *queue, const char *name, const char *wanted)
{
    const char *exchange = exchange_of(queue);
    if (exchange && strcmp(exchange, wanted) == 0)
        return 1;
    if (exchange)
        complain("queue \"%s\" dead-letters to exchange \"%s\": what its consumers reject does not reach this relay; "
                 "set the policy that --print-policy prints, in place of that exchange",
                 name, exchange);
    else
        complain("queue \"%s\" has no dead letter exchange: RabbitMQ drops what its consumers reject; set the policy "
                 "that --print-policy prints",
                 name);
    return 0;
}

int rejections_check(const bh__relay *relay, const char *url, const broker_options *broker)
{
    management *api;
    policies all;
    json_t *queues = NULL, *queue;
    size_t i;
    int lost = 0, code = management_open(&api, url, broker);
    if (code != EX_OK)
        return code;
    code = policies_read(&all, api);
    if (code == EX_OK)
        code =
            management_list(api, &queues, "queues/%v?columns=name,type,arguments,policy,effective_policy_definition");
    json_array_foreach(queues, i, queue)
    {
        const char *name = json_string_value(json_object_get(queue, "name"));
        if (!name || !bh__relay_find(relay, bh_str(name)))
            continue;
        policies_apply(&all, queue);
        lost += !arrives(queue, name, bh__topology_queue(relay->topology).data);
    }
    json_decref(queues);
    policies_free(&all);
    management_close(api);
    return code == EX_OK && lost ? EX_UNAVAILABLE : code;
}
