/* Orders: lines that control the model, from a Unix socket or standard input. */
#ifndef BACKHOP_COMMAND_MODEL_ORDERS_H
#define BACKHOP_COMMAND_MODEL_ORDERS_H

#include "base/buffer.h"
#include "base/report.h"

#include <backhop/status.h>

#include <poll.h>

enum { ORDERS_PEERS = 16, ORDERS_MOST = ORDERS_PEERS + 1 };

/* Executes a line. Appends the answer, or the reason of a failure, to the report. */
typedef bh_status order_handler(void *data, const char *line, bh__report *answer);

typedef struct order_peer {
    int in, out; /* -1: none */
    bh__buffer line;
} order_peer;

typedef struct orders {
    int listener; /* -1: none */
    const char *path;
    int has_ended; /* standard input ended */
    order_peer peers[ORDERS_PEERS];
    order_handler *handle;
    void *data;
} orders;

/* where: "-": standard input; the path of a Unix socket; NULL: no orders. Complains and returns 0 if it cannot listen. */
int orders_open(orders *self, const char *where, order_handler *handle, void *data);
void orders_close(orders *self);
/* Writes ORDERS_MOST items to poll for. */
void orders_fill(const orders *self, struct pollfd *out);
/* Reads and executes the lines that came. The answer to a line is its text, then a line "ok" or "error: REASON". */
void orders_work(orders *self, const struct pollfd *polled);

#endif
