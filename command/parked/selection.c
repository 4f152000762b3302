#include "parked/selection.h"

#include "base/memory.h"
#include "common/options.h"
#include "common/output.h"
#include "history/internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

typedef enum field { ID, ERROR, KIND, CLASS, REASON, EXCHANGE, ROUTING_KEY, HEADER, ATTEMPTS, REPLAYS, AGE } field;
typedef enum operation { IS, IS_NOT, HAS, HAS_NOT, BELOW, AT_MOST, ABOVE, AT_LEAST } operation;

struct condition {
    field field;
    operation operation;
    char *name;     /* of a header */
    char *text;     /* as typed */
    int64_t number; /* the same as a whole number or ms */
    double real;    /* of a header: the same as any number */
    int is_whole, is_number;
};

static const char *const fields[] = {"id",          "error",  "kind",     "class",   "reason", "exchange",
                                     "routing-key", "header", "attempts", "replays", "age"};
/* The longer ones first. */
static const struct {
    const char *sign;
    operation operation;
} operations[] = {{"!=", IS_NOT}, {"!~", HAS_NOT}, {"<=", AT_MOST}, {">=", AT_LEAST},
                  {"=", IS},      {"~", HAS},      {"<", BELOW},    {">", ABOVE}};

static int find_operation(const char *text, size_t *length, operation *out)
{
    const char *at = strpbrk(text, "=!~<>");
    for (size_t i = 0; at && i < sizeof operations / sizeof operations[0]; i++)
        if (strncmp(at, operations[i].sign, strlen(operations[i].sign)) == 0) {
            *length = (size_t)(at - text);
            *out = operations[i].operation;
            return (int)strlen(operations[i].sign);
        }
    return 0;
}

