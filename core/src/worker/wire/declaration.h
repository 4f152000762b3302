/* Declaration: a step of declaring as a method of AMQP, for whoever carries it out. */
#ifndef BACKHOP_WIRE_DECLARATION_H
#define BACKHOP_WIRE_DECLARATION_H

#include "librabbitmq.h"

#include <backhop/declaring.h>

typedef struct bh__declaration {
    amqp_method_number_t method, reply;
    union {
        amqp_exchange_declare_t exchange;
        amqp_queue_declare_t queue;
        amqp_exchange_bind_t exchange_binding;
        amqp_queue_bind_t queue_binding;
    } arguments;                 /* of the method */
    amqp_table_entry_t *entries; /* of its table; owned */
    char what[600];              /* what is done, for messages: declaring "orders" */
} bh__declaration;

/* The step that declaring is at, whose texts it borrows; free it with bh__declaration_free. False: no memory. */
int bh__declaration_init(bh__declaration *self, const bh_declaring *step);
void bh__declaration_free(bh__declaration *self);

#endif
