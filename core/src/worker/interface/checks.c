/* Worker: what its calls check first. */
#include "worker/interface/internal.h"

bh_status bh__worker_refuse(bh_worker *self, bh_status status, const char *sentence)
{
    return bh__report_set(&self->report, status, "%s", sentence);
}

bh_status bh__worker_may_set(bh_worker *self)
{
    if (!self)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return bh__worker_refuse(self, BH_ERR_FORKED, "the process forked: make a new worker in the child");
    if (atomic_load(&self->mailbox.life) == BH__RUNNING)
        return bh__worker_refuse(self, BH_ERR_STATE, "the worker runs: set this before bh_worker_start");
    return BH_OK;
}

bh_status bh__worker_check(const bh_worker *self, const bh_message *message)
{
    if (!self || !message || message->worker != self)
        return BH_ERR_ARGUMENT;
    if (bh__mailbox_is_forked(&self->mailbox))
        return BH_ERR_FORKED;
    return BH_OK;
}
