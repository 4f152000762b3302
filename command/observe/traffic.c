/* backhop doctor, by the management API: what others do with the messages that Backhop routes. */
#include "observe/traffic.h"

#include "common/output.h"
#include "parked/parked.h"
#include "topology/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { TEXT = 1200 };

/* ------------------------------------------------------------------------------------- bindings */

/* Returns 1 if an exchange leads to work queues: applications of a namespace share it. */
static int is_shared(const bh_topology *topology, const char *exchange)
{
    bh_declaration it;
    for (size_t i = 0; bh_topology_declaration(topology, i, &it) == BH_OK; i++)
        if (it.kind == BH_DECLARE_BINDING && strcmp(it.source.data, exchange) == 0 &&
            strcmp(it.name.data, bh__topology_queue(topology).data) == 0)
            return 1;
    return 0;
}

/* Returns 1 if the topology declares the binding, or if another application's work queue has this
 * key. */
static int is_expected(const bh_topology *topology, const char *exchange, const json_t *binding)
{
    const char *to = json_text_of(binding, "destination"), *key = json_text_of(binding, "routing_key");
    int has_key = 0;
    bh_declaration it;
    for (size_t i = 0; bh_topology_declaration(topology, i, &it) == BH_OK; i++) {
        if (it.kind != BH_DECLARE_BINDING || strcmp(it.source.data, exchange) != 0 ||
            strcmp(it.routing_key.data, key) != 0)
            continue;
        if (strcmp(it.name.data, to) == 0)
            return 1;
        has_key = 1;
    }
    return !has_key && is_shared(topology, exchange);
}

/* Reports what gets copies of the messages of an exchange. */
static int examine_bindings(doctor *self, const bh_topology *topology, const char *exchange)
{
    json_t *found = NULL;
    size_t i;
    const json_t *binding;
    char what[TEXT];
    int code = management_get(self->management, &found, "exchanges/%v/%s/bindings/source", exchange);
    json_array_foreach(found, i, binding)
    {
        const char *to = json_text_of(binding, "destination");
        if (is_expected(topology, exchange, binding))
            continue;
        snprintf(what, sizeof what, "%s \"%s\" is bound to exchange \"%s\" with routing key \"%s\".",
                 strcmp(json_text_of(binding, "destination_type"), "exchange") == 0 ? "Exchange" : "Queue", to,
                 exchange, json_text_of(binding, "routing_key"));
        doctor_find(self, 1, what, "It gets a copy of each retry.",
                    "unbind it; to see retries, use events, metrics or 'backhop top'");
    }
    json_decref(found);
    return code;
}

/* ----------------------------------------------------------------------------------- federation */

static const json_t *policy_named(const json_t *list, const char *name)
{
    size_t i;
    const json_t *policy;
    json_array_foreach(list, i, policy)
    {
        if (strcmp(json_text_of(policy, "name"), name) == 0)
            return json_object_get(policy, "definition");
    }
    return NULL;
}

static int is_federating(const json_t *definition)
{
    return json_object_get(definition, "federation-upstream") || json_object_get(definition, "federation-upstream-set");
}

/* Each passage of a retry publishes a copy at the other broker. A policy that many exchanges have
 * is one finding. */
void traffic_examine_exchange(doctor *self, const char *exchange, const json_t *found)
{
    char what[TEXT];
    const char *policy = json_text_of(found, "policy");
    if (is_federating(policy_named(self->policies.users, policy)) && doctor_is_new(self, "federation", policy)) {
        snprintf(what, sizeof what, "Policy \"%s\" federates exchange \"%s\".", policy, exchange);
        doctor_find(self, 1, what,
                    "Each retry is published at the other broker too: copies collect in its unroutable queue.",
                    "give the policy a pattern that leaves Backhop's exchanges out, as ^(?!backhop[.]|amq[.])");
    }
}

/* ------------------------------------------------------------------------------------ the relay */

/* Reports rejected messages that no relay takes. */
static int examine_rejected(doctor *self, const bh_topology *topology)
{
    static const char suffix[] = "unroutable"; /* behind the namespace and a dot */
    bh_bytes unroutable = bh__topology_unroutable_queue(topology);
    json_t *found = NULL;
    char name[300], what[TEXT], count[64];
    if (unroutable.size < sizeof suffix) /* strategy native */
        return EX_OK;
    snprintf(name, sizeof name, "%.*srejected", (int)(unroutable.size - strlen(suffix)), (const char *)unroutable.data);
    if (!doctor_is_new(self, "rejected", name))
        return EX_OK;
    int code = management_get(self->management, &found, "queues/%v/%s", name);
    json_int_t ready = json_integer_value(json_object_get(found, "messages"));
    if (ready > 0 && json_integer_value(json_object_get(found, "consumers")) == 0) {
        snprintf(what, sizeof what, "%s in queue \"%s\", which no relay reads.", count_messages(count, ready), name);
        doctor_find(self, 1, what, "Messages that consumers rejected wait there, and no retry comes.",
                    "start 'backhop relay'");
    }
    json_decref(found);
    return code;
}

int traffic_examine(doctor *self, const bh_topology *topology)
{
    bh_declaration it;
    int code = examine_rejected(self, topology);
    for (size_t i = 0; code == EX_OK && bh_topology_declaration(topology, i, &it) == BH_OK && !is_interrupted(); i++) {
        const char *name = it.name.data;
        if (it.kind == BH_DECLARE_EXCHANGE && (is_shared(topology, name) || doctor_is_new(self, "bindings of", name)))
            code = examine_bindings(self, topology, name);
    }
    return code;
}
