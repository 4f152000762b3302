/* Metrics, as the worker copies them. Internal. */
#ifndef BACKHOP_METRICS_INTERNAL_H
#define BACKHOP_METRICS_INTERNAL_H

#include <backhop/metrics.h>

/* A copy of what was counted, and of the classes of errors that were named, in *out; NULL there: BH_ERR_NO_MEMORY. */
bh_status bh__metrics_copy(bh_metrics **out, const bh_metrics *from);
/* 1 where both tell the same classes of errors apart, in whatever order these were named: one can count for the other. */
int bh__metrics_tell_the_same(const bh_metrics *self, const bh_metrics *other);

#endif
