/* backhop parked: functions that its sub-commands share. */
#include "parked/parked.h"

#include "common/command.h"
#include "parked/groups.h"
#include "setup/declare.h"
#include "worker/wire/content.h"
#include "topology/internal.h"
#include "history/internal.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum { LOOK_PROGRESS_MS = 300 };

/* ------------------------------------------------------------------------------- open and close */

void parked_begin(parked *self, const parked_options *options, connection *broker)
{
    char problem[256];
    *self = (parked){.options = options, .broker = broker};
    for (size_t i = 0; i < options->where.count; i++)
        if (!selection_add(&self->selection, options->where.items[i], problem))
            options_refuse("--where: %s", problem);
    if (bh_delivery_new(&self->delivery) != BH_OK || bh_history_new(&self->history) != BH_OK)
        must(NULL);
}

int parked_open(parked *self, const parked_options *options, const char *purpose)
{
    parked_begin(self, options, NULL);
    catch_interrupts();
    return connection_open(&self->broker, &options->broker, purpose);
}

static void close_queue(parked *self)
{
    bh_topology_free(self->topology);
    bh_policy_free(self->policy);
    free(self->work_queue);
    free(self->queue);
    free(self->ns);
    self->ns = NULL;
    self->topology = NULL;
    self->policy = NULL;
    self->work_queue = self->queue = NULL;
}

void parked_end(parked *self)
{
    close_queue(self);
    selection_free(&self->selection);
    bh_delivery_free(self->delivery);
    bh_history_free(self->history);
}

void parked_close(parked *self)
{
    connection_close(self->broker);
    parked_end(self);
}

bh_policy *parked_policy(const topology_options *options)
{
    policy_options fixed = {.kind = "fixed", .jitter = "none"};
    policy_options none = {.file = NULL};
    int is_plain =
        options->strategy && (strcmp(options->strategy, "reject") == 0 || strcmp(options->strategy, "native") == 0);
    return setup_policy(is_plain ? &fixed : &none);
}

/* RabbitMQ 4 drops or dead-letters a message that was given back to a quorum queue more than 20
 * times, unless the queue has another limit. Before 4.0 only a queue's own limit does that. */
static int check_looks_are_safe(const parked *self)
{
    int64_t limit;
    bh_status status = declare_compare(self->broker, self->topology, self->queue);
    if (status == BH_OK || self->options->any_queue)
        return EX_OK;
    if (declare_found_limit(self->broker, status, &limit)) {
        complain("queue \"%s\" was not declared by Backhop: it counts how often a message is given back, and drops it "
                 "in the end (20 times by default), so that looking would lose messages. Move them to a queue that "
                 "Backhop declared, or raise its delivery-limit by a policy and give --any-queue.",
                 self->queue);
        return EX_UNAVAILABLE;
    }
    return status == BH_ERR_CLASH || status == BH_ERR_ACCESS ? EX_OK : connection_complain(self->broker);
}

static void write_group(const parked *self, char kind[KIND_BYTES + 1], char reason[32])
{
    bh_past past;
    bh_history_past(self->history, &past);
    error_kind(kind, past.last_error);
    group_reason(reason, self->history);
}

static int ends_in(const char *name, const char *suffix)
{
    size_t length = strlen(name), size = strlen(suffix);
    return length > size && strcmp(name + length - size, suffix) == 0;
}

/* Names the queue, and its topology's namespace if it is an unroutable queue. */
static void name_queue(parked *self, const char *name)
{
    size_t suffix = strlen(PARKED_SUFFIX);
    close_queue(self);
    self->settings = self->options->topology;
    self->is_shared = ends_in(name, UNROUTABLE_SUFFIX);
    self->ns = self->is_shared ? copy_text((bh_bytes){name, strlen(name) - strlen(UNROUTABLE_SUFFIX)}) : NULL;
    if (self->ns)
        self->settings.ns = self->ns;
    self->work_queue = copy_text((bh_bytes){name, strlen(name) - (ends_in(name, PARKED_SUFFIX) ? suffix : 0)});
    self->policy = parked_policy(&self->settings);
    self->topology = setup_topology(&self->settings, self->work_queue, self->policy);
    self->queue = self->is_shared ? copy_text(bh_str(name)) : copy_text(bh__topology_parked_queue(self->topology));
}

/* Reads reason and kind of error of the message that --like names. */
static int find_like(parked *self)
{
    snapshot shot;
    const char *like = self->options->like;
    int is_found = 0, code = like ? snapshot_begin(&shot, self->broker, self->queue) : EX_OK;
    if (!like || code != EX_OK)
        return code;
    self->like_kind[0] = '\0';
    for (bh_message *message; (message = snapshot_next(&shot)) != NULL; bh_message_free(message)) {
        if (is_found || parked_read(self, message) != BH_OK || !parked_is(self, like, shot.given))
            continue;
        is_found = 1;
        write_group(self, self->like_kind, self->like_reason);
    }
    code = snapshot_end(&shot);
    if (code == EX_OK && !is_found) {
        complain("--like: there is no message \"%s\" in \"%s\"; 'backhop parked list --wide' shows an id of each group",
                 like, self->queue);
        return EX_NOINPUT;
    }
    return code;
}

