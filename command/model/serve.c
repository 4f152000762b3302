/* backhop model: a model of RabbitMQ at a port of this machine, for tests. */
#include "common/command.h"
#include "common/connection.h"
#include "common/options.h"
#include "common/output.h"
#include "model/clients.h"
#include "model/commands.h"
#include "model/program.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

enum {
    BACKLOG = 128,
    QUIET_MS = 5,       /* without a byte from or to a client: then the clock skips */
    LONGEST_MS = 60000, /* of a poll */
    URL_BYTES = 64
};

typedef struct host {
    const char *version, *clock, *control;
    int64_t port;
    model *model;
    int listener;
    clients clients;
    commands commands;
    program program;
    int skips;
    int64_t start_ms;   /* wall clock, monotonic, at the model's time 0 */
    int64_t skipped_ms; /* how far the model's clock is ahead of the wall clock */
    int64_t busy_ms;    /* wall clock: when bytes came or went last */
    char url[URL_BYTES];
} host;

/* ---------------------------------------------------------------------------------------- clock */

static void run_timers(host *self, int64_t wall_ms)
{
    model_advance(self->model, wall_ms - self->start_ms + self->skipped_ms);
    model_beat(self->model, wall_ms);
}

/* Returns 1 if only a timer of the model can change something. */
static int may_skip(const host *self)
{
    return self->skips && clients_are_served(&self->clients) && model_is_idle(self->model) &&
           model_next_ms(self->model) != INT64_MAX;
}

static void skip(host *self, int64_t wall_ms)
{
    int64_t ahead_ms = model_next_ms(self->model) - model_now_ms(self->model);
    if (wall_ms < self->busy_ms + QUIET_MS || !may_skip(self))
        return;
    self->skipped_ms += ahead_ms > 0 ? ahead_ms : 0;
    self->busy_ms = wall_ms; /* a timer that starts itself again, as of a dead letter without a route, is no hot loop */
    run_timers(self, wall_ms);
}

/* Returns how long to poll, in ms. */
static int poll_ms(const host *self, int64_t wall_ms)
{
    int64_t next_ms = model_next_ms(self->model);
    int64_t until_ms = next_ms == INT64_MAX ? INT64_MAX : next_ms - self->skipped_ms + self->start_ms;
    until_ms = bh__earlier(until_ms, model_next_beat_ms(self->model));
    until_ms = bh__earlier(until_ms, clients_next_ms(&self->clients));
    if (wall_ms < self->clients.accept_ms)
        until_ms = bh__earlier(until_ms, self->clients.accept_ms);
    if (wall_ms < self->commands.accept_ms)
        until_ms = bh__earlier(until_ms, self->commands.accept_ms);
    if (may_skip(self))
        until_ms = bh__earlier(until_ms, self->busy_ms + QUIET_MS);
    int64_t left_ms = until_ms == INT64_MAX ? LONGEST_MS : until_ms - wall_ms;
    return (int)(left_ms < 0 ? 0 : bh__earlier(left_ms, LONGEST_MS));
}

/* ------------------------------------------------------------------------------------- commands */

/* The words that concern the clock are obeyed here; the model obeys the rest. */
static bh_status obey(void *data, const char *line, bh__report *answer)
{
    host *self = data;
    int is_skip = strcmp(line, "clock skip") == 0;
    self->busy_ms = bh__monotonic_ms();
    run_timers(self, self->busy_ms);
    if (is_skip || strcmp(line, "clock real") == 0) {
        self->skips = is_skip;
        return BH_OK;
    }
    bh_status status = model_control(self->model, line, answer);
    /* `advance` moved the model's clock. */
    self->skipped_ms = model_now_ms(self->model) - (self->busy_ms - self->start_ms);
    return status;
}

/* -------------------------------------------------------------------------------------- serving */

static int open_listener(host *self)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)self->port)};
    socklen_t size = sizeof address;
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    self->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (self->listener >= 0)
        setsockopt(self->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (self->listener < 0 || bind(self->listener, (struct sockaddr *)&address, size) != 0 ||
        listen(self->listener, BACKLOG) != 0 || getsockname(self->listener, (struct sockaddr *)&address, &size) != 0) {
        complain("--port: cannot listen at 127.0.0.1:%lld: %s", (long long)self->port, strerror(errno));
        return 0;
    }
    snprintf(self->url, sizeof self->url, "amqp://guest:guest@127.0.0.1:%d/", ntohs(address.sin_port));
    return 1;
}

