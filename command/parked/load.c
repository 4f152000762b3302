/* backhop parked load: publishes the messages of a file. */
#include "parked/actions.h"
#include "parked/archive.h"
#include "common/command.h"
#include "common/loaded.h"
#include "parked/parked.h"
#include "worker/wire/content.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { BATCH = 512, CONFIRM_MS = 30000, PROGRESS_MS = 500, MOST_QUEUES = 1000 };

typedef struct loading {
    connection *broker;
    action_options options;
    action action;
    const char *file;
    const char *to;
    int64_t skip;
    int dry_run, json, progress;
    int64_t total;    /* messages to load, as counted before; -1: they were not counted */
    json_t *queues;   /* counts of messages by the queue that they go to */
    int64_t shown_ms; /* monotonic */
    FILE *in;
    int64_t last;          /* lines behind this one were not dropped; -1: all lines are loaded */
    int64_t line;          /* read so far */
    int64_t loaded;        /* lines up to this are safe */
    bh_delivery *delivery; /* of the line that was read last */
    bh__buffer archived;   /* the properties as the file has them */
    bh__buffer properties, body;
    int is_done[BATCH]; /* of the batch's publishes */
    size_t sent;
    size_t answered;
    uint64_t before; /* publishes of earlier batches */
    int code;        /* why it stops */
    char *looked;    /* the queue that was looked for last */
} loading;

static void on_confirm(loading *self, uint64_t tag, int multiple, int is_ack)
{
    for (size_t i = 0; i < self->sent; i++)
        if ((multiple && self->before + i + 1 <= tag) || self->before + i + 1 == tag) {
            self->answered += !self->is_done[i];
            self->is_done[i] = is_ack && self->is_done[i] != -1 ? 1 : -1;
        }
}

static void on_load_frame(void *data, const bh__frame *frame, const amqp_method_t *method)
{
    loading *self = data;
    if (frame->channel != CHANNEL_PUBLISH || !method)
        return;
    if (method->id == AMQP_BASIC_ACK_METHOD) {
        const amqp_basic_ack_t *ack = method->decoded;
        on_confirm(self, ack->delivery_tag, ack->multiple, 1);
    } else if (method->id == AMQP_BASIC_NACK_METHOD) {
        const amqp_basic_nack_t *nack = method->decoded;
        on_confirm(self, nack->delivery_tag, nack->multiple, 0);
    } else if (method->id == AMQP_BASIC_RETURN_METHOD) {
        self->code = EX_UNAVAILABLE; /* the queue is gone since it was looked for */
    } else if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        bh__link_answer_channel_close(&self->broker->link, CHANNEL_PUBLISH, method->decoded, "publishing",
                                      &self->broker->problem);
        self->code = connection_complain(self->broker);
    }
}

/* Prints how far it is, as JSON, if the last time is long enough ago. */
static void show_progress(loading *self, int is_last)
{
    int64_t now_ms = bh__monotonic_ms();
    if (!self->progress || (!is_last && now_ms - self->shown_ms < PROGRESS_MS))
        return;
    self->shown_ms = now_ms;
    print_json(must(json_pack("{s:b, s:s, s:I, s:o}", "progress", 1, "id", self->action.id, "loaded",
                              (json_int_t)(self->loaded - self->skip), "to_load",
                              self->total < 0 ? json_null() : json_integer(self->total))));
    fflush(stdout);
}

