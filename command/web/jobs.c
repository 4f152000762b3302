/* backhop web: jobs. */
#include "web/web.h"

#include "common/command.h"
#include "common/connection.h"
#include "common/loaded.h"
#include "common/management.h"
#include "common/output.h"
#include "worker/wire/clock.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

enum { GO_ON_MS = 600000 }; /* a job that was interrupted longer ago does not go on by itself */

/* -------------------------------------------------------------------------------------- looking */

/* Returns the size of the work queue's name. */
static size_t work_size(const char *queue)
{
    size_t size = strlen(queue), suffix = strlen(PARKED_SUFFIX);
    return size > suffix && strcmp(queue + size - suffix, PARKED_SUFFIX) == 0 ? size - suffix : size;
}

static int is_same_queue(const char *one, const char *other)
{
    return work_size(one) == work_size(other) && strncmp(one, other, work_size(one)) == 0;
}

/* Returns 1 if its sub-command runs, be it one that an earlier program started. */
static int is_running(const job *self)
{
    return self->child || self->is_waiting;
}

static int is_loading(const web *self, const char *file)
{
    for (size_t i = 0; i < JOBS_MOST; i++)
        if (is_running(&self->jobs[i]) && self->jobs[i].file && strcmp(self->jobs[i].file, file) == 0)
            return 1;
    return 0;
}

int jobs_is_busy(const web *self, const char *queue)
{
    for (size_t i = 0; i < JOBS_MOST; i++)
        if (is_running(&self->jobs[i]) && is_same_queue(self->jobs[i].queue, queue))
            return 1;
    return 0;
}

static const char *state_of(const job *self)
{
    if (is_running(self))
        return self->is_stopped ? "stopping" : self->child ? "running" : "waiting";
    if (self->is_interrupted)
        return "interrupted";
    if (self->is_stopped || self->code == EXIT_INTERRUPTED)
        return "cancelled";
    return self->code == EX_OK ? "done" : "stopped";
}

static json_t *or_null(json_t *object)
{
    return object ? json_incref(object) : json_null();
}

static json_t *job_json(const job *self)
{
    return must(json_pack("{s:i, s:s, s:s, s:I, s:o, s:o, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "job", self->number,
                          "id", self->id, "action", verb_name(self->verb), "done_before", (json_int_t)self->done_before,
                          "queue", json_text(bh_str(self->queue)), "user", json_text(bh_str(self->user)), "state",
                          state_of(self), "begun_ms", (json_int_t)self->begun_ms, "ended_ms",
                          (json_int_t)self->ended_ms, "request", or_null(self->request), "progress",
                          or_null(self->progress), "result", or_null(self->result), "problem",
                          json_text(bh_str(self->problem ? self->problem : "")), "file",
                          self->file ? json_text(bh_str(self->file)) : json_null()));
}

/* Returns the job with the highest number below `number`; NULL: none. */
static const job *find_below(const web *self, int number)
{
    const job *found = NULL;
    for (size_t i = 0; i < JOBS_MOST; i++) {
        const job *each = &self->jobs[i];
        if (each->number && each->number < number && (!found || each->number > found->number))
            found = each;
    }
    return found;
}

json_t *jobs_json(const web *self)
{
    json_t *list = must(json_array());
    for (const job *each = find_below(self, INT_MAX); each; each = find_below(self, each->number))
        json_array_append_new(list, job_json(each));
    return list;
}

/* -------------------------------------------------------------------------------------- running */

static void forget(job *self)
{
    if (self->number)
        kept_close(self);
    free(self->queue);
    free(self->user);
    free(self->file);
    free(self->problem);
    json_decref(self->request);
    json_decref(self->progress);
    json_decref(self->result);
    *self = (job){.number = 0};
}

static void on_line(void *data, const char *line, size_t size)
{
    job *self = data;
    json_t *object = json_loadb(line, size, JSON_ALLOW_NUL, NULL);
    json_t **into = json_object_get(object, "progress") ? &self->progress : &self->result;
    if (!object)
        return;
    json_decref(*into);
    *into = object;
    live_change(self->web);
}

