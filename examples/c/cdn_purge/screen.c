#define _DEFAULT_SOURCE

#include "screen.h"
#include "api.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LABEL 20 /* columns before the timeline */
#define WIDEST 100
#define LOG_WIDTH 96
#define FRAME_EVERY_MS 200
#define USUAL_MS 29000 /* how long a run takes: the live timeline begins with room for so much */

/*
 * A timeline is made of cells, one character each:
 *     . waits   x failed   v succeeded   P parked   1 to 8: so many messages in a wait queue   ( - ) the API's peak
 * Anything else stands for itself.
 */
struct cell_style {
    char cell;
    const char *utf8;
    const char *ascii;
    const char *colour;
};

static const struct cell_style cell_styles[] = {
    {'.', "·", ".", "2"},  {'x', "x", "x", "31"}, {'v', "✓", "v", "1;32"}, {'P', "P", "P", "1;33"},
    {'(', "├", "|", "35"}, {'-', "─", "-", "35"}, {')', "┤", "|", "35"},   {'1', "▁", "1", "36"},
    {'2', "▂", "2", "36"}, {'3', "▃", "3", "36"}, {'4', "▄", "4", "36"},   {'5', "▅", "5", "36"},
    {'6', "▆", "6", "36"}, {'7', "▇", "7", "36"}, {'8', "█", "8", "36"},
};

static const struct cell_style *style_of(char cell)
{
    static const struct cell_style none = {' ', " ", " ", "0"};
    for (size_t s = 0; s < sizeof cell_styles / sizeof cell_styles[0]; s++)
        if (cell_styles[s].cell == cell)
            return &cell_styles[s];
    return &none;
}

static void put_cells(const struct screen *self, FILE *out, const char *cells, int count)
{
    const char *colour = "0";

    for (int i = 0; i < count; i++) {
        const struct cell_style *style = style_of(cells[i]);
        if (self->colour && strcmp(colour, style->colour) != 0)
            fprintf(out, "\033[0;%sm", style->colour);
        colour = style->colour;
        if (style->cell == cells[i])
            fputs(self->utf8 ? style->utf8 : style->ascii, out);
        else
            fputc(cells[i], out);
    }
    if (self->colour && strcmp(colour, "0") != 0)
        fputs("\033[0m", out);
}

/* A row's label in a certain width, then its cells. */
static void put_row(const struct screen *self, FILE *out, const char *label, const char *cells, int count)
{
    while (count > 0 && cells[count - 1] == ' ')
        count--;
    fprintf(out, " %-*s", count > 0 ? LABEL - 1 : 0, label);
    put_cells(self, out, cells, count);
    fputc('\n', out);
}

static void put_heading(const struct screen *self, FILE *out, const char *text)
{
    fprintf(out, " %s%s%s\n", self->colour ? "\033[1m" : "", text, self->colour ? "\033[0m" : "");
}

/* A stretch of time drawn in a number of columns. */
struct scale {
    int columns;
    int64_t column_ms;
};

static int column(const struct scale *scale, int64_t at_ms)
{
    int64_t at = at_ms / scale->column_ms;
    return at < scale->columns ? (int)at : scale->columns - 1;
}

static struct scale scale_for(int width, int64_t until_ms)
{
    static const int64_t steps[] = {250, 400, 500, 600, 800, 1000, 1250, 2000};
    struct scale scale = {width - LABEL - 1, steps[0]};
    for (size_t i = 1; i < sizeof steps / sizeof steps[0] && scale.column_ms * scale.columns <= until_ms; i++)
        scale.column_ms = steps[i];
    return scale;
}

