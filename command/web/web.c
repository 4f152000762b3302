/* backhop web: parked messages in a browser. */
#include "web/web.h"

#include "common/command.h"
#include "common/connection.h"
#include "common/management.h"
#include "common/output.h"
#include "common/trusted.h"
#include "web/listening.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

enum { REQUEST_MS = 10000, POLL_MS = 1000, CHANGED_POLL_MS = 100, GOODBYE_MS = 8000 };

static const char *const headers[][2] = {
    {"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                                "img-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {NULL, NULL},
};

typedef struct web_options {
    broker_options broker;
    const char *api, *state, *policy, *ns, *strategy, *queue_type;
} web_options;

/* ------------------------------------------------------------------------------------- settings */

static void read_allow(web *self)
{
    char *copy = copy_text(bh_str(self->allow ? self->allow : "")), *rest = NULL;
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        int is_replay = strcmp(word, "replay") == 0, is_drop = strcmp(word, "drop") == 0;
        if (!is_replay && !is_drop)
            options_refuse("--allow: '%s' is none of replay, drop", word);
        self->may_replay |= is_replay;
        self->may_drop |= is_drop;
    }
    free(copy);
}

/* Makes a directory, and those above it. Returns 0 if it is none afterwards. */
static int make_directory(char *path)
{
    struct stat facts;
    for (char *at = path + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(path, 0700);
            *at = '/';
        }
    mkdir(path, 0700);
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

static char *join(const char *one, const char *other)
{
    char *made = NULL;
    if (asprintf(&made, "%s%s", one, other) < 0)
        must(NULL);
    return made;
}

/* Finds where history and saved files are. EX_OK, or complains and returns the exit code. */
static int make_state(web *self, const char *named)
{
    const char *of_systemd = getenv("STATE_DIRECTORY"), *home = getenv("HOME"), *file = getenv("BACKHOP_HISTORY");
    if (named || (of_systemd && *of_systemd))
        self->state = copy_text(bh_str(named ? named : of_systemd));
    else
        self->state = join(home && *home ? home : ".", "/.local/state/backhop");
    char *saved = join(self->state, "/saved");
    char *jobs = join(self->state, "/jobs");
    int is_made = make_directory(saved) && make_directory(jobs);
    free(jobs);
    if (!is_made)
        complain("%s cannot be made: %s; --state names another directory", saved, strerror(errno));
    free(saved);
    if (is_made)
        trusted_check("state", self->state);
    self->history = file && *file ? copy_text(bh_str(file)) : join(self->state, "/history.ndjson");
    setenv("BACKHOP_HISTORY", self->history, 1);
    return is_made ? EX_OK : EX_CANTCREAT;
}

/* Returns the management API's usual address on the broker's host. The caller frees it. */
static char *usual_api(const char *uri)
{
    bh__uri parsed = {.text = NULL};
    bh__report problem = {.status = BH_OK};
    char *url = NULL;
    if (bh__uri_parse(&parsed, bh_str(uri), &problem) != BH_OK)
        url = copy_text(bh_str("http://localhost:15672"));
    else if (asprintf(&url, strchr(parsed.host, ':') ? "http%s://[%s]:%d" : "http%s://%s:%d", parsed.tls ? "s" : "",
                      parsed.host, parsed.tls ? 15671 : 15672) < 0)
        must(NULL);
    bh__uri_free(&parsed);
    bh__report_free(&problem);
    return url;
}

/* Returns what jobs of a state directory have in common: the broker, and options of the
 * topology. */
static char *scope_of(const web *self, const char *uri)
{
    bh__uri parsed = {.text = NULL};
    bh__report problem = {.status = BH_OK};
    char *text = NULL;
    if (bh__uri_parse(&parsed, bh_str(uri), &problem) != BH_OK)
        text = copy_text(bh_str(""));
    else if (asprintf(&text, "%s:%d %s", parsed.host, parsed.port, parsed.vhost) < 0)
        must(NULL);
    bh__uri_free(&parsed);
    bh__report_free(&problem);
    for (size_t i = 0; i < self->naming.count; i++) {
        char *longer = NULL;
        if (asprintf(&longer, "%s %s", text, self->naming.items[i]) < 0)
            must(NULL);
        free(text);
        text = longer;
    }
    return text;
}

/* Hands the broker to sub-commands: URLs, which have passwords, by the environment, which only this
 * user can read. */
static void prepare_children(web *self, const web_options *o)
{
    const char *api = management_url(o->api);
    setenv("AMQP_URL", broker_uri(&o->broker), 1);
    arguments_add_option(&self->connecting, "ca-file", o->broker.ca_file);
    arguments_add_option(&self->connecting, "cert", o->broker.cert);
    arguments_add_option(&self->connecting, "key", o->broker.key);
    arguments_add_option(&self->naming, "namespace", o->ns);
    arguments_add_option(&self->naming, "strategy", o->strategy);
    arguments_add_option(&self->naming, "queue-type", o->queue_type);
    arguments_add_option(&self->waiting, "policy", o->policy);
    self->scope = scope_of(self, broker_uri(&o->broker));
    if (api) {
        setenv("BACKHOP_MANAGEMENT_URL", api, 1);
    } else if (self->queue_count == 0) {
        char *usual = usual_api(broker_uri(&o->broker));
        setenv("BACKHOP_MANAGEMENT_URL", usual, 1);
        free(usual);
    }
}

/* A browser leaves these as they are, apart from segments that begin with a dot. */
#define PATH_CHARACTERS "/-._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

static void check_settings(web *self)
{
    size_t size = strlen(self->base_path);
    int is_unix = strncmp(self->settings.address, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0;
    if (size > 0 && (*self->base_path != '/' || self->base_path[size - 1] == '/' || size > 100 ||
                     self->base_path[strspn(self->base_path, PATH_CHARACTERS)] || strstr(self->base_path, "//") ||
                     strstr(self->base_path, "/.")))
        options_refuse("--base-path: '%s' is no path, as /backhop", self->base_path);
    if (self->user_header && !is_unix)
        options_refuse(
            "--user-header needs --listen unix:PATH: every program of this machine can forge a header at a port");
    self->settings.single_header = self->user_header;
    read_allow(self);
}

/* -------------------------------------------------------------------------------------- serving */

static void print_address(web *self)
{
    char url[300];
    int port = server_url(self->server, url);
    snprintf(self->cookie, sizeof self->cookie, "backhop-%d", port);
    if (self->user_header)
        complain("the page is at %s, for the proxy in front", url);
    else
        complain("open %s%s/#token=%s", url, self->base_path, self->token);
    complain(self->may_replay || self->may_drop ? "allowed: %s" : "it only shows: --allow replay,drop lets it act%s",
             self->allow ? self->allow : "");
}

static void serve(web *self)
{
    while (!is_interrupted()) {
        struct pollfd polled[2 * CHILDREN_MOST];
        size_t count = children_fill(&self->children, polled);
        server_poll(self->server, polled, count,
                    children_poll_ms(&self->children, self->live.is_changed ? CHANGED_POLL_MS : POLL_MS));
        children_work(&self->children);
        looks_work(self);
        jobs_work(self);
        live_work(self);
        state_work(self);
    }
}

static void destroy(web *self)
{
    self->is_closing = 1;
    children_close(&self->children, GOODBYE_MS); /* their ends answer requests */
    server_close(self->server);
    looks_free(self);
    jobs_free(self);
    live_free(self);
    arguments_free(&self->connecting);
    arguments_free(&self->naming);
    arguments_free(&self->waiting);
    texts_free(&self->settings.hosts);
    free(self->state);
    free(self->history);
    free(self->scope);
    free(self);
}

int web_main(int count, char **arguments)
{
    web *self = must(calloc(1, sizeof *self));
    web_options o = {.api = NULL};
    self->base_path = "";
    self->settings = (server_settings){.address = "127.0.0.1:9420",
                                       .most_body = WEB_MOST_BODY,
                                       .request_ms = REQUEST_MS,
                                       .headers = headers,
                                       .handle = api_handle,
                                       .data = self};
    const option_rule rules[] = {
        {"listen", 'l', OPTION_TEXT, "ADDRESS", "127.0.0.1:PORT or unix:PATH [127.0.0.1:9420]",
         &self->settings.address},
        {"allow", 'a', OPTION_TEXT, "WHAT", "replay, drop or both, with a comma; without it, it only shows",
         &self->allow},
        {"state", 0, OPTION_TEXT, "DIRECTORY", "of history and saved files [~/.local/state/backhop]", &o.state},
        {"host", 0, OPTION_TEXTS, "NAME", "a name that requests may have in Host, as of a proxy",
         &self->settings.hosts},
        {"user-header", 0, OPTION_TEXT, "NAME", "the header in which the proxy in front names the user",
         &self->user_header},
        {"base-path", 0, OPTION_TEXT, "PATH", "serve below this path, as /backhop", &self->base_path},
        {"policy", 'p', OPTION_TEXT, "FILE", "JSON of the policy, for its wait queues", &o.policy},
        {"namespace", 0, OPTION_TEXT, "NAME", NULL, &o.ns},
        {"strategy", 0, OPTION_TEXT, "NAME", NULL, &o.strategy},
        {"queue-type", 0, OPTION_TEXT, "TYPE", NULL, &o.queue_type},
        MANAGEMENT_OPTION(&o.api),
        BROKER_OPTIONS(&o.broker),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
        "Serves a page for your browser: what is parked and why, what waits, problems; and with --allow replays and\n"
        "drops. Prints the address to open. Without a queue name it finds each queue that has a parked queue, by the\n"
        "management API: of --management, else on the broker's host.\n");
    self->queues = arguments + at;
    self->queue_count = count - at;
    check_settings(self);
    catch_interrupts();
    random_digits(self->token, sizeof self->token);
    random_digits(self->session, sizeof self->session);
    random_digits(self->place, sizeof self->place);
    int code = make_state(self, o.state);
    prepare_children(self, &o);
    if (code == EX_OK && !server_open(&self->server, &self->settings))
        code = EX_UNAVAILABLE;
    if (code == EX_OK && !server_is_local(self->server)) {
        complain("--listen: only 127.0.0.1, [::1] or unix:PATH: put nginx or Caddy in front, for TLS and passwords");
        code = EX_USAGE;
    }
    if (code == EX_OK) {
        print_address(self);
        kept_read(self, jobs_add);
        serve(self);
    }
    destroy(self);
    return output_end(code);
}
