/* backhop simulate: a failing downstream, with a policy and without back-off. */
#include "common/command.h"
#include "common/output.h"
#include "setup/setup.h"
#include "setup/simulation.h"
#include "setup/words.h"

#include "worker/wire/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

typedef struct simulate {
    policy_options policy;
    topology_options topology;
    scenario of;
    const char *down;
    const char *svg;
    int64_t seed;
    int json;
    int with_breaker;
    simulation with;
    simulation without;
    simulation breaker; /* with back-off and a breaker; empty if there is none */
} simulate;

/* ---------------------------------------------------------------------------------------- plots */

static double calls_at(const simulation *of, size_t at)
{
    return at < of->count ? of->buckets[at].calls : 0;
}

/* Returns the end of the plot: behind the last bucket that has a call or a message. */
static size_t last_bucket(const simulate *self)
{
    size_t last = self->with.count > self->without.count ? self->with.count : self->without.count;
    last = self->breaker.count > last ? self->breaker.count : last;
    return last > 1 ? last : 2;
}

static void plot(const simulate *self, const simulation *of, const char *title)
{
    enum { ROWS = 8 };
    static const char *const bars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    int columns, lines;
    char time[TIME_TEXT];
    terminal_size(&columns, &lines);
    size_t width = columns > 100 ? 80 : columns > 40 ? (size_t)columns - 20 : 20, last = last_bucket(self);
    double most = self->with.most_calls > self->without.most_calls ? self->with.most_calls : self->without.most_calls;
    printf("\n%s%s%s\n", paint(BOLD), title, paint(PLAIN));
    for (int row = ROWS; row-- > 0;) {
        if (row == ROWS - 1 || row == 0)
            printf("%10.4g ", row ? most : 0.0);
        else
            printf("%10s ", "");
        for (size_t i = 0; i < width; i++) {
            double eighths = most > 0 ? calls_at(of, i * last / width) / most * ROWS * 8 - row * 8 : 0;
            fputs(bars[eighths >= 8 ? 8 : eighths <= 0 ? 0 : (int)(eighths + 0.999)], stdout);
        }
        putchar('\n');
    }
    printf("%10s 0%*s\n", "", (int)width - 1, show_duration(time, (int64_t)last * of->bucket_ms));
}

static void svg_line(FILE *out, const simulate *self, const simulation *of, const char *colour, double most)
{
    size_t last = last_bucket(self);
    fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
    for (size_t i = 0; i < last; i++)
        fprintf(out, "%.1f,%.1f ", 60 + 640.0 * (double)i / (double)last, 260 - 220 * calls_at(of, i) / most);
    fprintf(out, "\"/>\n");
}

/* Explains the lines of the drawing. */
static void svg_legend(FILE *out, const simulate *self)
{
    fprintf(out, "<text x=\"60\" y=\"20\">Calls a second at the downstream, which is down in the grey part: <tspan "
                 "fill=\"#36c\">with back-off</tspan>, <tspan fill=\"#c33\">retried at once</tspan>");
    if (self->with_breaker)
        fprintf(out, ", <tspan fill=\"#292\">with a breaker</tspan>");
    fprintf(out, "</text>\n");
}

static int write_svg(const simulate *self)
{
    FILE *out = fopen(self->svg, "we");
    char time[TIME_TEXT];
    double most = self->with.most_calls > self->without.most_calls ? self->with.most_calls : self->without.most_calls;
    double span_ms = (double)last_bucket(self) * (double)self->with.bucket_ms;
    if (!out) {
        complain("%s cannot be made: %s", self->svg, strerror(errno));
        return EX_CANTCREAT;
    }
    if (most <= 0)
        most = 1;
    fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 300\" font-family=\"sans-serif\" "
                 "font-size=\"12\">\n"
                 "<rect width=\"720\" height=\"300\" fill=\"white\"/>\n");
    fprintf(out, "<rect x=\"%.1f\" y=\"40\" width=\"%.1f\" height=\"220\" fill=\"#eee\"/>\n",
            60 + 640 * (double)self->of.down_from_ms / span_ms,
            640 * (double)(self->of.down_to_ms - self->of.down_from_ms) / span_ms);
    fprintf(out,
            "<path d=\"M60 40V260H700\" fill=\"none\" stroke=\"black\"/>\n<text x=\"8\" y=\"44\">%.4g/s</text>\n"
            "<text x=\"52\" y=\"276\">0</text>\n<text x=\"700\" y=\"276\" text-anchor=\"end\">%s</text>\n",
            most, show_duration(time, (int64_t)span_ms));
    svg_line(out, self, &self->without, "#c33", most);
    svg_line(out, self, &self->with, "#36c", most);
    if (self->with_breaker)
        svg_line(out, self, &self->breaker, "#292", most);
    svg_legend(out, self);
    fprintf(out, "</svg>\n");
    if (fclose(out) != 0) {
        complain("%s cannot be written: %s", self->svg, strerror(errno));
        return EX_IOERR;
    }
    return EX_OK;
}

