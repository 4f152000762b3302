#include "common/output.h"

#include "base/report.h"
#include "base/utf8.h"
#include "worker/wire/clock.h"

#include <backhop/adapter/duration.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
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

/* Returns 1 if standard output is a pipe that its reader has closed. */
static int is_pipe_closed(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR);
}

int output_end(int code)
{
    int had_failed = ferror(stdout), is_written = fflush(stdout) == 0 && !had_failed;
    if (!is_written && code == EX_OK && !is_pipe_closed()) /* the errno of an earlier write is gone */
        complain("standard output could not be written%s%s", had_failed ? "" : ": ", had_failed ? "" : strerror(errno));
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

void random_digits(char *out, size_t size)
{
    unsigned char bytes[RANDOM_DIGITS / 2];
    if (!bh__random(bytes, sizeof bytes)) {
        complain("the system has no random bytes");
        exit(EX_OSERR);
    }
    for (size_t i = 0; i < size / 2; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

char *copy_text(bh_bytes text)
{
    char *copy = must(malloc(text.size + 1));
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    return copy;
}

/* ------------------------------------------------------------------------------------- messages */

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

/* ------------------------------------------------------------------------------- untrusted text */

char *shown(bh_bytes text, size_t most)
{
    bh__report report = {.status = BH_OK};
    bh__report_add_shown(&report, text, 0);
    if (report.size > most) {
        report.size = bh__cut((bh_bytes){report.text, report.size}, most).size;
        bh__report_add(&report, "...");
    }
    return must(report.text);
}

void say(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    bh__report report = {.status = BH_OK};
    bh__report_add_shown(&report, (bh_bytes){must(size < 0 ? NULL : text), (size_t)size}, 1);
    fputs(must(report.text), stdout);
    bh__report_free(&report);
    free(text);
}

const char *show_argument(char out[ARGUMENT_TEXT], const char *name)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=@%+,";
    char *to = out + snprintf(out, ARGUMENT_TEXT, "%s", *name == '-' ? "-- " : "");
    for (size_t i = 0; name[i] && i < 255; i++) {
        unsigned char each = (unsigned char)name[i];
        if (each < ' ' || each == 127) {
            snprintf(out, ARGUMENT_TEXT, "QUEUE");
            return out;
        }
        if (each < 128 && !strchr(plain, name[i]))
            *to++ = '\\';
        *to++ = name[i];
    }
    *to = '\0';
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
        size = bh__character_size(rest);
        memcpy(out + used, size ? rest.data : "\xef\xbf\xbd", size ? size : 3);
        used += size ? size : 3;
    }
    same = must(json_stringn(out, used));
    free(out);
    return same;
}

const char *json_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

void print_json(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII); /* output_end reports a failed write */
    putchar('\n');
    json_decref(object);
}

/* ---------------------------------------------------------------------------------------- times */

const char *show_duration(char out[TIME_TEXT], int64_t span_ms)
{
    return bh_duration_text(span_ms, out).data;
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

/* ------------------------------------------------------------------------------------- terminal */

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
    self->cells[self->count++] = shown((bh_bytes){cell, (size_t)size}, (size_t)size);
    free(cell);
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

/* Prints a cell in lines of at most `width` columns, broken at spaces if possible; all but the
 * first are indented. */
static void print_lines(const char *cell, int width, int indent)
{
    while (width_of(cell) > width) {
        int most = bytes_of(cell, width), size = most;
        while (size > 0 && cell[size] != ' ')
            size--;
        size = size > 0 ? size : most;
        printf("%.*s\n%*s", size, cell, indent, "");
        cell += size + (cell[size] == ' ');
    }
    fputs(cell, stdout);
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
        if (is_narrow && at == last)
            print_lines(self->cells[i], widths[last] > 0 ? widths[last] : 1, is_below ? INDENT : used);
        else
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
