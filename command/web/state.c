/* backhop web: the state of depths, jobs and looks, and events with it for all pages. */
#include "web/web.h"

#include "common/output.h"
#include "worker/wire/clock.h"

#include <stdlib.h>
#include <string.h>

enum { BEAT_MS = 10000 /* an event at least so often, so that dead connections end */ };

json_t *state_json(web *self)
{
    live *it = &self->live;
    it->wanted_ms = bh__monotonic_ms();
    return must(json_pack("{s:I, s:o, s:o, s:o, s:i, s:o}", "time_ms", (json_int_t)bh__epoch_ms(), "depths",
                          it->depths ? json_incref(it->depths) : json_null(), "problem",
                          json_text(bh_str(it->problem ? it->problem : "")), "jobs", jobs_json(self), "groups_number",
                          self->groups_number, "look", looks_json(self)));
}

char *state_event(web *self)
{
    json_t *state = state_json(self);
    char *text = must(json_dumps(state, JSON_COMPACT)), *event = NULL;
    if (asprintf(&event, "data: %s\n\n", text) < 0)
        must(NULL);
    json_decref(state);
    free(text);
    return event;
}

void state_work(web *self)
{
    live *it = &self->live;
    int64_t now_ms = bh__monotonic_ms();
    if (!it->is_changed && now_ms - it->sent_ms < BEAT_MS)
        return;
    it->is_changed = 0;
    it->sent_ms = now_ms;
    if (server_streams(self->server) == 0)
        return;
    char *event = state_event(self);
    server_broadcast(self->server, event);
    free(event);
}

static void add_queue(const web *self, texts *arguments, const char *queue, size_t *count)
{
    if (jobs_is_busy(self, queue))
        return;
    arguments_add(arguments, queue);
    *count += 1;
}

size_t state_add_queues(const web *self, const char *wanted, texts *arguments)
{
    size_t count = 0, i;
    const json_t *each;
    for (int j = 0; !self->live.depths && j < self->queue_count; j++)
        add_queue(self, arguments, self->queues[j], &count);
    json_array_foreach(self->live.depths, i, each)
    {
        const char *kind = json_string_value(json_object_get(each, "kind")),
                   *name = json_string_value(json_object_get(each, "queue"));
        json_int_t ready = json_integer_value(json_object_get(each, "ready"));
        int is_wanted = kind && strcmp(kind, wanted) == 0 && json_is_integer(json_object_get(each, "ready")),
            is_unroutable = kind && strcmp(kind, "unroutable") == 0 && strcmp(wanted, "parked") == 0 && ready > 0;
        if (name && (is_wanted || is_unroutable))
            add_queue(self, arguments, name, &count);
    }
    return count;
}
