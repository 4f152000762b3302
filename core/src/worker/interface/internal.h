/* Worker: what the sources of its interface share. Internal. */
#ifndef BACKHOP_WORKER_INTERFACE_INTERNAL_H
#define BACKHOP_WORKER_INTERFACE_INTERNAL_H

#include "procedures/runner.h"

struct bh_worker {
    bh__settings settings;
    bh__mailbox mailbox;
    bh__runner runner;
    int64_t fail_fast; /* as set; -1: it was not */
    bh__report report; /* of the caller's last failed call */
};

/* As bh_worker_settle, with what bh_worker_fail noted. */
bh_status bh__worker_settle(bh_worker *self, bh_message *message, bh_outcome outcome);
/* As bh_worker_start, where nobody has set whether it fails fast: it does. */
bh_status bh__worker_start_to_run(bh_worker *self);
/* Waits for the end of the thread, which has drained. BH_OK, or why the worker gave up, which bh_worker_error tells. */
bh_status bh__worker_end(bh_worker *self);

#endif
