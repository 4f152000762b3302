/* backhop top: ready, waiting and parked messages, live. */
#include "common/command.h"
#include "observe/answers.h"
#include "observe/depths.h"
#include "observe/listing.h"
#include "common/management.h"
#include "common/output.h"

#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <sysexits.h>
#include <termios.h>
#include <unistd.h>

enum { LEAST_INTERVAL_MS = 100, SCREEN_BYTES = 65536 };

typedef struct top {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    int64_t interval_ms;
    int once;
    int json;
    management *management; /* NULL: not offered */
    listing *listing;       /* NULL: no management API */
    int has_complained;     /* that the API is silent */
    depths seen;
    int64_t looked_ms; /* since the epoch: the time of these depths; 0: not read yet */
    answers answers;
} top;

static void print_depths_json(const top *self, int64_t now_ms)
{
    for (size_t i = 0; i < self->seen.count; i++) {
        const depth *each = &self->seen.items[i];
        if (depth_is_not_made(each))
            continue;
        json_t *object =
            must(json_pack("{s:I, s:s, s:s, s:o, s:o}", "time_ms", (json_int_t)now_ms, "kind", depth_word(each->kind),
                           "queue", each->name, "ready", each->ready < 0 ? json_null() : json_integer(each->ready),
                           "consumers", each->consumers < 0 ? json_null() : json_integer(each->consumers)));
        if (each->wait_ms)
            json_object_set_new(object, "delay_ms", json_integer(each->wait_ms));
        if (each->wait_ms && each->ready > 0)
            json_object_set_new(object, "due_by_ms", json_integer(depth_due_by_ms(each, now_ms)));
        if (each->wait_ms)
            json_object_set_new(object, "late", json_integer(each->late));
        if (each->is_refused)
            json_object_set_new(object, "refused", json_true());
        print_json(object);
    }
    fflush(stdout);
}

static void remember(top *self)
{
    for (size_t i = 0; i < self->seen.count; i++) {
        depth *each = &self->seen.items[i];
        memmove(&each->past[0], &each->past[1], (DEPTH_PAST - 1) * sizeof each->past[0]);
        each->past[DEPTH_PAST - 1] = each->ready;
    }
}

/* Bars of eighths, the highest of the time shown full. */
static void sparkline(char *out, size_t size, const int64_t past[DEPTH_PAST], int columns)
{
    static const char *const bars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    int64_t most = 1;
    size_t used = 0;
    for (int i = 0; i < DEPTH_PAST; i++)
        most = past[i] > most ? past[i] : most;
    out[0] = '\0';
    for (int i = DEPTH_PAST - columns; i < DEPTH_PAST && used + 4 < size; i++) {
        int64_t level = past[i] <= 0 ? 0 : (past[i] * 8 + most - 1) / most;
        used += (size_t)snprintf(out + used, size - used, "%s", bars[level]);
    }
}

/* A wait queue that has had nothing for as long as the screen shows. */
static int is_quiet(const depth *self)
{
    for (int i = 0; i < DEPTH_PAST; i++)
        if (self->past[i] > 0)
            return 0;
    return self->kind == DEPTH_WAITING && self->ready >= 0;
}

/* Returns 1 if a screen has a line of the queue. Wait queues that the user may not look at are only
 * counted. */
static int has_line(const depth *self)
{
    return !depth_is_not_made(self) && !(self->kind == DEPTH_WAITING && self->is_refused);
}

static const char *unknown(const depth *self)
{
    return self->is_refused ? "no access" : "missing";
}

static const char *title(const depth *self, char out[TIME_TEXT])
{
    return self->wait_ms ? show_duration(out, self->wait_ms) : self->name;
}

/* How many columns the names, the consumers and the bars have. A narrow screen has names and depths
 * only. */
