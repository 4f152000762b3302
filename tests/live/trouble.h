/* Trouble: the faults that the tests cause a worker, and their tools. */
#ifndef BACKHOP_LIVE_TROUBLE_H
#define BACKHOP_LIVE_TROUBLE_H

#include "proxy.h"
#include "setups.h"

#include <backhop/breaker.h>

#define WAITING_MS 600000 /* a retried message is counted in its rung: it does not come back while the test runs */

/* A ladder whose messages wait so long. */
rig *rig_that_waits(void);
/* Prepared, with a worker that tries again every 50 ms and is not started. */
rig *rig_in_a_hurry(rig *r);
/* A breaker that opens after `row` failures in a row, and closes after one success. Each pause is
 * fixed. */
bh_breaker *quick_breaker(int64_t row, int64_t pause_ms);
/* Starts the worker by this URL, and does not wait for the result. */
void start_by(rig *r, const char *url);
/* Connects the worker through a proxy, with these options behind the URL, and binds the work
 * queue. */
proxy *start_by_proxy(rig *r, const char *options);
/* That the event awaited last says this too. */
#define expect_told(r, part) expect_part_at(bh_event_text((r)->event), (part), __FILE__, __LINE__)
/* A host that the name service never answers. */
#define UNANSWERED_HOST "host.unanswered"
/* From now on the name service answers for no host. */
void silence_name_service(void);
/* Waits until a worker has sent it a question for an address that it does not get. */
void await_unanswered_question(void);
/* While they are gone the system gives no random bytes. */
void take_random_bytes_away(int are_gone);
/* The alarm that lets the broker take no publishes. */
void begin_alarm(void);
void end_alarm(void);
/* Adds a test whose `end` is called even if the test fails. */
TCase *add_test_with_end(Suite *suite, const char *name, const TTest *test, SFun end);

/* The state of the messages 0 to count - 1, of broker_publish_numbers. */
enum { MOST_NUMBERS = 2000 };
typedef struct tally {
    int count;
    int seen[MOST_NUMBERS];
} tally;

/* Counts the message whose body is this. */
int tally_add(tally *self, bh_bytes body);
/* How many were seen at least once; how often one was seen again. */
int tally_distinct(const tally *self);
int tally_duplicates(const tally *self);
/* Gets what lies in the queue. */
void tally_drain(tally *self, rig *r, const char *queue);

#endif
