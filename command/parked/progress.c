/* backhop parked replay: how it reports. */
#include "parked/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

enum { PROGRESS_MS = 250, JSON_PROGRESS_MS = 1000 };
static const double MOST_REMAINING_MS = 1e15;

const char *replay_ending(const replay *self)
{
    return self->end ? self->end : self->mover.end;
}

double replay_rate(const replay *self, int64_t now_ms)
{
    if (self->rate_count == 0)
        return self->options->rate;
    size_t step = (size_t)((now_ms - self->begun_ms) / self->options->ramp_ms);
    if (step < self->rate_count)
        return self->rates[step];
    return self->options->rate > 0 ? self->options->rate : self->rates[self->rate_count - 1];
}

int64_t replay_waiting(const replay *self)
{
    return waiting_again(&self->waits, self->mover.done - self->again);
}

bh_past replay_past(const replay *self)
{
    bh_past past;
    bh_history_past(self->on.history, &past);
    return past;
}

/* Returns how many ms so many messages take at the rates of the ramp, from `at_ms` after its
 * begin. */
static double ramp_takes_ms(const replay *self, double count, double at_ms)
{
    double begun_ms = at_ms;
    for (size_t i = 0; i < self->rate_count; i++) {
        double rate = self->rates[i], end_ms = (double)(i + 1) * (double)self->options->ramp_ms;
        if (at_ms >= end_ms)
            continue;
        if (count * 1000 <= rate * (end_ms - at_ms))
            return at_ms - begun_ms + count * 1000 / rate;
        count -= rate * (end_ms - at_ms) / 1000;
        at_ms = end_ms;
    }
    return at_ms - begun_ms + count * 1000 / replay_rate(self, INT64_MAX);
}

/* Returns how long the rest takes: by the ramp, or without one at the speed so far; -1: not
 * known. */
static int64_t remaining_ms(const replay *self, int64_t now_ms)
{
    int64_t span_ms = now_ms - self->begun_ms, rest = self->wanted - self->mover.done;
    if (self->rate_count > 0) {
        double takes_ms = ramp_takes_ms(self, (double)rest, (double)span_ms);
        return takes_ms < MOST_REMAINING_MS ? (int64_t)takes_ms : -1;
    }
    return self->mover.done > 0 && span_ms > 0 ? rest * span_ms / self->mover.done : -1;
}

static void print_progress_json(replay *self, int64_t now_ms, int is_last)
{
    if (!is_last && now_ms - self->shown_ms < JSON_PROGRESS_MS)
        return;
    self->shown_ms = now_ms;
    int64_t rest_ms = remaining_ms(self, now_ms);
    print_json(must(json_pack(
        "{s:b, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:o}", "progress", 1, "id", self->action.id, "replayed",
        (json_int_t)self->mover.done, "to_replay", (json_int_t)self->wanted, "parked_again", (json_int_t)self->again,
        "waiting_again", (json_int_t)replay_waiting(self), "rate_limit", replay_rate(self, now_ms), "elapsed_ms",
        (json_int_t)(now_ms - self->begun_ms), "remaining_ms", rest_ms < 0 ? json_null() : json_integer(rest_ms))));
    fflush(stdout);
}

void replay_show_progress(replay *self, int64_t now_ms, int is_last)
{
    char remaining[TIME_TEXT] = "";
    if (self->options->parked.progress)
        print_progress_json(self, now_ms, is_last);
    if (!isatty(STDERR_FILENO) || (!is_last && now_ms - self->shown_ms < PROGRESS_MS))
        return;
    self->shown_ms = now_ms;
    int64_t span_ms = now_ms - self->begun_ms > 0 ? now_ms - self->begun_ms : 1, rest_ms = remaining_ms(self, now_ms);
    double rate = (double)self->mover.done * 1000 / (double)span_ms;
    if (rest_ms >= 0 && !is_last)
        show_duration(remaining, rest_ms - rest_ms % 1000);
    fprintf(stderr, "\r\033[K%lld of %lld replayed, %.0f a second%s%s%s, %lld parked again, %lld wait%s",
            (long long)self->mover.done, (long long)self->wanted, rate, *remaining ? ", " : "", remaining,
            *remaining ? " remaining" : "", (long long)self->again, (long long)replay_waiting(self),
            is_last ? "\n" : "");
    fflush(stderr);
}

void replay_print_sample(const replay *self, int64_t position)
{
    char id[256];
    char *error = shown(replay_past(self).last_error, 100), *safe = shown(bh_str(parked_id(&self->on, id)), 64);
    printf("  @%lld  %s  %s\n", (long long)position, *safe ? safe : "(no id)", error);
    free(error);
    free(safe);
}

