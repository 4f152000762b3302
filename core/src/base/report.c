#include "base/report.h"

#include "base/memory.h"

#include <backhop/adapter/duration.h>
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
    char room[BH_DURATION_ROOM];
    bh__report_add(self, "%s", bh_duration_text(span_ms, room).data);
}

void bh__report_add_times(bh__report *self, int64_t count)
{
    if (count == 1)
        bh__report_add(self, "once");
    else
        bh__report_add(self, "%lld times", (long long)count);
}

/*
 * Returns the text that stands for a byte or character that is not shown as it is; NULL if it is.
 */
static const char *replacement(const char *character, size_t size, int has_lines)
{
    if (size == 0)
        return "?";
    if (*character == '\n' || *character == '\t')
        return has_lines ? NULL : " ";
    return bh__is_control(character, size) ? "?" : NULL;
}

void bh__report_add_shown(bh__report *self, bh_bytes text, int has_lines)
{
    size_t begin = 0, next = 0;
    for (size_t i = 0; i < text.size; i = next) {
        size_t size = bh__character_size((bh_bytes){text.data + i, text.size - i});
        const char *instead = replacement(text.data + i, size, has_lines);
        next = i + (size ? size : 1);
        if (!instead)
            continue;
        bh__report_add(self, "%.*s%s", (int)(i - begin), text.data + begin, instead);
        begin = next;
    }
    bh__report_add(self, "%.*s", (int)(text.size - begin), text.data + begin);
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
