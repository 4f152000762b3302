/* Control: commands of an operator, in a table; each gets its words. */
#include "model/broker.h"

#include "model/closing.h"
#include "model/exchange.h"
#include "model/policies.h"
#include "model/queue.h"
#include "model/session.h"
#include "model/settling.h"
#include "model/users.h"
#include "model/vhosts.h"
#include "model/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_MS INT64_C(315360000000) /* of advance: ten years, as a TTL */

/* A command in hand. */
typedef struct command {
    model *broker;
    model_words words;
    bh__report *answer;
} command;

static const char *word(const command *self, size_t i)
{
    return i < self->words.count ? self->words.items[i] : "";
}

static model_vhost *find_vhost(const command *self, size_t i)
{
    model_vhost *vhost = model_names_find(&self->broker->vhosts, bh_str(word(self, i)));
    if (!vhost)
        bh__report_add(self->answer, "no vhost '%s'\n", word(self, i));
    return vhost;
}

/* Returns 1 if `which` is the connection's number or name, or "all". */
static int is_chosen(const model_link *link, const char *which)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, link->number);
    return strcmp(which, "all") == 0 || strcmp(which, number) == 0 || (link->name && strcmp(which, link->name) == 0);
}

/* Closes connections, or cuts them if there is no text. Returns how many. */
static size_t close_links(model *broker, const char *which, int code, const char *text)
{
    size_t count = 0;
    for (model_link *link = broker->links; link; link = link->next) {
        if (!is_chosen(link, which) || link->is_broken || link->stage == MODEL_CLOSED)
            continue;
        count++;
        link->method = 0;
        if (text && link->stage == MODEL_RUNNING) {
            model_link_close(link, code, text);
        } else {
            link->is_broken = 1;
            bh__buffer_clear(&link->out); /* what the client did not read yet is lost */
            model_end_link(link);
        }
    }
    return count;
}

static bh_status do_stop(command *self)
{
    int is_kill = strcmp(word(self, 0), "kill") == 0;
    self->broker->is_stopped = 1;
    close_links(self->broker, "all", 320,
                is_kill ? NULL : "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'");
    for (model_link *link = self->broker->links; link; link = link->next)
        if (link->stage == MODEL_CLOSING) /* a broker that stops waits for no answer */
            link->stage = MODEL_CLOSED;
    model_vhosts_restart(self->broker);
    return BH_OK;
}

static bh_status do_start(command *self)
{
    self->broker->is_stopped = 0;
    self->broker->has_alarm = 0;
    return BH_OK;
}

static bh_status do_alarm(command *self)
{
    int is_on = strcmp(word(self, 1), "on") == 0;
    if (!is_on && strcmp(word(self, 1), "off") != 0)
        return BH_ERR_ARGUMENT;
    model_session_alarm(self->broker, is_on);
    return BH_OK;
}

static const char *state_of(const model_link *link)
{
    if (link->is_broken || link->stage >= MODEL_CLOSING)
        return "closing";
    if (link->stage < MODEL_RUNNING)
        return "starting";
    return link->is_blocked ? "blocked" : "running";
}

static bh_status list_connections(command *self)
{
    for (const model_link *link = self->broker->links; link; link = link->next) {
        bh__report_add(self->answer, "%" PRIu64 "\t", link->number);
        bh__report_add_shown(self->answer, bh_str(link->name), 0);
        bh__report_add(self->answer, "\t%s\n", state_of(link));
    }
    return BH_OK;
}

static bh_status list_queues(command *self)
{
    const model_vhost *vhost = model_names_find(&self->broker->vhosts, bh_str("/"));
    if (self->words.count > 2)
        vhost = find_vhost(self, 2);
    if (!vhost)
        return BH_ERR_MISSING;
    for (size_t i = 0; i < vhost->queues.count; i++) {
        const model_queue *queue = vhost->queues.items[i].object;
        bh__report_add_shown(self->answer, queue->name, 0);
        bh__report_add(self->answer, "\t%s\t%zu\t%zu\t%zu\t%zu\n", queue->is_quorum ? "quorum" : "classic",
                       queue->ready_count, queue->unacked.count, queue->consumer_count,
                       queue->delayed.count + queue->discards.count);
    }
    return BH_OK;
}

