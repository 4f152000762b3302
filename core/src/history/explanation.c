/*
 * Explains a history to an operator.
 */
#include "delivery/internal.h"
#include "history/internal.h"

#include <string.h>

/* Appends ", first at 2023-11-14 22:13:20 UTC". Appends nothing for -1, an unknown time. */
static void add_first(bh__report *out, int64_t epoch_s)
{
    enum {
        DAY_S = 86400,
        ERA_DAYS = 146097,
        DAYS_TO_1970 = 719468
    }; /* days count from 1 March of the year 0; an era has 400 years */
    if (epoch_s < 0)
        return;
    int64_t days = epoch_s / DAY_S + DAYS_TO_1970, second = epoch_s % DAY_S;
    int64_t era = days / ERA_DAYS, day_of_era = days % ERA_DAYS;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153; /* 0 is March */
    int64_t day = day_of_year - (153 * month + 2) / 5 + 1;
    month += month < 10 ? 3 : -9;
    long long year = era * 400 + year_of_era + (month <= 2);
    bh__report_add(out, ", first at %04lld-%02d-%02d %02d:%02d:%02d UTC", year, (int)month, (int)day,
                   (int)(second / 3600), (int)(second / 60 % 60), (int)(second % 60));
}

static const char *counted_by(bh_source source)
{
    switch (source) {
    case BH_SOURCE_LEGACY:
        return " (by the counter of an earlier set-up)";
    case BH_SOURCE_X_DEATH:
        return " (by the broker's x-death records)";
    case BH_SOURCE_DELIVERY_COUNT:
        return " (by the queue's delivery count)";
    default:
        return "";
    }
}

static void add_failures(bh__report *out, const bh_past *past)
{
    int64_t first_ms = past->first_failure_ms;
    if (past->attempts == 0) {
        bh__report_add(out, past->crashes ? "No failure of it was reported." : "It never failed.");
        return;
    }
    bh__report_add(out, "It failed ");
    bh__report_add_times(out, past->attempts);
    bh__report_add(out, "%s", counted_by(past->source));
    add_first(out, first_ms < 0 ? -1 : first_ms / 1000);
    bh__report_add(out, ".");
}

static void add_parked(bh__report *out, bh_bytes reason)
{
    static const struct {
        const char *reason, *words;
    } known[] = {
        {"exhausted", "its attempts were used up"},
        {"permanent", "its handler said that no attempt can succeed"},
        {"too-old", "it was too old for another attempt"},
        {"oversized", "its headers left no room for a retry's"},
        {"poison", "its consumer was lost too often while it, or a message beside it, was in hand"},
    };
    bh__report_add(out, "\nIt was parked because ");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (bh__same(reason, bh_str(known[i].reason))) {
            bh__report_add(out, "%s.", known[i].words);
            return;
        }
    bh__report_add_shown(out, reason, 1);
    bh__report_add(out, ".");
}

static void add_origin(bh__report *out, bh_bytes exchange, bh_bytes routing_key)
{
    bh__report_add(out, "\nIt was first published to ");
    if (exchange.size > 0) {
        bh__report_add(out, "exchange \"");
        bh__report_add_shown(out, exchange, 1);
        bh__report_add(out, "\" with routing key \"");
    } else {
        bh__report_add(out, "queue \"");
    }
    bh__report_add_shown(out, routing_key, 1);
    bh__report_add(out, "\".");
}

static void add_death(bh__report *out, const bh_death *death)
{
    bh__report_add(out, "\nThe broker dead-lettered it from queue ");
    bh__report_add_shown(out, death->queue, 1);
    bh__report_add(out, " ");
    bh__report_add_times(out, death->count);
    bh__report_add(out, " (");
    bh__report_add_shown(out, death->reason, 1);
    bh__report_add(out, ")");
    add_first(out, death->first_time_s);
    bh__report_add(out, ".");
}

static void add_line(bh__report *out, const char *before, bh_bytes text, const char *behind)
{
    bh__report_add(out, "\n%s", before);
    bh__report_add_shown(out, text, 1);
    bh__report_add(out, "%s", behind);
}

bh_bytes bh_history_explanation(bh_history *self)
{
    if (!self || !bh__history_is_read(self))
        return bh_str("");
    const bh_past past = bh__history_past(self);
    bh__report *out = bh__history_story(self);
    bh__report_clear(out);
    add_failures(out, &past);
    if (past.deferrals > 0) {
        bh__report_add(out, "\nIts handler or its breaker deferred it ");
        bh__report_add_times(out, past.deferrals);
        bh__report_add(out, ", because the downstream was busy or down. A deferral is no attempt.");
    }
    if (past.last_error.size > 0)
        add_line(out, "The last error was: ", past.last_error, "");
    if (past.last_delay_ms >= 0) {
        bh__report_add(out, "\nIts last wait was ");
        bh__report_add_duration(out, past.last_delay_ms);
        bh__report_add(out, ".");
    }
    if (past.parked.size > 0)
        add_parked(out, past.parked);
    if (bh__history_exchange(self).size > 0 || bh__history_routing_key(self).size > 0)
        add_origin(out, bh__history_exchange(self), bh__history_routing_key(self));
    if (bh__history_id(self).size > 0)
        add_line(out, "All its attempts have the id ", bh__history_id(self), ".");
    bh_death death;
    for (size_t i = 0; bh_history_death(self, i, &death) == BH_OK; i++)
        add_death(out, &death);
    if (past.crashes > 0) {
        bh__report_add(out, "\nIts consumer was lost, or gave it back, ");
        bh__report_add_times(out, past.crashes);
        bh__report_add(out, " while it, or a message beside it, was in hand.");
    }
    if (past.replays > 0) {
        bh__report_add(out, "\nIt was sent back from the parked queue ");
        bh__report_add_times(out, past.replays);
        bh__report_add(out, ".");
    }
    for (size_t i = 0; bh_history_problem(self, i).size > 0; i++)
        add_line(out, "Ignored: ", bh_history_problem(self, i), "");
    return bh__report_text(out);
}
