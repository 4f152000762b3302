/* Output: what goes to a person's terminal, or to a program that reads JSON. */
#ifndef BACKHOP_COMMAND_OUTPUT_H
#define BACKHOP_COMMAND_OUTPUT_H

#include <backhop/bytes.h>
#include <backhop/status.h>

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Before anything else; and at the end: `code`, or 74 where standard output could not be written. */
void output_begin(void);
int output_end(int code);

/* A line "backhop: ..." on standard error. What in it would control a terminal is shown as "?". */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, in the words of a library's object, and the exit code that the status has. */
int complain_status(bh_status status, bh_bytes text);
/* The exit code of <sysexits.h> for a status; 0 for BH_OK. */
int exit_code(bh_status status);

/* Memory, or the end of the program (71). */
void *must(void *memory);
char *copy_text(bh_bytes text);

/* A stranger's text as a person may see it: one line, no control characters, UTF-8, at most `most` bytes, then "...". Freed by
 * the caller. */
char *shown(bh_bytes text, size_t most);
/* As a JSON string, in which bytes that are no UTF-8 are U+FFFD. */
json_t *json_text(bh_bytes text);
/* Writes an object as one line, and frees it. */
void print_json(json_t *object);

/* "4 min 30 s" and "2026-11-22 18:30:05 UTC", in `out`. */
enum { TIME_TEXT = 64 };
const char *show_duration(char out[TIME_TEXT], int64_t span_ms);
const char *show_time(char out[TIME_TEXT], int64_t epoch_ms);

/* Colours, "" where standard output takes none. */
typedef enum ink { PLAIN, BOLD, RED, YELLOW, GREEN, DIM } ink;
const char *paint(ink wanted);
/* Columns and lines of the terminal; 80 x 24 where it is none. */
void terminal_size(int *columns, int *lines);

/* Prints words, in lines that end at the terminal's edge, or at 100 columns. The first line begins at column `at`, the others are indented. */
void print_wrapped(const char *text, int at, int indent);

/* A table: cells are added row by row, then printed with columns that fit. */
typedef struct text_table {
    size_t columns;
    char **cells; /* owned */
    size_t count;
} text_table;
void table_add(text_table *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and empties it; `is_right` has a letter a column: 'r' is to the right. The last column is cut at the
 * terminal's edge, and has lines of its own where there is little room. */
void table_print(text_table *self, const char *sides);
/* Empties it. */
void table_drop(text_table *self);

#endif
