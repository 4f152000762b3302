/* The record of the run, as the two threads of the demo saw it: each takes the lock to write, the screen to read. */
#ifndef CDN_PURGE_RECORD_H
#define CDN_PURGE_RECORD_H

#include <backhop/adapter.h>

#include <pthread.h>

#define NAMESPACE "backhop-demo" /* of all that the demo declares, and deletes at its end */
#define ARTICLES NAMESPACE ".articles"
#define CDN_PURGE NAMESPACE ".cdn-purge"

#define MESSAGES 28
#define MOST_ATTEMPTS 16 /* more are counted, not drawn */
#define MOST_WAITS 64
#define SAMPLE_MS 200
#define MOST_SAMPLES 600

/* One call of the handler, in ms since the start. */
struct attempt {
    int64_t at_ms;      /* the message was taken */
    int64_t settled_ms; /* its plan was executed */
    int64_t delay_ms;   /* how long it will wait */
    bh_action action;
};

struct message {
    char id[8];
    char path[24];
    const char *routing_key;
    int published; /* and confirmed */
    int attempts;
    struct attempt attempt[MOST_ATTEMPTS];
    int succeeded; /* how often: more than once is a duplicate */
    int indexed;   /* how often search-index received it */
    int parked;    /* how often it was found in the parked queue, and what its headers said there */
    int parked_attempts;
    char parked_reason[32];
    char parked_error[64];
};

struct wait_queue {
    char name[48];
    int64_t ms;
    int declared;
    int depth[MOST_SAMPLES];
    int peak;
    int left; /* at the end */
};

struct record {
    pthread_mutex_t lock;
    int64_t start_ms;
    struct message message[MESSAGES];
    struct wait_queue wait[MOST_WAITS];
    size_t waits;
    size_t samples; /* of depth */
    int delivered;
    int retried;
    int changed;   /* attempts at which the message was not as it was published */
    int indexed;   /* what search-index received, */
    int strangers; /* and how much of it was not an event's first and only copy */
    int left;      /* messages in the work queue, the wait queues and unroutable, at the end */
};

/* Milliseconds that only grow: since an unknown start, and since the run's. */
int64_t monotonic_ms(void);
int64_t elapsed_ms(const struct record *record);
void sleep_ms(int64_t ms);

/* The event of this id; NULL: none has it. */
struct message *find_message(struct record *record, const void *id, size_t size);
/* The first attempts of a message, as many as there was room to keep. */
int kept_attempts(const struct message *message);
/* Returns 1 if its last attempt is not to be retried. */
int is_settled(const struct message *message);
/* How many of the events published have neither succeeded nor were found parked. */
int count_missing(const struct record *record);

#endif
