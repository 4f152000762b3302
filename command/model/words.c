/* Words: single quotes, double quotes and backslashes. */
#include "model/words.h"

#include <stdlib.h>
#include <string.h>

static int is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Copies one word to *to, with a zero byte. Returns the place behind it; NULL if a quote is
 * open. */
static const char *copy_word(const char *from, char **to)
{
    char quote = '\0';
    for (; *from && (quote || !is_space(*from)); from++) {
        if (quote && *from == quote) {
            quote = '\0';
        } else if (!quote && (*from == '\'' || *from == '"')) {
            quote = *from;
        } else {
            if (*from == '\\' && quote != '\'' && from[1])
                from++;
            *(*to)++ = *from;
        }
    }
    *(*to)++ = '\0';
    return quote ? NULL : from;
}

bh_status model_words_split(model_words *out, const char *line)
{
    *out = (model_words){.text = malloc(2 * strlen(line) + 2)};
    if (!out->text)
        return BH_ERR_NO_MEMORY;
    char *to = out->text;
    for (;;) {
        while (is_space(*line))
            line++;
        if (!*line)
            return BH_OK;
        if (out->count == MODEL_MOST_WORDS)
            return BH_ERR_ARGUMENT;
        out->items[out->count++] = to;
        line = copy_word(line, &to);
        if (!line)
            return BH_ERR_ARGUMENT;
    }
}

void model_words_free(model_words *self)
{
    free(self->text);
    *self = (model_words){.text = NULL};
}
