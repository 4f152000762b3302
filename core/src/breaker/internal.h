/* Breaker: the functions that higher floors need. Internal. */
#ifndef BACKHOP_BREAKER_INTERNAL_H
#define BACKHOP_BREAKER_INTERNAL_H

#include <backhop/breaker.h>

/* Adds a reference, which bh_breaker_free drops. NULL is allowed. Returns the breaker. */
bh_breaker *bh__breaker_keep(bh_breaker *self);

#endif
