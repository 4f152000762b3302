#include "common/management.h"

#include "common/command.h"
#include "common/connection.h"
#include "common/http.h"
#include "common/output.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { PAGE = 500, MOST_PAGES = 2000 };

struct management {
    http *client;
    const char *url;
    const char *place; /* the URL's part behind the password */
    bh__uri broker;
};

/* -------------------------------------------------------------------------------------- opening */

/* Returns the beginning of a URL's host: behind "://", and behind the last "@" before the path. */
static const char *find_place(const char *url)
{
    const char *begin = strstr(url, "://");
    begin = begin ? begin + 3 : url;
    const char *end = begin + strcspn(begin, "/?#"), *place = begin;
    for (const char *at = begin; at < end; at++)
        if (*at == '@')
            place = at + 1;
    return place;
}

const char *management_url(const char *typed)
{
    const char *url = typed ? typed : getenv("BACKHOP_MANAGEMENT_URL");
    return url && *url ? url : NULL;
}

int management_open(management **out, const char *url, const broker_options *broker)
{
    bh__report problem = {.status = BH_OK};
    const char *why;
    management *self = must(calloc(1, sizeof *self));
    *self = (management){.url = url, .place = find_place(url)};
    *out = NULL;
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        options_refuse("--management: a URL is wanted, as http://user:password@host:15672");
    bh_status status = bh__uri_parse(&self->broker, bh_str(broker_uri(broker)), &problem);
    if (status != BH_OK) {
        int code = complain_status(status, bh__report_text(&problem));
        bh__report_free(&problem);
        free(self);
        return code;
    }
    int has_user = self->place > strstr(url, "://") + 3;
    if (http_new(&self->client, has_user ? "" : self->broker.user, self->broker.password, broker_ca_file(broker),
                 &why) == HTTP_NO_LIBRARY) {
        complain("--management: %s", why);
        management_close(self);
        return EX_UNAVAILABLE;
    }
    *out = self;
    return EX_OK;
}

void management_close(management *self)
{
    if (!self)
        return;
    http_free(self->client);
    bh__uri_free(&self->broker);
    free(self);
}

void management_stop(management *self)
{
    http_stop(self->client);
}

/* -------------------------------------------------------------------------------------- getting */

/* Writes a name into a URL. RFC 3986's unreserved characters stay; all others are escaped. */
static void put_escaped(FILE *out, const char *name)
{
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte < 0x80 && (isalnum(byte) || strchr("-._~", byte)))
            fputc(byte, out);
        else
            fprintf(out, "%%%02X", byte);
    }
}

static char *make_url(const management *self, const char *path, va_list names)
{
    char *url = NULL;
    size_t size = 0, length = strlen(self->url);
    FILE *out = must(open_memstream(&url, &size));
    while (length > 0 && self->url[length - 1] == '/')
        length--;
    fprintf(out, "%.*s/api/", (int)length, self->url);
    for (; *path; path++)
        if (strncmp(path, "%v", 2) == 0 || strncmp(path, "%s", 2) == 0)
            put_escaped(out, *++path == 'v' ? self->broker.vhost : va_arg(names, const char *));
        else
            fputc(*path, out);
    fclose(out);
    return url;
}

/* The URL's host and port. */
static int place_size(const management *self)
{
    return (int)strcspn(self->place, "/?#");
}

static int complain_result(const management *self, http_result result, const char *problem)
{
    if (is_interrupted() || http_is_stopped(self->client))
        return EXIT_INTERRUPTED;
    switch (result) {
    case HTTP_NO_URL:
        complain("--management: that is no URL; one is http://user:password@host:15672");
        return EX_USAGE;
    case HTTP_NOT_TRUSTED:
        complain("no TLS with the management API at %.*s: %s", place_size(self), self->place, problem);
        return EX_UNAVAILABLE;
    default:
        complain(
            "no answer from the management API at %.*s: %s; check that the plugin rabbitmq_management is enabled and "
            "listens there",
            place_size(self), self->place, problem);
        return EX_TEMPFAIL;
    }
}

static int complain_answer(const management *self, long status)
{
    if (status == 401 || status == 403) {
        complain(
            "the management API at %.*s refuses this user (%ld): check name and password, and that the user has a tag "
            "for it (management, monitoring or administrator)",
            place_size(self), self->place, status);
        return EX_NOPERM;
    }
    complain("the server at %.*s is no management API of RabbitMQ, or it has a fault (status %ld)", place_size(self),
             self->place, status);
    return EX_UNAVAILABLE;
}

