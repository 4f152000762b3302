/* The sentence of a step. */
#include "ledger/entries.h"

#define SHOWN(bytes) (int)(bytes).size, (bytes).data

static void add_unconfirmed(const bh_ledger *self, bh__report *out)
{
    bh__report_add(out, "%lld cop%s not confirmed within ", (long long)self->step.count,
                   self->step.count == 1 ? "y was" : "ies were");
    bh__report_add_duration(out, self->confirm_timeout_ms);
    bh__report_add(out, ": one goes out again, and the rest once the broker confirms one");
}

static void add_refused(const bh_ledger *self, bh__report *out, bh_bytes reason)
{
    bh__report_add(out, "%s%s%.*s",
                   self->step.status == BH_ERR_CONNECTION ? "each time the copy was sent alone, the connection was lost"
                                                          : "the broker closes the channel over the copy",
                   reason.size ? ": " : "", SHOWN(reason));
}

static void add_returned(const bh_ledger *self, bh__report *out, bh_bytes exchange, bh_bytes routing_key,
                         bh_bytes reason)
{
    if (self->step.status != BH_ERR_PUBLISH) {
        bh_bytes text = reason.size ? reason : bh_status_text(self->step.status);
        bh__report_add(out, "%.*s", SHOWN(text));
        return;
    }
    bh__report_add(out,
                   "the broker returned the copy%s%.*s%s: no queue takes routing key \"%.*s\" of exchange \"%.*s\"",
                   reason.size ? " (" : "", SHOWN(reason), reason.size ? ")" : "", SHOWN(routing_key), SHOWN(exchange));
}

/* Appends what happens next to the message. A replay is not tried again. */
static void add_next(const bh_ledger *self, bh__report *out)
{
    uint32_t index = bh__ledger_find_entry(self, self->step.entry);
    if (index != BH__NO_INDEX && self->entries[index].action == BH_ACTION_REPLAY) {
        bh__report_add(out, "; the message stays in its queue");
    } else if (self->step.event == BH_EVENT_REFUSED) {
        bh__report_add(out, "; its original stays unacknowledged for ");
        bh__report_add_duration(out, self->abandon_ms);
        bh__report_add(out, ", and then comes again");
    } else {
        bh__report_add(out, "; its original stays unacknowledged, and it is published again in ");
        bh__report_add_duration(out, self->step.delay_ms);
    }
}

/* Returns 1 if the exchange or queue of the copy may be missing. */
static int may_be_undeclared(const bh_ledger *self, bh_bytes reason)
{
    return self->step.event == BH_EVENT_RETURNED &&
           (self->step.status == BH_ERR_PUBLISH || bh__find(reason, "NOT_FOUND"));
}

bh_bytes bh_ledger_text(bh_ledger *self, bh_bytes exchange, bh_bytes routing_key, bh_bytes reason, bh_bytes undeclared)
{
    if (!self || !exchange.data || !routing_key.data || !reason.data || !undeclared.data)
        return bh_str("");
    bh__report *out = &self->text;
    bh__report_set(out, self->step.status, "%s", "");
    switch ((int)self->step.event) {
    case BH_EVENT_UNCONFIRMED:
        add_unconfirmed(self, out);
        return bh__report_text(out);
    case BH_EVENT_NACKED:
        bh__report_add(out,
                       "the broker nacked the copy for exchange \"%.*s\", routing key \"%.*s\": a queue there is full "
                       "(reject-publish) or not available",
                       SHOWN(exchange), SHOWN(routing_key));
        break;
    case BH_EVENT_RETURNED:
        add_returned(self, out, exchange, routing_key, reason);
        break;
    case BH_EVENT_REFUSED:
        add_refused(self, out, reason);
        break;
    default:
        return bh_str("");
    }
    if (undeclared.size && may_be_undeclared(self, reason))
        bh__report_add(out, "; was %.*s forgotten?", SHOWN(undeclared));
    add_next(self, out);
    return bh__report_text(out);
}