/* The seconds, a ruler, and when the API is busy. */
static void put_axis(const struct screen *self, FILE *out, const struct scale *scale)
{
    char seconds[WIDEST + 8], peak[WIDEST];
    int begins = column(scale, PEAK_BEGINS_MS), ends = column(scale, PEAK_ENDS_MS), used = 0;

    memset(seconds, ' ', sizeof seconds);
    memset(peak, ' ', sizeof peak);
    for (int64_t s = 0; s * 1000 < scale->columns * scale->column_ms; s += 5) {
        char number[24];
        int size = snprintf(number, sizeof number, "%d s", (int)s);
        memcpy(seconds + column(scale, s * 1000), number, (size_t)size);
        used = column(scale, s * 1000) + size;
    }
    memset(peak + begins, '-', (size_t)(ends - begins));
    peak[begins] = '(';
    peak[ends] = ')';
    memcpy(peak + (begins + ends) / 2 - 2, " peak ", 6);
    fprintf(out, "%*s%.*s\n", LABEL, "", used < scale->columns ? used : scale->columns, seconds);
    put_row(self, out, "the purge API", peak, scale->columns);
}

static char attempt_cell(const struct attempt *attempt)
{
    if (attempt->action == BH_ACTION_RETRY)
        return 'x';
    return attempt->action == BH_ACTION_PARK ? 'P' : 'v';
}

static void put_message(const struct screen *self, FILE *out, const struct scale *scale, const struct message *message,
                        int64_t now_ms)
{
    char cells[WIDEST], label[32];

    memset(cells, ' ', sizeof cells);
    for (int i = 0; i < kept_attempts(message); i++) {
        const struct attempt *attempt = &message->attempt[i];
        int at = column(scale, attempt->at_ms);
        if (attempt->action == BH_ACTION_RETRY) {
            int64_t until_ms = i + 1 < kept_attempts(message) ? message->attempt[i + 1].at_ms : now_ms;
            memset(cells + at, '.', (size_t)column(scale, until_ms) + 1 - (size_t)at);
        }
        cells[at] = attempt_cell(attempt);
    }
    snprintf(label, sizeof label, "%s %s", message->id, message->routing_key);
    put_row(self, out, label, cells, scale->columns);
}

/* One row a wait queue: its delay, its depth at the peak and at the end, and over time. */
static void put_waits(const struct screen *self, FILE *out, const struct scale *scale, const char *last_heading)
{
    const struct record *record = self->record;
    char heading[64];

    snprintf(heading, sizeof heading, "%-7s %4s %4s   messages in each wait queue", "waits", "peak", last_heading);
    put_heading(self, out, heading);
    for (size_t i = 0; i < record->waits; i++) {
        const struct wait_queue *wait = &record->wait[i];
        char cells[WIDEST], delay[16], label[48];
        int most[WIDEST] = {0};
        if (!wait->declared)
            continue;
        for (size_t s = 0; s < record->samples; s++) {
            int at = column(scale, (int64_t)s * SAMPLE_MS);
            most[at] = wait->depth[s] > most[at] ? wait->depth[s] : most[at];
        }
        for (int c = 0; c < scale->columns; c++)
            cells[c] = " 12345678"[most[c] < 8 ? most[c] : 8];
        snprintf(delay, sizeof delay, "%g s", (double)wait->ms / 1000);
        snprintf(label, sizeof label, "%-7s %4d %4d", delay, wait->peak, wait->left);
        put_row(self, out, label, cells, scale->columns);
    }
}

static void put_legend(const struct screen *self, FILE *out)
{
    static const char legend[] = "x refused   . waits   v purged   P parked";
    put_row(self, out, "", legend, (int)sizeof legend - 1);
}

/* Hides messages until so many rows do: those to come first, then the oldest that are settled, then the oldest. */
static void hide_messages(const struct record *record, int rows, int *hidden)
{
    int excess = MESSAGES - rows;

    for (int i = MESSAGES - 1; i >= 0 && excess > 0; i--)
        excess -= hidden[i] = record->message[i].attempts == 0;
    for (int i = 0; i < MESSAGES && excess > 0; i++)
        if (is_settled(&record->message[i]))
            excess -= hidden[i] = 1;
    for (int i = 0; i < MESSAGES && excess > 0; i++)
        if (!hidden[i])
            excess -= hidden[i] = 1;
}

