/* backhop web: the routes of /api, and who may use them. */
#include "web/access.h"
#include "web/web.h"

#include "base/utf8.h"
#include "common/output.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sysexits.h>
#include <unistd.h>

enum { FIRST_MESSAGES = 20000 /* of each queue, that a look at groups reads */ };
enum { LONGEST_USER = 128, MOST_STREAMS = 16 /* so that other requests find a connection */ };

/* -------------------------------------------------------------------------------------- who may */

static int is_printable(const char *text)
{
    size_t size = strlen(text);
    return size > 0 && size <= LONGEST_USER && bh__is_shown((bh_bytes){text, size});
}

/* Returns the path of the call behind the secret part of a session's path; NULL: this part is wrong
 * or missing. */
static const char *call_of(const web *self, const char *path)
{
    char place[RANDOM_DIGITS];
    size_t size = strcspn(path, "/");
    if (path[size] != '/' || size >= sizeof place)
        return NULL;
    memcpy(place, path, size);
    place[size] = '\0';
    return access_is_secret(place, self->place) ? path + size + 1 : NULL;
}

/* Returns the user who made the request, with the path of the call in *path; NULL: no user. */
static const char *user_of(const web *self, const request *it, const char **path)
{
    if (self->user_header) {
        const char *user = request_header(it, self->user_header);
        return user && is_printable(user) ? user : NULL;
    }
    const struct passwd *entry = getpwuid(getuid());
    const char *behind = call_of(self, *path);
    if (!behind || !access_is_secret(request_cookie(it, self->cookie), self->session))
        return NULL;
    *path = behind;
    return entry ? entry->pw_name : "web";
}

static int is_change(const request *it)
{
    return strcmp(request_method(it), "GET") != 0 && strcmp(request_method(it), "HEAD") != 0;
}

static int is_json(const request *it)
{
    const char *type = request_header(it, "Content-Type");
    size_t size = strlen("application/json");
    return type && strncasecmp(type, "application/json", size) == 0 && (type[size] == '\0' || type[size] == ';');
}

/* Refuses a request that no page of this program made. Returns 1 if it may go on. */
static int check_page(request *it)
{
    const char *header = request_header(it, "X-Backhop"), *site = request_header(it, "Sec-Fetch-Site"),
               *origin = request_header(it, "Origin");
    if (is_change(it) && !site && !origin)
        web_refuse(it, 403, "the header Sec-Fetch-Site is missing: a program sends Sec-Fetch-Site: same-origin");
    else if (!access_is_own_page(site, origin, request_header(it, "Host"), is_change(it)))
        web_refuse(it, 403, "another page made this request");
    else if (is_change(it) && (!header || strcmp(header, "1") != 0))
        web_refuse(it, 403, "the header X-Backhop: 1 is missing");
    else if (is_change(it) && !is_json(it))
        web_refuse(it, 415, "a change has the type application/json");
    else
        return 1;
    return 0;
}

/* --------------------------------------------------------------------------------------- routes */

typedef struct call {
    web *web;
    request *it;
    json_t *body; /* an object; NULL: of a GET */
    const char *user;
} call;

/*
 * Begins a session. Browsers send a cookie of 127.0.0.1 to all of its ports, if the path of the
 * request is the cookie's. So the path of this cookie is a second secret, which the page keeps for
 * this port alone.
 */
static void log_in(const call *self)
{
    char cookie[300], api[64];
    const char *proto = request_header(self->it, "X-Forwarded-Proto"), *base = self->web->base_path;
    if (!access_is_secret(json_string_value(json_object_get(self->body, "token")), self->web->token)) {
        web_refuse(self->it, 401, "wrong token: open the address that backhop web printed at its last start");
        return;
    }
    snprintf(api, sizeof api, "api/%s", self->web->place);
    snprintf(cookie, sizeof cookie, "%s=%s; Path=%s/%s/; HttpOnly; SameSite=Strict%s", self->web->cookie,
             self->web->session, base, api, proto && strcmp(proto, "https") == 0 ? "; Secure" : "");
    request_add_header(self->it, "Set-Cookie", cookie);
    web_answer(self->it, 200, must(json_pack("{s:s}", "api", api)));
}