static int find_field(const char *text, size_t length, field *out)
{
    if (length > 7 && strncmp(text, "header.", 7) == 0) {
        *out = HEADER;
        return 1;
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (i != HEADER && strlen(fields[i]) == length && strncmp(text, fields[i], length) == 0) {
            *out = (field)i;
            return 1;
        }
    return 0;
}

static int read_value(condition *made, char problem[256])
{
    char *end;
    made->number = strtoll(made->text, &end, 10);
    made->is_whole = end != made->text && !*end;
    made->real = strtod(made->text, &end);
    made->is_number = end != made->text && !*end && isfinite(made->real);
    if (made->field == AGE && !options_duration(made->text, &made->number)) {
        snprintf(problem, 256, "'%.100s' is no time span: write 250ms, 1.5s, 5m, 2h or 3d", made->text);
        return 0;
    }
    if ((made->field == ATTEMPTS || made->field == REPLAYS) && !made->is_whole) {
        snprintf(problem, 256, "'%.100s' is no whole number", made->text);
        return 0;
    }
    int is_text = made->field < HEADER || (made->field == HEADER && !made->is_number);
    int wants_part = made->operation == HAS || made->operation == HAS_NOT;
    if (is_text && made->operation >= BELOW)
        snprintf(problem, 256, "%s is a text: use = != ~ or !~",
                 made->field == HEADER ? made->name : fields[made->field]);
    else if (made->field > HEADER && wants_part)
        snprintf(problem, 256, "%s is a number: use = != < <= > or >=", fields[made->field]);
    else
        return 1;
    return 0;
}

int selection_add(selection *self, const char *text, char problem[256])
{
    size_t length = 0;
    condition made = {.operation = IS};
    int sign = find_operation(text, &length, &made.operation);
    if (sign && made.operation == IS && (text[length + 1] == '~' || text[length + 1] == '=')) {
        snprintf(problem, 256, "'%.60s': '=%c' is no comparison: use = != ~ or !~", text, text[length + 1]);
        return 0;
    }
    if (!sign || !find_field(text, length, &made.field)) {
        snprintf(problem, 256,
                 "'%.60s' is no condition: write FIELD=VALUE; fields: id error kind class reason exchange routing-key "
                 "header.NAME "
                 "attempts replays age",
                 text);
        return 0;
    }
    size_t prefix = made.field == HEADER ? strlen("header.") : length;
    made.name = copy_text((bh_bytes){text + prefix, length - prefix});
    made.text = copy_text(bh_str(text + length + (size_t)sign));
    self->conditions = must(realloc(self->conditions, (self->count + 1) * sizeof *self->conditions));
    self->conditions[self->count++] = made;
    return read_value(&self->conditions[self->count - 1], problem);
}

void selection_free(selection *self)
{
    for (size_t i = 0; i < self->count; i++) {
        free(self->conditions[i].name);
        free(self->conditions[i].text);
    }
    free(self->conditions);
    *self = (selection){.conditions = NULL};
}

/* -------------------------------------------------------------------------------------- fitting */

/* Returns 1 if the text has this part, in capital letters or small ones. */
static int has_part(bh_bytes text, const char *part)
{
    size_t size = strlen(part);
    for (size_t i = 0; i + size <= text.size; i++)
        if (strncasecmp(text.data + i, part, size) == 0)
            return 1;
    return 0;
}

static int fits_text(const condition *self, bh_bytes text)
{
    switch (self->operation) {
    case IS:
        return bh__same(text, bh_str(self->text));
    case IS_NOT:
        return !bh__same(text, bh_str(self->text));
    case HAS:
        return has_part(text, self->text);
    case HAS_NOT:
        return !has_part(text, self->text);
    default:
        return 0;
    }
}

/* Returns 1 if a number fits that is less than the wanted one, equal to it or more. */
static int fits_order(operation by, int is_less, int is_equal, int is_more)
{
    switch (by) {
    case IS:
        return is_equal;
    case IS_NOT:
        return !is_equal;
    case BELOW:
        return is_less;
    case AT_MOST:
        return is_less || is_equal;
    case ABOVE:
        return is_more;
    case AT_LEAST:
        return is_more || is_equal;
    default:
        return by == HAS_NOT; /* it has no text */
    }
}

static int fits_number(operation by, int64_t number, int64_t wanted)
{
    int is_less = number<wanted, is_more = number> wanted;
    return fits_order(by, is_less, number == wanted, is_more);
}

static int fits_real(operation by, double number, double wanted)
{
    int is_less = number<wanted, is_more = number> wanted; /* neither, and not equal: it is NaN */
    return fits_order(by, is_less, number == wanted, is_more);
}

/* Returns 1 if a field that a message does not have fits. */
static int fits_nothing(operation by)
{
    return by == IS_NOT || by == HAS_NOT;
}

static int fits_header(const condition *self, const bh_delivery *delivery)
{
    bh_value header;
    if (bh_delivery_header(delivery, bh_str(self->name), &header) != BH_OK)
        return fits_nothing(self->operation);
    if (header.type == BH_TYPE_STRING || header.type == BH_TYPE_BYTES)
        return fits_text(self, header.string);
    if (header.type == BH_TYPE_BOOLEAN && !self->is_number)
        return fits_text(self, bh_str(header.integer ? "true" : "false"));
    if (!self->is_number)
        return fits_nothing(self->operation);
    switch (header.type) {
    case BH_TYPE_VOID:
    case BH_TYPE_ARRAY:
    case BH_TYPE_TABLE:
        return fits_nothing(self->operation);
    case BH_TYPE_FLOAT:
    case BH_TYPE_DOUBLE:
        return fits_real(self->operation, header.number, self->real);
    case BH_TYPE_DECIMAL:
        return fits_real(self->operation, (double)header.integer / pow(10, header.places), self->real);
    default:
        return self->is_whole ? fits_number(self->operation, header.integer, self->number)
                              : fits_real(self->operation, (double)header.integer, self->real);
    }
}

static int fits(const condition *self, const bh_delivery *delivery, const bh_history *history, int64_t now_ms)
{
    bh_past past;
    char kind[KIND_BYTES + 1];
    bh_history_past(history, &past);
    int64_t first_ms = past.first_failure_ms;
    switch (self->field) {
    case ID:
        return fits_text(self, bh__history_id(history));
    case ERROR:
        return fits_text(self, past.last_error);
    case KIND:
        return fits_text(self, (bh_bytes){kind, error_kind(kind, past.last_error)});
    case CLASS:
        return fits_text(self, error_class(past.last_error));
    case REASON:
        return fits_text(self, past.parked);
    case EXCHANGE:
        return fits_text(self, bh__history_exchange(history));
    case ROUTING_KEY:
        return fits_text(self, bh__history_routing_key(history));
    case HEADER:
        return fits_header(self, delivery);
    case ATTEMPTS:
        return fits_number(self->operation, bh__history_attempts(history), self->number);
    case REPLAYS:
        return fits_number(self->operation, past.replays, self->number);
    case AGE:
        break;
    }
    return first_ms < 0 ? self->operation == IS_NOT : fits_number(self->operation, now_ms - first_ms, self->number);
}

int selection_fits(const selection *self, const bh_delivery *delivery, const bh_history *history, int64_t now_ms)
{
    for (size_t i = 0; i < self->count; i++)
        if (!fits(&self->conditions[i], delivery, history, now_ms))
            return 0;
    return 1;
}

/* --------------------------------------------------------------------------------------- errors */

static bh_bytes first_line(bh_bytes text)
{
    const char *end = text.size ? memchr(text.data, '\n', text.size) : NULL;
    if (end)
        text.size = (size_t)(end - text.data);
    if (text.size && text.data[text.size - 1] == '\r')
        text.size--;
    return text;
}

static int is_in_name(char character)
{
    return isalnum((unsigned char)character) || character == '_' || character == '.' || character == ':';
}

bh_bytes error_class(bh_bytes error)
{
    bh_bytes line = first_line(error);
    size_t size = 0;
    while (size < line.size && is_in_name(line.data[size]) &&
           !(line.data[size] == ':' && size + 1 < line.size && line.data[size + 1] == ' '))
        size++;
    int is_name = size > 0 && size + 1 < line.size && line.data[size] == ':' && line.data[size + 1] == ' ' &&
                  (isalpha((unsigned char)line.data[0]) || line.data[0] == '_');
    return is_name ? (bh_bytes){line.data, size} : bh_str("");
}

/* Returns the size of a number, or of a hexadecimal id of at least eight digits, at the beginning;
 * 0 without one. */
static size_t number_size(bh_bytes text)
{
    size_t digits = 0, hex = 0;
    int has_digit = 0;
    while (digits < text.size && isdigit((unsigned char)text.data[digits]))
        digits++;
    while (hex < text.size && (isxdigit((unsigned char)text.data[hex]) || (text.data[hex] == '-' && hex >= 8)))
        has_digit |= isdigit((unsigned char)text.data[hex++]);
    while (hex > 0 && text.data[hex - 1] == '-')
        hex--;
    int is_id = hex >= 8 && has_digit && (hex == text.size || !isalnum((unsigned char)text.data[hex]));
    return is_id ? hex : digits;
}

size_t error_kind(char out[KIND_BYTES + 1], bh_bytes error)
{
    bh_bytes line = first_line(error);
    size_t used = 0;
    for (size_t i = 0; i < line.size && used < KIND_BYTES;) {
        int is_start = i == 0 || !isalnum((unsigned char)line.data[i - 1]);
        bh_bytes rest = {line.data + i, line.size - i};
        size_t number = is_start || isdigit((unsigned char)*rest.data) ? number_size(rest) : 0;
        out[used++] = (char)(number ? '#' : *rest.data);
        i += number ? number : 1;
    }
    used = bh__cut((bh_bytes){out, used}, used).size;
    out[used] = '\0';
    return used;
}
