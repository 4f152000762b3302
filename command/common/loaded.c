#include "common/loaded.h"

#include "common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns FILE.loaded, if FILE is a regular file; else NULL. The caller frees it. */
static char *mark_name(const char *file, const char *ending, struct stat *about)
{
    char *name = NULL;
    if (stat(file, about) != 0 || !S_ISREG(about->st_mode))
        return NULL;
    if (asprintf(&name, "%s.loaded%s", file, ending) < 0)
        must(NULL);
    return name;
}

/* Opens a mark for writing, with the permissions of its file. */
static FILE *open_mark(const char *mark, const struct stat *file)
{
    int fd = open(mark, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, file->st_mode & 0666);
    FILE *made = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !made)
        close(fd);
    return made;
}

int64_t loaded_lines(const char *file)
{
    struct stat about;
    char line[128] = "", *at = line;
    char *name = mark_name(file, "", &about);
    FILE *mark = name ? fopen(name, "re") : NULL;
    free(name);
    if (!mark)
        return 0;
    int is_read = fgets(line, sizeof line, mark) != NULL;
    fclose(mark);
    int64_t lines = strtoll(at, &at, 10), size = strtoll(at, &at, 10), changed = strtoll(at, &at, 10);
    return is_read && lines > 0 && size == about.st_size && changed == about.st_mtime ? lines : 0;
}

void loaded_mark(const char *file, int64_t lines)
{
    struct stat about;
    char *name = mark_name(file, "", &about), *next = name ? mark_name(file, ".new", &about) : NULL;
    FILE *mark = next ? open_mark(next, &about) : NULL;
    int is_written = mark && fprintf(mark, "%lld %lld %lld (lines loaded, size and change of the file)\n",
                                     (long long)lines, (long long)about.st_size, (long long)about.st_mtime) > 0;
    is_written &= mark && fclose(mark) == 0;
    if (name && (!is_written || rename(next, name) != 0)) /* a kill in between leaves the mark before */
        complain("%s cannot be written: %s; a second load of %s would double its messages", name, strerror(errno),
                 file);
    free(name);
    free(next);
}

/* Returns FILE.dropped, with an ending. The caller frees it. */
static char *dropped_name(const char *file, const char *ending)
{
    char *name = NULL;
    if (asprintf(&name, "%s.dropped%s", file, ending) < 0)
        must(NULL);
    return name;
}

int64_t dropped_lines(const char *file)
{
    char line[32] = "", *end = line, *name = dropped_name(file, "");
    FILE *mark = fopen(name, "re");
    free(name);
    if (!mark)
        return -1;
    int is_read = fgets(line, sizeof line, mark) != NULL;
    fclose(mark);
    int64_t lines = strtoll(line, &end, 10);
    return is_read && end != line && lines >= 0 ? lines : 0;
}

int dropped_mark(const char *file, int64_t lines)
{
    struct stat about;
    char *name = dropped_name(file, ""), *next = dropped_name(file, ".new");
    FILE *mark = stat(file, &about) == 0 ? open_mark(next, &about) : NULL;
    int is_written = mark && fprintf(mark, "%lld (lines dropped)\n", (long long)lines) > 0 && fflush(mark) == 0 &&
                     (fsync(fileno(mark)) == 0 || errno == EINVAL || errno == EROFS);
    is_written &= mark && fclose(mark) == 0;
    is_written = is_written && rename(next, name) == 0; /* a kill in between leaves the mark before */
    free(name);
    free(next);
    return is_written;
}

void dropped_end(const char *file)
{
    char *name = dropped_name(file, "");
    unlink(name);
    free(name);
}
