#include <backhop/adapter/duration.h>

#include <stdio.h>
#include <string.h>

bh_bytes bh_duration_text(int64_t span_ms, char room[BH_DURATION_ROOM])
{
    static const struct {
        int64_t s;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    int64_t remaining_s = span_ms / 1000 + (span_ms % 1000 >= 500);
    int size = 0, shown = 0;
    if (span_ms < 60000) {
        snprintf(room, BH_DURATION_ROOM, "%.3g s", (double)span_ms / 1000);
        return bh_str(room);
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0] && shown < 2; remaining_s %= units[i++].s)
        if (remaining_s >= units[i].s)
            size += snprintf(room + size, BH_DURATION_ROOM - (size_t)size, "%s%lld %s", shown++ ? " " : "",
                             (long long)(remaining_s / units[i].s), units[i].unit);
    return bh_str(room);
}

/* Reads "12" or "1.5" from *at on. Returns -1 if there is no number. Independent of the locale,
 * unlike strtod. */
static double read_number(const char **at, const char *end)
{
    double number = 0, place = 1;
    const char *first = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at)
        number = number * 10 + (**at - '0');
    if (*at == first)
        return -1;
    if (*at < end && **at == '.')
        for (++*at; *at < end && **at >= '0' && **at <= '9'; ++*at)
            number += (**at - '0') * (place /= 10);
    return number;
}

/* Reads a unit from *at on. Returns its ms; 0 if there is none. */
static double read_unit(const char **at, const char *end)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"min", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
    const char *first = *at;
    while (*at < end && **at >= 'a' && **at <= 'z')
        ++*at;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strlen(units[i].name) == (size_t)(*at - first) && memcmp(units[i].name, first, (size_t)(*at - first)) == 0)
            return units[i].ms;
    return 0;
}

static void skip_spaces(const char **at, const char *end)
{
    while (*at < end && **at == ' ')
        ++*at;
}

int64_t bh_duration_ms(bh_bytes text)
{
    const char *at = text.data, *end = text.data + text.size;
    double total = 0;
    skip_spaces(&at, end);
    do {
        double number = read_number(&at, end);
        skip_spaces(&at, end);
        double unit = read_unit(&at, end);
        skip_spaces(&at, end);
        total += number * unit;
        if (number < 0 || unit == 0 || !(total <= 9007199254740992.0))
            return -1;
    } while (at < end);
    return total > 0 && total < 1 ? 1 : (int64_t)(total + 0.5); /* 0 can mean no limit */
}
