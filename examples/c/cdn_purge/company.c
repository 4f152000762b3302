#define _DEFAULT_SOURCE

#include "company.h"
#include "spared.h"
#include "worker/librabbitmq.h" /* the library's own: it knows what librabbitmq 0.12 renamed */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEARCH_INDEX NAMESPACE ".search-index"
#define PUBLISH_EVERY_MS 300
#define CHANNEL 1
#define TICK_MS 50

/* Keeps the first error, and the reason that the broker or librabbitmq gave. Gives 0, for "failed". */
static int company_fail(struct company *self, const char *what, amqp_rpc_reply_t reply)
{
    amqp_bytes_t reason = amqp_cstring_bytes("an answer that was not expected");

    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        reason = amqp_cstring_bytes(amqp_error_string2(reply.library_error));
    else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CHANNEL_CLOSE_METHOD)
        reason = ((const amqp_channel_close_t *)reply.reply.decoded)->reply_text;
    else if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION && reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD)
        reason = ((const amqp_connection_close_t *)reply.reply.decoded)->reply_text;
    if (!self->failed)
        snprintf(self->error, sizeof self->error, "%s: %.*s", what, (int)reason.len, (const char *)reason.bytes);
    self->failed = 1;
    return 0;
}

/* Returns 1 if the call before, which `what` names, succeeded. */
static int company_did(struct company *self, const char *what)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(self->connection);
    return reply.reply_type == AMQP_RESPONSE_NORMAL || company_fail(self, what, reply);
}

/* Uses OpenSSL's variable, else the bundle of Debian, Fedora, openSUSE, or Alpine and the BSDs. librabbitmq before 0.14
 * does not find the system's CAs. */
static int trust_system(amqp_socket_t *socket)
{
    const char *paths[] = {getenv("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt",
                           "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && access(paths[i], R_OK) == 0)
            return amqp_ssl_socket_set_cacert(socket, paths[i]);
    return AMQP_STATUS_SSL_ERROR;
}

int company_connect(struct company *self, const char *url)
{
    struct timeval patience = {10, 0};
    struct amqp_connection_info to;
    char copy[1024];

    snprintf(copy, sizeof copy, "%.*s", (int)strcspn(url, "?"), url);
    self->connection = amqp_new_connection();
    if (!self->connection || amqp_parse_url(copy, &to) != AMQP_STATUS_OK) {
        snprintf(self->error, sizeof self->error, "AMQP_URL must be amqp[s]://user:password@host:port/vhost");
        return 0;
    }
    amqp_socket_t *socket = to.ssl ? amqp_ssl_socket_new(self->connection) : amqp_tcp_socket_new(self->connection);
    if (!socket || (to.ssl && trust_system(socket) != AMQP_STATUS_OK) ||
        amqp_socket_open_noblock(socket, to.host, to.port, &patience) != AMQP_STATUS_OK) {
        snprintf(self->error, sizeof self->error, "no RabbitMQ at %s, port %d; name yours in AMQP_URL", to.host,
                 to.port);
        return 0;
    }
    amqp_set_rpc_timeout(self->connection, &patience);
    amqp_rpc_reply_t reply = amqp_login(self->connection, *to.vhost ? to.vhost : "/", 0, AMQP_DEFAULT_FRAME_SIZE, 0,
                                        AMQP_SASL_METHOD_PLAIN, to.user, to.password);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return company_fail(self, "cannot log in", reply);
    self->connected = 1;
    amqp_channel_open(self->connection, CHANNEL);
    amqp_confirm_select(self->connection, CHANNEL);
    return company_did(self, "cannot open a channel");
}

int company_lock(struct company *self)
{
    amqp_queue_declare(self->connection, CHANNEL, amqp_cstring_bytes(NAMESPACE ".running"), 0, 0, 1, 1,
                       amqp_empty_table);
    return company_did(self, "another demo is running on it");
}

int company_clear(struct company *self, const bh_topology *topology)
{
    amqp_exchange_delete(self->connection, CHANNEL, amqp_cstring_bytes(ARTICLES), 0);
    if (!company_did(self, "cannot delete " ARTICLES))
        return 0;
    amqp_queue_delete(self->connection, CHANNEL, amqp_cstring_bytes(SEARCH_INDEX), 0, 0);
    if (!company_did(self, "cannot delete " SEARCH_INDEX))
        return 0;
    for (size_t i = bh_topology_count(topology); i-- > 0;) {
        bh_declaration each;
        bh_topology_declaration(topology, i, &each);
        amqp_bytes_t name = amqp_cstring_bytes(each.name.data);
        if (each.kind == BH_DECLARE_QUEUE)
            amqp_queue_delete(self->connection, CHANNEL, name, 0, 0);
        else if (each.kind == BH_DECLARE_EXCHANGE)
            amqp_exchange_delete(self->connection, CHANNEL, name, 0);
        if (!company_did(self, "cannot delete what the demo declares"))
            return 0;
    }
    return 1;
}

int company_declare(struct company *self)
{
    const char *queues[] = {CDN_PURGE, SEARCH_INDEX, SPARED_QUEUE};
    const char *keys[] = {"article.updated", "article.deleted"};
    amqp_bytes_t exchange = amqp_cstring_bytes(ARTICLES);

    amqp_exchange_declare(self->connection, CHANNEL, exchange, amqp_cstring_bytes("topic"), 0, 1, 0, 0,
                          amqp_empty_table);
    if (!company_did(self, "cannot declare " ARTICLES))
        return 0;
    amqp_queue_declare(self->connection, CHANNEL, amqp_cstring_bytes(SEARCH_INDEX), 0, 1, 0, 0, amqp_empty_table);
    if (!company_did(self, "cannot declare " SEARCH_INDEX))
        return 0;
    for (size_t i = 0; i < 6; i++) {
        amqp_queue_bind(self->connection, CHANNEL, amqp_cstring_bytes(queues[i / 2]), exchange,
                        amqp_cstring_bytes(keys[i % 2]), amqp_empty_table);
        if (!company_did(self, "cannot bind the queues to " ARTICLES))
            return 0;
    }
    return 1;
}

/* Publishes an event and waits for its confirm. */
static int company_publish(struct company *self, struct message *message)
{
    struct timeval patience = {10, 0};
    amqp_frame_t frame;
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
        .message_id = amqp_cstring_bytes(message->id),
        .content_type = amqp_cstring_bytes("text/plain"),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
    };

    int status = amqp_basic_publish(self->connection, CHANNEL, amqp_cstring_bytes(ARTICLES),
                                    amqp_cstring_bytes(message->routing_key), 0, 0, &properties,
                                    amqp_cstring_bytes(message->path));
    if (status == AMQP_STATUS_OK)
        status = amqp_simple_wait_frame_noblock(self->connection, &frame, &patience);
    if (status == AMQP_STATUS_OK &&
        (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD))
        status = AMQP_STATUS_WRONG_METHOD;
    if (status != AMQP_STATUS_OK)
        return company_fail(self, "cannot publish",
                            (amqp_rpc_reply_t){.reply_type = AMQP_RESPONSE_LIBRARY_EXCEPTION, .library_error = status});
    pthread_mutex_lock(&self->record->lock);
    message->published = 1;
    pthread_mutex_unlock(&self->record->lock);
    return 1;
}

/* Takes the next message off a queue: 1, 0 (the queue is empty), -1 (failed). Destroy it after 1. */
static int company_get(struct company *self, const char *queue, amqp_message_t *out)
{
    amqp_rpc_reply_t reply = amqp_basic_get(self->connection, CHANNEL, amqp_cstring_bytes(queue), 1);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL && reply.reply.id == AMQP_BASIC_GET_EMPTY_METHOD)
        return 0;
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        reply = amqp_read_message(self->connection, CHANNEL, out, 0);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return 1;
    company_fail(self, "cannot read a queue", reply);
    return -1;
}

