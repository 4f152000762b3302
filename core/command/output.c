#include "output.h"

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

static int has_colours;

void output_begin(void)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    setlocale(LC_CTYPE, "");
    signal(SIGPIPE, SIG_IGN); /* a pipe that was closed is a failed write: 74 */
    has_colours = isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
}

int output_end(int code)
{
    int is_written = fflush(stdout) == 0 && !ferror(stdout);
    if (!is_written && code == EX_OK && errno != EPIPE)
        complain("standard output could not be written: %s", strerror(errno));
    return is_written || code != EX_OK ? code : EX_IOERR;
}

void *must(void *memory)
{
    if (!memory) {
        fputs("backhop: there is no memory\n", stderr);
        exit(EX_OSERR);
    }
    return memory;
}

char *copy_text(bh_bytes text)
{
    char *copy = must(malloc(text.size + 1));
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    return copy;
}

/* ---------------------------------------------------------------------------------------------------------- messages */

void complain(const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fflush(stdout);
    fputs("backhop: ", stderr);
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        char *safe = shown((bh_bytes){line, next ? (size_t)(next - line) : strlen(line)}, sizeof text);
        fprintf(stderr, "%s\n", safe);
        free(safe);
        if (next)
            next++;
    }
}

int exit_code(bh_status status)
{
    switch (status) {
    case BH_OK:
        return EX_OK;
    case BH_ERR_NO_MEMORY:
        return EX_OSERR;
    case BH_ERR_POLICY:
    case BH_ERR_NAME:
    case BH_ERR_STRATEGY:
    case BH_ERR_URI:
    case BH_ERR_ARGUMENT:
        return EX_USAGE;
    case BH_ERR_FRAME:
    case BH_ERR_CONTENT:
        return EX_DATAERR;
    case BH_ERR_ACCESS:
        return EX_NOPERM;
    case BH_ERR_CONNECTION:
    case BH_ERR_PUBLISH:
    case BH_ERR_CANCELLED:
    case BH_ERR_TIMEOUT:
        return EX_TEMPFAIL;
    case BH_ERR_TLS:
    case BH_ERR_CLASH:
    case BH_ERR_MISSING:
    case BH_ERR_BROKER:
    case BH_ERR_CHANNEL:
        return EX_UNAVAILABLE;
    default:
        return EX_SOFTWARE;
    }
}

int complain_status(bh_status status, bh_bytes text)
{
    complain("%s", text.size ? text.data : bh_status_text(status).data);
    return exit_code(status);
}

/* ---------------------------------------------------------------------------------------------------- strangers' text */