/* The timeline as it stands, in fewer lines than the terminal has. */
static void put_live(const struct screen *self, FILE *out, int64_t now_ms, int width, int height)
{
    const struct record *record = self->record;
    struct scale scale = scale_for(width, now_ms > USUAL_MS ? now_ms : USUAL_MS);
    int hidden[MESSAGES] = {0}, published = 0, settled = 0, wait_rows = 2, rows = height - 8;

    for (size_t i = 0; i < record->waits; i++)
        wait_rows += record->wait[i].declared;
    hide_messages(record, rows, hidden);

    put_axis(self, out, &scale);
    for (size_t i = 0; i < MESSAGES; i++) {
        const struct message *message = &record->message[i];
        published += message->published;
        settled += is_settled(message);
        if (!hidden[i])
            put_message(self, out, &scale, message, now_ms);
    }
    put_legend(self, out);
    if (rows >= MESSAGES + wait_rows) {
        fputc('\n', out);
        put_waits(self, out, &scale, "now");
    }
    fprintf(out, "\n %.1f s: published %d, delivered %d times, settled %d; search-index received %d\n",
            (double)now_ms / 1000, published, record->delivered, settled, record->indexed);
}

/* Draws what happened to the messages in one second, in as many lines as it takes. */
static void put_second(const struct screen *self, FILE *out, int64_t second)
{
    int used = 0;

    for (size_t i = 0; i < MESSAGES; i++) {
        const struct message *message = &self->record->message[i];
        for (int a = 0; a < kept_attempts(message); a++) {
            const struct attempt *attempt = &message->attempt[a];
            char delay[24] = "";
            if (attempt->at_ms / 1000 != second)
                continue;
            if (attempt->action == BH_ACTION_RETRY)
                snprintf(delay, sizeof delay, " %gs", (double)attempt->delay_ms / 1000);
            if (used == 0)
                used = fprintf(out, " %2d s ", (int)second);
            used += fprintf(out, "  ");
            char cell = attempt_cell(attempt);
            put_cells(self, out, &cell, 1);
            used += 1 + fprintf(out, " %s%s", message->id, delay);
            if (used > LOG_WIDTH - 12) {
                fputc('\n', out);
                used = 0;
            }
        }
    }
    if (used > 0)
        fputc('\n', out);
}

