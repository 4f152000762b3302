#include "pipes.h"

#include "schedule.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

enum { FIRST_END = 1 << 19, MOST_ENDS = 4096, MOST_BYTES = 65536 };

int __real_pipe2(int ends[2], int flags);
ssize_t __real_read(int fd, void *data, size_t size);
ssize_t __real_write(int fd, const void *data, size_t size);
int __real_close(int fd);

int __wrap_pipe2(int ends[2], int flags);
ssize_t __wrap_read(int fd, void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size);
int __wrap_close(int fd);

/* The ends of pipe i are 2 i, to read, and 2 i + 1. Their bytes are all the same, so a number is
 * enough. */
static struct {
    int is_open[MOST_ENDS];
    size_t bytes[MOST_ENDS / 2];
    int open_count;
} it;

static int has(int fd)
{
    return fd >= FIRST_END && fd < FIRST_END + MOST_ENDS;
}

static int end_of(int fd)
{
    int end = fd - FIRST_END;
    if (!it.is_open[end])
        fail("the worker uses a pipe that it has closed");
    return end;
}

short pipes_look(int fd, short events)
{
    if (!has(fd))
        fail("the worker polls a descriptor of the system");
    int end = end_of(fd);
    return it.bytes[end / 2] > 0 ? (short)(events & POLLIN) : 0;
}

int pipes_open(void)
{
    return it.open_count;
}

int __wrap_pipe2(int ends[2], int flags)
{
    (void)flags;
    for (int i = 0; i < MOST_ENDS; i += 2) {
        if (it.is_open[i] || it.is_open[i + 1])
            continue;
        it.is_open[i] = it.is_open[i + 1] = 1;
        it.bytes[i / 2] = 0;
        it.open_count += 2;
        ends[0] = FIRST_END + i;
        ends[1] = FIRST_END + i + 1;
        return 0;
    }
    fail("more than %d pipes", MOST_ENDS / 2);
}

ssize_t __wrap_read(int fd, void *data, size_t size)
{
    if (!has(fd))
        return __real_read(fd, data, size);
    size_t *bytes = &it.bytes[end_of(fd) / 2];
    size_t count = *bytes < size ? *bytes : size;
    *bytes -= count;
    errno = EAGAIN;
    return count ? (ssize_t)count : -1;
}

ssize_t __wrap_write(int fd, const void *data, size_t size)
{
    if (!has(fd))
        return __real_write(fd, data, size);
    size_t *bytes = &it.bytes[end_of(fd) / 2];
    errno = EAGAIN;
    if (*bytes + size > MOST_BYTES)
        return -1;
    *bytes += size;
    return (ssize_t)size;
}

int __wrap_close(int fd)
{
    if (!has(fd))
        return __real_close(fd);
    it.is_open[end_of(fd)] = 0;
    it.open_count--;
    return 0;
}