/* ---------------------------------------------------------------------------------------- table */

static void add_row(text_table *out, const simulate *self, const simulation *of, const char *name)
{
    char time[TIME_TEXT];
    table_add(out, "%s", name);
    table_add(out, "%lld", (long long)of->parked);
    table_add(out, "%lld", (long long)of->done);
    table_add(out, "%lld", (long long)of->calls);
    table_add(out, "%lld", (long long)of->failed_calls);
    table_add(out, "%.4g/s", of->most_calls);
    table_add(out, "%lld", (long long)of->most_queued);
    table_add(out, "%lld", (long long)of->most_waiting);
    if (of->drained_ms < 0)
        table_add(out, "%s", "not by the end");
    else
        table_add(out, "%s after", show_duration(time, of->drained_ms - self->of.down_to_ms));
}

/* Prints the meaning of the two rows: first parked messages, then failed calls. */
static void print_verdict(const simulate *self)
{
    const simulation *with = &self->with, *without = &self->without;
    const int64_t fewer = without->failed_calls - with->failed_calls;
    if (with->parked != without->parked)
        printf("\n%s: it parked %lld of %lld messages; retried at once, %lld of %lld were parked.\n",
               with->parked < without->parked ? "Back-off is better" : "Back-off is worse", (long long)with->parked,
               (long long)with->messages, (long long)without->parked, (long long)without->messages);
    else if (fewer)
        printf("\nBack-off is %s: it parked as many messages, and made %lld %s calls that failed.\n",
               fewer > 0 ? "better" : "worse", (long long)(fewer > 0 ? fewer : -fewer), fewer > 0 ? "fewer" : "more");
    else
        printf("\nBoth are alike: as many messages parked, and as many calls that failed.\n");
}

static void print_breaker_verdict(const simulate *self)
{
    if (self->with_breaker)
        printf("With a breaker, %lld calls failed, and %lld messages were parked.\n",
               (long long)self->breaker.failed_calls, (long long)self->breaker.parked);
}

static void print_all(const simulate *self)
{
    static const char *const titles[] = {"",        "parked", "done",    "calls",       "failed",
                                         "at most", "queued", "waiting", "backlog gone"};
    text_table out = {.columns = 9};
    char from[TIME_TEXT], to[TIME_TEXT];
    printf("%g messages a second; the downstream answers %g a second; it is down from %s to %s; seed %lld\n\n",
           self->of.rate, self->of.capacity, show_duration(from, self->of.down_from_ms),
           show_duration(to, self->of.down_to_ms), (long long)self->seed);
    for (size_t i = 0; i < out.columns; i++)
        table_add(&out, "%s", titles[i]);
    add_row(&out, self, &self->with, "with back-off");
    add_row(&out, self, &self->without, "retried at once");
    if (self->with_breaker)
        add_row(&out, self, &self->breaker, "with a breaker");
    table_print(&out, "lrrrrrrrl");
    print_verdict(self);
    print_breaker_verdict(self);
    plot(self, &self->with, "Calls a second with back-off");
    plot(self, &self->without, "Calls a second, retried at once");
    if (self->with_breaker)
        plot(self, &self->breaker, "Calls a second with back-off and a breaker");
    if (self->with.was_cut || self->without.was_cut)
        complain("ended at %d calls; a shorter outage or a lower rate shows all", SIMULATION_MOST_CALLS);
}

