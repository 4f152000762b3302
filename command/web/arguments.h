/*
 * Arguments: the body of a request as arguments of a sub-command. Pure. The body is untrusted
 * input: each value becomes the value of one option that the table in arguments.c has, or stands
 * behind "--".
 */
#ifndef BACKHOP_COMMAND_WEB_ARGUMENTS_H
#define BACKHOP_COMMAND_WEB_ARGUMENTS_H

#include "common/options.h"

#include <jansson.h>

/* Work that a page can start. */
typedef enum verb { LIST, SAMPLES, SHOW, DOCTOR, SCHEDULE, SIMULATE, REPLAY, DROP, LOAD, VERB_COUNT } verb;

/* Returns the name of the verb's last sub-command, such as "replay". */
const char *verb_name(verb self);
/*
 * Appends the arguments to `out`, then `more` if the verb connects to the broker, then "--" and the
 * operands. Returns 0 and a text in `problem` if the body has a field that the verb does not have.
 * The texts are copied; arguments_free frees them.
 */
int arguments_read(texts *out, verb wanted, const json_t *body, const texts *more, char problem[256]);
/* Appends a copy of a text. */
void arguments_add(texts *out, const char *text);
/* Appends `--option=value`, or nothing if `value` is NULL. */
void arguments_add_option(texts *out, const char *option, const char *value);
void arguments_free(texts *self);

#endif
