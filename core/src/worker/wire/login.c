#include "worker/wire/login.h"

#include "base/memory.h"

#include <backhop/version.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONGEST_MECHANISMS = 100 }; /* bytes of their list in a message */

static amqp_table_entry_t text_entry(const char *name, const char *text)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(text);
    return entry;
}

static amqp_table_entry_t true_entry(const char *name)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes(name), .value = {.kind = AMQP_FIELD_KIND_BOOLEAN}};
    entry.value.value.boolean = 1;
    return entry;
}

static void copy_property(const amqp_table_t *properties, const char *name, char *value, size_t room)
{
    value[0] = '\0';
    for (int i = 0; i < properties->num_entries; i++) {
        const amqp_table_entry_t *entry = &properties->entries[i];
        bh_bytes text =
            entry->value.kind == AMQP_FIELD_KIND_UTF8 ? bh__from_amqp(entry->value.value.bytes) : bh_str("");
        if (bh__same(bh__from_amqp(entry->key), bh_str(name)))
            snprintf(value, room, "%.*s", (int)text.size, text.data);
    }
}

/* Returns 1 if the list, separated by spaces, has the mechanism. */
static int is_offered(bh_bytes mechanisms, const char *mechanism)
{
    size_t size = strlen(mechanism), begin = 0;
    for (size_t i = 0; i <= mechanisms.size; i++) {
        if (i < mechanisms.size && mechanisms.data[i] != ' ')
            continue;
        if (i - begin == size && memcmp(mechanisms.data + begin, mechanism, size) == 0)
            return 1;
        begin = i + 1;
    }
    return 0;
}

/* Fails the link before a password is sent. */
static void refuse_mechanisms(bh__link *link, bh_bytes mechanisms, const char *mechanism)
{
    bh__report offered = {.size = 0};
    if (mechanisms.size > LONGEST_MECHANISMS)
        mechanisms.size = LONGEST_MECHANISMS;
    bh__report_add_shown(&offered, mechanisms, 0);
    bh__link_fail(link, BH_ERR_ACCESS, "the broker offers the login mechanisms \"%s\", and this login needs %s; %s",
                  offered.text ? offered.text : "", mechanism,
                  strcmp(mechanism, "PLAIN") == 0
                      ? "add PLAIN to auth_mechanisms of RabbitMQ, or use a client certificate and a URI without user"
                      : "enable RabbitMQ's plugin rabbitmq_auth_mechanism_ssl and add EXTERNAL to its auth_mechanisms, "
                        "or put user and password into the URI");
    bh__report_free(&offered);
}

void bh__login_introduce(bh__link *link, const bh__uri *uri, int has_certificate, const char *name)
{
    const amqp_connection_start_t *start = link->reply.decoded;
    copy_property(&start->server_properties, "product", link->product, sizeof link->product);
    copy_property(&start->server_properties, "version", link->version, sizeof link->version);
    copy_property(&start->server_properties, "cluster_name", link->cluster, sizeof link->cluster);

    int is_external = has_certificate && uri->tls && !uri->has_user;
    snprintf(link->user, sizeof link->user, "%s", is_external ? "(of the client certificate)" : uri->user);
    const char *mechanism = is_external ? "EXTERNAL" : "PLAIN";
    if (!is_offered(bh__from_amqp(start->mechanisms), mechanism)) {
        refuse_mechanisms(link, bh__from_amqp(start->mechanisms), mechanism);
        return;
    }
    size_t user = strlen(uri->user), password = strlen(uri->password);
    char *secret = calloc(1, user + password + 3);
    if (!secret) {
        bh__link_fail(link, BH_ERR_NO_MEMORY, "no memory for a login");
        return;
    }
    memcpy(secret + 1, uri->user, user);
    memcpy(secret + 1 + user + 1, uri->password, password);
    amqp_table_entry_t capabilities[] = {
        true_entry("consumer_cancel_notify"),     true_entry("connection.blocked"),
        true_entry("publisher_confirms"),         true_entry("basic.nack"),
        true_entry("exchange_exchange_bindings"), true_entry("authentication_failure_close")};
    amqp_table_entry_t properties[] = {
        text_entry("product", "Backhop"),
        text_entry("version", bh_version()),
        text_entry("information", "librabbitmq"),
        text_entry("connection_name", name),
        {.key = amqp_cstring_bytes("capabilities"), .value = {.kind = AMQP_FIELD_KIND_TABLE}}};
    properties[4].value.value.table = (amqp_table_t){sizeof capabilities / sizeof capabilities[0], capabilities};
    amqp_connection_start_ok_t start_ok = {.client_properties = {sizeof properties / sizeof properties[0], properties},
                                           .mechanism = amqp_cstring_bytes(mechanism),
                                           .response = {is_external ? 0 : user + password + 2, secret},
                                           .locale = amqp_cstring_bytes("en_US")};
    bh__link_send(link, 0, AMQP_CONNECTION_START_OK_METHOD, &start_ok);
    free(secret);
}

