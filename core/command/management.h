/*
 * Management: what RabbitMQ's management API tells, where it is offered (--management): names of queues, and what AMQP cannot see. Nothing
 * is changed by it, and no message is ever got by it.
 */
#ifndef BACKHOP_COMMAND_MANAGEMENT_H
#define BACKHOP_COMMAND_MANAGEMENT_H

#include "options.h"

#include <jansson.h>

#define MANAGEMENT_OPTION(value)                                                                                       \
    {                                                                                                                  \
        "management", 'm', OPTION_TEXT, "URL", "the management API, http[s]://user:password@host:15672", (value)       \
    }

typedef struct management management;

/* Opens it, in *out, for the vhost, and by default the user, of the broker's URI: EX_OK. Or complains and returns the exit code: 64 no
 * URL, 69 no libcurl. Nothing is asked yet. */
int management_open(management **out, const char *url, const broker_options *broker);
void management_close(management *self);
/*
 * Gets an object or a list: EX_OK, with *out to be freed by json_decref, or NULL where the API has no such thing (404). Or complains and
 * returns the exit code: 69, 75 no answer, 77 a wrong password. In the path, which goes on behind "/api/", %v is the vhost, and each %s a name
 * that follows; they are escaped.
 */
int management_get(management *self, json_t **out, const char *path, ...);

/* Work queues, by name. */
typedef struct queue_names {
    char **items; /* owned */
    int count;
} queue_names;

/* All of the vhost that have a parked queue; there may be none. EX_OK, or complains and returns the exit code. */
int management_find_queues(management *self, queue_names *out);
/* Those that a sub-command is about: the operands; where there are none, all of the vhost that have a parked queue, if the management API is
 * offered (url). EX_OK; or complains and returns the exit code. Ends the program where neither is there. */
int management_name_queues(queue_names *out, const char *url, const broker_options *broker, int count, char **operands);
void queue_names_free(queue_names *self);

#endif