static void answer_session(const call *self)
{
    web_answer(self->it, 200,
               must(json_pack("{s:o, s:b, s:b, s:s}", "user", json_text(bh_str(self->user)), "may_replay",
                              self->web->may_replay, "may_drop", self->web->may_drop, "version", bh_version())));
}

static void answer_state(const call *self)
{
    web_answer(self->it, 200, state_json(self->web));
}

static void answer_live(const call *self)
{
    if (server_streams(self->web->server) >= MOST_STREAMS) {
        web_refuse(self->it, 503, "too many pages are open: this one polls");
        return;
    }
    char *event = state_event(self->web);
    request_add_header(self->it, "Cache-Control", "no-store");
    request_add_header(self->it, "X-Accel-Buffering", "no"); /* nginx passes events on at once */
    request_stream(self->it, event);
    free(event);
}

static void answer_groups(const call *self)
{
    web_answer(self->it, 200,
               self->web->groups ? json_incref(self->web->groups) : must(json_pack("{s:i}", "number", 0)));
}

static void answer_history(const call *self)
{
    web_answer(self->it, 200, must(json_pack("{s:o}", "actions", records_json(self->web))));
}

static void list_saved(const call *self)
{
    saved_list(self->web, self->it);
}

/* Begins a look by the body's fields. */
static void look_at(const call *self, verb wanted)
{
    web *on = self->web;
    texts arguments = {.items = NULL}, more = {.items = NULL};
    char problem[256];
    web_add_options(on, &more, wanted != LOAD, wanted == DOCTOR);
    if (wanted == LIST || wanted == REPLAY || wanted == DROP)
        arguments_add(&more, "--progress");
    if (wanted == LIST && !json_object_get(self->body, "first"))
        json_object_set_new(self->body, "first", json_integer(FIRST_MESSAGES));
    int is_read = arguments_read(&arguments, wanted, self->body, &more, problem);
    int wants_queues = is_read && (wanted == LIST || wanted == DOCTOR) && !json_object_get(self->body, "queues");
    const char *queue = json_string_value(json_object_get(self->body, "queue"));
    arguments_free(&more);
    int is_busy = is_read && queue && jobs_is_busy(on, queue);
    if (!is_read || is_busy) {
        arguments_free(&arguments);
        if (is_busy)
            web_refuse(self->it, 409, "an action holds the messages of %.150s: look again after its end", queue);
        else
            web_refuse(self->it, 400, "%s", problem);
        return;
    }
    if (wants_queues && state_add_queues(on, wanted == LIST ? "parked" : "work", &arguments) == 0 && on->live.depths &&
        wanted == LIST) {
        arguments_free(&arguments);
        web_refuse(self->it, 409,
                   "no parked queue can be read now: none exists, or actions hold all of them; try again later");
        return;
    }
    looks_begin(on, self->it, wanted, &arguments);
}

static void look_at_groups(const call *self)
{
    look_at(self, LIST);
}

static void look_at_samples(const call *self)
{
    look_at(self, SAMPLES);
}

static void look_at_message(const call *self)
{
    look_at(self, SHOW);
}

static void run_doctor(const call *self)
{
    look_at(self, DOCTOR);
}

static void run_schedule(const call *self)
{
    look_at(self, SCHEDULE);
}

static void run_simulate(const call *self)
{
    look_at(self, SIMULATE);
}

static void act(const call *self, verb wanted)
{
    if (json_is_true(json_object_get(self->body, "dry_run")))
        look_at(self, wanted);
    else
        jobs_begin(self->web, self->it, wanted, self->body, self->user);
}

static void replay_messages(const call *self)
{
    act(self, REPLAY);
}

