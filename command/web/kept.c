/*
 * backhop web: files of jobs.
 *
 * A job that runs has a file, STATE/jobs/ID.json. This program and the sub-command have it open
 * with one lock. If this program is killed, the sub-command keeps the lock until its own end, so
 * that the next program can wait for that. The file is removed when the job has ended.
 */
#include "web/web.h"

#include "common/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 4 * WEB_MOST_BODY, ID_SIZE = 16 };

static const char ending[] = ".json";

static char *path_of(const web *self, const char *id)
{
    char *path = NULL;
    if (asprintf(&path, "%s/jobs/%s%s", self->state, id, ending) < 0)
        must(NULL);
    return path;
}

static int write_whole(int fd, const char *text)
{
    size_t size = strlen(text);
    return write(fd, text, size) == (ssize_t)size && (fsync(fd) == 0 || errno == EINVAL);
}

int kept_write(job *self)
{
    char *path = path_of(self->web, self->id);
    json_t *record =
        must(json_pack("{s:o, s:s, s:o, s:O, s:I, s:I, s:o}", "scope", json_text(bh_str(self->web->scope)), "action",
                       verb_name(self->verb), "user", json_text(bh_str(self->user)), "request", self->request,
                       "begun_ms", (json_int_t)self->begun_ms, "done_before", (json_int_t)self->done_before, "file",
                       self->file ? json_text(bh_str(self->file)) : json_null()));
    char *text = must(json_dumps(record, JSON_COMPACT));
    self->kept = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int is_written = self->kept >= 0 && flock(self->kept, LOCK_EX | LOCK_NB) == 0 && write_whole(self->kept, text);
    if (!is_written) {
        complain("%s cannot be written: %s", path, strerror(errno));
        kept_remove(self);
    }
    free(text);
    json_decref(record);
    free(path);
    return is_written;
}

void kept_remove(job *self)
{
    if (self->kept < 0)
        return;
    char *path = path_of(self->web, self->id);
    unlink(path);
    free(path);
    kept_close(self);
}

void kept_close(job *self)
{
    if (self->kept >= 0)
        close(self->kept);
    self->kept = -1;
}

int kept_is_free(const job *self, int *is_gone)
{
    struct stat facts;
    if (flock(self->kept, LOCK_EX | LOCK_NB) != 0)
        return 0;
    *is_gone = fstat(self->kept, &facts) != 0 || facts.st_nlink == 0;
    return 1;
}

/* Reads a file of this name as a job. It stays open if it is one of this scope. */
static void read_job(web *self, const char *name, kept_adder add)
{
    char id[ID_SIZE + 1] = "";
    if (strlen(name) != ID_SIZE + strlen(ending) || strspn(name, "0123456789abcdef") != ID_SIZE ||
        strcmp(name + ID_SIZE, ending) != 0)
        return;
    memcpy(id, name, ID_SIZE);
    char *path = path_of(self, id), *text = must(calloc(1, MOST_BYTES + 1));
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    json_t *record = fd >= 0 && pread(fd, text, MOST_BYTES, 0) > 0 ? json_loads(text, 0, NULL) : NULL;
    const char *scope = json_string_value(json_object_get(record, "scope"));
    int is_own = scope && strcmp(scope, self->scope) == 0;
    if (fd >= 0 && (!is_own || !add(self, id, fd, record)))
        close(fd);
    json_decref(record);
    free(text);
    free(path);
}

void kept_read(web *self, kept_adder add)
{
    char *path = NULL;
    if (asprintf(&path, "%s/jobs", self->state) < 0)
        must(NULL);
    DIR *directory = opendir(path);
    for (struct dirent *each; directory && (each = readdir(directory)) != NULL;)
        read_job(self, each->d_name, add);
    if (directory)
        closedir(directory);
    free(path);
}