/* Runs one round: polls, reads, runs the timers, writes. */
static void serve_once(host *self, const sigset_t *mask)
{
    size_t count = self->clients.count;
    struct pollfd *polled = must(calloc(count + COMMANDS_MOST + 1, sizeof *polled));
    struct pollfd *of_commands = polled + count, *of_listener = of_commands + COMMANDS_MOST;
    int64_t wall_ms = bh__monotonic_ms();
    int may_accept = count < self->clients.most && wall_ms >= self->clients.accept_ms;
    clients_fill(&self->clients, polled);
    commands_fill(&self->commands, of_commands, wall_ms);
    *of_listener = (struct pollfd){.fd = may_accept ? self->listener : -1, .events = POLLIN};
    int wait_ms = poll_ms(self, wall_ms);
    struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
    int is_ready = ppoll(polled, count + COMMANDS_MOST + 1, &wait, mask) > 0;
    int is_busy = 0;
    wall_ms = bh__monotonic_ms();
    run_timers(self, wall_ms);
    if (is_ready) {
        is_busy = clients_read(&self->clients, polled, count);
        commands_work(&self->commands, of_commands, wall_ms);
        if (of_listener->revents)
            clients_accept(&self->clients, self->listener, self->model, wall_ms);
    }
    is_busy |= clients_write(&self->clients, wall_ms);
    if (is_busy)
        self->busy_ms = wall_ms;
    skip(self, wall_ms);
    clients_write(&self->clients, wall_ms);
    free(polled);
}

/* poll() fails if it gets more items than the process may have files. */
static size_t most_clients(void)
{
    struct rlimit files;
    rlim_t others = COMMANDS_MOST + 1;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur <= others)
        return 1;
    return (size_t)(files.rlim_cur - others);
}

static void serve(host *self, int has_program)
{
    sigset_t mask;
    int is_told = 0;
    self->clients.most = most_clients();
    sigprocmask(SIG_SETMASK, NULL, &mask);
    sigdelset(&mask, SIGCHLD);
    sigdelset(&mask, SIGINT);
    sigdelset(&mask, SIGTERM);
    for (;;) {
        int is_ending = is_interrupted() || self->commands.has_ended;
        if (has_program ? program_has_ended(&self->program) : is_ending)
            return;
        if (is_ending && !is_told)
            program_stop(&self->program); /* it may close its connections before it ends */
        is_told = is_ending;
        serve_once(self, &mask);
    }
}

/* ---------------------------------------------------------------------------------- the command */

static void check_settings(host *self)
{
    self->skips = strcmp(self->clock, "skip") == 0;
    if (!self->skips && strcmp(self->clock, "real") != 0)
        options_refuse("--clock: '%s' is no clock: give skip or real", self->clock);
    if (self->port > UINT16_MAX)
        options_refuse("--port: %lld is no port: give 0 to 65535", (long long)self->port);
}

static int create_model(host *self)
{
    model_settings settings = {.version = self->version, .epoch_ms = bh__epoch_ms()};
    bh_status status = model_new(&self->model, &settings);
    if (status == BH_ERR_ARGUMENT)
        options_refuse("--version: '%s' is no version of the model: give 3.10, 4.0 or 4.3", self->version);
    self->start_ms = self->busy_ms = bh__monotonic_ms();
    return status;
}

static void print_address(const host *self)
{
    complain(
        "a model of RabbitMQ %s at %s, for tests: it keeps everything in memory, and only this machine can connect",
        self->version, self->url);
    puts(self->url);
    fflush(stdout);
}

/* Runs the program of `words` beside the model, or only the model if there are no words. Returns
 * the exit code. */
static int run(host *self, char **words)
{
    if (!words[0]) {
        print_address(self);
        serve(self, 0);
        return EX_OK;
    }
    setenv("AMQP_URL", self->url, 1);
    setenv("BACKHOP_BROKER_VERSION", self->version, 1);
    if (!program_start(&self->program, words))
        return EX_OSERR;
    serve(self, 1);
    return self->program.code;
}

static void destroy(host *self)
{
    clients_close(&self->clients);
    commands_close(&self->commands);
    if (self->listener >= 0)
        close(self->listener);
    model_free(self->model);
}

int model_main(int count, char **arguments)
{
    host self = {.version = "4.3", .clock = "skip", .listener = -1, .commands = {.listener = -1}};
    const option_rule rules[] = {
        {"version", 0, OPTION_TEXT, "VERSION", "of RabbitMQ: 3.10, 4.0 or 4.3 [4.3]", &self.version},
        {"clock", 0, OPTION_TEXT, "CLOCK", "skip: waits take no time; real [skip]", &self.clock},
        {"port", 0, OPTION_NUMBER, "PORT", "on 127.0.0.1; 0: any [0]", &self.port},
        {"control", 0, OPTION_TEXT, "PATH", "obeys lines from this Unix socket; -: from standard input", &self.control},
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "[-- PROGRAM [ARG...]]",
        "A model of RabbitMQ for tests: it starts at once, keeps everything in memory, and only this machine can\n"
        "connect. Prints its URL; user and password are guest. With a PROGRAM, runs that with AMQP_URL set, and ends\n"
        "with its exit code. While no message is with a consumer or unconfirmed, its clock skips to the next TTL.\n");
    check_settings(&self);
    catch_interrupts();
    program_watch();
    signal(SIGPIPE, SIG_IGN);
    int code = create_model(&self) == BH_OK ? EX_OK : EX_OSERR;
    if (code == EX_OK && (!open_listener(&self) || !commands_open(&self.commands, self.control, obey, &self)))
        code = EX_UNAVAILABLE;
    if (code == EX_OK)
        code = run(&self, arguments + at);
    destroy(&self);
    return output_end(code);
}
