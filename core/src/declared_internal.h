/* Declared, as declaring uses it. Internal. */
#ifndef BACKHOP_DECLARED_INTERNAL_H
#define BACKHOP_DECLARED_INTERNAL_H

#include <backhop/declaring.h>

/* Another owner, who frees it too. */
bh_declared *bh__declared_share(bh_declared *self);
/* Whether this declaration of a topology is known to be there, the same in every respect; or, by their count, all that
 * the work queue needs. Without memory it is not. */
int bh__declared_has(bh_declared *self, const bh_topology *topology, size_t index);
/* It is there. Without memory it is not remembered, and beyond a count of 10 000 all that was before is forgotten. */
void bh__declared_add(bh_declared *self, const bh_topology *topology, size_t index);

#endif