static int compare_ms(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static void put_total(const struct screen *self, FILE *out, const char *name, int number, int must_be_0,
                      const char *what)
{
    const char *colour = !self->colour || !must_be_0 ? "" : number == 0 ? "\033[1;32m" : "\033[1;31m";
    fprintf(out, " %-15s %s%4d%s  %s\n", name, colour, number, *colour ? "\033[0m" : "", what);
}

/* Prints the numbers of the whole run. Returns 1 if every event is settled and no count that must be 0 is above 0. */
static int put_totals(const struct screen *self, FILE *out)
{
    const struct record *record = self->record;
    int published = 0, succeeded = 0, doubled = 0, parked = 0;
    int64_t late[MESSAGES * MOST_ATTEMPTS] = {0};
    size_t returns = 0;
    char text[96];

    for (size_t i = 0; i < MESSAGES; i++) {
        const struct message *message = &record->message[i];
        published += message->published;
        succeeded += message->succeeded > 0;
        parked += message->parked > 0;
        doubled += message->succeeded + message->parked > 1;
        for (int a = 1; a < kept_attempts(message); a++) {
            const struct attempt *before = &message->attempt[a - 1];
            late[returns++] = message->attempt[a].at_ms - before->settled_ms - before->delay_ms;
        }
    }
    qsort(late, returns, sizeof late[0], compare_ms);
    int missing = count_missing(record);
    int lost = missing > record->left ? missing - record->left : 0;

    put_heading(self, out, "in all");
    put_total(self, out, "published", published, 0, "events, each confirmed by the broker");
    put_total(self, out, "delivered", record->delivered, 0, "attempts of the handler");
    snprintf(text, sizeof text, "attempts; back %d ms late at the median, %d ms at most", (int)late[returns / 2],
             (int)late[returns ? returns - 1 : 0]);
    put_total(self, out, "retried", record->retried, 0, text);
    put_total(self, out, "succeeded", succeeded, 0, "events");
    put_total(self, out, "parked", parked, 0, "events");
    if (missing > lost)
        put_total(self, out, "still waiting", missing - lost, 0, "events, as the run was cut short");
    put_total(self, out, "lost", lost, 1, "events that are neither done, nor parked, nor in any queue");
    put_total(self, out, "doubled", doubled, 1, "events that succeeded twice, or were parked as well");
    put_total(self, out, "changed", record->changed, 1, "attempts with another body, routing key or property");
    snprintf(text, sizeof text, "retries among the %d messages that search-index received", record->indexed);
    put_total(self, out, "seen by others", record->strangers, 1, text);
    return missing == 0 && doubled == 0 && record->changed == 0 && record->strangers == 0;
}

static void put_parked(const struct screen *self, FILE *out)
{
    put_heading(self, out, "parked, for a person to look at in " CDN_PURGE ".parked");
    for (size_t i = 0; i < MESSAGES; i++) {
        const struct message *message = &self->record->message[i];
        if (message->parked)
            fprintf(out, " %s %s  %-9s  %s after attempt %d: %s\n", message->id, message->routing_key, message->path,
                    message->parked_reason, message->parked_attempts, message->parked_error);
    }
}

/* Returns the terminal's size; 0 by 0 if the timeline cannot be drawn in place. */
static void terminal_size(const struct screen *self, int *width, int *height)
{
    struct winsize size = {0};

    *width = *height = 0;
    if (self->terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60 && size.ws_row >= 14) {
        *width = size.ws_col < WIDEST ? size.ws_col : WIDEST;
        *height = size.ws_row;
    }
}

/* Puts the text in the place of the frame before it. */
static void show_frame(struct screen *self, const char *text)
{
    if (self->lines > 0)
        printf("\033[%dA\r", self->lines);
    else
        fputs("\033[?25l", stdout); /* the cursor would flicker */
    self->lines = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '\n') {
            fputs("\033[K", stdout);
            self->lines++;
        }
        fputc(*c, stdout);
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

void screen_open(struct screen *self, struct record *record)
{
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");

    setlocale(LC_CTYPE, "");
    self->record = record;
    self->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    self->terminal = isatty(STDOUT_FILENO) && kind && strcmp(kind, "dumb") != 0;
    self->colour = self->terminal && !(no_colour && *no_colour);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
}

void screen_update(struct screen *self)
{
    int64_t now_ms = elapsed_ms(self->record);
    int width, height;
    char *text = NULL;
    size_t size = 0;

    if (now_ms < self->next_ms)
        return;
    terminal_size(self, &width, &height);
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    pthread_mutex_lock(&self->record->lock);
    if (height > 0) {
        put_live(self, out, now_ms, width, height);
        self->next_ms = now_ms + FRAME_EVERY_MS;
    } else {
        if (self->next_ms > 0)
            put_second(self, out, self->next_ms / 1000 - 1);
        self->next_ms = (self->next_ms / 1000 + 1) * 1000;
    }
    pthread_mutex_unlock(&self->record->lock);
    if (fclose(out) == 0 && height > 0) {
        show_frame(self, text);
    } else if (text) {
        fputs(text, stdout);
        fflush(stdout);
    }
    free(text);
}

int screen_finish(struct screen *self, int64_t end_ms)
{
    const struct record *record = self->record;
    int width, height;

    terminal_size(self, &width, &height);
    struct scale scale = scale_for(width > 0 ? width : WIDEST, end_ms);
    if (self->lines > 0)
        show_frame(self, "");
    else
        fputc('\n', stdout);
    put_axis(self, stdout, &scale);
    for (size_t i = 0; i < MESSAGES; i++)
        put_message(self, stdout, &scale, &record->message[i], end_ms);
    put_legend(self, stdout);
    fputc('\n', stdout);
    put_waits(self, stdout, &scale, "end");
    fputc('\n', stdout);
    put_parked(self, stdout);
    fputc('\n', stdout);
    int as_it_must_be = put_totals(self, stdout);
    fflush(stdout);
    return as_it_must_be;
}

void screen_close(const struct screen *self)
{
    fputs(self->terminal ? "\033[?25h" : "", stdout);
    fflush(stdout);
}