static bh_status do_list(command *self)
{
    if (strcmp(word(self, 1), "connections") == 0)
        return list_connections(self);
    return strcmp(word(self, 1), "queues") == 0 ? list_queues(self) : BH_ERR_ARGUMENT;
}

static bh_status do_close(command *self)
{
    const char *which = word(self, 1);
    int is_cut = strcmp(word(self, 0), "cut") == 0;
    int code = self->words.count > 2 ? atoi(word(self, 2)) : 320;
    const char *text = self->words.count > 3 ? word(self, 3) : "CONNECTION_FORCED - Closed via management plugin";
    if (code < 100 || code > 999 || strlen(text) > 255)
        return BH_ERR_ARGUMENT;
    size_t count = close_links(self->broker, which, code, is_cut ? NULL : text);
    return count > 0 || strcmp(which, "all") == 0 ? BH_OK : BH_ERR_MISSING;
}

static void delete_queues(model_vhost *vhost)
{
    while (vhost->queues.count > 0)
        model_end_queue(vhost->queues.items[vhost->queues.count - 1].object);
}

/* Deletes all queues of a vhost, or of all vhosts. */
static bh_status delete_all(command *self)
{
    model_vhost *vhost = self->words.count > 2 ? find_vhost(self, 2) : NULL;
    if (self->words.count > 2 && !vhost)
        return BH_ERR_MISSING;
    for (size_t i = 0; i < self->broker->vhosts.count && !vhost; i++)
        delete_queues(self->broker->vhosts.items[i].object);
    if (vhost)
        delete_queues(vhost);
    return BH_OK;
}

static bh_status do_delete(command *self)
{
    if (strcmp(word(self, 1), "queues") == 0 && self->words.count < 4)
        return delete_all(self);
    if (self->words.count != 4)
        return BH_ERR_ARGUMENT;
    model_vhost *vhost = find_vhost(self, 2);
    if (!vhost)
        return BH_ERR_MISSING;
    model_queue *queue = model_queue_find(vhost, bh_str(word(self, 3)));
    model_exchange *exchange = model_exchange_find(vhost, bh_str(word(self, 3)));
    if (strcmp(word(self, 1), "queue") == 0 && queue)
        model_end_queue(queue);
    else if (strcmp(word(self, 1), "exchange") == 0 && exchange && exchange->name.size > 0)
        model_exchange_delete(exchange);
    else
        return strcmp(word(self, 1), "queue") == 0 || strcmp(word(self, 1), "exchange") == 0 ? BH_ERR_MISSING
                                                                                             : BH_ERR_ARGUMENT;
    return BH_OK;
}

static bh_status do_purge(command *self)
{
    model_vhost *vhost = find_vhost(self, 1);
    model_queue *queue = vhost ? model_queue_find(vhost, bh_str(word(self, 2))) : NULL;
    if (!queue)
        return BH_ERR_MISSING;
    bh__report_add(self->answer, "%zu\n", model_queue_purge(queue, self->broker->version->purges_discards));
    model_queue_touch(queue);
    return BH_OK;
}

static bh_status do_vhost(command *self)
{
    bh_bytes name = bh_str(word(self, 2));
    model_vhost *vhost = model_names_find(&self->broker->vhosts, name);
    if (strcmp(word(self, 1), "add") == 0) {
        return vhost || model_vhosts_add(self->broker, name) ? BH_OK : BH_ERR_NO_MEMORY;
    }
    if (strcmp(word(self, 1), "delete") != 0)
        return BH_ERR_ARGUMENT;
    if (!vhost)
        return BH_ERR_MISSING;
    model_vhosts_delete(vhost);
    return BH_OK;
}

