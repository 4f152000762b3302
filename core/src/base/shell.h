/* Shell: a command line under construction. Internal. */
#ifndef BACKHOP_SHELL_H
#define BACKHOP_SHELL_H

#include "base/memory.h"

/* ok: 0 if memory ran out; then nothing more is added. An empty line has ok = 1 and no store. */
typedef struct bh__shell_line {
    bh__store store;
    int ok;
} bh__shell_line;

void bh__shell_free(bh__shell_line *self);
void bh__shell_add(bh__shell_line *self, bh_bytes bytes);
void bh__shell_add_text(bh__shell_line *self, const char *text);
/*
 * Adds a text in the quotes of every shell. If the text is no UTF-8 or has control characters
 * (bh__is_control), adds these by their numbers, in the quotes $'...' of bash, ksh and zsh.
 */
void bh__shell_add_argument(bh__shell_line *self, bh_bytes text);
/* Returns the text, with a zero byte after it; "" if memory ran out. */
bh_bytes bh__shell_text(const bh__shell_line *self);

#endif
