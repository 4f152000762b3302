/*
 * Selection: which messages `--where` selects, and how they are grouped. Pure: no broker, no clock.
 *
 * A condition is FIELD OPERATOR VALUE. Texts are id, error, kind, class, reason, exchange,
 * routing-key and header.NAME. A kind is an error as a list shows it, with "#" for each number. The
 * operators of texts are = and !=, and ~ and !~, which look for a part and ignore case. Numbers are
 * attempts, replays and header.NAME, which may have a fraction. A time span is age, since the first
 * failure. Numbers and spans take = != < <= > >=. A field that a message does not have fits != and
 * !~ alone. So does a header without a value, a list or a table.
 */
#ifndef BACKHOP_COMMAND_SELECTION_H
#define BACKHOP_COMMAND_SELECTION_H

#include <backhop/adapter/history.h>

typedef struct condition condition;

typedef struct selection {
    condition *conditions;
    size_t count;
} selection;

/* Adds a condition. Returns 0 if the text is no condition, with the reason in `problem`. */
int selection_add(selection *self, const char *text, char problem[256]);
void selection_free(selection *self);
/* Returns 1 if all conditions hold for a message; now_ms is ms since the epoch. */
int selection_fits(const selection *self, const bh_delivery *delivery, const bh_history *history, int64_t now_ms);

/* Returns an error's class: a name before ": " on its first line, as in "TimeoutError: no answer";
 * else "". */
bh_bytes error_class(bh_bytes error);
/* Writes the part that errors of a kind share: the first line, with numbers and hexadecimal ids as
 * "#", at most KIND_BYTES. Returns its size. */
enum { KIND_BYTES = 160 };
size_t error_kind(char out[KIND_BYTES + 1], bh_bytes error);

#endif