/* Connections of the user end as RabbitMQ ends them. */
static bh_status delete_user(command *self)
{
    model_user *user = model_users_find(self->broker, bh_str(word(self, 2)));
    if (!user)
        return BH_ERR_MISSING;
    for (model_link *link = self->broker->links; link; link = link->next)
        if (link->user == user) {
            link->method = 0;
            model_link_refuse(link, 320, "user '%s' was deleted", user->name);
            link->is_broken = link->stage < MODEL_CLOSING;
            link->user = NULL;
        }
    model_users_delete(self->broker, user);
    return BH_OK;
}

static bh_status do_user(command *self)
{
    char tags[256] = "";
    const char *name = word(self, 1), *password = word(self, 2);
    if (strcmp(name, "delete") == 0 && self->words.count == 3)
        return delete_user(self);
    for (size_t i = 3; i < self->words.count; i++) {
        if (strlen(tags) + strlen(word(self, i)) + 2 > sizeof tags)
            return BH_ERR_ARGUMENT;
        if (*tags)
            strcat(tags, " ");
        strcat(tags, word(self, i));
    }
    if (strcmp(name, "tags") == 0) { /* the password stays */
        const model_user *user = model_users_find(self->broker, bh_str(password));
        if (!user)
            return BH_ERR_MISSING;
        name = password;
        password = user->password;
    }
    return model_users_set(self->broker, name, password, tags) ? BH_OK : BH_ERR_NO_MEMORY;
}

static bh_status do_permissions(command *self)
{
    const char *patterns[MODEL_ACCESS_COUNT] = {word(self, 3), word(self, 4), word(self, 5)};
    if (!find_vhost(self, 1))
        return BH_ERR_MISSING;
    return model_users_permit(self->broker, word(self, 1), word(self, 2), patterns);
}

static bh_status do_policy(command *self)
{
    int is_deletion = strcmp(word(self, 1), "delete") == 0 && self->words.count == 4;
    model_vhost *vhost = find_vhost(self, is_deletion ? 2 : 1);
    if (!vhost)
        return BH_ERR_MISSING;
    if (is_deletion)
        return model_policies_delete(vhost, word(self, 3));
    if (self->words.count != 7)
        return BH_ERR_ARGUMENT;
    model_policy_command policy = {.name = word(self, 2),
                                   .pattern = word(self, 3),
                                   .apply_to = word(self, 4),
                                   .priority = atoi(word(self, 5)),
                                   .is_operator = strcmp(word(self, 0), "operator-policy") == 0,
                                   .definition = word(self, 6)};
    return model_policies_set(vhost, &policy);
}

static bh_status do_now(command *self)
{
    bh__report_add(self->answer, "%" PRId64 "\n", self->broker->now_ms);
    return BH_OK;
}

static bh_status do_resend(command *self)
{
    char *end;
    long long span_ms = strtoll(word(self, 1), &end, 10);
    if (span_ms <= 0 || *end)
        return BH_ERR_ARGUMENT;
    self->broker->settings.resend_ms = span_ms;
    return BH_OK;
}

static bh_status do_timeout(command *self)
{
    char *end;
    long long span_ms = strtoll(word(self, 1), &end, 10);
    if (span_ms <= 0 || *end)
        return BH_ERR_ARGUMENT;
    self->broker->settings.consumer_timeout_ms = span_ms;
    for (size_t i = 0; i < self->broker->vhosts.count; i++) {
        const model_vhost *vhost = self->broker->vhosts.items[i].object;
        for (size_t j = 0; j < vhost->queues.count; j++)
            model_policies_apply_to_queue(vhost->queues.items[j].object);
    }
    return BH_OK;
}