static void share_columns(const top *self, int columns, int *name, int *consumers, int *bars)
{
    enum { OTHERS = 23, CONSUMERS = 10, LEAST = 8, NARROW = 60 };
    char wait[TIME_TEXT];
    *consumers = columns < NARROW ? 0 : CONSUMERS;
    int others = OTHERS + *consumers, longest = LEAST, room = columns - others > LEAST ? columns - others : LEAST;
    for (size_t i = 0; i < self->seen.count; i++) {
        int length = (int)strlen(title(&self->seen.items[i], wait));
        longest = length > longest ? length : longest;
    }
    *name = longest < room ? longest : room;
    *bars = !*consumers ? 0 : room - *name < DEPTH_PAST ? room - *name : DEPTH_PAST;
}

static size_t draw_line(const top *self, size_t index, int width, int consumed, int spark, char *out, size_t size)
{
    const depth *each = &self->seen.items[index];
    char wait[TIME_TEXT], bars[DEPTH_PAST * 4], ready[24], consumers[24] = "";
    const char *tint =
        each->ready > 0 && (each->kind == DEPTH_PARKED || each->kind == DEPTH_UNROUTABLE) ? paint(RED) : "";
    bh_bytes text = bh_str(title(each, wait));
    char *name = shown(text, text.size <= (size_t)width ? text.size : (size_t)width - 3); /* which ends in "..." then */
    snprintf(ready, sizeof ready, "%s", unknown(each));
    if (each->ready >= 0)
        snprintf(ready, sizeof ready, "%lld", (long long)each->ready);
    if (each->kind == DEPTH_WORK && each->consumers >= 0)
        snprintf(consumers, sizeof consumers, "%lld", (long long)each->consumers);
    sparkline(bars, sizeof bars, each->past, spark);
    size_t used =
        (size_t)snprintf(out, size, "%-10s %-*.*s %s%9s%s%*s  %s\033[K\r\n", depth_word(each->kind), width, width, name,
                         tint, ready, *tint ? paint(PLAIN) : "", consumed, consumed ? consumers : "", bars);
    free(name);
    return used;
}

/* One screen's lines, each cut at its edge: first the queues that need an operator, then the wait
 * queues in use. */
static void draw(const top *self, const char *host)
{
    char refused[REFUSED_TEXT];
    int is_refused = depths_show_refused(&self->seen, refused);
    int columns, lines, line = 2 + is_refused, hidden = 0, quiet = 0, width, consumers, spark;
    int is_stale = answers_silence_ms(&self->answers) >= ANSWERS_LATE_MS;
    char time[TIME_TEXT], *screen = must(malloc(SCREEN_BYTES));
    size_t used = 0;
    terminal_size(&columns, &lines);
    share_columns(self, columns, &width, &consumers, &spark);
    used += (size_t)snprintf(
        screen, SCREEN_BYTES, "\033[H%sbackhop%s  %.*s  %s%s%s%s\033[K\r\n%s%-10s %-*.*s %9s%*s%s\033[K\r\n",
        paint(BOLD), paint(PLAIN), consumers ? 40 : 0, host, show_time(time, self->looked_ms),
        is_stale ? paint(RED) : "", is_stale ? "  STALE" : "", is_stale ? paint(PLAIN) : "", paint(DIM), "", width,
        width, "queue", "ready", consumers, consumers ? "consumers" : "", paint(PLAIN));
    for (size_t i = 0; i < self->seen.count && used + 2048 < SCREEN_BYTES; i++) {
        if (!has_line(&self->seen.items[i]))
            continue;
        if (is_quiet(&self->seen.items[i]))
            quiet++;
        else if (line + 3 >= lines)
            hidden++;
        else if (++line)
            used += draw_line(self, i, width, consumers, spark, screen + used, SCREEN_BYTES - used);
    }
    if (hidden)
        used += (size_t)snprintf(screen + used, SCREEN_BYTES - used, "%d more; a larger window shows them\033[K\r\n",
                                 hidden);
    else if (quiet)
        used += (size_t)snprintf(screen + used, SCREEN_BYTES - used, "%s%d wait queues are empty%s\033[K\r\n",
                                 paint(DIM), quiet, paint(PLAIN));
    if (is_refused)
        used += (size_t)snprintf(screen + used, SCREEN_BYTES - used, "%.*s\033[K\r\n", columns, refused);
    snprintf(screen + used, SCREEN_BYTES - used, "\033[J%sq or Ctrl-C ends it%s", paint(DIM), paint(PLAIN));
    fputs(screen, stdout);
    fflush(stdout);
    free(screen);
}

