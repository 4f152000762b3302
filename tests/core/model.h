/* Model: the check that the models of the ledger and of the breaker share. It needs `self` with
 * name, happening and now_ms. */
#ifndef BACKHOP_TESTS_MODEL_H
#define BACKHOP_TESTS_MODEL_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s, happening %d, at %lld ms: does not hold (%s:%d): %s\n", self->name, self->happening,  \
                    (long long)self->now_ms, __FILE__, __LINE__, #condition);                                          \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
