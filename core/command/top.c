/* backhop top: what is ready, waits and is parked, live. */
#include "command.h"
#include "depths.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum { LEAST_INTERVAL_MS = 100, HISTORY = 40, SCREEN_BYTES = 65536 };

typedef struct top {
    broker_options broker;
    topology_options topology;
    policy_options policy;
    int64_t interval_ms;
    int once;
    int json;
    depths seen;
    int64_t (*past)[HISTORY]; /* of each queue, the latest last; -1: not known */
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
        print_json(object);
    }
    fflush(stdout);
}

static void remember(top *self)
{
    for (size_t i = 0; i < self->seen.count; i++) {
        memmove(&self->past[i][0], &self->past[i][1], (HISTORY - 1) * sizeof(int64_t));
        self->past[i][HISTORY - 1] = self->seen.items[i].ready;
    }
}

/* Bars of eighths, the highest of the time shown full. */
static void sparkline(char *out, size_t size, const int64_t past[HISTORY], int columns)
{
    static const char *const bars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    int64_t most = 1;
    size_t used = 0;
    for (int i = 0; i < HISTORY; i++)
        most = past[i] > most ? past[i] : most;
    out[0] = '\0';
    for (int i = HISTORY - columns; i < HISTORY && used + 4 < size; i++) {
        int64_t level = past[i] <= 0 ? 0 : (past[i] * 8 + most - 1) / most;
        used += (size_t)snprintf(out + used, size - used, "%s", bars[level]);
    }
}

/* One screen's lines, each of them cut at its edge. */
static void draw(const top *self, const char *host, int64_t now_ms)
{
    int columns, lines, line = 2, hidden = 0;
    char time[TIME_TEXT], wait[TIME_TEXT], bars[HISTORY * 4], *screen = must(malloc(SCREEN_BYTES));
    size_t used = 0;
    terminal_size(&columns, &lines);
    int spark = columns - 62 > HISTORY ? HISTORY : columns > 62 ? columns - 62 : 0;
    used += (size_t)snprintf(screen, SCREEN_BYTES,
                             "\033[H%sbackhop%s  %.40s  %s\033[K\r\n%s%-10s %-*.*s %9s %9s%s\033[K\r\n", paint(BOLD),
                             paint(PLAIN), host, show_time(time, now_ms), paint(DIM), "", 28, 28, "queue", "ready",
                             "consumers", paint(PLAIN));
    for (size_t i = 0; i < self->seen.count && used + 1024 < SCREEN_BYTES; i++) {
        const depth *each = &self->seen.items[i];
        if (depth_is_not_made(each))
            continue;
        if (line + 2 >= lines) {
            hidden++;
            continue;
        }
        line++;
        const char *tint = each->ready > 0 && each->kind >= DEPTH_PARKED ? paint(RED) : "";
        char *name = shown(bh_str(each->wait_ms ? show_duration(wait, each->wait_ms) : each->name), 255);
        char ready[24] = "missing", consumers[24] = "";
        if (each->ready >= 0)
            snprintf(ready, sizeof ready, "%lld", (long long)each->ready);
        if (each->kind == DEPTH_WORK && each->consumers >= 0)
            snprintf(consumers, sizeof consumers, "%lld", (long long)each->consumers);
        sparkline(bars, sizeof bars, self->past[i], spark);
        used += (size_t)snprintf(screen + used, SCREEN_BYTES - used, "%-10s %-28.28s %s%9s%s %9s  %s\033[K\r\n",
                                 depth_word(each->kind), name, tint, ready, *tint ? paint(PLAIN) : "", consumers, bars);
        free(name);
    }
    if (hidden)
        used += (size_t)snprintf(screen + used, SCREEN_BYTES - used, "%d more; a larger window shows them\033[K\r\n",
                                 hidden);
    snprintf(screen + used, SCREEN_BYTES - used, "\033[J%sCtrl-C ends it%s", paint(DIM), paint(PLAIN));
    fputs(screen, stdout);
    fflush(stdout);
    free(screen);
}

static void print_once(const top *self)
{
    text_table out = {.columns = 4};
    char wait[TIME_TEXT];
    static const char *const titles[] = {"kind", "queue", "ready", "consumers"};
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    for (size_t i = 0; i < self->seen.count; i++) {
        const depth *each = &self->seen.items[i];
        if (depth_is_not_made(each))
            continue;
        table_add(&out, "%s%s%s", depth_word(each->kind), each->wait_ms ? " " : "",
                  each->wait_ms ? show_duration(wait, each->wait_ms) : "");
        table_add(&out, "%s", each->name);
        table_add(&out, each->ready < 0 ? "missing" : "%lld", (long long)each->ready);
        if (each->kind == DEPTH_WORK && each->consumers >= 0)
            table_add(&out, "%lld", (long long)each->consumers);
        else
            table_add(&out, "%s", "");
    }
    table_print(&out, "llrr");
}

static int watch(top *self, connection *broker)
{
    int is_live = !self->once && !self->json && isatty(STDOUT_FILENO);
    bh_status status;
    if (is_live)
        fputs("\033[?1049h\033[?25l", stdout); /* a screen of its own, without cursor */
    while ((status = depths_read(&self->seen, broker)) == BH_OK && !is_interrupted()) {
        int64_t now_ms = bh__epoch_ms(), until_ms = bh__monotonic_ms() + self->interval_ms;
        remember(self);
        if (self->json)
            print_depths_json(self, now_ms);
        else if (is_live)
            draw(self, broker->uri.host, now_ms);
        else
            print_once(self);
        if (self->once || ferror(stdout))
            break;
        while (status == BH_OK && !is_interrupted() && bh__monotonic_ms() < until_ms)
            status = connection_pump(broker, until_ms);
    }
    if (is_live)
        fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    return status == BH_OK ? EX_OK : connection_complain(broker);
}

int top_main(int count, char **arguments)
{
    top self = {.interval_ms = 1000};
    const option_rule rules[] = {
        {"once", '1', OPTION_FLAG, NULL, "one look, and no screen", &self.once},
        {"interval", 'i', OPTION_DURATION, "TIME", "how often to look [1s]", &self.interval_ms},
        WAIT_OPTIONS(&self.policy, &self.topology),
        BROKER_OPTIONS(&self.broker),
        JSON_OPTION(&self.json),
    };
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "QUEUE...",
                          "Shows what is ready in work queues, on their wait queues, parked and unroutable, until "
                          "Ctrl-C. What consumers have\n"
                          "in hand cannot be seen by AMQP.\n");
    if (at >= count)
        options_refuse("which work queue?");
    if (self.interval_ms < LEAST_INTERVAL_MS)
        options_refuse("--interval: at least 100ms");
    connection *broker;
    catch_interrupts();
    depths_plan(&self.seen, &self.topology, &self.policy, arguments + at, count - at);
    self.past = must(malloc(self.seen.count * sizeof *self.past));
    for (size_t i = 0; i < self.seen.count; i++)
        for (int j = 0; j < HISTORY; j++)
            self.past[i][j] = -1;
    int code = connection_open(&broker, &self.broker, "top");
    if (code == EX_OK)
        code = watch(&self, broker);
    connection_close(broker);
    free(self.past);
    depths_free(&self.seen);
    return output_end(code);
}