static void on_end(void *data, int code, const char *problem)
{
    job *self = data;
    self->child = NULL;
    self->code = code;
    self->ended_ms = bh__epoch_ms();
    self->problem = web_problem(problem);
    int is_ending = self->web->is_closing || is_interrupted();
    if (is_ending && code == EXIT_INTERRUPTED && !self->is_stopped)
        kept_close(self);
    else
        kept_remove(self);
    live_change(self->web);
}

/* Returns a free place, or the place of the job that ended first; NULL: all run. */
static job *find_place(web *self)
{
    job *oldest = NULL;
    for (size_t i = 0; i < JOBS_MOST; i++) {
        job *each = &self->jobs[i];
        if (!each->number)
            return each;
        if (!is_running(each) && (!oldest || each->number < oldest->number))
            oldest = each;
    }
    if (oldest)
        forget(oldest);
    return oldest;
}

/* Makes the arguments. Returns 0 if the request has what the sub-command does not: `problem` says
 * it. */
static int make_arguments(const job *self, const char *path, texts *out, char problem[256])
{
    texts more = {.items = NULL};
    web_add_options(self->web, &more, self->verb != LOAD, self->verb == REPLAY);
    arguments_add_option(&more, "user", self->user);
    arguments_add_option(&more, "action-id", self->id);
    arguments_add(&more, "--progress");
    if (self->verb != LOAD)
        arguments_add(&more, "--yes");
    json_t *whole = must(json_copy(self->request));
    if (path)
        json_object_set_new(whole, "file", json_text(bh_str(path)));
    int is_read = arguments_read(out, self->verb, whole, &more, problem);
    json_decref(whole);
    arguments_free(&more);
    return is_read;
}

/* Starts a run of the job. Returns 0, or the HTTP status of a problem. */
static unsigned run(job *self, char problem[256])
{
    web *on = self->web;
    const child_listener listener = {.on_line = on_line, .on_end = on_end, .data = self};
    texts arguments = {.items = NULL};
    char *path = self->file ? saved_path(on, self->file) : NULL;
    unsigned status = 503;
    random_digits(self->id, sizeof self->id);
    snprintf(problem, 256, "too many commands of backhop web run at once; try again later");
    if (self->file && !(path && (self->verb != LOAD || saved_is_file(path)))) {
        snprintf(problem, 256, "no saved file has this name");
        status = 404;
    } else if (!make_arguments(self, path, &arguments, problem)) {
        status = 400;
    } else if (!kept_write(self)) {
        snprintf(problem, 256, "the state directory cannot be written: nothing was done");
    } else {
        self->child = children_start(&on->children, &arguments, 0, self->kept, &listener);
        status = self->child ? 0 : 503;
    }
    if (status)
        kept_remove(self);
    arguments_free(&arguments);
    free(path);
    return status;
}

static int is_allowed(const web *self, verb wanted)
{
    return wanted == REPLAY ? self->may_replay : self->may_drop;
}

/* Refuses what must not begin. Returns 1 if it may. */
static int check(const web *self, request *asker, verb wanted, const json_t *body)
{
    const char *queue = json_string_value(json_object_get(body, "queue"));
    const char *file = json_string_value(json_object_get(body, "file"));
    if (!is_allowed(self, wanted))
        web_refuse(asker, 403, "backhop web was started without --allow %s; start it again with that option",
                   verb_name(wanted == REPLAY ? REPLAY : DROP));
    else if (wanted != LOAD && (!queue || !json_is_integer(json_object_get(body, "expect"))))
        web_refuse(asker, 400, "\"queue\" and \"expect\", the number of messages, are missing");
    else if (wanted == LOAD && (!file || !json_is_integer(json_object_get(body, "expect"))))
        web_refuse(asker, 400,
                   "\"file\", the name of a saved file, and \"expect\", the number of messages, are missing");
    else if (wanted == LOAD && is_loading(self, file))
        web_refuse(asker, 409, "an action works on this file: wait for its end, or stop it");
    else if (wanted == DROP && json_object_get(body, "file"))
        web_refuse(asker, 400, "the file of a drop is chosen here");
    else if (queue && jobs_is_busy(self, queue))
        web_refuse(asker, 409, "an action runs on %s: wait for its end, or stop it", queue);
    else
        return 1;
    return 0;
}

