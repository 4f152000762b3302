#include "common/http.h"

#include "common/connection.h"
#include "common/libcurl.h"
#include "common/output.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT_MS = 10000, ANSWER_MS = 60000, MOST_BYTES = 268435456 };

#if HAS_LIBCURL

#include <dlfcn.h>

struct http {
    CURL *easy;
    char *body;
    size_t size;
    char error[CURL_ERROR_SIZE];
    const char *user, *password, *ca_file;
    atomic_int is_stopped;
};

/* The functions of libcurl that are called. */
static struct {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    CURLcode (*easy_setopt)(CURL *easy, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *easy);
    CURLcode (*easy_getinfo)(CURL *easy, CURLINFO info, ...);
    void (*easy_reset)(CURL *easy);
    void (*easy_cleanup)(CURL *easy);
    const char *(*easy_strerror)(CURLcode code);
} curl;

/* POSIX has a pointer of dlsym in one to a function. */
static int find(void *library, const char *name, void *out, size_t size)
{
    void *found = dlsym(library, name);
    memcpy(out, &found, size);
    return found != NULL;
}

#define FIND(name) find(library, "curl_" #name, &curl.name, sizeof curl.name)

static int load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.4.dylib"};
    void *library = NULL;
    for (size_t i = 0; !library && i < sizeof names / sizeof names[0]; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return library && FIND(global_init) && FIND(easy_init) && FIND(easy_setopt) && FIND(easy_perform) &&
           FIND(easy_getinfo) && FIND(easy_reset) && FIND(easy_cleanup) && FIND(easy_strerror) &&
           curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

http_result http_new(http **out, const char *user, const char *password, const char *ca_file, const char **problem)
{
    *problem = "libcurl could not be loaded: install it (Debian and Ubuntu: libcurl4, Fedora: libcurl, Homebrew: curl)";
    *out = NULL;
    if (!load())
        return HTTP_NO_LIBRARY;
    http *self = must(calloc(1, sizeof *self));
    self->easy = must(curl.easy_init());
    self->user = user;
    self->password = password;
    self->ca_file = ca_file;
    *out = self;
    return HTTP_ANSWERED;
}

void http_free(http *self)
{
    if (!self)
        return;
    curl.easy_cleanup(self->easy);
    free(self->body);
    free(self);
}

void http_stop(http *self)
{
    atomic_store(&self->is_stopped, 1);
}

int http_is_stopped(const http *self)
{
    return atomic_load(&self->is_stopped);
}

static size_t on_data(char *data, size_t size, size_t count, void *of)
{
    http *self = of;
    if (size * count > MOST_BYTES - self->size)
        return 0;
    self->body = must(realloc(self->body, self->size + size * count + 1));
    memcpy(self->body + self->size, data, size * count);
    self->size += size * count;
    self->body[self->size] = '\0';
    return size * count;
}

/* Called by libcurl about once a second. A result other than 0 ends the transfer. */
static int on_progress(void *of, curl_off_t size, curl_off_t got, curl_off_t to_send, curl_off_t sent)
{
    (void)size, (void)got, (void)to_send, (void)sent;
    return is_interrupted() || http_is_stopped(of);
}

static http_result result_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return HTTP_ANSWERED;
    case CURLE_URL_MALFORMAT:
        return HTTP_NO_URL;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_ISSUER_ERROR:
        return HTTP_NOT_TRUSTED;
    default:
        return HTTP_UNREACHABLE;
    }
}

http_result http_get(http *self, const char *url, long *status, const char **body, size_t *size, char problem[256])
{
    CURL *easy = self->easy;
    self->size = 0;
    self->body = must(realloc(self->body, 1));
    self->body[0] = self->error[0] = '\0';
    curl.easy_reset(easy);
    curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, self->error);
    curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)ANSWER_MS);
    curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
    curl.easy_setopt(easy, CURLOPT_WRITEDATA, self);
    curl.easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl.easy_setopt(easy, CURLOPT_XFERINFODATA, self);
    curl.easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl.easy_setopt(easy, CURLOPT_PROXY, ""); /* a proxy of the environment would get the broker's password */
    if (*self->user) {
        curl.easy_setopt(easy, CURLOPT_USERNAME, self->user);
        curl.easy_setopt(easy, CURLOPT_PASSWORD, self->password);
    }
    if (self->ca_file)
        curl.easy_setopt(easy, CURLOPT_CAINFO, self->ca_file);
    curl.easy_setopt(easy, CURLOPT_URL, url);
    CURLcode code = curl.easy_perform(easy);
    *status = 0;
    curl.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, status);
    *body = self->body;
    *size = self->size;
    snprintf(problem, 256, "%s", *self->error ? self->error : curl.easy_strerror(code));
    return result_of(code);
}

#else

http_result http_new(http **out, const char *user, const char *password, const char *ca_file, const char **problem)
{
    (void)user, (void)password, (void)ca_file;
    *problem = "this program was built without libcurl (Debian and Ubuntu: libcurl4-openssl-dev)";
    *out = NULL;
    return HTTP_NO_LIBRARY;
}

void http_free(http *self)
{
    (void)self;
}

void http_stop(http *self)
{
    (void)self;
}

int http_is_stopped(const http *self)
{
    (void)self;
    return 0;
}

http_result http_get(http *self, const char *url, long *status, const char **body, size_t *size, char problem[256])
{
    (void)self, (void)url, (void)status, (void)body, (void)size;
    problem[0] = '\0';
    return HTTP_NO_LIBRARY;
}

#endif
