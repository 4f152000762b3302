/*
 * backhop parked replay: sends parked messages back.
 *
 * The pure core plans each copy (bh_plan_replay), and the mover sends it. A replay goes in rounds.
 * A round takes a snapshot of the queue, keeps as many copies as fit the memory, and sends them.
 * Meanwhile it holds all other messages, and then gives them back in one go, so that their order
 * stays.
 */
#include "parked/replay.h"

#include "common/command.h"
#include "topology/internal.h"
#include "history/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum {
    LOOK_MS = 200, /* how often to look for messages that are parked again */
    SAMPLES = 5
};
static const double LEAST_RATE = 0.001; /* one message in 1000 s */

/* ---------------------------------------------------------------------------------------- rates */

static void read_ramp(replay *self, const char *text)
{
    char *end;
    for (const char *at = text; *at; at = end + (*end == ',')) {
        double rate = strtod(at, &end);
        if (end == at || !(rate >= LEAST_RATE) || (*end && *end != ',') || self->rate_count == MOST_RAMP)
            options_refuse("--ramp: '%s' is no list of rates of 0.001 or more, as 1,2,5,20", text);
        self->rates[self->rate_count++] = rate;
    }
}

/* When the rate lets the next copy go. */
static int64_t next_ms(void *data, int64_t now_ms)
{
    const replay *self = data;
    return replay_rate(self, now_ms) > 0 ? (int64_t)ceil(self->paid_ms) : now_ms;
}

static void pay(void *data, int64_t now_ms)
{
    replay *self = data;
    double rate = replay_rate(self, now_ms), now = (double)now_ms;
    if (rate > 0)
        self->paid_ms = (self->paid_ms > now - 1000 ? self->paid_ms : now) + 1000 / rate;
}

/* --------------------------------------------------------------------------------- parked again */

static void remember(void *data, uint64_t mark)
{
    replay *self = data;
    marks_add(&self->sent, mark);
}

/* Returns 1 if this run replayed the message that was read last: it is parked again. */
static int is_again(const replay *self)
{
    int64_t replays = replay_past(self).replays;
    return replays > 0 && marks_have(&self->sent, mark_of(bh__history_id(self->on.history), replays));
}

/* --------------------------------------------------------------------------------------- copies */

/* Plans the copy of the message that was read last: BH_OK, or why it cannot go. */
static bh_status plan_copy(replay *self)
{
    char random[BH_PLAN_RANDOM_BYTES];
    bh_status status = mover_begin_plan(&self->mover, self->plan, random);
    const bh_topology *to = targets_find(&self->to, self->on.delivery);
    if (status == BH_OK && !to)
        return BH_ERR_MISSING;
    if (status == BH_OK)
        status = bh_plan_replay(self->plan, self->on.delivery, self->on.history, to, (bh_bytes){random, sizeof random});
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    return status;
}

/* Plans the copy, and checks that it can be sent. */
static bh_status try_copy(replay *self, const bh_message *message)
{
    bh_status status = plan_copy(self);
    return status == BH_OK ? mover_try(&self->mover, message, self->plan) : status;
}

/* Keeps the copy that was planned last. Returns false if it fits no frame. */
static int keep_copy(replay *self, bh_message *message)
{
    bh_copy planned;
    bh_plan_copy(self->plan, &planned);
    uint64_t of_copy = mark_of(planned.id, replay_past(self).replays + 1);
    return mover_keep(&self->mover, message, self->plan, of_copy) == BH_OK;
}

/* Takes a message of the snapshot: keeps its copy, or only holds it. */
static void take(void *data, bh_message *message)
{
    replay *self = data;
    int is_wanted = self->taken < self->wanted,
        is_read = (is_wanted || self->mover.done > 0) && parked_read(&self->on, message) == BH_OK;
    if (is_read && is_again(self)) {
        self->again++;
        bh_message_free(message);
        return;
    }
    int is_meant = is_read && is_wanted && parked_fits(&self->on);
    int is_spared =
        is_meant && self->options->max_replays >= 0 && replay_past(self).replays >= self->options->max_replays;
    int is_kept = is_meant && !is_spared && mover_has_room(&self->mover);
    self->skipped |= is_meant && !is_spared && !is_kept;
    if (is_kept && plan_copy(self) == BH_OK && keep_copy(self, message))
        self->taken++;
    else
        bh_message_free(message);
}