/* Returns a header's value if it has this type, else NULL. */
static const amqp_field_value_t *header(const amqp_message_t *message, const char *name, uint8_t kind)
{
    const amqp_table_t *headers = &message->properties.headers;
    if (!(message->properties._flags & AMQP_BASIC_HEADERS_FLAG))
        return NULL;
    for (int i = 0; i < headers->num_entries; i++) {
        const amqp_table_entry_t *entry = &headers->entries[i];
        if (entry->key.len == strlen(name) && memcmp(entry->key.bytes, name, entry->key.len) == 0)
            return entry->value.kind == kind ? &entry->value : NULL;
    }
    return NULL;
}

static void copy_header(char *out, size_t size, const amqp_message_t *message, const char *name)
{
    const amqp_field_value_t *value = header(message, name, AMQP_FIELD_KIND_UTF8);
    if (value)
        snprintf(out, size, "%.*s", (int)value->value.bytes.len, (const char *)value->value.bytes.bytes);
}

static int has_backhop_header(const amqp_message_t *message)
{
    const amqp_table_t *headers = &message->properties.headers;
    if (message->properties._flags & AMQP_BASIC_HEADERS_FLAG)
        for (int i = 0; i < headers->num_entries; i++)
            if (headers->entries[i].key.len >= 8 && memcmp(headers->entries[i].key.bytes, "backhop-", 8) == 0)
                return 1;
    return 0;
}

static struct message *which(struct company *self, const amqp_message_t *message)
{
    if (!(message->properties._flags & AMQP_BASIC_MESSAGE_ID_FLAG))
        return NULL;
    return find_message(self->record, message->properties.message_id.bytes, message->properties.message_id.len);
}

