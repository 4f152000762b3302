/* backhop web: looks. */
#include "web/web.h"

#include "common/output.h"
#include "worker/wire/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

enum { LOOK_MS = 180000, THINK_MS = 30000 };

static int connects(verb it)
{
    return it != SCHEDULE && it != SIMULATE;
}

static int limit_ms(verb it)
{
    return connects(it) ? LOOK_MS : THINK_MS;
}

static void end_look(look *self)
{
    arguments_free(&self->arguments);
    json_decref(self->results);
    json_decref(self->progress);
    json_decref(self->last);
    *self = (look){.asker = NULL};
}

/* Keeps a list as the snapshot that all pages show. `groups` are of the queues that were looked at
 * so far. */
static void keep_groups(look *self, json_t *groups, const char *notice, int is_whole)
{
    web *on = self->web;
    json_decref(on->groups);
    on->groups = must(json_pack("{s:i, s:I, s:O, s:o, s:o, s:b, s:i, s:i}", "number", ++on->groups_number, "taken_ms",
                                (json_int_t)bh__epoch_ms(), "groups", groups, "notice", json_text(bh_str(notice)),
                                "queues", json_copy(self->progress), "is_whole", is_whole, "queues_done",
                                is_whole ? self->queues : self->queues_done, "queue_count", self->queues));
    self->is_partly_kept = !is_whole;
    live_change(on);
}

/* Marks the groups so far: their look was stopped. Answers with them. */
static void end_stopped(look *self)
{
    json_t *groups = self->web->groups;
    if (!self->is_partly_kept) {
        web_refuse(self->asker, 409, "the reading was stopped before it found anything");
        return;
    }
    json_object_set_new(groups, "is_stopped", json_true());
    json_object_set_new(groups, "queues", json_copy(self->progress));
    json_object_set_new(groups, "number", json_integer(++self->web->groups_number));
    live_change(self->web);
    web_answer(self->asker, 200, json_incref(groups));
}

/* Marks the snapshot of a look that has failed after its first queues. */
static void end_part(look *self, const char *problem)
{
    if (!self->is_partly_kept)
        return;
    json_object_set_new(self->web->groups, "is_whole", json_true());
    json_object_set_new(self->web->groups, "notice", json_text(bh_str(problem)));
    json_object_set_new(self->web->groups, "number", json_integer(++self->web->groups_number));
    live_change(self->web);
}

static void on_line(void *data, const char *line, size_t size)
{
    look *self = data;
    json_t *object = self->bytes <= CHILD_MOST_BYTES ? json_loadb(line, size, JSON_ALLOW_NUL, NULL) : NULL;
    const char *queue = json_string_value(json_object_get(object, "queue"));
    json_t *groups = json_object_get(object, "groups");
    if (groups) {
        self->queues_done = (int)json_integer_value(json_object_get(object, "queues_done"));
        self->queues = (int)json_integer_value(json_object_get(object, "queues"));
        keep_groups(self, groups, "", 0);
        json_decref(object);
    } else if (object && json_object_get(object, "progress")) {
        json_object_del(object, "progress");
        json_decref(self->last);
        self->last = object;
        if (queue)
            json_object_set(self->progress, queue, object);
        live_change(self->web);
    } else if (object) {
        self->bytes += size;
        json_array_append_new(self->results, object);
    }
}

json_t *looks_json(const web *self)
{
    for (size_t i = 0; i < LOOKS_MOST; i++)
        if (self->looks[i].runs && self->looks[i].last)
            return json_incref(self->looks[i].last);
    return json_null();
}

/* Returns the problem for people: the one that the command printed, unless a limit of this program
 * stopped the command. Freed by the caller. */
static char *explain(const look *self, int code, const char *problem)
{
    char *text = NULL;
    if (code == CHILD_TOO_LARGE)
        return copy_text(bh_str("the answer is larger than 16 MB: ask for fewer messages or fewer bytes of a body"));
    if (code != CHILD_TOO_SLOW)
        return web_problem(problem);
    if (asprintf(&text, "%s was stopped after %d s: ask for fewer queues, fewer messages or a shorter time",
                 verb_name(self->verb), limit_ms(self->verb) / 1000) < 0)
        must(NULL);
    return text;
}

static void on_end(void *data, int code, const char *problem)
{
    look *self = data;
    if (self->bytes > CHILD_MOST_BYTES)
        code = CHILD_TOO_LARGE;
    char *text = explain(self, code, problem);
    int is_partial = self->verb == DOCTOR || self->verb == LIST, /* problems were found, or a queue was left out */
        has_result = code == EX_OK || (is_partial && code == EX_UNAVAILABLE && json_array_size(self->results) > 0);
    int was_stopped = self->is_stopped && !has_result;
    self->child = NULL;
    if (!was_stopped && !has_result)
        end_part(self, text);
    if (was_stopped)
        end_stopped(self);
    else if (!has_result)
        web_refuse(self->asker, web_status(code), "%s", text);
    else if (self->verb == LIST) {
        keep_groups(self, self->results, text, 1);
        web_answer(self->asker, 200, json_incref(self->web->groups));
    } else
        web_answer(self->asker, 200,
                   must(json_pack("{s:O, s:o}", "results", self->results, "notice", json_text(bh_str(text)))));
    free(text);
    end_look(self);
}

/* Returns 1 if the look may begin: only one looks into queues at a time. */
static int may_run(const web *self, const look *it)
{
    for (size_t i = 0; connects(it->verb) && i < LOOKS_MOST; i++)
        if (self->looks[i].runs && connects(self->looks[i].verb))
            return 0;
    return 1;
}

void looks_work(web *self)
{
    for (size_t i = 0; i < LOOKS_MOST; i++) {
        look *each = &self->looks[i];
        if (!each->asker || each->runs || !may_run(self, each))
            continue;
        const child_listener listener = {.on_line = on_line, .on_end = on_end, .data = each};
        each->runs = 1;
        each->child = children_start(&self->children, &each->arguments, limit_ms(each->verb), -1, &listener);
        if (each->child)
            continue;
        web_refuse(each->asker, 503, "too many commands of backhop web run at once; try again later");
        end_look(each);
    }
}

void looks_stop(web *self, request *asker)
{
    for (size_t i = 0; i < LOOKS_MOST; i++) {
        look *each = &self->looks[i];
        if (!each->child || !connects(each->verb))
            continue;
        if (!each->is_stopped) /* a second SIGTERM adds nothing, and a third one would be a SIGKILL */
            child_stop(each->child);
        each->is_stopped = 1;
        web_answer(asker, 200, must(json_pack("{s:b}", "is_stopping", 1)));
        return;
    }
    web_refuse(asker, 404, "no messages are read now");
}

void looks_begin(web *self, request *asker, verb wanted, texts *arguments)
{
    look *place = NULL;
    for (size_t i = 0; !place && i < LOOKS_MOST; i++)
        place = self->looks[i].asker ? NULL : &self->looks[i];
    if (!place) {
        arguments_free(arguments);
        web_refuse(asker, 503, "too many readings of parked messages wait; try again later");
        return;
    }
    *place = (look){.web = self,
                    .asker = asker,
                    .verb = wanted,
                    .arguments = *arguments,
                    .results = must(json_array()),
                    .progress = must(json_object())};
    request_later(asker);
    looks_work(self);
}

void looks_free(web *self)
{
    for (size_t i = 0; i < LOOKS_MOST; i++)
        end_look(&self->looks[i]);
    json_decref(self->groups);
}