/* ----------------------------------------------------------------------------- while it goes on */

/* The queue has more messages than this run left in it if some were parked since the look. Only
 * another look shows if they were replayed: if they could be enough to stop, the round ends. Looks
 * after the first take half of the time at most. */
static void look_for_parked_again(replay *self, int64_t now_ms)
{
    int64_t ready;
    if (now_ms - self->looked_ms < LOOK_MS || replay_ending(self) || self->is_late)
        return;
    self->looked_ms = now_ms;
    if (connection_look(self->on.broker, self->on.queue, &ready, NULL) != BH_OK)
        return;
    int64_t more = ready - (self->mover.shot.ready - self->mover.shot.taken);
    self->unseen = more > 0 ? more : 0;
    self->is_late = self->options->stop_after > 0 && self->unseen > 0 &&
                    self->again + self->unseen >= self->options->stop_after && now_ms >= self->trusted_ms;
}

/* After a look at all: counts messages that others parked meanwhile. */
static void looked(void *data)
{
    replay *self = data;
    int64_t now_ms = bh__monotonic_ms(),
            others = self->mover.shot.total - self->again - (self->at_first - self->mover.done);
    self->others = others > 0 ? others : 0;
    self->unseen = 0;
    if (self->options->stop_after > 0 && self->again >= self->options->stop_after && self->mover.done < self->wanted)
        self->end = "replayed messages are parked again";
    self->trusted_ms = self->mover.done > 0 ? now_ms + (now_ms - self->round_ms) : now_ms;
    self->round_ms = now_ms;
}

/* Stops if too many replayed messages wait for a retry: with a policy of many attempts it takes
 * long until they are parked again. Two looks must count them. */
static void look_for_waiting(replay *self, int64_t now_ms)
{
    int64_t stop_after = self->options->stop_after, done = self->mover.done;
    waiting_look(&self->waits, now_ms, 0);
    int64_t lasting = self->waits.lasting, failed = lasting + self->again < done ? lasting + self->again : done;
    if (stop_after > 0 && lasting > 0 && failed >= waiting_limit(stop_after, done, self->waits.before))
        self->end = "replayed messages failed again and wait for a retry";
}

/* Runs while copies go: ends the round if it must end, or gives back the held messages for a moment
 * if it must. */
static void working(void *data, int64_t now_ms)
{
    replay *self = data;
    look_for_parked_again(self, now_ms);
    look_for_waiting(self, now_ms);
    replay_show_progress(self, now_ms, 0);
    self->is_late |= now_ms - self->round_ms >= self->options->hold_ms;
    if (targets_drop_messages(&self->to, self->mover.done, now_ms))
        self->end = "the queue that they go to drops messages";
    self->mover.is_held_back = self->end || self->is_late;
}

/* One snapshot. EX_OK, or complains and returns the exit code. */
static int play_round(replay *self)
{
    self->taken = self->mover.done;
    self->again = 0;
    self->skipped = self->is_late = self->mover.is_held_back = 0;
    self->round_ms = bh__monotonic_ms();
    return mover_play(&self->mover, self->on.queue);
}

