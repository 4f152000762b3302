/*
 * A stand-in for a CDN's purge API. It keeps purges in a queue of a few places and processes them one after the other.
 * During its peak it is slow, so the queue is full most of the time and the API answers 507.
 */
#ifndef CDN_PURGE_API_H
#define CDN_PURGE_API_H

#include <stdint.h>

#define PEAK_BEGINS_MS 3000
#define PEAK_ENDS_MS 14000

struct purge_api {
    double queued; /* purges in the queue at at_ms */
    int64_t at_ms;
    int refused;
};

struct purge_answer {
    int code;
    const char *text;
    int64_t retry_after_ms; /* 0: the answer has no Retry-After */
};

/* Requests a purge of a path. A path with an asterisk is many pages, more than the queue ever holds. */
struct purge_answer purge(struct purge_api *api, int64_t now_ms, const char *path);

#endif