/* Gets what the URL names, and frees the URL. */
static int get(management *self, json_t **out, char *url)
{
    long status;
    const char *body;
    size_t size;
    char problem[256];
    *out = NULL;
    http_result result = http_get(self->client, url, &status, &body, &size, problem);
    free(url);
    if (result != HTTP_ANSWERED)
        return complain_result(self, result, problem);
    if (status == 404)
        return EX_OK;
    if (status == 200)
        *out = json_loadb(body, size, 0, NULL);
    return *out ? EX_OK : complain_answer(self, status);
}

int management_get(management *self, json_t **out, const char *path, ...)
{
    va_list names;
    va_start(names, path);
    char *url = make_url(self, path, names);
    va_end(names);
    return get(self, out, url);
}

int management_list(management *self, json_t **out, const char *path, ...)
{
    va_list names;
    va_start(names, path);
    char *url = make_url(self, path, names);
    va_end(names);
    int code = get(self, out, url);
    if (code != EX_OK || *out)
        return code;
    complain(
        "the management API at %.*s has no vhost \"%s\" (404): check the vhost at the end of the AMQP URI, and the "
        "URL of --management",
        place_size(self), self->place, self->broker.vhost);
    return EX_UNAVAILABLE;
}

/* ---------------------------------------------------------------------------------- work queues */

void queue_names_add(queue_names *self, bh_bytes name)
{
    self->items = must(realloc(self->items, (size_t)(self->count + 1) * sizeof *self->items));
    self->items[self->count++] = copy_text(name);
}

/* Adds one page of queues. *is_last becomes 1 with the last one. A count of pages without end must
 * not keep the command busy for ever: a page without queues is the last one too. */
static int add_page(queue_names *out, management *api, const char *part, int page, int *is_last)
{
    json_t *answer;
    const json_t *queue;
    size_t i;
    char number[16], size[16];
    snprintf(number, sizeof number, "%d", page);
    snprintf(size, sizeof size, "%d", PAGE);
    int code = management_list(api, &answer, "queues/%v?page=%s&page_size=%s&name=%s&use_regex=false&columns=name",
                               number, size, part);
    const json_t *items = json_object_get(answer, "items");
    *is_last = page >= json_integer_value(json_object_get(answer, "page_count")) || json_array_size(items) == 0;
    json_array_foreach(items, i, queue)
    {
        const char *name = json_string_value(json_object_get(queue, "name"));
        if (name)
            queue_names_add(out, bh_str(name));
    }
    json_decref(answer);
    return code;
}

int management_list_queues(management *self, const char *part, queue_names *out)
{
    int code = EX_OK, is_last = 0;
    *out = (queue_names){.items = NULL};
    for (int page = 1; code == EX_OK && !is_last && page <= MOST_PAGES; page++)
        code = add_page(out, self, part, page, &is_last);
    if (code == EX_OK && !is_last) {
        complain("the management API at %.*s lists more than %d queues: name the work queues as arguments",
                 place_size(self), self->place, MOST_PAGES * PAGE);
        code = EX_UNAVAILABLE;
    }
    if (code != EX_OK)
        queue_names_free(out);
    return code;
}

int management_find_queues(management *self, queue_names *out)
{
    queue_names all;
    size_t suffix = strlen(PARKED_SUFFIX);
    int code = management_list_queues(self, PARKED_SUFFIX, &all);
    *out = (queue_names){.items = NULL};
    for (int i = 0; i < all.count; i++) {
        size_t length = strlen(all.items[i]);
        if (length > suffix && strcmp(all.items[i] + length - suffix, PARKED_SUFFIX) == 0)
            queue_names_add(out, (bh_bytes){all.items[i], length - suffix});
    }
    queue_names_free(&all);
    return code;
}

static int find_queues(queue_names *out, const char *url, const broker_options *broker)
{
    management *api;
    int code = management_open(&api, url, broker);
    if (!api)
        return code;
    code = management_find_queues(api, out);
    if (code == EX_TEMPFAIL)
        complain("without a management API, name the work queues as arguments, for example: orders emails");
    if (code == EX_OK && out->count == 0) {
        complain("vhost %s has no queue whose name ends in " PARKED_SUFFIX, api->broker.vhost);
        code = EX_UNAVAILABLE;
    }
    management_close(api);
    return code;
}

int management_name_queues(queue_names *out, const char *url, const broker_options *broker, int count, char **operands)
{
    *out = (queue_names){.items = NULL};
    if (count <= 0 && !url)
        options_refuse(
            "which work queue? Name some, or give --management, which finds all work queues with a parked queue");
    if (count <= 0)
        return find_queues(out, url, broker);
    for (int i = 0; i < count; i++)
        queue_names_add(out, bh_str(operands[i]));
    return EX_OK;
}

void queue_names_free(queue_names *self)
{
    for (int i = 0; i < self->count; i++)
        free(self->items[i]);
    free(self->items);
    *self = (queue_names){.items = NULL};
}
