/* The linker's --wrap sends calls of malloc here, and what calls __real_malloc to malloc. */
#include "allocations.h"

#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);
void __wrap_free(void *block);

static long failing = -1;
static long count;
static long live;

void allocations_start(long number)
{
    failing = number;
    count = 0;
}

long allocations_count(void)
{
    return count;
}

int allocations_failed(void)
{
    return failing >= 0 && count > failing;
}

long allocations_live(void)
{
    return live;
}

static int fails(void)
{
    return count++ == failing;
}

static void *counted(void *block)
{
    live += block != NULL;
    return block;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t number, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(number, size));
}

void *__wrap_realloc(void *block, size_t size)
{
    if (fails())
        return NULL;
    return block ? __real_realloc(block, size) : counted(__real_realloc(NULL, size));
}

void __wrap_free(void *block)
{
    live -= block != NULL;
    __real_free(block);
}