static uint32_t lower(uint32_t ours, uint32_t theirs)
{
    return theirs == 0 || ours < theirs ? ours : theirs; /* 0: no limit */
}

void bh__login_tune(bh__link *link, const bh__uri *uri, int channel_max)
{
    const amqp_connection_tune_t *tune = link->reply.decoded;
    if (tune->frame_max && tune->frame_max < BH__LEAST_FRAME_MAX)
        bh__link_fail(link, BH_ERR_CONNECTION, "the broker's frame_max of %u is below AMQP's least, %d",
                      tune->frame_max, BH__LEAST_FRAME_MAX);
    amqp_connection_tune_ok_t tune_ok = {.channel_max = (uint16_t)lower((uint32_t)channel_max, tune->channel_max),
                                         .frame_max = lower(BH__FRAME_MAX, tune->frame_max)};
    if (uri->heartbeat_s)
        tune_ok.heartbeat = (uint16_t)lower((uint32_t)uri->heartbeat_s, tune->heartbeat);
    link->channel_max = tune_ok.channel_max;
    link->frame_max = tune_ok.frame_max;
    link->heartbeat_ms = (int64_t)tune_ok.heartbeat * 1000;
    bh__link_send(link, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &tune_ok);
}

/*
 * Returns 1 if the broker refuses all logins for some time: a limit of connections is reached, or
 * the vhost is down. RabbitMQ 3.10 to 4.3 use the code of a refused user then.
 */
static int is_temporary(const char *reason)
{
    return strstr(reason, "connection limit (") || strstr(reason, "' is down");
}

bh_status bh__login_explain(const bh__link *link, const bh__uri *uri, bh__report *problem)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%s", bh__report_text(problem).data);
    if (link->close_code == AMQP_NOT_ALLOWED && is_temporary(reason))
        return bh__report_set(problem, BH_ERR_CONNECTION,
                              "%s:%d takes no further connection of user %s to vhost %s now: %s; "
                              "end other connections or raise the limit, or start the vhost",
                              uri->host, uri->port, link->user, uri->vhost, reason);
    if (link->close_code == AMQP_ACCESS_REFUSED || link->close_code == AMQP_NOT_ALLOWED)
        return bh__report_set(problem, BH_ERR_ACCESS,
                              "%s:%d refused user %s and vhost %s: %s; check user, password, vhost and permissions",
                              uri->host, uri->port, link->user, uri->vhost, reason);
    if (problem->status == BH_ERR_ACCESS)
        return bh__report_set(problem, BH_ERR_ACCESS, "%s:%d: %s", uri->host, uri->port, reason);
    return bh__report_set(
        problem, problem->status, "%s:%d did not log user %s in: %s; check that RabbitMQ listens there, and %s",
        uri->host, uri->port, link->user, reason,
        uri->tls ? "whether it requires a client certificate" : "whether the port wants TLS (amqps://)");
}