static void drop_messages(const call *self)
{
    if (json_is_true(json_object_get(self->body, "dry_run")))
        json_object_set_new(self->body, "file", json_string("-"));
    act(self, DROP);
}

static void load_messages(const call *self)
{
    const char *name = json_string_value(json_object_get(self->body, "file"));
    char *path = name ? saved_path(self->web, name) : NULL;
    int is_dry = json_is_true(json_object_get(self->body, "dry_run"));
    if (is_dry && path)
        json_object_set_new(self->body, "file", json_text(bh_str(path)));
    if (is_dry && !(path && saved_is_file(path)))
        web_refuse(self->it, 404, "no saved file has this name");
    else
        act(self, LOAD);
    free(path);
}

static void stop_job(const call *self)
{
    if (json_is_true(json_object_get(self->body, "look")))
        looks_stop(self->web, self->it);
    else
        jobs_stop(self->web, self->it, (int)json_integer_value(json_object_get(self->body, "job")));
}

static const struct {
    const char *method, *path;
    void (*run)(const call *self);
} routes[] = {
    {"GET", "session", answer_session},  {"GET", "state", answer_state},       {"GET", "live", answer_live},
    {"GET", "groups", answer_groups},    {"GET", "history", answer_history},   {"GET", "saved", list_saved},
    {"POST", "groups", look_at_groups},  {"POST", "samples", look_at_samples}, {"POST", "message", look_at_message},
    {"POST", "doctor", run_doctor},      {"POST", "schedule", run_schedule},   {"POST", "simulate", run_simulate},
    {"POST", "replay", replay_messages}, {"POST", "drop", drop_messages},      {"POST", "load", load_messages},
    {"POST", "stop", stop_job},
};

/* Returns the body as an object; NULL: it is none. */
static json_t *body_of(const request *it)
{
    size_t size;
    const char *text = request_body(it, &size);
    json_t *body = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL); /* see arguments_read */
    if (json_is_object(body))
        return body;
    json_decref(body);
    return NULL;
}

static void run_route(web *self, request *it, const char *path, const char *user)
{
    const size_t count = sizeof routes / sizeof routes[0];
    size_t i = 0;
    while (i < count && (strcmp(routes[i].path, path) != 0 || strcmp(routes[i].method, request_method(it)) != 0))
        i++;
    if (strncmp(path, "saved/", 6) == 0 && strcmp(request_method(it), "GET") == 0) {
        saved_answer(self, it, path + 6);
        return;
    }
    if (i == count) {
        web_refuse(it, 404, "there is no such call");
        return;
    }
    call made = {.web = self, .it = it, .body = is_change(it) ? body_of(it) : NULL, .user = user};
    if (is_change(it) && !made.body)
        web_refuse(it, 400, "a JSON object is wanted");
    else
        routes[i].run(&made);
    json_decref(made.body);
}

static void handle_call(web *self, request *it, const char *path)
{
    if (!check_page(it))
        return;
    if (strcmp(path, "login") == 0 && is_change(it)) {
        call made = {.web = self, .it = it, .body = body_of(it)};
        log_in(&made);
        json_decref(made.body);
        return;
    }
    const char *user = user_of(self, it, &path);
    if (!user)
        web_refuse(
            it, 401, "%s",
            self->user_header
                ? "the proxy sent no user; check its --user-header"
                : "no session: open the address that backhop web printed at its last start; it ends in #token=...");
    else
        run_route(self, it, path, user);
}

void api_handle(void *data, request *it)
{
    web *self = data;
    const char *path = request_path(it);
    size_t base = strlen(self->base_path);
    if (strncmp(path, self->base_path, base) != 0 || path[base] != '/') {
        web_refuse(it, 404, "this program serves %s/", self->base_path);
        return;
    }
    path += base + 1;
    if (strncmp(path, "api/", 4) == 0)
        handle_call(self, it, path + 4);
    else if (is_change(it))
        web_refuse(it, 405, "a page can only be read");
    else
        pages_answer(it, path);
}
