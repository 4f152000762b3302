/* Loaded: a mark beside a file that was loaded, FILE.loaded, so that no second load doubles its messages. */
#ifndef BACKHOP_COMMAND_LOADED_H
#define BACKHOP_COMMAND_LOADED_H

#include <stdint.h>

/* Returns how many lines of the file were loaded before; 0: none, or the file was changed since, or is no regular file. */
int64_t loaded_lines(const char *file);
/* Marks the first lines of a regular file as loaded. Complains if the mark cannot be written. */
void loaded_mark(const char *file, int64_t lines);

#endif
