/* backhop parked save, load, drop: to a file and back. */
#include "parked/actions.h"
#include "parked/archive.h"
#include "common/command.h"
#include "parked/loaded.h"
#include "parked/parked.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------ save and drop */

typedef struct taking {
    parked_options parked;
    action_options options;
    action action;
    int drops;
    int yes;
    int dry_run;
    FILE *file;
    uint64_t *tags; /* of the messages that are in the file */
    size_t count;
    size_t capacity;
    int64_t fitting;
} taking;

static void keep_tag(taking *self, uint64_t tag)
{
    void *tags = self->tags;
    if (!bh__reserve(&tags, &self->capacity, sizeof *self->tags, self->count + 1))
        must(NULL);
    self->tags = tags;
    self->tags[self->count++] = tag;
}

/* One look: counts what is meant, and writes it where there is a file. */
static int look(taking *self, parked *on, snapshot *shot)
{
    char id[256];
    int code = snapshot_begin(shot, on->broker, on->queue);
    self->fitting = 0;
    for (bh_message *message; code == EX_OK && (message = snapshot_next(shot)) != NULL; bh_message_free(message)) {
        if (!parked_reads(on, message))
            continue;
        self->fitting++;
        if (!self->file)
            continue;
        json_t *object = archive_object(on->queue, message, on->delivery, parked_id(on, id));
        int is_written = json_dumpf(object, self->file, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 &&
                         putc('\n', self->file) != EOF;
        json_decref(object);
        if (!is_written)
            break;
        keep_tag(self, message->delivery_tag);
    }
    return code;
}

/* Returns 1 if the whole file is on the disk. */
static int is_safe(FILE *file)
{
    return fflush(file) == 0 && !ferror(file) && (fsync(fileno(file)) == 0 || errno == EINVAL || errno == EROFS);
}

/* Checks the number of messages, and records the action. EX_OK, or complains and returns the exit code. */
static int begin_drop(taking *self, const parked *on, const char *name)
{
    int code = action_check(&self->options, self->fitting);
    if (code != EX_OK)
        return code;
    json_t *facts = parked_facts(on, "drop");
    json_object_set_new(facts, "messages", json_integer(self->fitting));
    json_object_set_new(facts, "file", json_text(bh_str(name)));
    return action_begin(&self->action, &self->options, facts);
}

static int save_all(taking *self, parked *on, const char *name)
{
    snapshot shot;
    char text[64];
    int code = look(self, on, &shot);
    if (code != EX_OK)
        return code;
    int is_written = is_safe(self->file);
    if (!is_written)
        complain("%s cannot be written: %s; nothing was taken off the queue", name, strerror(errno));
    int is_whole = is_written && shot.status == BH_OK && !is_interrupted(),
        refused = is_whole && self->drops ? begin_drop(self, on, name) : EX_OK;
    if (is_whole && self->drops && refused == EX_OK) {
        shot.status = snapshot_close(&shot);
        for (size_t i = 0; shot.status == BH_OK && i < self->count; i++) {
            snapshot_ack(&shot, self->tags[i]);
            if (i % 1000 == 999)
                shot.status = connection_pump(on->broker, bh__monotonic_ms());
        }
    }
    code = snapshot_end(&shot);
    action_end(&self->action, code, must(json_pack("{s:I}", "dropped", (json_int_t)self->count)));
    if (refused != EX_OK)
        unlink(name);
    if (refused != EX_OK)
        return refused;
    if (code == EX_OK && is_written && self->parked.json)
        print_json(must(
            json_pack("{s:s, s:I, s:b}", "file", name, "messages", (json_int_t)self->count, "dropped", self->drops)));
    else if (code == EX_OK && is_written)
        fprintf(stderr, "%s %s to %s\n", count_messages(text, (int64_t)self->count),
                self->drops ? "taken off the queue, and saved" : "saved", name);
    return code == EX_OK && !is_written ? EX_IOERR : code;
}

/* Prints the number of messages to drop, and reads the confirmation. EX_OK: go on. */
static int confirm_drop(taking *self, parked *on, const char *name)
{
    snapshot shot;
    char text[64], what[4200];
    int code = look(self, on, &shot);
    if (code == EX_OK)
        code = snapshot_end(&shot);
    if (code == EX_OK && !self->dry_run)
        code = action_check(&self->options, self->fitting);
    if (code != EX_OK || (self->yes && !self->dry_run))
        return code;
    self->options.expected = self->fitting;
    if (self->parked.json) {
        print_json(must(json_pack("{s:b, s:s, s:I, s:I, s:I}", "dry_run", self->dry_run, "from", on->queue, "parked",
                                  (json_int_t)shot.given, "to_drop", (json_int_t)self->fitting, "malformed",
                                  (json_int_t)on->malformed)));
        return self->dry_run ? EX_OK : parked_confirm(self->fitting, "save them and drop them");
    }
    say("%s of %lld in \"%s\" would be dropped, and saved to %s\n", count_messages(text, self->fitting),
        (long long)shot.given, on->queue, name);
    snprintf(what, sizeof what, "save them to %.4000s and drop them", name);
    return self->dry_run ? EX_OK : parked_confirm(self->fitting, what);
}

static int save_to(taking *self, parked *on, const char *name)
{
    int is_standard = strcmp(name, "-") == 0 && !self->drops;
    if (self->drops) {
        int code = confirm_drop(self, on, name);
        if (code != EX_OK || self->dry_run)
            return code;
    }
    int fd = is_standard ? dup(STDOUT_FILENO) : open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    self->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!self->file) {
        complain("%s cannot be made: %s", name, strerror(errno));
        return EX_CANTCREAT;
    }
    int code = save_all(self, on, name);
    fclose(self->file);
    return code;
}

