/* backhop web: how all parts answer, and the options that they give to sub-commands. The lowest of
 * the parts. */
#include "web/web.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

void web_answer(request *it, unsigned status, json_t *object)
{
    char *text = must(json_dumps(must(object), JSON_COMPACT));
    request_add_header(it, "Cache-Control", "no-store");
    request_answer(it, status, "application/json", text, strlen(text));
    free(text);
    json_decref(object);
}

void web_refuse(request *it, unsigned status, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int size = vasprintf(&text, format, arguments);
    va_end(arguments);
    bh_bytes bytes = {must(size < 0 ? NULL : text), (size_t)size};
    web_answer(it, status, must(json_pack("{s:o}", "error", json_text(bytes))));
    free(text);
}

unsigned web_status(int code)
{
    switch (code) {
    case EX_USAGE:
        return 400;
    case EX_NOINPUT:
        return 404;
    case EX_TEMPFAIL:
        return 409;
    case CHILD_TOO_SLOW:
        return 504;
    default:
        return 502;
    }
}

char *web_problem(const char *text)
{
    static const char name[] = "backhop: ";
    char *out = must(calloc(1, strlen(text) + 1)), *to = out;
    while (*text) {
        size_t size = strcspn(text, "\n");
        if (strncmp(text, name, sizeof name - 1) == 0) {
            text += sizeof name - 1;
            size -= sizeof name - 1;
        }
        int is_hint = *text == '\'' && size > 13 && strncmp(text + size - 12, " shows more.", 12) == 0;
        if (!is_hint && size > 0) {
            if (to > out)
                *to++ = '\n';
            memcpy(to, text, size);
            to += size;
        }
        text += size;
        text += *text == '\n';
    }
    *to = '\0';
    return out;
}

static void add_all(texts *out, const texts *from)
{
    for (size_t i = 0; i < from->count; i++)
        arguments_add(out, from->items[i]);
}

void web_add_options(const web *self, texts *out, int takes_names, int takes_policy)
{
    add_all(out, &self->connecting);
    if (takes_names)
        add_all(out, &self->naming);
    if (takes_policy)
        add_all(out, &self->waiting);
}
