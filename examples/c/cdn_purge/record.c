#define _DEFAULT_SOURCE

#include "record.h"

#include <string.h>
#include <time.h>

int64_t monotonic_ms(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int64_t ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

int64_t elapsed_ms(const struct record *record)
{
    return monotonic_ms() - record->start_ms;
}

struct message *find_message(struct record *record, const void *id, size_t size)
{
    for (size_t i = 0; i < MESSAGES; i++)
        if (strlen(record->message[i].id) == size && memcmp(record->message[i].id, id, size) == 0)
            return &record->message[i];
    return NULL;
}

int kept_attempts(const struct message *message)
{
    return message->attempts < MOST_ATTEMPTS ? message->attempts : MOST_ATTEMPTS;
}

int is_settled(const struct message *message)
{
    int kept = kept_attempts(message);
    bh_action last = kept > 0 ? message->attempt[kept - 1].action : BH_ACTION_NONE;
    return last == BH_ACTION_ACK || last == BH_ACTION_PARK;
}

int count_missing(const struct record *record)
{
    int missing = 0;
    for (size_t i = 0; i < MESSAGES; i++)
        missing += record->message[i].published && !record->message[i].succeeded && !record->message[i].parked;
    return missing;
}
