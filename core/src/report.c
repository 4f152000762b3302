#include "report.h"

#include "memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void bh__report_free(bh__report *self)
{
    free(self->text);
}

void bh__report_clear(bh__report *self)
{
    self->status = BH_OK;
    self->size = 0;
    if (self->text)
        self->text[0] = '\0';
}

__attribute__((format(printf, 2, 0))) static void append_formatted(bh__report *self, const char *format,
                                                                   va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    void *text = self->text;
    if (size < 0 || !bh__reserve(&text, &self->capacity, 1, self->size + (size_t)size + 1))
        return;
    self->text = text;
    vsnprintf(self->text + self->size, (size_t)size + 1, format, arguments);
    self->size += (size_t)size;
}

void bh__report_add(bh__report *self, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append_formatted(self, format, arguments);
    va_end(arguments);
}

void bh__report_add_duration(bh__report *self, int64_t span_ms)
{
    static const struct {
        int64_t s;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int64_t left_s = span_ms / 1000 + (span_ms % 1000 >= 500);
    if (span_ms < 60000) {
        bh__report_add(self, "%.3g s", (double)span_ms / 1000);
        return;
    }
    int shown = 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0] && shown < 2; left_s %= units[i++].s)
        if (left_s >= units[i].s)
            bh__report_add(self, "%s%lld %s", shown++ ? " " : "", (long long)(left_s / units[i].s), units[i].unit);
}

void bh__report_add_times(bh__report *self, int64_t count)
{
    if (count == 1)
        bh__report_add(self, "once");
    else
        bh__report_add(self, "%lld times", (long long)count);
}

void bh__report_add_shown(bh__report *self, bh_bytes text, int has_lines)
{
    int is_utf8 = bh__is_utf8(text);
    for (size_t i = 0, begin = 0; i <= text.size; i++) {
        unsigned char each = i < text.size ? (unsigned char)text.data[i] : 0;
        int is_space = each == '\n' || each == '\t';
        int is_shown =
            i < text.size && (each >= ' ' || (is_space && has_lines)) && each != 0x7f && (each < 0x80 || is_utf8);
        if (is_shown)
            continue;
        bh__report_add(self, "%.*s%s", (int)(i - begin), text.data + begin, i == text.size ? "" : is_space ? " " : "?");
        begin = i + 1;
    }
}

bh_status bh__report_set(bh__report *self, bh_status status, const char *format, ...)
{
    bh__report_clear(self);
    self->status = status;
    va_list arguments;
    va_start(arguments, format);
    append_formatted(self, format, arguments);
    va_end(arguments);
    return status;
}

bh_bytes bh__report_text(const bh__report *self)
{
    if (self->size == 0)
        return self->status == BH_OK ? bh_str("") : bh_status_text(self->status);
    bh_bytes text = {self->text, self->size};
    return text;
}
