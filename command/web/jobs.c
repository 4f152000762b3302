/* backhop web: jobs. */
#include "web/web.h"

#include "common/command.h"
#include "common/management.h"
#include "common/output.h"
#include "worker/wire/clock.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

/* -------------------------------------------------------------------------------------------------------------- looking */

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

int jobs_is_busy(const web *self, const char *queue)
{
    for (size_t i = 0; i < JOBS_MOST; i++)
        if (self->jobs[i].child && is_same_queue(self->jobs[i].queue, queue))
            return 1;
    return 0;
}

static const char *state_of(const job *self)
{
    if (self->child)
        return self->is_stopped ? "stopping" : "running";
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
    static const char *const names[VERB_COUNT] = {[REPLAY] = "replay", [DROP] = "drop", [LOAD] = "load"};
    return must(json_pack("{s:i, s:s, s:o, s:o, s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "job", self->number, "action",
                          names[self->verb], "queue", json_text(bh_str(self->queue)), "user",
                          json_text(bh_str(self->user)), "state", state_of(self), "begun_ms",
                          (json_int_t)self->begun_ms, "ended_ms", (json_int_t)self->ended_ms, "request",
                          or_null(self->request), "progress", or_null(self->progress), "result", or_null(self->result),
                          "problem", json_text(bh_str(self->problem ? self->problem : "")), "file",
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

/* -------------------------------------------------------------------------------------------------------------- running */

static void forget(job *self)
{
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
        if (!each->child && (!oldest || each->number < oldest->number))
            oldest = each;
    }
    if (oldest)
        forget(oldest);
    return oldest;
}

static void add_own(const web *self, texts *more, const char *user, int is_named)
{
    char *text = NULL;
    for (size_t i = 0; i < self->connecting.count; i++)
        arguments_add(more, self->connecting.items[i]);
    for (size_t i = 0; is_named && i < self->naming.count; i++)
        arguments_add(more, self->naming.items[i]);
    if (asprintf(&text, "--user=%s", user) < 0)
        must(NULL);
    texts_add(more, text);
}

/* Makes the arguments; 0: it has refused. */
static int make_arguments(const web *self, request *asker, verb wanted, const json_t *body, const char *user,
                          const char *path, texts *out)
{
    char problem[256];
    texts more = {.items = NULL};
    add_own(self, &more, user, wanted != LOAD);
    if (wanted == REPLAY)
        arguments_add(&more, "--progress");
    if (wanted != LOAD)
        arguments_add(&more, "--yes");
    json_t *whole = must(json_copy((json_t *)(uintptr_t)body));
    if (path)
        json_object_set_new(whole, "file", json_text(bh_str(path)));
    int is_read = arguments_read(out, wanted, whole, &more, problem);
    json_decref(whole);
    if (!is_read)
        web_refuse(asker, 400, "%s", problem);
    arguments_free(&more);
    return is_read;
}

/* Refuses what must not begin. Returns 1 if it may. */
static int check(const web *self, request *asker, verb wanted, const json_t *body)
{
    const char *queue = json_string_value(json_object_get(body, "queue"));
    int is_allowed = wanted == REPLAY ? self->may_replay : self->may_drop;
    if (!is_allowed)
        web_refuse(asker, 403, "this program was started without --allow %s: it only shows",
                   wanted == REPLAY ? "replay" : "drop");
    else if (wanted != LOAD && (!queue || !json_is_integer(json_object_get(body, "expect"))))
        web_refuse(asker, 400, "\"queue\" and \"expect\", the number of messages, are wanted");
    else if (wanted == LOAD && !json_is_string(json_object_get(body, "file")))
        web_refuse(asker, 400, "\"file\", the name of a saved file, is wanted");
    else if (wanted == DROP && json_object_get(body, "file"))
        web_refuse(asker, 400, "the file of a drop is chosen here");
    else if (queue && jobs_is_busy(self, queue))
        web_refuse(asker, 409, "an action runs on %s: wait for its end, or stop it", queue);
    else
        return 1;
    return 0;
}

/* Starts the sub-command as a job; NULL: too much runs. `name` is of its file, or NULL. */
static job *start(web *self, verb wanted, json_t *body, const char *user, const char *name, const texts *arguments)
{
    job *made = find_place(self);
    const child_listener listener = {.on_line = on_line, .on_end = on_end, .data = made};
    child *started = made ? children_start(&self->children, arguments, 0, &listener) : NULL;
    const char *queue = json_string_value(json_object_get(body, "queue"));
    if (!started)
        return NULL;
    *made = (job){.web = self,
                  .number = ++self->job_number,
                  .verb = wanted,
                  .queue = copy_text(bh_str(queue ? queue : "")),
                  .user = copy_text(bh_str(user)),
                  .file = name ? copy_text(bh_str(name)) : NULL,
                  .request = json_incref(body),
                  .begun_ms = bh__epoch_ms(),
                  .child = started};
    return made;
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
    texts arguments = {.items = NULL};
    if (!check(self, asker, wanted, body))
        return;
    char *name = file_of(self, wanted, body), *path = name ? saved_path(self, name) : NULL;
    if (name && !path)
        web_refuse(asker, 404, "there is no such file");
    else if (make_arguments(self, asker, wanted, body, user, path, &arguments)) {
        job *made = start(self, wanted, body, user, name, &arguments);
        if (made)
            web_answer(asker, 202, job_json(made));
        else
            web_refuse(asker, 503, "too much runs here at once; try again");
        live_change(self);
    }
    arguments_free(&arguments);
    free(path);
    free(name);
}

void jobs_stop(web *self, request *asker, int number)
{
    for (size_t i = 0; i < JOBS_MOST; i++) {
        job *each = &self->jobs[i];
        if (each->number != number || !each->child)
            continue;
        if (!each->is_stopped)
            child_stop(each->child);
        each->is_stopped = 1;
        live_change(self);
        web_answer(asker, 200, job_json(each));
        return;
    }
    web_refuse(asker, 404, "no action with this number runs");
}

void jobs_free(web *self)
{
    for (size_t i = 0; i < JOBS_MOST; i++)
        forget(&self->jobs[i]);
}
