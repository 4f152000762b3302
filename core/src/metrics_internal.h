/* Metrics, as the worker copies them. Internal. */
#ifndef BACKHOP_METRICS_INTERNAL_H
#define BACKHOP_METRICS_INTERNAL_H

#include <backhop/metrics.h>

/* A copy of what was counted, and of the classes of errors that were named, in *out; NULL there: BH_ERR_NO_MEMORY. */
bh_status bh__metrics_copy(bh_metrics **out, const bh_metrics *from);

#endif
