/* Page: the files of page/, which embed.cmake makes a part of the program. */
#ifndef BACKHOP_COMMAND_WEB_PAGE_H
#define BACKHOP_COMMAND_WEB_PAGE_H

#include <stddef.h>

typedef struct page_bytes {
    const unsigned char *data;
    size_t size;
} page_bytes;

typedef struct page_file {
    const char *name, *type, *tag; /* the tag in quotation marks, as ETag has it */
    page_bytes plain, small;       /* as it is, and as gzip has it */
} page_file;

/* Ends with a NULL name. */
extern const page_file page_files[];

#endif