/* Waits until the batch is confirmed. */
static void end_batch(loading *self)
{
    int64_t begun_ms = bh__monotonic_ms(), until_ms = begun_ms + CONFIRM_MS;
    bh_status status = BH_OK;
    while (status == BH_OK && self->code == EX_OK && self->answered < self->sent && bh__monotonic_ms() < until_ms) {
        status = connection_pump(self->broker, until_ms);
        if (self->answered < self->sent && bh__monotonic_ms() - begun_ms >= CONNECTION_PATIENT_MS)
            connection_report_waiting(self->broker);
    }
    if (status != BH_OK)
        self->code = connection_complain(self->broker);
    size_t safe = 0;
    while (safe < self->sent && self->is_done[safe] == 1 && self->code != EX_UNAVAILABLE)
        safe++;
    self->loaded += (int64_t)safe;
    if (safe > 0) /* if this process is killed, the messages of one batch come twice at most */
        loaded_mark(self->file, self->loaded);
    show_progress(self, 0);
    if (safe < self->sent && self->code == EX_OK) {
        complain("the broker did not take a message: a queue is full, or it does not confirm");
        self->code = EX_TEMPFAIL;
    }
    self->before += self->sent;
    self->sent = self->answered = 0;
    memset(self->is_done, 0, sizeof self->is_done);
}

/* Checks that a queue exists: the broker returns a publish to a missing queue. */
static int find_queue(loading *self, const char *queue)
{
    int64_t ready;
    if (self->looked && strcmp(self->looked, queue) == 0)
        return EX_OK;
    bh_status status = connection_look(self->broker, queue, &ready, NULL);
    if (status != BH_OK)
        return connection_complain(self->broker);
    free(self->looked);
    self->looked = copy_text(bh_str(queue));
    return EX_OK;
}

/* Reads the message of a line. Returns 0 with the problem. */
static int read_line(loading *self, json_t *object, char problem[256])
{
    if (!archive_read(object, &self->archived, &self->body, problem))
        return 0;
    bh__buffer_clear(&self->properties);
    bh_bytes none = bh_str(""), archived = {self->archived.data, bh__buffer_size(&self->archived)};
    bh_status status = bh__content_read(self->delivery, none, none, archived);
    if (status == BH_OK) {
        archive_save(self->delivery, &self->archived);
        archived = (bh_bytes){self->archived.data, bh__buffer_size(&self->archived)};
        status = bh__content_strip(&self->properties, archived);
    }
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    if (status != BH_OK)
        snprintf(problem, 256, "its properties are malformed");
    return status == BH_OK;
}

/* Reads a line of the file as properties and body, and finds the queue that it goes to. EX_OK, or
 * complains and returns the exit code. */
static int read_message(loading *self, json_t *object, const char **to)
{
    char problem[256];
    const char *queue = self->to ? self->to : json_string_value(json_object_get(object, "queue"));
    if (!queue || !read_line(self, object, problem)) {
        complain("%s:%lld: %s", self->file, (long long)self->line,
                 queue ? problem : "\"queue\" is missing; --to names one");
        return EX_DATAERR;
    }
    if (bh__buffer_size(&self->properties) > bh__link_header_room(&self->broker->link)) {
        complain("%s:%lld: its headers fit no frame of this connection", self->file, (long long)self->line);
        return EX_DATAERR;
    }
    *to = queue;
    return find_queue(self, queue);
}

static int load_message(loading *self, json_t *object)
{
    const char *queue;
    int code = read_message(self, object, &queue);
    if (code != EX_OK)
        return code;
    bh_bytes properties = {self->properties.data, bh__buffer_size(&self->properties)},
             body = {self->body.data ? self->body.data : "", bh__buffer_size(&self->body)};
    amqp_basic_publish_t publish = {.routing_key = amqp_cstring_bytes(queue), .mandatory = 1};
    bh__link_publish(&self->broker->link, CHANNEL_PUBLISH, &publish, properties, body);
    self->sent++;
    if (self->sent == BATCH)
        end_batch(self);
    return self->code;
}

/* Counts a message, and looks for its queue. */
static int count_message(loading *self, json_t *object)
{
    const char *queue;
    int code = read_message(self, object, &queue);
    if (code != EX_OK)
        return code;
    json_int_t count = json_integer_value(json_object_get(self->queues, queue));
    if (count > 0 || json_object_size(self->queues) < MOST_QUEUES)
        json_object_set_new(self->queues, queue, json_integer(count + 1));
    self->total++;
    return EX_OK;
}

