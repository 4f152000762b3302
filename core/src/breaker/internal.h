/* Breaker: the functions that higher floors need. Internal. */
#ifndef BACKHOP_BREAKER_INTERNAL_H
#define BACKHOP_BREAKER_INTERNAL_H

#include <backhop/breaker.h>

/* Adds a reference, which bh_breaker_free drops. NULL is allowed. Returns the breaker. */
bh_breaker *bh__breaker_keep(bh_breaker *self);
/* Returns the name of the settings. */
bh_bytes bh__breaker_name(const bh_breaker *self);
/* Returns 1 if the breaker has a circuit for each key. */
int bh__breaker_is_by_key(const bh_breaker *self);
/* Returns the number of keys that have a circuit. */
size_t bh__breaker_key_count(bh_breaker *self);

#endif
