/*
 * Broker: a plain client of the broker under test, by librabbitmq alone. It does what the worker is
 * tested against: declares and publishes, reads queues, and breaks things. If the broker refuses
 * something, the test fails, unless it calls a function that expects the refusal.
 */
#ifndef BACKHOP_LIVE_BROKER_H
#define BACKHOP_LIVE_BROKER_H

#include "worker/librabbitmq.h"
#include "message.h"

#define LIMIT_MS 30000   /* for what has to happen some time */
#define HOUR_MS 3600000  /* a limit of the product that no test waits for */
#define RESENT_MS 240000 /* for what a wait queue sends again, as its target did not take it: after 180 s, or 30 s */

int64_t now_ms(void); /* monotonic */
int64_t epoch_ms(void);
void pause_ms(int64_t ms); /* between two looks at something that is waited for; and for delays of the test's own */

/* The broker under test. The environment names it: AMQP_URL, and for the private ones AMQPS_URL,
 * BACKHOP_CA_FILE and BACKHOP_BROKER_CTL; "" if it does not. */
const char *broker_url(void);
const char *broker_tls_url(void);
const char *broker_ca_file(void);
/* The URL of a cluster's node, from 1 on, in AMQP_URLS. */
const char *broker_node_url(int node);
int broker_can_be_controlled(void);
/* Reads its version and plugins, once; returns 0 and prints a line on standard error if it cannot
 * be reached. */
int broker_probe(void);
const char *broker_version(void);
int broker_is_at_least(int major, int minor);
int broker_has_delayed_exchange(void);
/* $BACKHOP_BROKER_CTL ARGS, words separated by one space. */
void broker_ctl(const char *words);

/* Actions of an administrator. A user may write and read all in the vhost, and configure what
 * `configure` matches. */
void broker_add_vhost(const char *name); /* with all permissions for guest */
void broker_delete_vhost(const char *name);
void broker_add_user(const char *name, const char *password, const char *vhost, const char *configure);
void broker_delete_user(const char *name);
void broker_set_password(const char *user, const char *password);
void broker_name_cluster(const char *name);

/* Writes each queue's messages to stderr, for a test that fails; writes nothing if the broker
 * cannot be controlled. */
void broker_show_queues(void);
/* Imports definitions (JSON), as an administrator does. */
void broker_import(bh_bytes definitions);
/* Writes a URL of the broker for this user. `user` and `password` are escaped already; NULL means
 * AMQP_URL's. `host` may be NULL too, and `port` 0. */
void broker_make_url(char *url, size_t size, const char *user, const char *password, const char *host, int port);
const char *broker_host(void);
int broker_port(int tls);

typedef struct broker broker;

broker *broker_open(void);
broker *broker_open_url(const char *url);
void broker_close(broker *self);
void broker_cut(broker *self);    /* closes the socket without a word, as a process that dies */
void broker_reopen(broker *self); /* after the broker itself was gone */

/* Entries of tables: arguments of a declaration, headers of a message. */
amqp_table_entry_t entry_string(const char *name, const char *value);
amqp_table_entry_t entry_int(const char *name, int64_t value);
amqp_table_entry_t entry_bytes(const char *name, int type, bh_bytes value);
amqp_table_entry_t entry_number(const char *name, int type, int64_t value);
amqp_table_entry_t entry_table(const char *name, amqp_table_entry_t *entries, int count);
amqp_table_entry_t entry_array(const char *name, amqp_field_value_t *values, int count);
amqp_bytes_t amqp_bytes_of(bh_bytes bytes);

/* All are durable. They are removed when the process ends. */
void broker_declare_exchange(broker *self, const char *name, const char *type);
void broker_declare_exchange_with(broker *self, const char *name, const char *type, amqp_table_entry_t *arguments,
                                  int count);
void broker_declare_queue(broker *self, const char *name, amqp_table_entry_t *arguments, int count);
void broker_declare_quorum(broker *self, const char *name);
void broker_declare_classic(broker *self, const char *name);
void broker_bind(broker *self, const char *queue, const char *exchange, const char *routing_key);
void broker_unbind(broker *self, const char *queue, const char *exchange, const char *routing_key);
void broker_delete_queue(broker *self, const char *name);
void broker_delete_exchange(broker *self, const char *name);
void broker_purge(broker *self, const char *queue);
int broker_has_queue(broker *self, const char *name);
int broker_has_exchange(broker *self, const char *name);
/* Returns the reply code of the broker's refusal of this declaration; 0 if the broker accepted
 * it. */
int broker_try_queue(broker *self, const char *name, amqp_table_entry_t *arguments, int count);
/* Removes this queue or exchange in the end, as if it was declared here. */
void broker_remove_later(const char *name);

/* Messages that are ready. A busy broker may report 0 for a quorum queue: to see that some are
 * there, wait for them. */
int broker_depth(broker *self, const char *queue);
/* Waits until the queue has so many. */
void broker_await_depth(broker *self, const char *queue, int depth);
/* Waits until the queue has so many consumers. The broker has then requeued what the consumers
 * before had in hand. */
void broker_await_consumers(broker *self, const char *queue, int count);

/* Publishes and waits for the confirm; again if the broker nacks, as it does while it makes a
 * queue. */
void broker_publish(broker *self, const char *exchange, const char *routing_key,
                    const amqp_basic_properties_t *properties, bh_bytes body);
void broker_publish_text(broker *self, const char *exchange, const char *routing_key, const char *body);
/* Publishes a text whose message-id is the body. */
void broker_publish_with_id(broker *self, const char *exchange, const char *routing_key, const char *body);
/* Publishes once. Returns the broker's answer: 0 confirmed, 312 returned, 1 nacked, else its reply
 * code. */
int broker_try_publish(broker *self, const char *exchange, const char *routing_key,
                       const amqp_basic_properties_t *properties, bh_bytes body);

enum {
    FRAME_ROOM = 131072 - 8 - 12,           /* of the default frame_max: for flags, properties and headers */
    FILLER_OVERHEAD = 2 + 4 + 1 + 6 + 1 + 4 /* flags, the table's length, "filler" and its type and length */
};
/* Publishes a message with a header "filler" that leaves so much of this room. Its bytes are 0, 1,
 * 2, ... */
void broker_publish_filled(broker *self, const char *exchange, const char *routing_key, size_t spare, bh_bytes body);

/* Publishes the numbers from 0 to count - 1, in decimal, and waits for their confirms. */
void broker_publish_numbers(broker *self, const char *queue, int count);

/* Takes a message off the queue, waiting for it; free it with message_free. */
void broker_get(broker *self, const char *queue, message *out);
/* Gets without waiting: returns 0 if there is no message. */
int broker_try_get(broker *self, const char *queue, message *out);
void broker_ack(broker *self, const message *taken);
void broker_reject(broker *self, const message *taken, int requeue);

#endif
