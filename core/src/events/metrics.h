/* Metrics: what the worker uses beside the public interface. Internal. */
#ifndef BACKHOP_METRICS_INTERNAL_H
#define BACKHOP_METRICS_INTERNAL_H

#include <backhop/metrics.h>

/*
 * Copies the counts and the named error classes to a new object in *out.
 *
 * Errors: BH_ERR_NO_MEMORY. *out then is NULL.
 */
bh_status bh__metrics_copy(bh_metrics **out, const bh_metrics *from);
/* Returns 1 if both have the same named error classes, in any order: one can count for the
 * other. */
int bh__metrics_tell_the_same(const bh_metrics *self, const bh_metrics *other);

#endif
