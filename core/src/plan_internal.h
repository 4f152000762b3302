/* Plan, as events see it. Internal. */
#ifndef BACKHOP_PLAN_INTERNAL_H
#define BACKHOP_PLAN_INTERNAL_H

#include <backhop/plan.h>

/* The error's text that the copy carries; "" where there is none. */
bh_bytes bh__plan_error(const bh_plan *self);

#endif