static int play(replay *self)
{
    int code = EX_OK;
    self->mover.take = take;
    self->mover.looked = looked;
    self->mover.working = working;
    self->mover.next_ms = next_ms;
    self->mover.went = pay;
    self->mover.confirmed = remember;
    self->mover.data = self;
    waiting_start(&self->waits);
    self->begun_ms = bh__monotonic_ms();
    replay_show_progress(self, self->begun_ms, 1);
    self->paid_ms = (double)self->begun_ms;
    marks_init(&self->sent, self->wanted);
    do
        code = code == EX_OK ? play_round(self) : code;
    while (code == EX_OK && !replay_ending(self) && self->mover.done < self->wanted &&
           (self->skipped || self->is_late));
    if (code == EX_OK && self->unseen > 0)
        code = play_round(self); /* only looks */
    if (code == EX_OK)
        waiting_look(&self->waits, bh__monotonic_ms(), 1);
    replay_show_progress(self, bh__monotonic_ms(), 1);
    return code;
}

/* -------------------------------------------------------------------------------------- dry run */

/* Counts the messages that would go, by looking at all. */
static int count_all(replay *self)
{
    snapshot shot;
    bh_status status;
    int64_t fits = 0;
    int64_t limit = self->options->limit, samples = limit >= 0 && limit < SAMPLES ? limit : SAMPLES;
    int shows = !self->options->parked.json && (self->options->dry_run || !self->options->yes);
    int code = snapshot_begin(&shot, self->on.broker, self->on.queue);
    if (code != EX_OK)
        return code;
    self->at_first = shot.total;
    for (bh_message *message; (message = snapshot_next(&shot)) != NULL; bh_message_free(message)) {
        parked_show_progress(&self->on, &shot, 0);
        if (!parked_reads(&self->on, message))
            continue;
        if (self->options->max_replays >= 0 && replay_past(self).replays >= self->options->max_replays) {
            self->spared++;
        } else if ((status = try_copy(self, message)) != BH_OK) {
            *(status == BH_ERR_MISSING ? &self->homeless : &self->refused) += 1;
        } else if (fits++ < samples && shows) {
            replay_print_sample(self, shot.given);
        }
    }
    parked_show_progress(&self->on, &shot, 1);
    self->wanted = limit >= 0 && limit < fits ? limit : fits;
    if (self->wanted > SAMPLES && shows)
        printf("  ...\n");
    return snapshot_end(&shot);
}

/* ----------------------------------------------------------------------------------------- main */

/* Begins to watch the wait queues of the consumers' policy. */
static void watch_waiting(replay *self)
{
    const policy_options *given = &self->options->policy;
    bh_policy *policy = given->file ? setup_policy(given) : parked_policy(&self->on.settings);
    bh_topology *topology = setup_topology(&self->on.settings, self->on.work_queue, policy);
    bh_strategy strategy = bh__topology_strategy(topology);
    waiting_begin(&self->waits, self->on.broker, topology, policy);
    if (!given->file && (strategy == BH_STRATEGY_REJECT || strategy == BH_STRATEGY_NATIVE))
        self->waits.parked_ms = -1; /* parked_policy makes no default policy for these */
    bh_topology_free(topology);
    bh_policy_free(policy);
}

static int run(replay *self, const char *queue)
{
    char what[400];
    int code = parked_go_to(&self->on, queue);
    if (code != EX_OK)
        return code;
    code = targets_open(&self->to, &self->on, self->options->to);
    if (code == EX_OK)
        code = mover_open(&self->mover, self->on.broker);
    if (code == EX_OK && !self->options->dry_run && !self->options->to)
        watch_waiting(self);
    if (code == EX_OK)
        code = count_all(self);
    if (code != EX_OK)
        return code;
    if (self->options->dry_run || !self->options->yes)
        replay_print_prospect(self);
    if (!self->options->dry_run)
        code = action_check(&self->options->action, self->wanted);
    if (code != EX_OK)
        return code;
    if (self->options->dry_run || self->wanted == 0) {
        if (!self->options->dry_run && self->options->yes)
            replay_print_summary(self, EX_OK);
        return EX_OK;
    }
    snprintf(what, sizeof what, "replay them to %s", targets_text(&self->to));
    if (!self->options->yes)
        code = parked_confirm(self->wanted, what);
    if (code == EX_OK)
        code = action_begin(&self->action, &self->options->action, replay_facts(self));
    if (code != EX_OK)
        return code;
    code = play(self);
    if (code == EX_OK && targets_dropped_messages(&self->to, self->mover.done) && !replay_ending(self))
        self->end = "the queue that they go to drops messages";
    replay_print_summary(self, code);
    if (code == EX_OK && replay_ending(self))
        code = self->end ? EX_TEMPFAIL : self->mover.end_code;
    action_end(&self->action, code, replay_results(self));
    return code;
}

