#include "base/shell.h"

void bh__shell_free(bh__shell_line *self)
{
    bh__store_free(&self->store);
}

void bh__shell_add(bh__shell_line *self, bh_bytes bytes)
{
    bh__text added;
    self->ok = self->ok && bh__store_add(&self->store, &added, bytes);
    self->store.size -= (size_t)self->ok; /* the next piece replaces the zero byte */
}

void bh__shell_add_text(bh__shell_line *self, const char *text)
{
    bh__shell_add(self, bh_str(text));
}

bh_bytes bh__shell_text(const bh__shell_line *self)
{
    return self->ok && self->store.size ? (bh_bytes){self->store.data, self->store.size} : bh_str("");
}

/* ---------------------------------------------------------------------------------- an argument */

static void add_octal(bh__shell_line *self, unsigned char byte)
{
    const char number[] = {'\\', (char)('0' + (byte >> 6)), (char)('0' + (byte >> 3 & 7)), (char)('0' + (byte & 7))};
    bh__shell_add(self, (bh_bytes){number, sizeof number});
}

static void add_escaped(bh__shell_line *self, bh_bytes text)
{
    bh__shell_add_text(self, "$'");
    for (size_t i = 0; i < text.size; i++)
        if (text.data[i] < ' ' || text.data[i] > '~' || text.data[i] == '\'' || text.data[i] == '\\')
            add_octal(self, (unsigned char)text.data[i]);
        else
            bh__shell_add(self, (bh_bytes){&text.data[i], 1});
    bh__shell_add_text(self, "'");
}

static void add_quoted(bh__shell_line *self, bh_bytes text)
{
    bh__shell_add_text(self, "'");
    for (size_t i = 0; i < text.size; i++)
        bh__shell_add(self, text.data[i] == '\'' ? bh_str("'\\''") : (bh_bytes){&text.data[i], 1});
    bh__shell_add_text(self, "'");
}

void bh__shell_add_argument(bh__shell_line *self, bh_bytes text)
{
    if (bh__is_shown(text))
        add_quoted(self, text);
    else
        add_escaped(self, text);
}