static bh_status do_most(command *self)
{
    char *end;
    long long bytes = strtoll(word(self, 1), &end, 10);
    if (bytes <= 0 || *end)
        return BH_ERR_ARGUMENT;
    self->broker->max_message_bytes = bytes;
    return BH_OK;
}

static bh_status do_cluster(command *self)
{
    model *broker = self->broker;
    if (strlen(word(self, 1)) >= sizeof broker->cluster)
        return BH_ERR_ARGUMENT;
    snprintf(broker->cluster, sizeof broker->cluster, "%s", word(self, 1));
    return BH_OK;
}

static bh_status do_leader(command *self)
{
    model_vhost *vhost = find_vhost(self, 1);
    model_queue *queue = vhost ? model_queue_find(vhost, bh_str(word(self, 2))) : NULL;
    if (!queue)
        return BH_ERR_MISSING;
    model_settling_move_leader(queue);
    return BH_OK;
}

static bh_status do_confirms(command *self)
{
    self->broker->hides_confirms = strcmp(word(self, 1), "off") == 0;
    return BH_OK;
}

static bh_status do_minority(command *self)
{
    self->broker->is_minority = strcmp(word(self, 1), "on") == 0;
    for (size_t i = 0; i < self->broker->vhosts.count; i++) {
        const model_vhost *vhost = self->broker->vhosts.items[i].object;
        for (size_t j = 0; j < vhost->queues.count; j++)
            model_queue_touch(vhost->queues.items[j].object);
    }
    return BH_OK;
}

static bh_status do_advance(command *self)
{
    char *end;
    long long span_ms = strtoll(word(self, 1), &end, 10);
    if (span_ms < 0 || span_ms > MOST_MS || *end)
        return BH_ERR_ARGUMENT;
    model_advance(self->broker, model_later(self->broker->now_ms, span_ms));
    return BH_OK;
}

/* The words of a command are counted with its name. */
static const struct {
    const char *name;
    size_t least;
    size_t most;
    bh_status (*run)(command *self);
} commands[] = {
    {"stop", 1, 1, do_stop},
    {"kill", 1, 1, do_stop},
    {"start", 1, 1, do_start},
    {"alarm", 2, 2, do_alarm},
    {"list", 2, 3, do_list},
    {"close", 2, 4, do_close},
    {"cut", 2, 2, do_close},
    {"delete", 2, 4, do_delete},
    {"purge", 3, 3, do_purge},
    {"vhost", 3, 3, do_vhost},
    {"user", 3, 16, do_user},
    {"permissions", 6, 6, do_permissions},
    {"policy", 4, 7, do_policy},
    {"operator-policy", 4, 7, do_policy},
    {"resend", 2, 2, do_resend},
    {"now", 1, 1, do_now},
    {"advance", 2, 2, do_advance},
    {"cluster", 2, 2, do_cluster},
    {"max-message", 2, 2, do_most},
    {"leader", 3, 3, do_leader},
    {"confirms", 2, 2, do_confirms},
    {"minority", 2, 2, do_minority},
    {"consumer-timeout", 2, 2, do_timeout},
};

static bh_status run(command *self)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, word(self, 0)) == 0 && self->words.count >= commands[i].least &&
            self->words.count <= commands[i].most)
            return commands[i].run(self);
    return BH_ERR_ARGUMENT;
}

bh_status model_control(model *self, const char *line, bh__report *answer)
{
    command given = {.broker = self, .answer = answer};
    bh_status status = model_words_split(&given.words, line);
    size_t before = answer->size;
    if (status == BH_OK)
        status = run(&given);
    if (status == BH_ERR_ARGUMENT && answer->size == before)
        bh__report_add(answer, "the command '%s' is unknown, or its words are wrong\n", word(&given, 0));
    else if (status != BH_OK && answer->size == before)
        bh__report_add(answer, "%s\n", status == BH_ERR_MISSING ? "there is no such object" : "no memory");
    model_words_free(&given.words);
    model_run(self);
    return status;
}