static void destroy(replay *self)
{
    targets_close(&self->to);
    waiting_free(&self->waits);
    bh_plan_free(self->plan);
    mover_close(&self->mover);
    marks_free(&self->sent);
    parked_close(&self->on);
    free(self);
}

int parked_replay(int count, char **arguments)
{
    replay_options o = {.action = {.expected = -1},
                        .limit = -1,
                        .stop_after = 3,
                        .ramp_ms = 10000,
                        .hold_ms = 600000,
                        .max_replays = INT64_MAX};
    const option_rule rules[] = {
        WHERE_OPTION(&o.parked),
        LIKE_OPTION(&o.parked),
        {"limit", 'l', OPTION_NUMBER, "COUNT", "at most so many, the oldest first; 0: none", &o.limit},
        {"rate", 'r', OPTION_REAL, "NUMBER", "so many a second; 0: no limit", &o.rate},
        {"ramp", 0, OPTION_TEXT, "RATES", "rates one after the other, as 1,2,5,20; then --rate", &o.ramp},
        {"ramp-step", 0, OPTION_DURATION, "TIME", "how long each of these holds [10s]", &o.ramp_ms},
        {"stop-after", 0, OPTION_NUMBER, "COUNT", "stop when so many failed again; 0: never [3]", &o.stop_after},
        {"policy", 'p', OPTION_TEXT, "FILE", NULL, &o.policy.file},
        {"max-replays", 0, OPTION_NUMBER, "COUNT", "leave messages that were replayed so often already",
         &o.max_replays},
        {"to", 't', OPTION_TEXT, "QUEUE", "to this queue instead of the work queue", &o.to},
        {"dry-run", 'n', OPTION_FLAG, NULL, "print what would go, and do nothing", &o.dry_run},
        {"yes", 'y', OPTION_FLAG, NULL, "do not wait for the typed count", &o.yes},
        {"hold", 0, OPTION_DURATION, "TIME", "give the rest back for a moment so often [10m]", &o.hold_ms},
        PROGRESS_OPTION(&o.parked),
        ACTION_OPTIONS(&o.action),
        PARKED_OPTIONS(&o.parked),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE",
        "Moves a work queue's parked messages back to it, and to no other queue, to begin anew. A message leaves "
        "the parked queue after the broker confirmed its copy. Stops if messages are parked again, or wait for a "
        "retry. Safe to interrupt: the same command goes on. Conditions are as for 'backhop parked list'.\n");
    if (count - at != 1)
        options_refuse("one work queue is wanted");
    replay *self = must(calloc(1, sizeof *self));
    self->options = &o;
    self->waits.parked_ms = -1;
    if (o.max_replays == INT64_MAX)
        o.max_replays = -1;
    if (o.ramp)
        read_ramp(self, o.ramp);
    o.parked.progress &= o.parked.json;
    if (o.rate > 0 && o.rate < LEAST_RATE)
        options_refuse("--rate: %g a second is too slow; 0.001 is one message in 1000 s, and 0 is no limit", o.rate);
    if (o.ramp_ms < 1 || o.hold_ms < 1000)
        options_refuse("--ramp-step is longer than nothing, --hold is 1s or more");
    if (bh_plan_new(&self->plan) != BH_OK)
        must(NULL);
    int code = parked_open(&self->on, &o.parked, "parked replay");
    if (code == EX_OK)
        code = run(self, arguments[at]);
    destroy(self);
    texts_free(&o.parked.where);
    return output_end(code);
}