static void print_once(const top *self)
{
    text_table out = {.columns = 4};
    int empty = 0;
    char wait[TIME_TEXT], refused[REFUSED_TEXT];
    static const char *const titles[] = {"kind", "queue", "ready", "consumers"};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    for (size_t i = 0; i < self->seen.count; i++) {
        const depth *each = &self->seen.items[i];
        if (!has_line(each))
            continue;
        if (each->kind == DEPTH_WAITING && each->ready == 0) {
            empty++;
            continue;
        }
        table_add(&out, "%s%s%s", depth_word(each->kind), each->wait_ms ? " " : "",
                  each->wait_ms ? show_duration(wait, each->wait_ms) : "");
        table_add(&out, "%s", each->name);
        if (each->ready < 0)
            table_add(&out, "%s", unknown(each));
        else
            table_add(&out, "%lld", (long long)each->ready);
        if (each->kind == DEPTH_WORK && each->consumers >= 0)
            table_add(&out, "%lld", (long long)each->consumers);
        else
            table_add(&out, "%s", "");
    }
    table_print(&out, "llrr");
    if (empty)
        printf("%d wait queues are empty\n", empty);
    if (depths_show_refused(&self->seen, refused))
        printf("%s\n", refused);
}

/* Makes the terminal pass each key at once, and not show it. Returns 0 if standard input is no
 * terminal. */
static int begin_keys(struct termios *before)
{
    if (tcgetattr(STDIN_FILENO, before) != 0)
        return 0;
    struct termios changed = *before;
    changed.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSANOW, &changed) == 0;
}

static int is_quit_typed(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char key;
    return poll(&input, 1, 0) == 1 && read(STDIN_FILENO, &key, 1) == 1 && key == 'q';
}

enum { KEY_MS = 50 };

/* Waits until the next look. Returns 1 if q was typed. */
static int wait_for_look(connection *broker, int64_t until_ms, int has_keys, bh_status *status)
{
    while (*status == BH_OK && !is_interrupted() && bh__monotonic_ms() < until_ms) {
        int64_t key_ms = bh__monotonic_ms() + KEY_MS;
        *status = connection_pump(broker, has_keys && key_ms < until_ms ? key_ms : until_ms);
        if (has_keys && is_quit_typed())
            return 1;
    }
    return 0;
}

/*
 * Waits until the broker answers. A screen shows meanwhile that its numbers are stale; without a
 * screen the wait is limited. Returns 1 if q was typed.
 */
static int wait_for_answer(top *self, connection *broker, int is_live, int has_keys, bh_status *status)
{
    enum { LONGEST_MS = 30000 };
    answers_request(&self->answers, &self->seen);
    while (*status == BH_OK && !is_interrupted() && self->answers.sent_ms) {
        *status = answers_wait(&self->answers, bh__monotonic_ms() + KEY_MS);
        if (has_keys && is_quit_typed())
            return 1;
        int64_t silence_ms = answers_silence_ms(&self->answers);
        if (is_live && self->looked_ms && silence_ms >= ANSWERS_LATE_MS)
            draw(self, broker->uri.host);
        else if (!is_live && silence_ms >= CONNECTION_PATIENT_MS)
            connection_report_waiting(broker);
        if (!is_live && silence_ms >= LONGEST_MS)
            *status = bh__report_set(&broker->problem, BH_ERR_CONNECTION,
                                     "the broker did not answer in time; this node may have lost its cluster");
    }
    return 0;
}

