#include "relay/internal.h"
#include "topology/internal.h"

/* The policy for quorum queues has more settings than the one for classic queues, and the higher
 * priority. */
enum { PRIORITY = 10 };

/* A text under construction. ok: 0 if memory ran out. */
typedef struct line {
    bh__store store;
    int ok;
} line;

static void add(line *out, bh_bytes bytes)
{
    bh__text added;
    out->ok = out->ok && bh__store_add(&out->store, &added, bytes);
    out->store.size -= (size_t)out->ok; /* without the zero byte */
}

static void add_text(line *out, const char *text)
{
    add(out, bh_str(text));
}

static bh_bytes text_of(const line *out)
{
    return (bh_bytes){out->ok && out->store.size ? out->store.data : "", out->ok ? out->store.size : 0};
}

/* Writes a name or pattern as a regular expression of the broker (PCRE). */
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

/* Excludes the relay's own queues, if a pattern could match them. */
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

/* Writes the names, or the patterns. Returns their number. */
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

/* Writes an expression for all queues of the relay and for no other. */
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

/* Writes a quoted shell argument. Clears the quoted text. */
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
    bh__topology_select_own(self->topology);
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