/* Returns the name of the file that a job writes or reads; NULL: none. The caller frees it. */
static char *file_of(const web *self, verb wanted, const json_t *body)
{
    if (wanted == DROP)
        return saved_new_name(json_string_value(json_object_get(body, "queue")), self->job_number + 1);
    return wanted == LOAD ? copy_text(bh_str(json_string_value(json_object_get(body, "file")))) : NULL;
}

void jobs_begin(web *self, request *asker, verb wanted, json_t *body, const char *user)
{
    char problem[256] = "";
    const char *queue = json_string_value(json_object_get(body, "queue"));
    if (!check(self, asker, wanted, body))
        return;
    job *made = find_place(self);
    if (!made) {
        web_refuse(asker, 503, "too many commands of backhop web run at once; try again later");
        return;
    }
    *made = (job){.web = self,
                  .number = self->job_number + 1,
                  .kept = -1,
                  .verb = wanted,
                  .queue = copy_text(bh_str(queue ? queue : "")),
                  .user = copy_text(bh_str(user)),
                  .file = file_of(self, wanted, body),
                  .request = json_incref(body),
                  .begun_ms = bh__epoch_ms()};
    unsigned status = run(made, problem);
    if (status) {
        web_refuse(asker, status, "%s", problem);
        forget(made);
        return;
    }
    self->job_number++;
    web_answer(asker, 202, job_json(made));
    live_change(self);
}

void jobs_stop(web *self, request *asker, int number)
{
    for (size_t i = 0; i < JOBS_MOST; i++) {
        job *each = &self->jobs[i];
        if (each->number != number || !is_running(each))
            continue;
        if (!each->is_stopped && each->child)
            child_stop(each->child);
        each->is_stopped = 1;
        live_change(self);
        web_answer(asker, 200, job_json(each));
        return;
    }
    web_refuse(asker, 404, "no action with this number runs");
}

/* ------------------------------------------------------------------------ of an earlier program */

int jobs_add(web *self, const char *id, int kept, json_t *record)
{
    const char *action_name = json_string_value(json_object_get(record, "action")),
               *user = json_string_value(json_object_get(record, "user")),
               *file = json_string_value(json_object_get(record, "file"));
    json_t *body = json_object_get(record, "request");
    const char *queue = json_string_value(json_object_get(body, "queue"));
    job *made = action_name && json_is_object(body) ? find_place(self) : NULL;
    verb wanted = REPLAY;
    while (made && wanted <= LOAD && strcmp(verb_name(wanted), action_name) != 0)
        wanted++;
    if (!made || wanted > LOAD)
        return 0;
    *made = (job){.web = self,
                  .number = ++self->job_number,
                  .kept = kept,
                  .verb = wanted,
                  .queue = copy_text(bh_str(queue ? queue : "")),
                  .user = copy_text(bh_str(user ? user : "")),
                  .file = file ? copy_text(bh_str(file)) : NULL,
                  .request = json_incref(body),
                  .begun_ms = json_integer_value(json_object_get(record, "begun_ms")),
                  .done_before = json_integer_value(json_object_get(record, "done_before")),
                  .is_waiting = 1};
    snprintf(made->id, sizeof made->id, "%s", id);
    return 1;
}

static int64_t integer_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

/* Changes the request to what remains after `done` messages. `past` is what the history has of the
 * last run; NULL: nothing. */
static void keep_rest(job *self, const json_t *past, int64_t done)
{
    json_t *rest = must(json_copy(self->request));
    json_object_set_new(rest, "expect", json_integer(integer_of(rest, "expect") - done));
    if (json_object_get(rest, "limit"))
        json_object_set_new(rest, "limit", json_integer(integer_of(rest, "limit") - done));
    if (self->verb == LOAD && past)
        json_object_set_new(rest, "skip", json_integer(integer_of(past, "lines")));
    json_decref(self->request);
    self->request = rest;
    if (self->verb != DROP)
        return;
    free(self->file);
    self->file = saved_new_name(self->queue, self->number);
}