static int take_messages(taking *self, int count, char **arguments, const option_rule *rules, size_t size,
                         const char *intro)
{
    parked on;
    int at = options_read(count, arguments, rules, size, "QUEUE FILE", intro);
    if (count - at != 2)
        options_refuse("one work queue and one file are wanted");
    int code = parked_open(&on, &self->parked, self->drops ? "parked drop" : "parked save");
    if (code == EX_OK)
        code = parked_go_to(&on, arguments[at]);
    if (code == EX_OK)
        code = save_to(self, &on, arguments[at + 1]);
    if (on.malformed)
        complain("%lld messages cannot be read: malformed properties; they stay", (long long)on.malformed);
    parked_close(&on);
    free(self->tags);
    texts_free(&self->parked.where);
    return output_end(code);
}

int parked_save(int count, char **arguments)
{
    taking self = {.drops = 0};
    const option_rule rules[] = {WHERE_OPTION(&self.parked), LIKE_OPTION(&self.parked), PARKED_OPTIONS(&self.parked)};
    return take_messages(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                         "Writes parked messages to a new file (-: standard output), one JSON object a line with typed "
                         "headers and the body\n"
                         "in base64, and leaves them where they are. 'backhop parked load' publishes them again.\n");
}

int parked_drop(int count, char **arguments)
{
    taking self = {.drops = 1, .options = {.expected = -1}};
    const option_rule rules[] = {
        WHERE_OPTION(&self.parked),
        LIKE_OPTION(&self.parked),
        {"dry-run", 'n', OPTION_FLAG, NULL, "say how many it would be, and do nothing", &self.dry_run},
        {"yes", 'y', OPTION_FLAG, NULL, "do not ask", &self.yes},
        ACTION_OPTIONS(&self.options),
        PARKED_OPTIONS(&self.parked),
    };
    return take_messages(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                         "Writes parked messages to a new file, as save does; once they are on the disk, takes them "
                         "off the queue. They can be\n"
                         "loaded again.\n");
}

/* -------------------------------------------------------------------------------------------------------------- load */

enum { BATCH = 512, CONFIRM_MS = 30000 };

