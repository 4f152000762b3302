#include "relay_internal.h"
#include "topology_internal.h"

/* The dead letters of quorum queues need more than those of classic queues, and go first. */
enum { PRIORITY = 10 };

/* A name or pattern as a regular expression of the broker's (PCRE). */
static void add_expression(bh__report *out, bh_bytes name)
{
    for (size_t i = 0; i < name.size; i++) {
        char byte = name.data[i];
        if (byte == '*')
            bh__report_add(out, ".*");
        else if (strchr("\\^$.|?+()[]{}#", byte))
            bh__report_add(out, "\\%c", byte);
        else
            bh__report_add(out, "%c", byte);
    }
}

/* All queues of the relay; those that no pattern matches are left out where a pattern would take them in. */
static void add_pattern(bh__report *out, const bh_relay *self)
{
    int count[2] = {0, 0};
    for (size_t i = 0; i < self->served_count; i++)
        count[self->served[i].is_pattern]++;
    bh__report_add(out, "^(");
    for (int pass = 0; pass < 2; pass++) {
        int number = 0;
        if (pass == 1 && count[1])
            bh__report_add(out, "%s(?!.*\\.parked$)(", count[0] ? "|" : "");
        for (size_t i = 0; i < self->served_count; i++) {
            if (self->served[i].is_pattern != pass)
                continue;
            bh__report_add(out, "%s", number++ ? "|" : "");
            add_expression(out, bh__relay_name_of(self, &self->served[i]));
        }
        if (pass == 1 && count[1])
            bh__report_add(out, ")");
    }
    bh__report_add(out, ")$");
}

/* In single quotes, for a shell. */
static void add_argument(bh__report *out, bh_bytes text)
{
    bh__report_add(out, " '");
    for (size_t i = 0; i < text.size; i++)
        bh__report_add(out, text.data[i] == '\'' ? "'\\''" : "%c", text.data[i]);
    bh__report_add(out, "'");
}

static int add_definition(bh__store *out, bh_bytes exchange, int is_quorum)
{
    static const char begin[] = "{\"dead-letter-exchange\":";
    const char *end = is_quorum ? ",\"dead-letter-strategy\":\"at-least-once\",\"overflow\":\"reject-publish\"}" : "}";
    bh__text all;
    bh__store json = {NULL, 0, 0};
    int ok = bh__add_json_string(&json, exchange) &&
             bh__store_join(out, &all, bh_str(begin), (bh_bytes){json.data, json.size}, bh_str(end));
    bh__store_free(&json);
    return ok;
}

bh_bytes bh_relay_policy_line(bh_relay *self, bh_queue_type type, bh_bytes vhost)
{
    int is_quorum = type == BH_QUEUE_QUORUM;
    bh__store definition = {NULL, 0, 0};
    bh__report pattern = {.size = 0};
    if (!self || !self->is_built || !vhost.data)
        return bh_str("");
    bh__topology_lead_home(self->topology);
    self->is_read = 0;
    bh__report *out = &self->policy_line;
    bh__report_clear(out);
    bh_bytes exchange = bh_topology_queue(self->topology);
    if (add_definition(&definition, exchange, is_quorum)) {
        bh__report_add(out, "rabbitmqctl set_policy");
        if (!bh__same(vhost, bh_str("/"))) {
            bh__report_add(out, " -p");
            add_argument(out, vhost);
        }
        add_pattern(&pattern, self);
        bh__report_add(out, " --apply-to queues --priority %d %s-%s", is_quorum ? PRIORITY + 1 : PRIORITY,
                       exchange.data, is_quorum ? "quorum" : "classic");
        add_argument(out, bh__report_text(&pattern));
        add_argument(out, bh_str(definition.data));
    }
    bh__report_free(&pattern);
    bh__store_free(&definition);
    return bh__report_text(out);
}
