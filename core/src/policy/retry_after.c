/* HTTP's header Retry-After (RFC 9110, 10.2.3). */
#include <backhop/policy.h>

typedef struct reader {
    const char *at;
    const char *end;
} reader;

typedef struct date {
    int64_t day, month, year, hour, minute, second;
} date;

static int is_digit(char character)
{
    return character >= '0' && character <= '9';
}

/* Reads a number of exactly `digits` digits. */
static int read_number(reader *self, int digits, int64_t *out)
{
    *out = 0;
    for (; digits > 0; digits--, self->at++) {
        if (self->at == self->end || !is_digit(*self->at))
            return 0;
        *out = *out * 10 + (*self->at - '0');
    }
    return 1;
}

static int read_text(reader *self, const char *text)
{
    size_t size = strlen(text);
    if ((size_t)(self->end - self->at) < size || memcmp(self->at, text, size) != 0)
        return 0;
    self->at += size;
    return 1;
}

/* Reads one of the names. Returns its number, from 1; 0: none. */
static int read_name(reader *self, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (read_text(self, names[i]))
            return i + 1;
    return 0;
}

static int read_month(reader *self, int64_t *out)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    *out = read_name(self, months, 12);
    return *out > 0;
}

static int read_time(reader *self, date *out)
{
    return read_number(self, 2, &out->hour) && read_text(self, ":") && read_number(self, 2, &out->minute) &&
           read_text(self, ":") && read_number(self, 2, &out->second);
}

/* Reads the rest of "Sun, 06 Nov 1994 08:49:37 GMT". */
static int read_fixed(reader *self, date *out)
{
    return read_text(self, ", ") && read_number(self, 2, &out->day) && read_text(self, " ") &&
           read_month(self, &out->month) && read_text(self, " ") && read_number(self, 4, &out->year) &&
           read_text(self, " ") && read_time(self, out) && read_text(self, " GMT");
}

/* Reads the rest of "Sunday, 06-Nov-94 08:49:37 GMT". The year has no century yet. */
static int read_rfc_850(reader *self, date *out)
{
    return read_text(self, ", ") && read_number(self, 2, &out->day) && read_text(self, "-") &&
           read_month(self, &out->month) && read_text(self, "-") && read_number(self, 2, &out->year) &&
           read_text(self, " ") && read_time(self, out) && read_text(self, " GMT");
}

/* Reads the rest of "Sun Nov  6 08:49:37 1994". */
static int read_asctime(reader *self, date *out)
{
    return read_text(self, " ") && read_month(self, &out->month) && read_text(self, " ") &&
           read_number(self, read_text(self, " ") ? 1 : 2, &out->day) && read_text(self, " ") && read_time(self, out) &&
           read_text(self, " ") && read_number(self, 4, &out->year);
}

/* Returns the days from 1970-01-01 to a date of the Gregorian calendar. */
static int64_t days_of(const date *of)
{
    int64_t year = of->year - (of->month <= 2); /* years begin in March, so that leap days come last */
    int64_t month = (of->month + 9) % 12;
    return year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + of->day - 1 - 719468;
}

/* Returns the ms since the epoch. */
static int64_t ms_of(const date *of)
{
    return (((days_of(of) * 24 + of->hour) * 60 + of->minute) * 60 + of->second) * 1000;
}

static int is_valid(const date *of)
{
    return of->day >= 1 && of->day <= 31 && of->hour <= 23 && of->minute <= 59 && of->second <= 60;
}

/* Adds the century to a year of two digits: the date is at most 50 years ahead. */
static void add_century(date *of, int64_t now_ms)
{
    const int64_t fifty_years_ms = INT64_C(50) * 36525 * 864000;
    of->year += 1900;
    while (ms_of(of) + 2 * fifty_years_ms <= now_ms + fifty_years_ms)
        of->year += 100;
}

/* Reads a date, in ms since the epoch. Returns 0 if it is malformed. */
static int read_date(reader *self, int64_t now_ms, int64_t *out)
{
    static const char *const long_days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                            "Friday", "Saturday", "Sunday"};
    static const char *const short_days[] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
    date read = {0};
    int is_read = 0;
    if (read_name(self, long_days, 7)) {
        is_read = read_rfc_850(self, &read) && is_valid(&read);
        if (is_read)
            add_century(&read, now_ms);
    } else if (read_name(self, short_days, 7)) {
        is_read = self->at != self->end && *self->at == ',' ? read_fixed(self, &read) : read_asctime(self, &read);
    }
    if (!is_read || !is_valid(&read) || self->at != self->end)
        return 0;
    *out = ms_of(&read);
    return 1;
}

/* Reads whole seconds, in ms, at most the longest delay. Returns 0 if it is malformed. */
static int read_seconds(reader *self, int64_t *out)
{
    *out = 0;
    if (self->at == self->end)
        return 0;
    for (; self->at != self->end; self->at++) {
        if (!is_digit(*self->at))
            return 0;
        if (*out < BH_POLICY_LONGEST_MS)
            *out = *out * 10 + (int64_t)(*self->at - '0') * 1000;
    }
    return 1;
}

static int is_space(char character)
{
    return character == ' ' || character == '\t' || character == '\r' || character == '\n';
}

int64_t bh_retry_after_ms(bh_bytes value, int64_t now_ms)
{
    if (!value.data || now_ms < 0 || now_ms > (INT64_C(1) << 53))
        return 0;
    reader from = {value.data, value.data + value.size};
    while (from.at != from.end && is_space(*from.at))
        from.at++;
    while (from.end != from.at && is_space(from.end[-1]))
        from.end--;
    reader again = from;
    int64_t delay_ms = 0, date_ms;
    if (!read_seconds(&from, &delay_ms))
        delay_ms = read_date(&again, now_ms, &date_ms) ? date_ms - now_ms : 0;
    return delay_ms < 0 ? 0 : delay_ms > BH_POLICY_LONGEST_MS ? BH_POLICY_LONGEST_MS : delay_ms;
}
