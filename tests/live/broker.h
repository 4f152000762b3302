/*
 * Broker: a plain client of the broker under test, by librabbitmq alone. It does what the worker is tested against:
 * declares and publishes, looks at what is there, and breaks things. Where the broker refuses something that the test
 * did not ask it to refuse, the test fails.
 */
#ifndef BACKHOP_LIVE_BROKER_H
#define BACKHOP_LIVE_BROKER_H

#include "worker/librabbitmq.h"
#include "message.h"

#define LIMIT_MS 30000    /* for what has to happen some time */
#define RESENT_MS 240000  /* for what a wait queue sends again, as its target did not take it: after 180 s, or 30 s */
#define LATENESS_MS 15000 /* for what has to happen at a time; less than LIMIT_MS */

int64_t now_ms(void); /* monotonic */
int64_t epoch_ms(void);
void pause_ms(int64_t ms); /* between two looks at something that is waited for; and for delays of the test's own */

/* The broker under test. The environment names it: AMQP_URL, and for the private ones AMQPS_URL, BACKHOP_CA_FILE and
 * BACKHOP_BROKER_CTL; "" where it does not. */
const char *broker_url(void);
const char *broker_tls_url(void);
const char *broker_ca_file(void);
/* Of a cluster's node, from 1 on: of AMQP_URLS. */
const char *broker_node_url(int node);
int broker_can_be_controlled(void);
/* Learns its version and plugins, once; 0 and a line on standard error where it cannot be reached. */
int broker_probe(void);
const char *broker_version(void);
int broker_is_at_least(int major, int minor);
int broker_has_delayed_exchange(void);
/* $BACKHOP_BROKER_CTL ARGS, words separated by one space. */
void broker_ctl(const char *words);
/* Writes to stderr what each queue holds, for a test that fails; nothing where the broker cannot be controlled. */
void broker_show_queues(void);
/* Imports definitions (JSON), as an administrator does. */
void broker_import(bh_bytes definitions);
/* A URL of the broker as this user; `user` and `password` are escaped already, and NULL means those of AMQP_URL. `host`
 * may be NULL too, and `port` 0. */
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

/* All are durable. What is declared is removed when the process ends. */
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
/* The reply code with which the broker refuses this declaration; 0: it took it. */
int broker_try_queue(broker *self, const char *name, amqp_table_entry_t *arguments, int count);
/* Removes these in the end, as those that were declared here. */
void broker_remove_later(const char *name);

/* Messages that are ready. Of a quorum queue a busy broker may say 0: to see that some are there, wait for them. */
int broker_depth(broker *self, const char *queue);
/* Waits until the queue has so many. */
void broker_await_depth(broker *self, const char *queue, int depth);

/* Publishes and waits for the confirm; again where the broker nacks, as it does while it makes a queue. */
void broker_publish(broker *self, const char *exchange, const char *routing_key,
                    const amqp_basic_properties_t *properties, bh_bytes body);
void broker_publish_text(broker *self, const char *exchange, const char *routing_key, const char *body);
/* Publishes a text whose message-id is the body. */
void broker_publish_with_id(broker *self, const char *exchange, const char *routing_key, const char *body);
/* The same; what the broker made of it: 0 confirmed, 312 returned, 1 nacked, else its reply code. */
int broker_try_publish(broker *self, const char *exchange, const char *routing_key,
                       const amqp_basic_properties_t *properties, bh_bytes body);

/* Publishes the numbers from 0 to count - 1, in decimal, and waits for their confirms. */
void broker_publish_numbers(broker *self, const char *queue, int count);

/* Publishes a taken message again as hand-written code does: with every property and header that it has, x-death among
 * them, and this expiration, where there is one. The result is that of broker_try_publish. */
int broker_try_republish(broker *self, const message *taken, const char *exchange, const char *routing_key,
                         const char *expiration);

/* Takes a message off the queue, waiting for it; free it with message_free. */
void broker_get(broker *self, const char *queue, message *out);
/* The same, without waiting: 0 where there is none. */
int broker_try_get(broker *self, const char *queue, message *out);
void broker_ack(broker *self, const message *taken);
void broker_reject(broker *self, const message *taken, int requeue);

#endif