int parked_go_to(parked *self, const char *name)
{
    int64_t ready;
    name_queue(self, name);
    if (connection_look(self->broker, self->queue, &ready, NULL) == BH_OK) {
        int code = check_looks_are_safe(self);
        return code == EX_OK ? find_like(self) : code;
    }
    if (self->broker->problem.status == BH_ERR_MISSING) {
        complain(
            "there is no queue \"%s\" on vhost %s; name a work queue whose messages were parked, or that queue itself",
            self->queue, self->broker->uri.vhost);
        return EX_UNAVAILABLE;
    }
    return connection_complain(self->broker);
}

/* ------------------------------------------------------------------------------------- messages */

bh_status parked_read(parked *self, const bh_message *message)
{
    bh_status status = bh__content_read(self->delivery, message->exchange, message->routing_key, message->properties);
    if (status == BH_OK)
        status = bh_history_read(self->history, self->delivery, self->is_shared ? NULL : self->topology);
    if (status == BH_ERR_NO_MEMORY)
        must(NULL);
    return status;
}

int parked_fits(const parked *self)
{
    char kind[KIND_BYTES + 1], reason[32];
    if (self->options->like) {
        write_group(self, kind, reason);
        if (strcmp(kind, self->like_kind) != 0 || strcmp(reason, self->like_reason) != 0)
            return 0;
    }
    return selection_fits(&self->selection, self->delivery, self->history, bh__epoch_ms());
}

int parked_is(const parked *self, const char *wanted, int64_t position)
{
    char id[256], place[32];
    snprintf(place, sizeof place, "@%lld", (long long)position);
    return strcmp(wanted, place) == 0 || (*wanted && strcmp(wanted, parked_id(self, id)) == 0);
}

int64_t parked_time_ms(const parked *self)
{
    bh_past past;
    bh_value due;
    bh_history_past(self->history, &past);
    int has_due = bh_delivery_header(self->delivery, bh_str("backhop-due"), &due) == BH_OK && due.type == BH_TYPE_INT64;
    return has_due && due.integer > past.first_failure_ms && due.integer <= bh__epoch_ms() ? due.integer
                                                                                           : past.first_failure_ms;
}

int parked_reads(parked *self, const bh_message *message)
{
    if (parked_read(self, message) == BH_OK)
        return parked_fits(self);
    self->malformed++;
    return 0;
}

void parked_show_progress(parked *self, const snapshot *shot, int is_last)
{
    int64_t now_ms = bh__monotonic_ms();
    if (!self->options->progress || (!is_last && now_ms - self->shown_ms < LOOK_PROGRESS_MS))
        return;
    self->shown_ms = now_ms;
    print_json(must(json_pack("{s:b, s:o, s:I, s:I}", "progress", 1, "queue", json_text(bh_str(self->queue)),
                              "looked_at", (json_int_t)shot->given, "messages", (json_int_t)shot->total)));
    fflush(stdout);
}

const char *parked_id(const parked *self, char out[256])
{
    bh_bytes id = bh__history_id(self->history);
    snprintf(out, 256, "%.*s", (int)(id.size < 255 ? id.size : 255), id.data);
    return out;
}

const char *count_messages(char out[64], int64_t count)
{
    snprintf(out, 64, count == 1 ? "%lld message" : "%lld messages", (long long)count);
    return out;
}

json_t *parked_facts(const parked *self, const char *action_name)
{
    json_t *where = must(json_array());
    for (size_t i = 0; i < self->options->where.count; i++)
        json_array_append_new(where, json_text(bh_str(self->options->where.items[i])));
    json_t *facts = must(json_pack("{s:s, s:o, s:o, s:o}", "action", action_name, "vhost",
                                   json_text(bh_str(self->broker->uri.vhost)), "queue", json_text(bh_str(self->queue)),
                                   "where", where));
    if (self->options->like)
        json_object_set_new(facts, "like", json_text(bh_str(self->options->like)));
    return facts;
}

int parked_confirm(int64_t count, const char *what)
{
    char line[64], wanted[32];
    if (!isatty(STDIN_FILENO))
        options_refuse("there is no terminal to type the count on: give --yes to %s", what);
    fflush(stdout);
    fprintf(stderr, "Type %lld to %s: ", (long long)count, what);
    fflush(stderr);
    snprintf(wanted, sizeof wanted, "%lld", (long long)count);
    if (!fgets(line, sizeof line, stdin)) {
        fputc('\n', stderr);
        complain("nothing was typed; nothing was done");
        return is_interrupted() ? EXIT_INTERRUPTED : EX_TEMPFAIL;
    }
    line[strcspn(line, "\r\n")] = '\0';
    if (strcmp(line, wanted) == 0)
        return EX_OK;
    complain("that is not %s; nothing was done", wanted);
    return EX_TEMPFAIL;
}
