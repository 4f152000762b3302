/*
 * Network: connections between workers and the model of RabbitMQ, under virtual time. Each
 * direction has latency, fragments, and faults: a cut after byte n, silence. The witness sees the
 * bytes at the worker's end.
 */
#ifndef BACKHOP_TESTS_SIM_NETWORK_H
#define BACKHOP_TESTS_SIM_NETWORK_H

#include "model/model.h"

#include <stdint.h>
#include <sys/types.h>

enum { FIRST_FD = 1 << 20 }; /* descriptors of the network are not below */

typedef enum network_way { NETWORK_UP, NETWORK_DOWN } network_way; /* to the broker, to the worker */

/* The state of the network from now on. */
typedef struct network_weather {
    int64_t latency_us;      /* the least of each piece; at least 1 */
    unsigned jitter_us;      /* added at random: below this; at most 65536 */
    unsigned fragment_bytes; /* pieces are at most so long; 0: whole writes */
    size_t most_queued;      /* bytes that a direction takes before it is clogged; 0: 512 KiB */
    int is_unreachable;      /* connecting gets no answer */
    int is_unknown;          /* names are not resolved */
} network_weather;

/* Begins with this broker, borrowed. */
void network_begin(model *broker);
/* Closes all that are open. */
void network_end(void);
extern network_weather network_weather_now;

/* Lets everything happen that is due now. */
void network_run(void);
/* Returns when the next happening is due; INT64_MAX: never. */
int64_t network_next_us(void);
/* Something happened to the broker beside the network. */
void network_touch(void);
/* Executes a command of the model; it must succeed. Appends its answer to `answer`, of `room`
 * bytes; NULL: none. */
void network_control(char *answer, size_t room, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Executes a command of the model that may fail. Returns 1 if it succeeded. */
int network_try(const char *line);

/* Faults of a connection; `number` counts them from the newest one that is open: 0, 1, ... Return 0
 * if there are fewer. */
int network_cut_after(unsigned number, network_way way, int64_t bytes);
int network_silence(unsigned number, network_way way, int64_t until_us);
/* Returns how much memory the bytes on their way take: tiny fragments take much. */
size_t network_memory(void);
/* Ends all silence. */
void network_heal(void);

/* For socket.c and lookup.c: descriptors. */
int network_connect(void);   /* begins to connect */
int network_look_up(void);   /* becomes readable when a name would be resolved */
int network_is_done(int fd); /* of a look-up */
int network_has(int fd);
short network_look(int fd, short events);
/* Returns 1 if it is connected, 0 if not yet, -1 if that failed; errno has the reason. */
int network_connected(int fd);
ssize_t network_read(int fd, char *data, size_t size);
ssize_t network_write(int fd, const char *data, size_t size);
void network_close(int fd);

#endif
