/* backhop web: the page's own files. */
#include "web/page.h"
#include "web/web.h"

#include <string.h>

static int accepts_gzip(const request *it)
{
    const char *accepted = request_header(it, "Accept-Encoding");
    return accepted && strstr(accepted, "gzip") && !strstr(accepted, "gzip;q=0");
}

void pages_answer(request *it, const char *name)
{
    const page_file *file = page_files;
    const char *known = request_header(it, "If-None-Match");
    while (file->name && strcmp(file->name, *name ? name : "index.html") != 0)
        file++;
    if (!file->name) {
        web_refuse(it, 404, "there is no such page");
        return;
    }
    int is_small = accepts_gzip(it);
    request_add_header(it, "ETag", file->tag);
    request_add_header(it, "Cache-Control", "no-cache");
    request_add_header(it, "Vary", "Accept-Encoding");
    if (known && strstr(known, file->tag)) {
        request_answer(it, 304, file->type, NULL, 0);
        return;
    }
    if (is_small)
        request_add_header(it, "Content-Encoding", "gzip");
    const page_bytes *bytes = is_small ? &file->small : &file->plain;
    request_answer(it, 200, file->type, bytes->data, bytes->size);
}