/* Reads the queue search-index: each event may come there once, and none that Backhop has touched. */
static int company_read_index(struct company *self)
{
    amqp_message_t message;
    int got;

    while ((got = company_get(self, SEARCH_INDEX, &message)) == 1) {
        pthread_mutex_lock(&self->record->lock);
        struct message *event = which(self, &message);
        self->record->indexed++;
        if (!event || event->indexed++ || has_backhop_header(&message))
            self->record->strangers++;
        pthread_mutex_unlock(&self->record->lock);
        amqp_destroy_message(&message);
    }
    return got == 0;
}

/* Reads the parked queue, as an operator does, and prints why each message is there. */
static int company_read_parked(struct company *self, const char *queue)
{
    amqp_message_t message;
    int got;

    while ((got = company_get(self, queue, &message)) == 1) {
        struct message *event = which(self, &message);
        const amqp_field_value_t *attempts = header(&message, "backhop-attempts", AMQP_FIELD_KIND_I64);
        if (event && event->parked++ == 0) {
            event->parked_attempts = attempts ? (int)attempts->value.i64 : 0;
            copy_header(event->parked_reason, sizeof event->parked_reason, &message, "backhop-parked");
            copy_header(event->parked_error, sizeof event->parked_error, &message, "backhop-error");
        }
        amqp_destroy_message(&message);
    }
    return got == 0;
}

/* How many messages are in a queue; -1: failed. */
static int company_depth(struct company *self, const char *queue)
{
    amqp_queue_declare_ok_t *found =
        amqp_queue_declare(self->connection, CHANNEL, amqp_cstring_bytes(queue), 1, 0, 0, 0, amqp_empty_table);
    if (found)
        return (int)found->message_count;
    company_did(self, "cannot count the messages of a queue");
    return -1;
}

/* Counts the messages in each wait queue. */
static int company_sample(struct company *self)
{
    struct record *record = self->record;
    size_t sample = (size_t)(elapsed_ms(record) / SAMPLE_MS);
    int ok = 1;

    if (sample >= MOST_SAMPLES)
        return 1;
    for (size_t i = 0; i < record->waits && ok; i++) {
        struct wait_queue *wait = &record->wait[i];
        pthread_mutex_lock(&record->lock);
        int declared = wait->declared;
        pthread_mutex_unlock(&record->lock);
        int depth = declared ? company_depth(self, wait->name) : 0;
        ok = depth >= 0;
        pthread_mutex_lock(&record->lock);
        for (size_t s = record->samples; s <= sample && ok; s++)
            wait->depth[s] = depth;
        wait->peak = depth > wait->peak ? depth : wait->peak;
        wait->left = depth;
        pthread_mutex_unlock(&record->lock);
    }
    pthread_mutex_lock(&record->lock);
    record->samples = sample + 1;
    pthread_mutex_unlock(&record->lock);
    return ok;
}

static void *company_work(void *data)
{
    struct company *self = data;
    int64_t next_sample_ms = 0;
    size_t published = 0;
    int ok = 1;

    while (ok && !self->stop) {
        int64_t now_ms = elapsed_ms(self->record);
        if (published < MESSAGES && now_ms >= (int64_t)published * PUBLISH_EVERY_MS)
            ok = company_publish(self, &self->record->message[published++]);
        if (ok && now_ms >= next_sample_ms) {
            ok = company_sample(self) && company_read_index(self);
            next_sample_ms = (now_ms / SAMPLE_MS + 1) * SAMPLE_MS;
        }
        sleep_ms(TICK_MS);
    }
    return NULL;
}

int company_start(struct company *self)
{
    if (pthread_create(&self->thread, NULL, company_work, self) == 0)
        return 1;
    snprintf(self->error, sizeof self->error, "cannot start a thread");
    return 0;
}

void company_end_thread(struct company *self)
{
    self->stop = 1;
    pthread_join(self->thread, NULL);
}

/* Counts the messages in the work queue, the wait queues and unroutable; -1: failed. */
static int company_count_left(struct company *self)
{
    int working = company_sample(self) ? company_depth(self, CDN_PURGE) : -1;
    int unroutable = working >= 0 ? company_depth(self, NAMESPACE ".unroutable") : -1;
    int left = working + unroutable;

    for (size_t i = 0; i < self->record->waits; i++)
        left += self->record->wait[i].left;
    return unroutable >= 0 ? left : -1;
}

int company_look(struct company *self, const char *parked_queue)
{
    struct record *record = self->record;

    for (int looks = 0; looks < 20; looks++) {
        if (self->failed || !company_read_index(self) || !company_read_parked(self, parked_queue))
            return 0;
        record->left = company_count_left(self);
        if (record->left < 0)
            return 0;
        if (count_missing(record) <= record->left)
            return 1;
        sleep_ms(250);
    }
    return 1;
}

void company_close(struct company *self)
{
    if (self->connected)
        amqp_connection_close(self->connection, AMQP_REPLY_SUCCESS);
    if (self->connection)
        amqp_destroy_connection(self->connection);
}
