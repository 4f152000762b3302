/*
 * Selection: which messages are meant, as `--where` says, and what they are grouped by. Pure: no broker, no clock.
 *
 * A condition is FIELD OPERATOR VALUE. Texts: id, error, kind (the error as a list has it: numbers as "#"), class, reason, exchange, routing-key, header.NAME, by = != and by ~ !~, which
 * look for a part and take small letters for capital ones. Numbers: attempts, replays, header.NAME; time spans: age, since the first failure; by
 * = != < <= > >=. What a message has not, fits != and !~ alone.
 */
#ifndef BACKHOP_COMMAND_SELECTION_H
#define BACKHOP_COMMAND_SELECTION_H

#include <backhop/adapter/history.h>

typedef struct condition condition;

typedef struct selection {
    condition *conditions;
    size_t count;
} selection;

/* Adds a condition; 0 where the text is none: what is wrong is in `problem` then. */
int selection_add(selection *self, const char *text, char problem[256]);
void selection_free(selection *self);
/* Whether all conditions hold of a message; now_ms is ms since the epoch. */
int selection_fits(const selection *self, const bh_delivery *delivery, const bh_history *history, int64_t now_ms);

/* An error's class: what stands before ": " on its first line where that is a name, as in "TimeoutError: no answer"; else "". */
bh_bytes error_class(bh_bytes error);
/* What errors of a kind have in common: the first line, numbers and hexadecimal ids as "#", at most KIND_BYTES. Returns its size. */
enum { KIND_BYTES = 160 };
size_t error_kind(char out[KIND_BYTES + 1], bh_bytes error);

#endif
