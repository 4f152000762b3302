/* History, as the plan sees it. Internal. */
#ifndef BACKHOP_HISTORY_INTERNAL_H
#define BACKHOP_HISTORY_INTERNAL_H

#include "report.h"

#include <backhop/history.h>

/* Names for `to` the legacy counter and wait queues of `from`, and no others. BH_ERR_NO_MEMORY: nothing was changed. */
bh_status bh__history_copy_settings(bh_history *to, const bh_history *from);
/* 1 after the last bh_history_read went well. */
int bh__history_is_read(const bh_history *self);
/* 1 where a parked message came back by other hands; bh_history_replays counts that. */
int bh__history_is_back(const bh_history *self);
/* Of bh_history_crashes, those that bh_plan_guard counted before it sent the message round its last wait. */
int64_t bh__history_counted_crashes(const bh_history *self);

/* How long ago the message failed for the first time, in ms; -1 where it did not, or that is unknown. now_ms: since the epoch. */
int64_t bh__history_recovery_ms(const bh_history *self, int64_t now_ms);

/* Where bh_history_explanation is put together. */
bh__report *bh__history_story(bh_history *self);

#endif