/*
 * Removes the file of a drop that took no message off its queue: it may be a part of the messages.
 * Returns 1 if the file stays. The mark beside it has the number of messages that were taken off,
 * and goes when the drop ends.
 */
static int keep_file(const job *self)
{
    struct stat facts;
    char *path = self->file ? saved_path(self->web, self->file) : NULL;
    int64_t dropped = path ? dropped_lines(path) : 0;
    int is_empty = !path || stat(path, &facts) != 0 || facts.st_size == 0; /* killed before it made the mark */
    int keeps = dropped > 0 || (dropped < 0 && !is_empty);
    if (path && !keeps) {
        unlink(path);
        dropped_end(path);
    }
    free(path);
    return keeps;
}

static void end_earlier(job *self, int64_t ended_ms, int code, const char *problem)
{
    kept_remove(self);
    self->code = code;
    self->ended_ms = ended_ms > 0 ? ended_ms : bh__epoch_ms();
    self->problem = copy_text(bh_str(problem));
}

static void go_on(job *self, const json_t *past, int64_t done)
{
    char problem[256];
    keep_rest(self, past, done);
    kept_remove(self);
    self->done_before += done;
    self->begun_ms = bh__epoch_ms();
    if (run(self, problem) != 0)
        end_earlier(self, 0, EX_TEMPFAIL, problem);
}

/*
 * Decides about a job whose run has ended with an earlier program, by the run's lines in the
 * history. If the history has the end of the run, the number of messages that remain is known. The
 * job then goes on with that number; the sub-command refuses if another number is selected by then.
 * A history may be lost: what a drop did is in its file's mark too.
 */
static void decide_earlier(job *self)
{
    static const char *const names[VERB_COUNT] = {[REPLAY] = "replayed", [DROP] = "dropped", [LOAD] = "loaded"};
    json_t *past = records_find(self->web, self->id);
    int64_t ended_ms = integer_of(past, "ended_ms"), done = integer_of(past, names[self->verb]);
    int code = ended_ms > 0 ? (int)integer_of(past, "code") : EXIT_INTERRUPTED;
    int64_t since_ms = bh__epoch_ms() - (ended_ms > 0 ? ended_ms : self->begun_ms);
    int is_begun = past != NULL;
    self->is_waiting = 0;
    if (!past && self->verb == DROP)
        is_begun = keep_file(self);
    if (ended_ms > 0) {
        json_object_set(past, "to_replay", json_object_get(past, "messages"));
        self->result = json_incref(past);
    }
    if (code == EX_OK || (code == EXIT_INTERRUPTED && ended_ms > 0 && done >= integer_of(self->request, "expect"))) {
        end_earlier(self, ended_ms, EX_OK, "");
    } else if (code != EXIT_INTERRUPTED || self->is_stopped) {
        end_earlier(self, ended_ms, code, self->is_stopped ? "" : "it ended while this program did not run");
    } else if ((is_begun && !ended_ms) || since_ms > GO_ON_MS || !is_allowed(self->web, self->verb)) {
        self->is_interrupted = 1;
        end_earlier(self, ended_ms, code,
                    is_begun && !ended_ms ? "it was killed: how many messages were done is not known; count the rest"
                    : since_ms > GO_ON_MS ? "it was interrupted more than 10 min before this program was started again"
                                          : "this program was started again without --allow for this action");
    } else {
        json_decref(self->result);
        self->result = NULL;
        go_on(self, past, done);
    }
    json_decref(past);
    live_change(self->web);
}

void jobs_work(web *self)
{
    for (size_t i = 0; i < JOBS_MOST; i++) {
        job *each = &self->jobs[i];
        int is_gone = 0;
        if (!each->is_waiting || !kept_is_free(each, &is_gone))
            continue;
        if (is_gone)
            forget(each);
        else
            decide_earlier(each);
    }
}

void jobs_free(web *self)
{
    for (size_t i = 0; i < JOBS_MOST; i++)
        forget(&self->jobs[i]);
}
