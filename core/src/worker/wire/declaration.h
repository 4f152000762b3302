/* Declaration: a step of declaring as an AMQP method. */
#ifndef BACKHOP_WIRE_DECLARATION_H
#define BACKHOP_WIRE_DECLARATION_H

#include "worker/librabbitmq.h"

#include <backhop/adapter/declaring.h>

typedef struct bh__declaration {
    amqp_method_number_t method, reply;
    union {
        amqp_exchange_declare_t exchange;
        amqp_queue_declare_t queue;
        amqp_exchange_bind_t exchange_binding;
        amqp_queue_bind_t queue_binding;
        amqp_queue_unbind_t queue_unbinding;
    } arguments;                 /* of the method */
    amqp_table_entry_t *entries; /* of its table of arguments; owned */
    char what[600];              /* the action, for messages: declaring "orders" */
} bh__declaration;

/* Makes the method of a step, whose texts it borrows. Free it with bh__declaration_free. Returns 0
 * if memory runs out. */
int bh__declaration_init(bh__declaration *self, const bh_declaration *step);
void bh__declaration_free(bh__declaration *self);

#endif