static void print_one_json(const simulate *self, const simulation *of, const char *name)
{
    json_t *buckets = must(json_array());
    for (size_t i = 0; i < of->count; i++)
        json_array_append_new(
            buckets, json_pack("{s:I, s:f, s:I, s:I, s:I}", "time_ms", (json_int_t)i * of->bucket_ms, "calls_per_s",
                               of->buckets[i].calls, "queued", (json_int_t)of->buckets[i].queued, "waiting",
                               (json_int_t)of->buckets[i].waiting, "parked", (json_int_t)of->buckets[i].parked));
    print_json(must(json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:o, s:b, s:o}", "name", name, "seed",
        (json_int_t)self->seed, "messages", (json_int_t)of->messages, "calls", (json_int_t)of->calls, "failed_calls",
        (json_int_t)of->failed_calls, "done", (json_int_t)of->done, "parked", (json_int_t)of->parked, "left",
        (json_int_t)of->remaining, "most_queued", (json_int_t)of->most_queued, "most_waiting",
        (json_int_t)of->most_waiting, "most_calls_per_s", of->most_calls, "drained_ms",
        of->drained_ms < 0 ? json_null() : json_integer(of->drained_ms), "cut", of->was_cut, "over_time", buckets)));
}

/* ----------------------------------------------------------------------------------------- main */

static void read_down(simulate *self)
{
    words_error error;
    if (!words_times("--down", self->down, &self->of.down_from_ms, &self->of.down_to_ms, &error))
        options_refuse("%s", error.text);
}

int simulate_main(int count, char **arguments)
{
    simulate self = {.of = {.rate = 20, .capacity = 500}, .down = "1m..6m", .seed = -1};
    const option_rule rules[] = {
        {"rate", 'r', OPTION_REAL, "NUMBER", "new messages a second [20]", &self.of.rate},
        {"capacity", 'c', OPTION_REAL, "NUMBER", "calls a second that the downstream takes [500]", &self.of.capacity},
        {"down", 'd', OPTION_TEXT, "FROM..TO", "when it fails each call [1m..6m]", &self.down},
        {"failures", 0, OPTION_REAL, "SHARE", "of calls that fail otherwise, 0 to 1 [0]", &self.of.failure_rate},
        {"until", 0, OPTION_DURATION, "TIME", "new messages come until then [2 x --down]", &self.of.until_ms},
        {"end", 0, OPTION_DURATION, "TIME", "end there at the latest [1 h after --down]", &self.of.end_ms},
        {"seed", 's', OPTION_NUMBER, "NUMBER", "of the random numbers, for the same again", &self.seed},
        {"svg", 0, OPTION_TEXT, "FILE", "draw it too", &self.svg},
        POLICY_OPTIONS(&self.policy, NAME),
        {"breaker", 0, OPTION_FLAG, NULL, "also with a circuit breaker, by its default settings", &self.with_breaker},
        {"strategy", 0, OPTION_TEXT, "NAME", "as of 'backhop schedule' [ladder]", &self.topology.strategy},
        {"series", 0, OPTION_TEXT, "R5..R40", "rungs a decade [R10]", &self.topology.series},
        JSON_OPTION(&self.json),
    };
    int at = options_read(count, arguments, rules, sizeof rules / sizeof rules[0], "",
                          "Simulates a downstream that is down for a while: the calls that reach it, queues, and how "
                          "long until the backlog is gone, with a policy's back-off, and retried at once. The library "
                          "itself decides each delay. Needs no broker.\n");
    if (at < count)
        options_refuse("'%s': no operand is wanted", arguments[at]);
    read_down(&self);
    if (self.of.rate <= 0 || self.of.capacity <= 0 || self.of.failure_rate > 1)
        options_refuse("--rate and --capacity are above 0, --failures is 0 to 1");
    if (self.seed < 0 && bh__random(&self.seed, sizeof self.seed))
        self.seed = (int64_t)((uint64_t)self.seed >> 12);
    self.of.seed = (uint64_t)self.seed;
    simulation_set_ends(&self.of);
    bh_policy *policy = setup_policy(&self.policy);
    bh_topology *topology = setup_topology(&self.topology, "work", policy);
    bh_status status = simulation_run(&self.with, &self.of, policy, topology);
    self.of.has_breaker = 1;
    if (status == BH_OK && self.with_breaker)
        status = simulation_run(&self.breaker, &self.of, policy, topology);
    self.of.has_breaker = 0;
    self.of.at_once = 1;
    if (status == BH_OK)
        status = simulation_run(&self.without, &self.of, policy, topology);
    int code = status == BH_OK ? EX_OK : complain_status(status, bh_str(""));
    if (code == EX_OK && self.json) {
        print_one_json(&self, &self.with, "back-off");
        print_one_json(&self, &self.without, "at-once");
        if (self.with_breaker)
            print_one_json(&self, &self.breaker, "breaker");
    } else if (code == EX_OK) {
        print_all(&self);
    }
    if (code == EX_OK && self.svg)
        code = write_svg(&self);
    bh_topology_free(topology);
    bh_policy_free(policy);
    return output_end(code);
}
