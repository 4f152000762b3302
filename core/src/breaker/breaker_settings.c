/* The settings of a breaker: defaults and ranges. */
#include "breaker/data.h"

void bh_breaker_defaults(bh_breaker_settings *out)
{
    if (!out)
        return;
    *out = (bh_breaker_settings){
        .name = bh_str(""),
        .window_ms = 60000,
        .least_calls = 20,
        .failure_percent = 50,
        .row_failures = 10,
        .slow_percent = 100,
        .probe_successes = 3,
        .probe_timeout_ms = 60000,
        .ramp_calls = 1024,
    };
}

/* The texts are constant: this function has no object that could own a text. */
#define RANGE(field, least, most)                                                                                      \
    if (settings->field < (least) || settings->field > (most))                                                         \
        return bh_str(#field " is out of range: give a whole number from " #least " to " #most);

bh_bytes bh_breaker_settings_error(const bh_breaker_settings *settings)
{
    if (!settings)
        return bh_str("the settings are missing: call bh_breaker_defaults");
    if (!settings->name.data || settings->name.size > BH_BREAKER_MOST_NAME || !bh__is_utf8(settings->name))
        return bh_str("name is longer than 64 bytes, or not UTF-8: give a shorter name, as the downstream's");
    RANGE(window_ms, 6, 86400000)
    RANGE(least_calls, 1, 1000000000)
    RANGE(failure_percent, 1, 100)
    RANGE(row_failures, 0, 1000000000)
    RANGE(slow_ms, 0, 86400000)
    RANGE(slow_percent, 1, 100)
    RANGE(probe_successes, 1, 1000)
    RANGE(probe_timeout_ms, 1, 86400000)
    RANGE(ramp_calls, 1, 65536)
    RANGE(throttled_opens, 0, 1)
    RANGE(by_key, 0, 1)
    return bh_str("");
}
