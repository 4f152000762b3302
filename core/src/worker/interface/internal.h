/* Worker: what the sources of its interface share. Internal. */
#ifndef BACKHOP_WORKER_INTERFACE_INTERNAL_H
#define BACKHOP_WORKER_INTERFACE_INTERNAL_H

#include "worker/procedures/runner.h"

enum { BH__LONGEST_TIMEOUT_MS = 3600000 };

struct bh_worker {
    bh__settings settings;
    bh__mailbox mailbox;
    bh__runner runner;
    int64_t fail_fast; /* as set; -1: it was not */
    bh__report report; /* of the caller's last failed call */
};

/* Returns BH_OK if a setting may change: the worker does not run. */
bh_status bh__worker_may_set(bh_worker *self);
/* Keeps the reason why a call failed, for bh_worker_error. Returns the status. */
bh_status bh__worker_refuse(bh_worker *self, bh_status status, const char *sentence);
/* Waits for the end of the thread, if there is one. */
void bh__worker_join(bh_worker *self);
/* Returns BH_OK if this worker delivered the message and this process did not fork since. */
bh_status bh__worker_check(const bh_worker *self, const bh_message *message);
/* Returns the errors of bh_worker_settle that a settlement has by itself. */
bh_status bh__worker_check_settlement(const bh_worker *self, const bh_settlement *settlement);
/* Like bh_worker_settle, for a message of this worker and without checks of the settlement. */
bh_status bh__worker_settle(bh_worker *self, bh_message *message, const bh_settlement *settlement);

#endif
