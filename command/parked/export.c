/* backhop parked save and drop: messages to a file. */
#include "parked/actions.h"
#include "parked/archive.h"
#include "common/command.h"
#include "common/loaded.h"
#include "parked/parked.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

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
    size_t dropped; /* the first ones */
    int is_cut;     /* it ended early: there is no place for its mark */
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

/* Takes one look: counts the selected messages, and writes them if there is a file. */
static int look(taking *self, parked *on, snapshot *shot)
{
    char id[256];
    int code = snapshot_begin(shot, on->broker, on->queue);
    self->fitting = 0;
    for (bh_message *message; code == EX_OK && (message = snapshot_next(shot)) != NULL; bh_message_free(message)) {
        parked_show_progress(on, shot, 0);
        if (!parked_reads(on, message))
            continue;
        self->fitting++;
        if (!self->file)
            continue;
        json_t *object = archive_object(on->queue, message, on->delivery, parked_id(on, id));
        const size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17); /* see print_json */
        int is_written = json_dumpf(object, self->file, flags) == 0 && putc('\n', self->file) != EOF;
        json_decref(object);
        if (!is_written)
            break;
        keep_tag(self, message->delivery_tag);
    }
    if (code == EX_OK)
        parked_show_progress(on, shot, 1);
    return code;
}

/* Returns 1 if the whole file is on the disk. */
static int is_safe(FILE *file)
{
    return fflush(file) == 0 && !ferror(file) && (fsync(fileno(file)) == 0 || errno == EINVAL || errno == EROFS);
}

/* Checks the number of messages, and records the action. EX_OK, or complains and returns the exit
 * code. */
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

/*
 * Takes the messages of the file off their queue, batch by batch. FILE.dropped counts the lines up
 * to the end of the current batch. If this process is killed, a load can double that batch, and
 * messages of earlier ones whose acknowledgements the broker had not processed.
 */
static bh_status take_off(taking *self, snapshot *shot, const char *name)
{
    bh_status status = snapshot_close(shot);
    while (status == BH_OK && self->dropped < self->count) {
        size_t end = self->count - self->dropped > DROP_BATCH ? self->dropped + DROP_BATCH : self->count;
        if (!dropped_mark(name, (int64_t)end)) {
            complain("%s.dropped cannot be written: %s; the rest stays in its queue", name, strerror(errno));
            self->is_cut = 1;
            return status;
        }
        while (self->dropped < end)
            snapshot_ack(shot, self->tags[self->dropped++]);
        status = snapshot_await_acks(shot);
    }
    return status;
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
    if (is_whole && self->drops && refused == EX_OK)
        shot.status = take_off(self, &shot, name);
    code = snapshot_end(&shot);
    code = code == EX_OK && self->is_cut ? EX_IOERR : code;
    action_end(&self->action, code, must(json_pack("{s:I}", "dropped", (json_int_t)self->dropped)));
    if (self->drops && (!is_whole || refused != EX_OK))
        unlink(name); /* nothing was dropped: a load of this file would double its messages */
    if (self->drops && (!is_whole || refused != EX_OK || code == EX_OK))
        dropped_end(name);
    if (refused != EX_OK)
        return refused;
    if (code == EX_OK && is_written && self->parked.json)
        print_json(must(json_pack("{s:o, s:I, s:b}", "file", json_text(bh_str(name)), "messages",
                                  (json_int_t)self->count, "dropped", self->drops)));
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
        print_json(must(json_pack("{s:b, s:o, s:I, s:I, s:I}", "dry_run", self->dry_run, "from",
                                  json_text(bh_str(on->queue)), "parked", (json_int_t)shot.given, "to_drop",
                                  (json_int_t)self->fitting, "malformed", (json_int_t)on->malformed)));
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
    if (!self->drops && !is_standard)
        dropped_end(name); /* the mark of a drop whose file is gone is not this file's */
    if (self->drops && !dropped_mark(name, 0)) {
        complain("%s.dropped cannot be made: %s; nothing was done", name, strerror(errno));
        fclose(self->file);
        unlink(name);
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
    self->parked.progress &= self->parked.json;
    if (count - at != 2)
        options_refuse("one work queue and one file are wanted");
    if (self->drops && !self->dry_run && strcmp(arguments[at + 1], "-") == 0) /* a dry run writes no file */
        options_refuse("drop needs a file, and '-' is standard output: ./- is a file of this name");
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
    return take_messages(
        &self, count, arguments, rules, sizeof rules / sizeof rules[0],
        "Writes parked messages to a new file (-: standard output), one JSON object a line with typed headers and the "
        "body in base64. They stay in their queue. 'backhop parked load' publishes them again.\n");
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
        PROGRESS_OPTION(&self.parked),
        PARKED_OPTIONS(&self.parked),
    };
    return take_messages(&self, count, arguments, rules, sizeof rules / sizeof rules[0],
                         "Writes parked messages to a new file, as save does; once they are on the disk, takes them "
                         "off the queue. They can be\n"
                         "loaded again.\n");
}