/* Calls `handle` with each line that is not skipped, until one fails: self->code. */
static void read_lines(loading *self, int (*handle)(loading *self, json_t *object))
{
    char *text = NULL;
    size_t room = 0;
    json_error_t error;
    while (self->code == EX_OK && !is_interrupted() && (self->last < 0 || self->line < self->last)) {
        ssize_t size = getline(&text, &room, self->in);
        if (size < 0)
            break;
        self->line++;
        if (self->line <= self->skip)
            continue;
        json_t *object = json_loadb(text, (size_t)size, JSON_ALLOW_NUL, &error);
        if (!object)
            complain("%s:%lld: %s", self->file, (long long)self->line, error.text);
        self->code = object ? handle(self, object) : EX_DATAERR;
        json_decref(object);
    }
    free(text);
}

static void load_all(loading *self)
{
    self->loaded = self->skip;
    read_lines(self, load_message);
    if (self->sent > 0) {
        int code = self->code;
        self->code = EX_OK;
        end_batch(self);
        self->code = code == EX_OK ? self->code : code;
    }
}

/* Checks that no line that was loaded before would be loaded again. */
static int check_mark(const loading *self)
{
    int64_t lines = loaded_lines(self->file);
    if (lines <= self->skip)
        return EX_OK;
    complain("lines up to %lld of %s were loaded before: --skip %lld loads the rest; to load them again, remove "
             "%s.loaded",
             (long long)lines, self->file, (long long)lines, self->file);
    return EX_USAGE;
}

/* Leaves out the lines that a killed drop did not drop. */
static void check_drop(loading *self)
{
    self->last = dropped_lines(self->file);
    if (self->last >= 0)
        complain("the drop that wrote %s did not end: only the messages of its first %lld lines were dropped, and are "
                 "loaded; to load all of them, remove %s.dropped",
                 self->file, (long long)self->last, self->file);
}

static void print_prospect(const loading *self)
{
    char text[64];
    const char *queue;
    json_t *count;
    if (self->json) {
        print_json(
            must(json_pack("{s:b, s:o, s:I, s:I, s:O}", "dry_run", 1, "file", json_text(bh_str(self->file)), "to_load",
                           (json_int_t)self->total, "skipped", (json_int_t)self->skip, "queues", self->queues)));
        return;
    }
    say("%s of %s would be loaded\n", count_messages(text, self->total), self->file);
    json_object_foreach(self->queues, queue, count)
    {
        say("  %lld to \"%s\"\n", (long long)json_integer_value(count), queue);
    }
}

/* Reads the whole file, and counts its messages. EX_OK, or complains and returns the exit code. */
static int count_all(loading *self)
{
    self->total = 0;
    self->queues = must(json_object());
    read_lines(self, count_message);
    int code = is_interrupted() && self->code == EX_OK ? EXIT_INTERRUPTED : self->code;
    if (code == EX_OK && self->dry_run)
        print_prospect(self);
    if (code == EX_OK && !self->dry_run)
        code = action_check(&self->options, self->total);
    if (self->in != stdin)
        rewind(self->in);
    self->line = 0;
    return code;
}

static int begin_load(loading *self)
{
    json_t *facts =
        must(json_pack("{s:s, s:o, s:o, s:o}", "action", "load", "vhost", json_text(bh_str(self->broker->uri.vhost)),
                       "file", json_text(bh_str(self->file)), "queue", json_text(bh_str(self->to ? self->to : ""))));
    if (self->total >= 0)
        json_object_set_new(facts, "messages", json_integer(self->total));
    if (self->skip > 0)
        json_object_set_new(facts, "skip", json_integer(self->skip));
    return action_begin(&self->action, &self->options, facts);
}