/* How many bytes the UTF-8 character at the beginning has; 0 where there is none. RFC 3629, section 4. */
static size_t character_size(bh_bytes text)
{
    const unsigned char *at = (const unsigned char *)text.data;
    size_t size = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : (at[0] & 0xf0) == 0xe0 ? 3 : 4;
    if ((size == 4 && (at[0] < 0xf0 || at[0] > 0xf4)) || size > text.size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    int is_bad = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
                 (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f);
    return size > 1 && is_bad ? 0 : size;
}

/* C0, DEL, C1; and what turns the direction of a line around: U+202A to U+202E, U+2066 to U+2069. */
static int controls(bh_bytes text, size_t size)
{
    const unsigned char *at = (const unsigned char *)text.data;
    if (size == 1)
        return at[0] < ' ' || at[0] == 0x7f;
    if (size == 2)
        return at[0] == 0xc2 && at[1] < 0xa0;
    return size == 3 && at[0] == 0xe2 &&
           ((at[1] == 0x80 && at[2] >= 0xaa && at[2] <= 0xae) || (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9));
}

char *shown(bh_bytes text, size_t most)
{
    char *out = must(malloc((text.size < most ? text.size : most) + 8));
    size_t used = 0, size;
    for (size_t i = 0; i < text.size; i += size ? size : 1) {
        bh_bytes rest = {text.data + i, text.size - i};
        size = character_size(rest);
        if (used + (size ? size : 1) > most) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        if (size == 0 || controls(rest, size)) {
            out[used++] = *rest.data == '\n' || *rest.data == '\t' ? ' ' : '?';
        } else {
            memcpy(out + used, rest.data, size);
            used += size;
        }
    }
    out[used] = '\0';
    return out;
}

json_t *json_text(bh_bytes text)
{
    json_t *same = json_stringn(text.data, text.size);
    if (same)
        return same;
    char *out = must(malloc(3 * text.size + 1));
    size_t used = 0, size;
    for (size_t i = 0; i < text.size; i += size ? size : 1) {
        bh_bytes rest = {text.data + i, text.size - i};
        size = character_size(rest);
        memcpy(out + used, size ? rest.data : "\xef\xbf\xbd", size ? size : 3);
        used += size ? size : 3;
    }
    same = must(json_stringn(out, used));
    free(out);
    return same;
}

void print_json(json_t *object)
{
    if (json_dumpf(object, stdout, JSON_COMPACT) != 0 && errno != EPIPE)
        complain("standard output could not be written");
    putchar('\n');
    json_decref(object);
}

/* -------------------------------------------------------------------------------------------------------------- times */

const char *show_duration(char out[TIME_TEXT], int64_t span_ms)
{
    static const struct {
        int64_t ms;
        const char *unit;
    } units[] = {{86400000, "d"}, {3600000, "h"}, {60000, "min"}, {1000, "s"}};
    if (span_ms < 60000) {
        snprintf(out, TIME_TEXT, span_ms % 1000 == 0 ? "%.0f s" : "%.3g s", (double)span_ms / 1000);
        return out;
    }
    for (size_t i = 0; i < 4; i++)
        if (span_ms >= units[i].ms) {
            long long whole = span_ms / units[i].ms, rest = i < 3 ? span_ms % units[i].ms / units[i + 1].ms : 0;
            if (rest)
                snprintf(out, TIME_TEXT, "%lld %s %lld %s", whole, units[i].unit, rest, units[i + 1].unit);
            else
                snprintf(out, TIME_TEXT, "%lld %s", whole, units[i].unit);
            return out;
        }
    return out;
}

const char *show_time(char out[TIME_TEXT], int64_t epoch_ms)
{
    time_t seconds = (time_t)(epoch_ms / 1000);
    struct tm parts;
    out[0] = '\0';
    if (epoch_ms >= 0 && gmtime_r(&seconds, &parts))
        strftime(out, TIME_TEXT, "%Y-%m-%d %H:%M:%S UTC", &parts);
    return out;
}

/* ----------------------------------------------------------------------------------------------------------- terminal */

const char *paint(ink wanted)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[31m", "\033[33m", "\033[32m", "\033[2m"};
    return has_colours ? codes[wanted] : "";
}

void terminal_size(int *columns, int *lines)
{
    struct winsize size;
    *columns = 80;
    *lines = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *columns = size.ws_col;
        *lines = size.ws_row;
    }
}

void print_wrapped(const char *text, int at, int indent)
{
    int columns, lines;
    terminal_size(&columns, &lines);
    columns = columns > 100 ? 100 : columns;
    while (*(text += strspn(text, " \n"))) {
        int size = (int)strcspn(text, " \n"), is_first = at <= indent;
        if (!is_first && at + 1 + size > columns) {
            printf("\n%*s", indent, "");
            at = indent;
            is_first = 1;
        }
        at += printf("%s%.*s", is_first ? "" : " ", size, text);
        text += size;
    }
    if (at > 0)
        putchar('\n');
}

void table_add(text_table *self, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *cell = must(malloc((size_t)size + 1));
    va_start(arguments, format);
    vsnprintf(cell, (size_t)size + 1, format, arguments);
    va_end(arguments);
    self->cells = must(realloc(self->cells, (self->count + 1) * sizeof *self->cells));
    self->cells[self->count++] = cell;
}

/* Characters of UTF-8, each taken for one column. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* Bytes of the first `width` characters. */
static int bytes_of(const char *text, int width)
{
    const char *at = text;
    while (*at && (width > 0 || ((unsigned char)*at & 0xc0) == 0x80))
        width -= ((unsigned char)*at++ & 0xc0) != 0x80;
    for (; ((unsigned char)*at & 0xc0) == 0x80; at++)
        ;
    return (int)(at - text);
}

static void print_cell(const char *cell, int width, int is_right, int is_last)
{
    int own = width_of(cell), pad = width > own ? width - own : 0;
    if (is_right)
        printf("%*s%s", pad, "", cell);
    else
        printf("%.*s%*s", bytes_of(cell, width), cell, is_last ? 0 : pad, "");
    if (!is_last)
        fputs("  ", stdout);
}

void table_print(text_table *self, const char *sides)
{
    enum { ENOUGH = 40, INDENT = 7 }; /* columns for the last one beside the others, else it goes below them */
    int widths[16] = {0}, columns, lines, used = 0;
    size_t last = self->columns - 1;
    terminal_size(&columns, &lines);
    for (size_t i = 0; i < self->count; i++) {
        int width = width_of(self->cells[i]);
        if (width > widths[i % self->columns])
            widths[i % self->columns] = width;
    }
    for (size_t i = 0; i < last; i++)
        used += widths[i] + 2;
    int is_narrow = isatty(STDOUT_FILENO) && used + widths[last] > columns,
        is_below = is_narrow && columns - used < ENOUGH;
    if (is_narrow)
        widths[last] = columns - (is_below ? INDENT : used);
    for (size_t i = 0; i < self->count; i++) {
        size_t at = i % self->columns;
        if (i == 0)
            fputs(paint(BOLD), stdout);
        if (is_below && at == last)
            printf("\n%*s", INDENT, "");
        print_cell(self->cells[i], widths[at], sides[at] == 'r', at == last);
        if (at == last)
            printf("%s\n", i == last ? paint(PLAIN) : "");
    }
    table_drop(self);
}

void table_drop(text_table *self)
{
    for (size_t i = 0; i < self->count; i++)
        free(self->cells[i]);
    free(self->cells);
    *self = (text_table){.columns = self->columns};
}
