#include "parked/loaded.h"

#include "common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Opens FILE.loaded, if FILE is a regular file. */
static FILE *open_mark(const char *file, const char *mode, struct stat *about)
{
    char *name = NULL;
    if (stat(file, about) != 0 || !S_ISREG(about->st_mode))
        return NULL;
    if (asprintf(&name, "%s.loaded", file) < 0)
        must(NULL);
    FILE *mark = fopen(name, mode);
    if (!mark && *mode == 'w')
        complain("%s cannot be written: %s; a second load of %s would double its messages", name, strerror(errno),
                 file);
    free(name);
    return mark;
}

int64_t loaded_lines(const char *file)
{
    struct stat about;
    char line[128] = "", *at = line;
    FILE *mark = open_mark(file, "re", &about);
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
    FILE *mark = open_mark(file, "we", &about);
    if (!mark)
        return;
    fprintf(mark, "%lld %lld %lld (lines loaded, size and change of the file)\n", (long long)lines,
            (long long)about.st_size, (long long)about.st_mtime);
    fclose(mark);
}
