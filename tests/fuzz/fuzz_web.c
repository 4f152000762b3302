/* Fuzzing: bytes are a Host and an Origin, each a line, and the body of a request. No host that is
 * let in has another name, and no body becomes an option that is not in the table. */
#include "fuzz.h"

#include "web/access.h"
#include "web/arguments.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { MOST_BYTES = 9216 };

static const char *const listed[] = {"retries.example"};

static void check_host(const char *host)
{
    const texts names = {(const char **)(uintptr_t)listed, 1};
    if (!access_allows_host(host, &names))
        return;
    size_t size = strcspn(host, ":"), digits = strspn(host, "0123456789.");
    int is_localhost = size == 9 && strncasecmp(host, "localhost", 9) == 0,
        is_listed = size == 15 && strncasecmp(host, listed[0], 15) == 0;
    CHECK(*host == '[' || is_localhost || is_listed || (digits > 0 && (host[digits] == '\0' || host[digits] == ':')));
    for (; *host; host++)
        CHECK(isalnum((unsigned char)*host) || strchr(".:[]", *host));
}

static void check_origin(const char *origin, const char *host)
{
    if (access_is_same_origin(origin, host))
        CHECK(strcasecmp(strstr(origin, "://") + 3, host) == 0);
    CHECK(!access_is_own_page("cross-site", origin, host, 0) && !access_is_own_page("same-site", origin, host, 0));
    CHECK(!access_is_own_page(NULL, NULL, host, 1));
    CHECK(access_is_own_page(NULL, origin, host, 1) == access_is_same_origin(origin, host));
}

static void check_arguments(verb wanted, const json_t *body)
{
    texts made = {.items = NULL}, more = {.items = NULL};
    char problem[256];
    int is_read = arguments_read(&made, wanted, body, &more, problem);
    size_t at = 0, words = 0;
    CHECK(is_read == (*problem == '\0'));
    while (is_read && at < made.count && strcmp(made.items[at], "--") != 0) {
        words += strncmp(made.items[at], "--", 2) != 0;
        CHECK(strncmp(made.items[at], "--uri", 5) != 0 && strncmp(made.items[at], "--user", 6) != 0);
        CHECK(strncmp(made.items[at], "--yes", 5) != 0 && strncmp(made.items[at], "--history", 9) != 0);
        at++;
    }
    CHECK(!is_read || (at < made.count && words >= 1 && words <= 2));
    arguments_free(&made);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[MOST_BYTES + 1];
    if (size < 2 || size > MOST_BYTES)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    verb wanted = (verb)((unsigned char)text[0] % VERB_COUNT);
    char *host = text + 1, *origin = host + strcspn(host, "\n");
    if (*origin)
        *origin++ = '\0';
    char *body = origin + strcspn(origin, "\n");
    if (*body)
        *body++ = '\0';
    check_host(host);
    check_origin(origin, host);
    json_t *object = json_loadb(body, size - (size_t)(body - text), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    check_arguments(wanted, object);
    json_decref(object);
    return 0;
}
