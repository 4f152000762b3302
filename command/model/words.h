/* Words: a line, split as a shell does. Internal. */
#ifndef BACKHOP_COMMAND_MODEL_WORDS_H
#define BACKHOP_COMMAND_MODEL_WORDS_H

#include <backhop/status.h>
#include <stddef.h>

enum { MODEL_MOST_WORDS = 16 };

typedef struct model_words {
    char *text; /* that the items are in */
    const char *items[MODEL_MOST_WORDS];
    size_t count;
} model_words;

/* Splits a line. BH_ERR_ARGUMENT: a quote is open, or there are too many words;
 * BH_ERR_NO_MEMORY. */
bh_status model_words_split(model_words *out, const char *line);
void model_words_free(model_words *self);

#endif
