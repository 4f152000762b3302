/* Output: writes to a terminal, or to a program that reads JSON. */
#ifndef BACKHOP_COMMAND_OUTPUT_H
#define BACKHOP_COMMAND_OUTPUT_H

#include <backhop/bytes.h>
#include <backhop/status.h>

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Before anything else; and at the end: `code`, or 74 if standard output could not be written. */
void output_begin(void);
int output_end(int code);

/* A line "backhop: ..." on standard error. Characters that control a terminal become "?". */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Complains with an object's error text, and returns the exit code of the status. */
int complain_status(bh_status status, bh_bytes text);
/* The exit code of <sysexits.h> for a status; 0 for BH_OK. */
int exit_code(bh_status status);

/* Memory, or the end of the program (71). */
void *must(void *memory);
char *copy_text(bh_bytes text);
#define RANDOM_DIGITS 33 /* the largest `size` of random_digits */
/* Writes random digits from 0 to f, and a zero byte. `size` is odd, and RANDOM_DIGITS at most. */
void random_digits(char *out, size_t size);

/*
 * Prints to standard output, as printf. Replaces by "?" control characters other than line feeds,
 * and bytes that are not UTF-8: queue names and texts of the broker are untrusted. Colours are
 * printed apart, with fputs(paint()).
 */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns untrusted text as one line of UTF-8 without control characters, cut to `most` bytes with
 * "..." behind them. Freed by the caller. */
char *shown(bh_bytes text, size_t most);
enum { ARGUMENT_TEXT = 2 * 255 + 4 };
/* Writes a queue's name as an operand of a command to paste into a shell. Each character that a
 * shell reads gets a backslash, and a name that begins with "-" gets "-- ". A name with control
 * characters becomes QUEUE. */
const char *show_argument(char out[ARGUMENT_TEXT], const char *name);
/* Returns a JSON string. Bytes that are not UTF-8 become U+FFFD. */
json_t *json_text(bh_bytes text);
/* Returns a text of an object; "" if it has none. */
const char *json_text_of(const json_t *object, const char *key);
/* Writes an object as one line in ASCII, so that no text in it controls a terminal, and frees
 * it. */
void print_json(json_t *object);

/* Write "4 min 30 s" (bh_duration_text) and "2026-11-22 18:30:05 UTC" to `out`. */
enum { TIME_TEXT = 64 };
const char *show_duration(char out[TIME_TEXT], int64_t span_ms);
const char *show_time(char out[TIME_TEXT], int64_t epoch_ms);

/* Colours, "" where standard output takes none. */
typedef enum ink { PLAIN, BOLD, RED, YELLOW, GREEN, DIM } ink;
const char *paint(ink wanted);
/* Reads the terminal's columns and lines; 80 x 24 if there is no terminal. */
void terminal_size(int *columns, int *lines);

/* Prints words, in lines that end at the terminal's edge, or at 100 columns. The first line begins
 * at column `at`, the others are indented. */
void print_wrapped(const char *text, int at, int indent);

/* A table: cells are added row by row, then printed with columns that fit. */
typedef struct text_table {
    size_t columns;
    char **cells; /* owned */
    size_t count;
} text_table;
/* Adds a cell; untrusted text in it is shown as by say(). */
void table_add(text_table *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and empties it; `is_right` has a letter a column: 'r' is to the right. The last column is
 * broken at the terminal's edge, and has lines of its own if there is little room. */
void table_print(text_table *self, const char *sides);
/* Empties it. */
void table_drop(text_table *self);

#endif
