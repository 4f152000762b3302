#include "relay_internal.h"
#include "topology_internal.h"

/* The dead letters of quorum queues need more than those of classic queues, and go first. */
enum { PRIORITY = 10 };

/* A text that is put together; not ok: there was no memory for all of it. */
typedef struct line {
    bh__store store;
    int ok;
} line;

static void add(line *out, bh_bytes bytes)
{
    bh__text added;
    out->ok = out->ok && bh__store_add(&out->store, &added, bytes);
    out->store.size -= (size_t)out->ok; /* the zero byte behind it */
}

static void add_text(line *out, const char *text)
{
    add(out, bh_str(text));
}

static bh_bytes text_of(const line *out)
{
    return (bh_bytes){out->ok && out->store.size ? out->store.data : "", out->ok ? out->store.size : 0};
}

/* A name or pattern as a regular expression of the broker's (PCRE). */
static void add_expression(line *out, bh_bytes name)
{
    for (size_t i = 0; i < name.size; i++) {
        bh_bytes byte = {&name.data[i], 1};
        if (*byte.data == '*')
            add_text(out, ".*");
        else if (strchr("\\^$.|?+()[]{}#", *byte.data))
            add_text(out, "\\");
        if (*byte.data != '*')
            add(out, byte);
    }
}

/* What no pattern takes in, where one could: the relay's own queues. */
static void add_own(line *out, const bh_relay *self)
{
    int is_needed = 0;
    for (size_t i = 0; i < self->served_count; i++)
        is_needed |= self->served[i].is_pattern && bh__relay_may_meet_own(self, &self->served[i]);
    if (!is_needed)
        return;
    add_text(out, "(?!");
    add_expression(out, bh__topology_namespace(self->topology));
    add_text(out, "\\.(rejected|unroutable|wait\\..*)$)");
}

/* The names, or the patterns; how many. */
static int add_all(line *out, const bh_relay *self, int of_patterns)
{
    int count = 0;
    for (size_t i = 0; i < self->served_count; i++) {
        if (self->served[i].is_pattern != of_patterns)
            continue;
        add_text(out, count++ ? "|" : "");
        add_expression(out, bh__relay_name_of(self, &self->served[i]));
    }
    return count;
}

/* All queues of the relay, and none that no pattern of its own matches. */
static void add_pattern(line *out, const bh_relay *self)
{
    line patterns = {.ok = 1};
    add_text(out, "^(");
    int has_names = add_all(out, self, 0) > 0;
    if (add_all(&patterns, self, 1)) {
        add_text(out, has_names ? "|(?!.*\\.parked$)" : "(?!.*\\.parked$)");
        add_own(out, self);
        add_text(out, "(");
        add(out, text_of(&patterns));
        add_text(out, ")");
    }
    add_text(out, ")$");
    out->ok = out->ok && patterns.ok;
    bh__store_free(&patterns.store);
}

static void add_definition(line *out, const bh_relay *self, int is_quorum)
{
    add_text(out, "{\"dead-letter-exchange\":");
    out->ok = out->ok && bh__add_json_string(&out->store, bh_topology_queue(self->topology));
    add_text(out, is_quorum ? ",\"dead-letter-strategy\":\"at-least-once\",\"overflow\":\"reject-publish\"}" : "}");
}

/* In single quotes, for a shell. Ends the text that is quoted. */
static void add_argument(line *out, line *quoted)
{
    bh_bytes text = text_of(quoted);
    add_text(out, " '");
    for (size_t i = 0; i < text.size; i++) {
        bh_bytes byte = {&text.data[i], 1};
        add(out, *byte.data == '\'' ? bh_str("'\\''") : byte);
    }
    add_text(out, "'");
    out->ok = out->ok && quoted->ok;
    quoted->store.size = 0;
}

bh_bytes bh_relay_policy_line(bh_relay *self, bh_queue_type type, bh_bytes vhost)
{
    int is_quorum = type == BH_QUEUE_QUORUM;
    char digits[BH__DIGITS];
    if (!self || !self->is_built || !vhost.data)
        return bh_str("");
    bh__topology_lead_home(self->topology);
    self->is_read = 0;
    line out = {.store = {self->policy_line.data, 0, self->policy_line.capacity}, .ok = 1};
    line part = {.ok = 1};
    add_text(&out, "rabbitmqctl set_policy");
    if (!bh__same(vhost, bh_str("/"))) {
        add_text(&out, " -p");
        add(&part, vhost);
        add_argument(&out, &part);
    }
    add_text(&out, " --apply-to queues --priority ");
    add(&out, bh__decimal(digits, PRIORITY + is_quorum));
    add(&part, bh_topology_queue(self->topology));
    add_text(&part, is_quorum ? "-quorum" : "-classic");
    add_argument(&out, &part);
    add_pattern(&part, self);
    add_argument(&out, &part);
    add_definition(&part, self, is_quorum);
    add_argument(&out, &part);
    bh__store_free(&part.store);
    self->policy_line = out.store;
    return text_of(&out);
}