void replay_print_prospect(const replay *self)
{
    char text[64];
    if (self->options->parked.json) {
        print_json(must(json_pack(
            "{s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "dry_run", 1, "from", json_text(bh_str(self->on.queue)), "to",
            json_text(bh_str(targets_name(&self->to))), "parked", (json_int_t)self->at_first, "to_replay",
            (json_int_t)self->wanted, "cannot_go", (json_int_t)self->refused + (json_int_t)self->homeless,
            "replayed_too_often", (json_int_t)self->spared, "malformed", (json_int_t)self->on.malformed)));
        return;
    }
    say("%s of %lld in \"%s\" would go to %s\n", count_messages(text, self->wanted), (long long)self->at_first,
        self->on.queue, targets_text(&self->to));
    if (self->refused)
        printf("%s cannot go: headers that fit no frame\n", count_messages(text, self->refused));
    if (self->homeless)
        printf("%s cannot go: no work queue of theirs exists, or federation brought them; --to QUEUE names one\n",
               count_messages(text, self->homeless));
    if (self->spared)
        printf("%s stay: replayed %lld times or more\n", count_messages(text, self->spared),
               (long long)self->options->max_replays);
    if (self->on.malformed)
        printf("%s cannot go: malformed properties\n", count_messages(text, self->on.malformed));
}

/* Prints that messages can still fail: the parked queue alone does not show that before their last
 * attempt. */
static void print_waiting(const replay *self)
{
    const char *policy = self->options->policy.file ? "its policy" : "the default policy (--policy FILE names another)";
    char text[64], time[TIME_TEXT];
    int64_t count = replay_waiting(self);
    if (count > 0)
        printf("About %s of them failed and wait for a retry.\n", count_messages(text, count));
    if (self->waits.parked_ms > 0)
        printf("A message that fails each attempt is parked again after %s at most, by %s.\n",
               show_duration(time, self->waits.parked_ms), policy);
}

static const char *stopped_by(const replay *self)
{
    if (is_interrupted())
        return "interrupted";
    return replay_ending(self) ? replay_ending(self) : "";
}

void replay_print_summary(const replay *self, int code)
{
    int64_t others = self->others + self->unseen;
    int is_whole = code == EX_OK && !replay_ending(self) && !is_interrupted();
    char text[64];
    int64_t missing = is_whole ? self->wanted - self->mover.done : 0; /* each that was there has gone */
    if (self->options->parked.json) {
        int64_t in_flight = code == EX_TEMPFAIL && self->mover.unconfirmed > 0 ? self->mover.unconfirmed : 0;
        print_json(
            must(json_pack("{s:b, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "dry_run", 0, "from",
                           json_text(bh_str(self->on.queue)), "to", json_text(bh_str(targets_name(&self->to))),
                           "replayed", (json_int_t)self->mover.done, "to_replay", (json_int_t)self->wanted,
                           "parked_again", (json_int_t)self->again, "waiting_again", (json_int_t)replay_waiting(self),
                           "parked_within_ms", (json_int_t)self->waits.parked_ms, "gone", (json_int_t)self->to.gone,
                           "parked_by_others", (json_int_t)others, "taken_by_others", (json_int_t)missing, "in_flight",
                           (json_int_t)in_flight, "stopped", stopped_by(self))));
        return;
    }
    say("%lld of %lld replayed to %s; ", (long long)self->mover.done, (long long)self->wanted, targets_text(&self->to));
    if (self->to.gone > 0)
        printf("%lld of them are gone; ", (long long)self->to.gone);
    printf("%lld of them parked again", (long long)self->again);
    if (others > 0)
        printf(", %lld others meanwhile", (long long)others);
    if (missing > 0)
        printf("; another consumer or command took %s", count_messages(text, missing));
    puts(".");
    if (self->mover.done > 0 && !self->options->to)
        print_waiting(self);
    if (code == EX_TEMPFAIL && self->mover.unconfirmed >= 0)
        complain("%s in flight: they may come twice, as may the messages that were acknowledged last; the rest is "
                 "parked as before, and the same command goes on",
                 count_messages(text, self->mover.unconfirmed));
    else if (is_interrupted())
        complain("interrupted: the rest is parked as before; the same command goes on");
    else if (replay_ending(self))
        complain("stopped: %s; the rest is parked as before", replay_ending(self));
}

json_t *replay_facts(const replay *self)
{
    const replay_options *o = self->options;
    json_t *facts = parked_facts(&self->on, "replay");
    json_object_set_new(facts, "to", json_text(bh_str(targets_name(&self->to))));
    json_object_set_new(facts, "messages", json_integer(self->wanted));
    if (o->limit >= 0)
        json_object_set_new(facts, "limit", json_integer(o->limit));
    json_object_set_new(facts, "rate", json_real(o->rate));
    json_object_set_new(facts, "ramp", json_text(bh_str(o->ramp ? o->ramp : "")));
    json_object_set_new(facts, "stop_after", json_integer(o->stop_after));
    return facts;
}

json_t *replay_results(const replay *self)
{
    return must(json_pack("{s:I, s:I, s:I, s:I, s:s}", "replayed", (json_int_t)self->mover.done, "parked_again",
                          (json_int_t)self->again, "waiting_again", (json_int_t)replay_waiting(self), "gone",
                          (json_int_t)self->to.gone, "stopped", stopped_by(self)));
}