typedef struct loading {
    connection *broker;
    action_options options;
    action action;
    const char *file;
    const char *to;
    int64_t skip;
    FILE *in;
    int64_t line;   /* read so far */
    int64_t loaded; /* lines up to this are safe */
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

/* Removes the properties and headers that would make the message expire or reach other queues. */
static void remove_unsafe(json_t *object)
{
    static const char *const headers[] = {"CC", "BCC", "x-delivery-count", "x-acquired-count", "x-delay"};
    json_t *list = json_object_get(object, "headers");
    json_object_del(json_object_get(object, "properties"), "user-id");
    json_object_del(json_object_get(object, "properties"), "expiration");
    for (size_t i = json_array_size(list); i-- > 0;)
        for (size_t j = 0; j < sizeof headers / sizeof headers[0]; j++) {
            const char *name = json_string_value(json_array_get(json_array_get(list, i), 0));
            if (name && strcmp(name, headers[j]) == 0) {
                json_array_remove(list, i);
                break;
            }
        }
}

static int load_line(loading *self, json_t *object)
{
    char problem[256];
    const char *queue = self->to ? self->to : json_string_value(json_object_get(object, "queue"));
    remove_unsafe(object);
    if (!queue || !archive_read(object, &self->properties, &self->body, problem)) {
        complain("%s:%lld: %s", self->file, (long long)self->line,
                 queue ? problem : "\"queue\" is missing; --to names one");
        return EX_DATAERR;
    }
    bh_bytes properties = {self->properties.data, bh__buffer_size(&self->properties)},
             body = {self->body.data ? self->body.data : "", bh__buffer_size(&self->body)};
    if (properties.size > bh__link_header_room(&self->broker->link)) {
        complain("%s:%lld: its headers fit no frame of this connection", self->file, (long long)self->line);
        return EX_DATAERR;
    }
    int code = find_queue(self, queue);
    if (code != EX_OK)
        return code;
    amqp_basic_publish_t publish = {.routing_key = amqp_cstring_bytes(queue), .mandatory = 1};
    bh__link_publish(&self->broker->link, CHANNEL_PUBLISH, &publish, properties, body);
    self->sent++;
    return EX_OK;
}

static void load_all(loading *self)
{
    char *text = NULL;
    size_t room = 0;
    json_error_t error;
    while (self->code == EX_OK && !is_interrupted()) {
        ssize_t size = getline(&text, &room, self->in);
        if (size < 0)
            break;
        self->line++;
        if (self->line <= self->skip) {
            self->loaded++;
            continue;
        }
        json_t *object = json_loadb(text, (size_t)size, JSON_ALLOW_NUL, &error);
        if (!object)
            complain("%s:%lld: %s", self->file, (long long)self->line, error.text);
        self->code = object ? load_line(self, object) : EX_DATAERR;
        json_decref(object);
        if (self->sent == BATCH)
            end_batch(self);
    }
    free(text);
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

static int begin_load(loading *self)
{
    json_t *facts =
        must(json_pack("{s:s, s:o, s:o, s:o}", "action", "load", "vhost", json_text(bh_str(self->broker->uri.vhost)),
                       "file", json_text(bh_str(self->file)), "queue", json_text(bh_str(self->to ? self->to : ""))));
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

int parked_load(int count, char **arguments)
{
    loading self = {.code = EX_OK, .options = {.expected = -1}};
    broker_options broker = {.uri = NULL};
    int json = 0;
    const option_rule rules[] = {
        {"to", 't', OPTION_TEXT, "QUEUE", "to this queue instead of the one that each was saved from", &self.to},
        {"skip", 0, OPTION_NUMBER, "COUNT", "leave out so many lines: those that were loaded already", &self.skip},
        HISTORY_OPTIONS(&self.options),
        BROKER_OPTIONS(&broker),
        JSON_OPTION(&json),
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
    self.in = strcmp(self.file, "-") == 0 ? stdin : fopen(self.file, "re");
    if (!self.in) {
        complain("%s cannot be opened: %s", self.file, strerror(errno));
        return EX_NOINPUT;
    }
    int code = check_mark(&self);
    if (code == EX_OK)
        code = open_for_load(&self, &broker);
    if (code == EX_OK)
        code = begin_load(&self);
    if (code == EX_OK) {
        load_all(&self);
        if (self.loaded > self.skip)
            loaded_mark(self.file, self.loaded);
        code = is_interrupted() && self.code == EX_OK ? EXIT_INTERRUPTED : self.code;
        action_end(&self.action, code, must(json_pack("{s:I}", "loaded", (json_int_t)(self.loaded - self.skip))));
        if (json)
            print_json(must(json_pack("{s:I, s:I}", "loaded", (json_int_t)(self.loaded - self.skip), "lines",
                                      (json_int_t)self.loaded)));
        else
            fprintf(stderr, "%lld messages loaded\n", (long long)(self.loaded - self.skip));
        if (code != EX_OK)
            complain("lines up to %lld are loaded; the rest by --skip %lld", (long long)self.loaded,
                     (long long)self.loaded);
        self.broker->on_frame = NULL;
    }
    connection_close(self.broker);
    bh__buffer_free(&self.properties);
    bh__buffer_free(&self.body);
    free(self.looked);
    if (self.in != stdin)
        fclose(self.in);
    return output_end(code);
}
