/*
 * Loaded: marks beside a file of messages, so that no load doubles them.
 *
 *     FILE.loaded   lines that were loaded
 *     FILE.dropped  lines whose messages a drop has taken off their queue; there is none once the drop has ended
 */
#ifndef BACKHOP_COMMAND_LOADED_H
#define BACKHOP_COMMAND_LOADED_H

#include <stdint.h>

/* Returns how many lines of the file were loaded before; 0: none, or the file was changed since, or
 * is no regular file. */
int64_t loaded_lines(const char *file);
/* Marks the first lines of a regular file as loaded. Complains if the mark cannot be written. */
void loaded_mark(const char *file, int64_t lines);

/* Returns how many lines of the file a load may publish; -1: all. A drop that did not end has taken
 * the messages of these lines off their queue. Some hundreds of the last ones may be exceptions:
 * DROP_BATCH, and acknowledgements that the broker had not processed. */
int64_t dropped_lines(const char *file);
/* Marks the first lines as dropped, on the disk. Call it before they are. Returns 0 with errno set
 * if it cannot. */
int dropped_mark(const char *file, int64_t lines);
/* Removes that mark: the drop has ended, or the file is gone. */
void dropped_end(const char *file);

enum { DROP_BATCH = 256 };

#endif
