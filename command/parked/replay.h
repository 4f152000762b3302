/*
 * Replay: one run of `backhop parked replay`, and how it reports: progress, a dry run, a summary,
 * the history.
 */
#ifndef BACKHOP_COMMAND_PARKED_REPLAY_H
#define BACKHOP_COMMAND_PARKED_REPLAY_H

#include "move/mover.h"
#include "parked/actions.h"
#include "parked/marks.h"
#include "parked/parked.h"
#include "parked/targets.h"
#include "parked/waiting.h"

enum { MOST_RAMP = 16 };

typedef struct replay_options {
    parked_options parked;
    action_options action;
    policy_options policy; /* of the consumers */
    const char *to;
    const char *ramp;
    int64_t ramp_ms; /* how long each rate of the ramp holds */
    int64_t limit;   /* -1: no limit */
    double rate;     /* a second; 0: as fast as it goes */
    int64_t stop_after;
    int64_t max_replays; /* -1: any */
    int64_t hold_ms;
    int dry_run;
    int yes;
} replay_options;

typedef struct replay {
    parked on;
    const replay_options *options;
    targets to;
    waiting waits; /* of no queue if the messages go to another work queue */
    bh_plan *plan;
    mover mover;
    action action;
    int skipped;        /* some wait for another round */
    int64_t wanted;     /* messages to replay */
    int64_t at_first;   /* messages in the queue when it began */
    int64_t taken;      /* selected so far */
    int64_t refused;    /* that cannot go, as counted before */
    int64_t homeless;   /* their work queue does not exist */
    int64_t spared;     /* replayed too often already */
    marks sent;         /* messages that were replayed */
    int64_t again;      /* replayed, and parked again, as seen by a look */
    int64_t others;     /* parked meanwhile by others, as seen by a look */
    int64_t unseen;     /* parked since that look */
    int64_t trusted_ms; /* no look at all again before */
    int64_t begun_ms;   /* monotonic, as all times here */
    double paid_ms;     /* up to when the rate is used up; parts of a ms count */
    int64_t looked_ms;
    int64_t shown_ms;
    int64_t round_ms; /* since when messages of this round are looked at; then, since when copies of it go */
    double rates[MOST_RAMP];
    size_t rate_count;
    int is_late;     /* the round has to end */
    const char *end; /* why it stops early, besides the mover's reason; NULL: it does not */
} replay;

/* Returns why it stops before its end; NULL: it does not. */
const char *replay_ending(const replay *self);
/* Returns how many messages may go in a second now; 0: no limit. */
double replay_rate(const replay *self, int64_t now_ms);
/* Returns how many replayed messages wait for a retry, as an estimate. */
int64_t replay_waiting(const replay *self);
/* Returns the past of the message that was read last. */
bh_past replay_past(const replay *self);

/* Shows progress on a terminal, or as JSON, if the last time is long enough ago. */
void replay_show_progress(replay *self, int64_t now_ms, int is_last);
/* Prints the message that was read last as a sample of what would go. */
void replay_print_sample(const replay *self, int64_t position);
void replay_print_prospect(const replay *self);
void replay_print_summary(const replay *self, int code);
/* Return what the history says of its beginning and of its end. */
json_t *replay_facts(const replay *self);
json_t *replay_results(const replay *self);

#endif
