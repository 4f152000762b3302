#include "base/shell.h"
#include "relay/internal.h"
#include "topology/internal.h"

/* The policy for quorum queues has more settings than the one for classic queues, and the higher
 * priority. */
enum { PRIORITY = 10 };

/* Writes a name or pattern as a regular expression of the broker (PCRE). */
static void add_expression(bh__shell_line *out, bh_bytes name)
{
    for (size_t i = 0; i < name.size; i++) {
        bh_bytes byte = {&name.data[i], 1};
        if (*byte.data == '*')
            bh__shell_add_text(out, ".*");
        else if (strchr("\\^$.|?+()[]{}#", *byte.data))
            bh__shell_add_text(out, "\\");
        if (*byte.data != '*')
            bh__shell_add(out, byte);
    }
}

/* Excludes the relay's own queues, if a pattern could match them. */
static void add_own(bh__shell_line *out, const bh__relay *self)
{
    int is_needed = 0;
    for (size_t i = 0; i < self->served_count; i++)
        is_needed |= self->served[i].is_pattern && bh__relay_may_meet_own(self, &self->served[i]);
    if (!is_needed)
        return;
    bh__shell_add_text(out, "(?!");
    add_expression(out, bh__topology_namespace(self->topology));
    bh__shell_add_text(out, "\\.(rejected|unroutable|wait\\..*)$)");
}

/* Writes the names, or the patterns. Returns their number. */
static int add_all(bh__shell_line *out, const bh__relay *self, int of_patterns)
{
    int count = 0;
    for (size_t i = 0; i < self->served_count; i++) {
        if (self->served[i].is_pattern != of_patterns)
            continue;
        bh__shell_add_text(out, count++ ? "|" : "");
        add_expression(out, bh__relay_name_of(self, &self->served[i]));
    }
    return count;
}

/* Writes an expression for all queues of the relay and for no other. */
static void add_pattern(bh__shell_line *out, const bh__relay *self)
{
    bh__shell_line patterns = {.ok = 1};
    bh__shell_add_text(out, "^(");
    int has_names = add_all(out, self, 0) > 0;
    if (add_all(&patterns, self, 1)) {
        bh__shell_add_text(out, has_names ? "|(?!.*\\.parked$)" : "(?!.*\\.parked$)");
        add_own(out, self);
        bh__shell_add_text(out, "(");
        bh__shell_add(out, bh__shell_text(&patterns));
        bh__shell_add_text(out, ")");
    }
    bh__shell_add_text(out, ")$");
    out->ok = out->ok && patterns.ok;
    bh__shell_free(&patterns);
}

static void add_definition(bh__shell_line *out, const bh__relay *self, int is_quorum)
{
    bh__shell_add_text(out, "{\"dead-letter-exchange\":");
    out->ok = out->ok && bh__add_json_string(&out->store, bh__topology_queue(self->topology));
    bh__shell_add_text(out, is_quorum ? ",\"dead-letter-strategy\":\"at-least-once\",\"overflow\":\"reject-publish\"}"
                                      : "}");
}

/* Adds a part as an argument of the shell, and clears it. */
static void add_argument(bh__shell_line *out, bh__shell_line *part)
{
    bh__shell_add_text(out, " ");
    bh__shell_add_argument(out, bh__shell_text(part));
    out->ok = out->ok && part->ok;
    part->store.size = 0;
}

bh_bytes bh__relay_policy_line(bh__relay *self, bh_queue_type type, bh_bytes vhost)
{
    int is_quorum = type == BH_QUEUE_QUORUM;
    char digits[BH__DIGITS];
    if (!self || !self->is_built || !vhost.data)
        return bh_str("");
    bh__topology_select_own(self->topology);
    self->is_read = 0;
    bh__shell_line out = {.store = {self->policy_line.data, 0, self->policy_line.capacity}, .ok = 1};
    bh__shell_line part = {.ok = 1};
    bh__shell_add_text(&out, "rabbitmqctl set_policy");
    if (!bh__same(vhost, bh_str("/"))) {
        bh__shell_add_text(&out, " -p");
        bh__shell_add(&part, vhost);
        add_argument(&out, &part);
    }
    bh__shell_add_text(&out, " --apply-to queues --priority ");
    bh__shell_add(&out, bh__decimal(digits, PRIORITY + is_quorum));
    bh__shell_add(&part, bh__topology_queue(self->topology));
    bh__shell_add_text(&part, is_quorum ? "-quorum" : "-classic");
    add_argument(&out, &part);
    add_pattern(&part, self);
    add_argument(&out, &part);
    add_definition(&part, self, is_quorum);
    add_argument(&out, &part);
    bh__shell_free(&part);
    self->policy_line = out.store;
    return bh__shell_text(&out);
}