static int open_for_load(loading *self, const broker_options *broker)
{
    amqp_confirm_select_t select = {.nowait = 0};
    catch_interrupts();
    int code = connection_open(&self->broker, broker, "parked load");
    if (code != EX_OK)
        return code;
    self->broker->on_frame = on_load_frame;
    self->broker->data = self;
    bh_status status = connection_open_channel(self->broker, CHANNEL_PUBLISH);
    if (status == BH_OK)
        status = connection_call(self->broker, CHANNEL_PUBLISH, AMQP_CONFIRM_SELECT_METHOD, &select,
                                 AMQP_CONFIRM_SELECT_OK_METHOD, 0, "asking for confirms");
    return status == BH_OK ? EX_OK : connection_complain(self->broker);
}

/* Loads, records it, and prints the results. Returns the exit code. */
static int run(loading *self)
{
    int code = begin_load(self);
    if (code != EX_OK)
        return code;
    load_all(self);
    show_progress(self, 1);
    int64_t loaded = self->loaded - self->skip;
    code = is_interrupted() && self->code == EX_OK ? EXIT_INTERRUPTED : self->code;
    action_end(&self->action, code,
               must(json_pack("{s:I, s:I}", "loaded", (json_int_t)loaded, "lines", (json_int_t)self->loaded)));
    if (self->json)
        print_json(must(json_pack("{s:I, s:I}", "loaded", (json_int_t)loaded, "lines", (json_int_t)self->loaded)));
    else
        fprintf(stderr, "%lld messages loaded\n", (long long)loaded);
    if (code != EX_OK)
        complain("lines up to %lld are loaded; the rest by --skip %lld", (long long)self->loaded,
                 (long long)self->loaded);
    return code;
}

static int open_file(loading *self)
{
    self->in = strcmp(self->file, "-") == 0 ? stdin : fopen(self->file, "re");
    if (self->in == stdin && self->options.expected >= 0)
        options_refuse("--expect needs a file, which is read twice");
    if (self->in)
        return EX_OK;
    complain("%s cannot be opened: %s", self->file, strerror(errno));
    return EX_NOINPUT;
}

int parked_load(int count, char **arguments)
{
    loading self = {.code = EX_OK, .options = {.expected = -1}, .total = -1};
    broker_options broker = {.uri = NULL};
    const option_rule rules[] = {
        {"to", 't', OPTION_TEXT, "QUEUE", "to this queue instead of the one that each was saved from", &self.to},
        {"skip", 0, OPTION_NUMBER, "COUNT", "leave out so many lines: those that were loaded already", &self.skip},
        {"dry-run", 'n', OPTION_FLAG, NULL, "say how many it would be, and do nothing", &self.dry_run},
        ACTION_OPTIONS(&self.options),
        PROGRESS_OPTION(&self),
        BROKER_OPTIONS(&broker),
        JSON_OPTION(&self.json),
    };
    int at = options_read(
        count, arguments, rules, sizeof rules / sizeof rules[0], "FILE",
        "Publishes the messages of a file that save or drop wrote (-: standard input) to the queue that they were\n"
        "saved from, with their headers and properties, and waits for the confirms. If it\n"
        "fails, it prints the line to go on from. FILE.loaded marks what was loaded, so that a second\n"
        "load does not double messages.\n");
    if (count - at != 1)
        options_refuse("one file is wanted");
    self.file = arguments[at];
    self.progress &= self.json;
    int code = open_file(&self);
    if (code != EX_OK)
        return code;
    if (bh_delivery_new(&self.delivery) != BH_OK)
        must(NULL);
    code = check_mark(&self);
    check_drop(&self);
    if (code == EX_OK)
        code = open_for_load(&self, &broker);
    if (code == EX_OK && (self.dry_run || self.options.expected >= 0))
        code = count_all(&self);
    if (code == EX_OK && !self.dry_run)
        code = run(&self);
    if (self.broker)
        self.broker->on_frame = NULL;
    connection_close(self.broker);
    bh_delivery_free(self.delivery);
    bh__buffer_free(&self.archived);
    bh__buffer_free(&self.properties);
    bh__buffer_free(&self.body);
    json_decref(self.queues);
    free(self.looked);
    if (self.in != stdin)
        fclose(self.in);
    return output_end(code);
}