static void show_look(top *self, const connection *broker, int is_live)
{
    self->looked_ms = bh__epoch_ms();
    remember(self);
    if (self->json)
        print_depths_json(self, self->looked_ms);
    else if (is_live)
        draw(self, broker->uri.host);
    else
        print_once(self);
}

/* Adds the wait queues of other policies. A silent API delays the first look alone. */
static void add_waiting(top *self, int is_live)
{
    listed found;
    const char *prefix = depths_wanted(&self->seen);
    if (!self->listing || !*prefix)
        return;
    if (listing_ask(self->listing, 0, prefix, &found)) {
        depths_add_waiting(&self->seen, &found.waiting);
        listed_free(&found);
    } else if (!is_live && !self->has_complained && !is_interrupted()) {
        self->has_complained = 1;
        complain("the management API has not answered; wait queues of other policies are missing");
    }
}

static bh_status look_on(top *self, connection *broker, int is_live, int has_keys)
{
    bh_status status = BH_OK;
    while (!wait_for_answer(self, broker, is_live, has_keys, &status) && status == BH_OK && !is_interrupted()) {
        int64_t until_ms = bh__monotonic_ms() + self->interval_ms;
        add_waiting(self, is_live);
        status = depths_read(&self->seen, broker);
        if (status != BH_OK || is_interrupted())
            break;
        show_look(self, broker, is_live);
        if (self->once || ferror(stdout) || wait_for_look(broker, until_ms, has_keys, &status))
            break;
    }
    return status;
}

static int watch(top *self, connection *broker)
{
    struct termios before;
    int is_live = !self->once && !self->json && isatty(STDOUT_FILENO);
    int has_keys = is_live && begin_keys(&before);
    answers_begin(&self->answers, broker);
    if (is_live)
        fputs("\033[?1049h\033[?25l", stdout); /* a screen of its own, without cursor */
    bh_status status = look_on(self, broker, is_live, has_keys);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (is_live)
        fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    return status == BH_OK ? EX_OK : connection_complain(broker);
}

int top_main(int count, char **arguments)
{
    top self = {.interval_ms = 1000};
    const char *api = NULL;
    queue_names queues;
    const option_rule rules[] = {
        {"once", '1', OPTION_FLAG, NULL, "one look, and no screen", &self.once},
        {"interval", 'i', OPTION_DURATION, "TIME", "how often to look [1s]", &self.interval_ms},
        WAIT_OPTIONS(&self.policy, &self.topology),
        MANAGEMENT_OPTION(&api),
        BROKER_OPTIONS(&self.broker),
        JSON_OPTION(&self.json),
    };
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "[QUEUE...]",
                          "Shows the numbers of messages that are ready in work queues, waiting, parked and "
                          "unroutable, until q or Ctrl-C. AMQP cannot show messages that consumers have in hand.\n");
    if (self.interval_ms < LEAST_INTERVAL_MS)
        options_refuse("--interval: at least 100ms");
    catch_interrupts();
    api = management_url(api);
    int code = management_name_queues(&queues, api, &self.broker, count - at, arguments + at);
    if (code != EX_OK)
        return code;
    depths_plan(&self.seen, &self.topology, &self.policy, queues.items, queues.count);
    queue_names_free(&queues);
    if (api)
        management_open(&self.management, api, &self.broker); /* if it fails, the policy's wait queues are shown */
    if (self.management && !listing_open(&self.listing, self.management))
        code = EX_OSERR;
    connection *broker = NULL;
    if (code == EX_OK)
        code = connection_open(&broker, &self.broker, "top");
    if (code == EX_OK)
        code = watch(&self, broker);
    connection_close(broker);
    listing_close(self.listing);
    management_close(self.management);
    depths_free(&self.seen);
    return output_end(code);
}
