/*
 * Management: reads RabbitMQ's management API if --management names it: queue names, and facts that
 * AMQP cannot see. It changes nothing, and never gets a message.
 */
#ifndef BACKHOP_COMMAND_MANAGEMENT_H
#define BACKHOP_COMMAND_MANAGEMENT_H

#include "common/options.h"

#include <backhop/bytes.h>
#include <jansson.h>

#define PARKED_SUFFIX ".parked" /* the end of a parked queue's name */
#define UNROUTABLE_SUFFIX ".unroutable"

#define MANAGEMENT_OPTION(value)                                                                                       \
    {                                                                                                                  \
        "management", 'm', OPTION_SECRET, "URL", "management API, http[s]://host:15672 [BACKHOP_MANAGEMENT_URL]",      \
            (value)                                                                                                    \
    }

typedef struct management management;

/* Returns the URL as typed, else of BACKHOP_MANAGEMENT_URL; NULL: neither. */
const char *management_url(const char *typed);

/* Opens it, in *out, for the vhost, and by default the user, of the broker's URI: EX_OK. Or
 * complains and returns the exit code: 64 no URL, 69 no libcurl. Sends no request yet. */
int management_open(management **out, const char *url, const broker_options *broker);
void management_close(management *self);
/* Ends a request of another thread within a second, without a complaint. Later requests fail
 * too. */
void management_stop(management *self);
/*
 * Gets an object or a list: EX_OK, with *out to be freed by json_decref, or NULL if the API has no
 * such thing (404). Or complains and returns the exit code: 69, 75 no answer, 77 a wrong password.
 * In the path, which goes on behind "/api/", %v is the vhost, and each %s a name that follows; they
 * are escaped.
 */
int management_get(management *self, json_t **out, const char *path, ...);
/* Gets a list of the vhost in the same way. If the vhost does not exist, complains and returns
 * 69. */
int management_list(management *self, json_t **out, const char *path, ...);

/* Work queues, by name. */
typedef struct queue_names {
    char **items; /* owned */
    int count;
} queue_names;

/* Lists all queues of the vhost whose names contain `part`, and perhaps others. EX_OK, or complains
 * and returns the exit code. Free *out with queue_names_free. */
int management_list_queues(management *self, const char *part, queue_names *out);
/* All of the vhost that have a parked queue; there may be none. EX_OK, or complains and returns the
 * exit code. */
int management_find_queues(management *self, queue_names *out);
/* Finds the work queues of a sub-command: the operands. Without operands: all queues of the vhost
 * that have a parked queue, by the management API (url). EX_OK; or complains and returns the exit
 * code. Ends the program if there are neither operands nor URL. */
int management_name_queues(queue_names *out, const char *url, const broker_options *broker, int count, char **operands);
void queue_names_add(queue_names *self, bh_bytes name);
void queue_names_free(queue_names *self);

#endif
