#include "api.h"

#include <string.h>

#define API_PLACES 4.0      /* purges that the queue holds */
#define API_QUIET_PER_S 4.5 /* purges worked off in a second */
#define API_PEAK_PER_S 0.45 /* the same, during the peak */
#define API_HINTS_EVERY 9   /* each ninth 507 says when to come back */
#define API_RETRY_AFTER_MS 6000

struct purge_answer purge(struct purge_api *api, int64_t now_ms, const char *path)
{
    int peak = now_ms >= PEAK_BEGINS_MS && now_ms < PEAK_ENDS_MS;
    double worked_off = (peak ? API_PEAK_PER_S : API_QUIET_PER_S) * (double)(now_ms - api->at_ms) / 1000;
    double purges = strchr(path, '*') ? 1000 : 1;

    api->queued = api->queued > worked_off ? api->queued - worked_off : 0;
    api->at_ms = now_ms;
    if (strncmp(path, "/old/", 5) == 0)
        return (struct purge_answer){404, "404 no such site", 0};
    if (api->queued + purges > API_PLACES) {
        int hint = ++api->refused % API_HINTS_EVERY == 0;
        return (struct purge_answer){507, "507 queue is full", hint ? API_RETRY_AFTER_MS : 0};
    }
    api->queued += purges;
    return (struct purge_answer){202, "202 accepted", 0};
}
