/* backhop web: depths, by `backhop top`. */
#include "web/web.h"

#include "common/output.h"
#include "worker/wire/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    QUIET_MS = 60,      /* after its last line a look is complete */
    ENOUGH_MS = 20000,  /* without pages it ends */
    AGAIN_MS = 3000,    /* after it failed */
    LONGEST_MS = 600000 /* then queues are found anew */
};

/* ---------------------------------------------------------------------------------- backhop top */

static void on_line(void *data, const char *line, size_t size)
{
    live *self = data;
    json_t *object = json_loadb(line, size, JSON_ALLOW_NUL, NULL);
    if (!object)
        return;
    if (!self->coming)
        self->coming = must(json_array());
    json_array_append_new(self->coming, object);
    self->came_ms = bh__monotonic_ms();
}

static void on_end(void *data, int code, const char *problem)
{
    live *self = data;
    self->child = NULL;
    self->retry_ms = bh__monotonic_ms() + AGAIN_MS;
    free(self->problem);
    self->problem = web_problem(code == 0 ? "" : problem); /* a warning is no problem */
    if (*self->problem) {                                  /* old numbers would look like new ones */
        json_decref(self->depths);
        self->depths = NULL;
    }
    self->is_changed = 1;
}

static void start(web *self)
{
    live *it = &self->live;
    const child_listener listener = {.on_line = on_line, .on_end = on_end, .data = it};
    texts arguments = {.items = NULL};
    static const char *const words[] = {"top", "--json", "--interval=2s"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        arguments_add(&arguments, words[i]);
    web_add_options(self, &arguments, 1, 1);
    arguments_add(&arguments, "--");
    for (int i = 0; i < self->queue_count; i++)
        arguments_add(&arguments, self->queues[i]);
    it->child = children_start(&self->children, &arguments, LONGEST_MS, -1, &listener);
    if (!it->child)
        it->retry_ms = bh__monotonic_ms() + AGAIN_MS;
    arguments_free(&arguments);
}

static void take_look(live *self)
{
    json_decref(self->depths);
    self->depths = self->coming;
    self->coming = NULL;
    free(self->problem);
    self->problem = NULL;
    self->is_changed = 1;
}

void live_work(web *self)
{
    live *it = &self->live;
    int64_t now_ms = bh__monotonic_ms();
    if (server_streams(self->server) > 0)
        it->wanted_ms = now_ms;
    int is_wanted = it->wanted_ms && now_ms - it->wanted_ms < ENOUGH_MS;
    if (is_wanted && !it->child && now_ms >= it->retry_ms)
        start(self);
    else if (!is_wanted && it->child && it->retry_ms < now_ms) {
        child_stop(it->child);
        it->retry_ms = now_ms + AGAIN_MS;
    }
    if (it->coming && now_ms - it->came_ms >= QUIET_MS)
        take_look(it);
}

void live_free(web *self)
{
    json_decref(self->live.depths);
    json_decref(self->live.coming);
    free(self->live.problem);
}
