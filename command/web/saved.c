/* backhop web: files of dropped messages. */
#include "web/web.h"

#include "common/output.h"
#include "common/loaded.h"
#include "worker/wire/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_NAME = 200, MOST_FILES = 1000 };

static const char ending[] = ".ndjson";

/* Whatever the locale: isalnum() takes bytes of other alphabets for letters. */
static int is_plain(char it)
{
    return (it >= 'a' && it <= 'z') || (it >= 'A' && it <= 'Z') || (it >= '0' && it <= '9') || it == '.' || it == '-' ||
           it == '_';
}

/* A name chooses no other place: letters, digits, ".", "-" and "_", and the ending. */
static int is_name(const char *name)
{
    size_t size = strlen(name);
    if (size <= strlen(ending) || size > LONGEST_NAME || *name == '.' ||
        strcmp(name + size - strlen(ending), ending) != 0)
        return 0;
    for (; *name; name++)
        if (!is_plain(*name))
            return 0;
    return 1;
}

char *saved_new_name(const char *queue, int number)
{
    char part[121], time_text[32], *name = NULL;
    time_t now = (time_t)(bh__epoch_ms() / 1000);
    struct tm parts;
    snprintf(part, sizeof part, "%s", queue);
    for (char *at = part; *at; at++)
        if (!is_plain(*at))
            *at = '_';
    strftime(time_text, sizeof time_text, "%Y%m%dT%H%M%SZ", gmtime_r(&now, &parts));
    if (asprintf(&name, "dropped-%s-%s-%d%s", time_text, part, number, ending) < 0)
        must(NULL);
    return name;
}

char *saved_path(const web *self, const char *name)
{
    char *path = NULL;
    if (!is_name(name))
        return NULL;
    if (asprintf(&path, "%s/saved/%s", self->state, name) < 0)
        must(NULL);
    return path;
}

int saved_is_file(const char *path)
{
    struct stat facts;
    return lstat(path, &facts) == 0 && S_ISREG(facts.st_mode);
}

void saved_answer(const web *self, request *it, const char *name)
{
    struct stat facts;
    char *path = saved_path(self, name), disposition[LONGEST_NAME + 40];
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    free(path);
    if (fd < 0 || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        if (fd >= 0)
            close(fd);
        web_refuse(it, 404, "no saved file has this name");
        return;
    }
    snprintf(disposition, sizeof disposition, "attachment; filename=\"%s\"", name);
    request_add_header(it, "Content-Disposition", disposition);
    request_answer_file(it, "application/x-ndjson", fd, (size_t)facts.st_size);
}

void saved_list(const web *self, request *it)
{
    char *path = NULL;
    json_t *list = must(json_array());
    if (asprintf(&path, "%s/saved", self->state) < 0)
        must(NULL);
    DIR *directory = opendir(path);
    for (struct dirent *each; directory && (each = readdir(directory)) != NULL;) {
        struct stat facts;
        char *whole = saved_path(self, each->d_name); /* NULL: it has another name */
        int is_file = whole && json_array_size(list) < MOST_FILES &&
                      fstatat(dirfd(directory), each->d_name, &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
                      S_ISREG(facts.st_mode);
        int64_t loaded = is_file ? loaded_lines(whole) : 0;
        free(whole);
        if (!is_file)
            continue;
        json_array_append_new(
            list, must(json_pack("{s:s, s:I, s:I, s:I}", "file", each->d_name, "bytes", (json_int_t)facts.st_size,
                                 "time_ms", (json_int_t)facts.st_mtim.tv_sec * 1000, "loaded", (json_int_t)loaded)));
    }
    if (directory)
        closedir(directory);
    free(path);
    web_answer(it, 200, must(json_pack("{s:o}", "saved", list)));
}
