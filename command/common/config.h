/* Config: a file of settings, YAML, and so JSON too, as what Jansson makes of JSON. */
#ifndef BACKHOP_COMMAND_CONFIG_H
#define BACKHOP_COMMAND_CONFIG_H

#include <jansson.h>

/* What the file holds, to be freed with json_decref: mappings in their order, numbers as their text. Ends the program with 66
 * where it cannot be read, with 65 where it is no YAML, empty, or names a key twice. */
json_t *config_load(const char *path);
/* Makes options_refuse name the line of a key or text of the loaded file, until the next call. Names none for other texts, or NULL. */
void config_at(const char *text);

#endif
