/* Declared: the set of declarations that the broker accepted. Internal. */
#ifndef BACKHOP_DECLARED_INTERNAL_H
#define BACKHOP_DECLARED_INTERNAL_H

#include <backhop/adapter/declaring.h>

/* Adds an owner; each owner calls bh_declared_free. */
bh_declared *bh__declared_share(bh_declared *self);
/*
 * Returns 1 if an equal declaration was added. Returns 0 if memory runs out.
 *
 * A declaration of kind BH_DECLARE_NONE stands for all declarations of the work queue of its name.
 */
int bh__declared_has(bh_declared *self, const bh_declaration *it);
/*
 * Adds a declaration. Adds nothing if memory runs out. If the set is full (10,000), clears it
 * first.
 */
void bh__declared_add(bh_declared *self, const bh_declaration *it);

#endif
