/* Config: a file of settings, YAML, and so JSON too, as what Jansson makes of JSON. */
#ifndef BACKHOP_COMMAND_CONFIG_H
#define BACKHOP_COMMAND_CONFIG_H

#include <jansson.h>

/* Reads the file: mappings keep their order, numbers are their text. Free the result with
 * json_decref. Ends the program with 66 if the file cannot be read. Ends it with 65 if the file is
 * no YAML, is empty, or has a key twice. */
json_t *config_load(const char *path);
/* Makes options_refuse name the line of a key or text of the loaded file, until the next call.
 * Names none for other texts, or NULL. */
void config_at(const char *text);

#endif
