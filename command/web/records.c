/* backhop web: the history of actions. */
#include "web/web.h"

#include "common/output.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 524288, MOST_RECORDS = 200 };

/* Reads the end of the file, from the beginning of a line. The caller frees it. NULL: there is
 * none. */
static char *read_end(const char *path)
{
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts) != 0)
        return fd < 0 ? NULL : (close(fd), NULL);
    off_t begin = facts.st_size > MOST_BYTES ? facts.st_size - MOST_BYTES : 0;
    char *text = must(calloc(1, MOST_BYTES + 1));
    ssize_t size = pread(fd, text, MOST_BYTES, begin);
    close(fd);
    text[size > 0 ? size : 0] = '\0';
    char *line = begin > 0 ? strchr(text, '\n') : NULL;
    if (line)
        memmove(text, line + 1, strlen(line + 1) + 1);
    return text;
}

/* Joins the two lines of an action: `known` has actions by their id. */
static void add_line(json_t *known, json_t *order, json_t *line)
{
    const char *id = json_string_value(json_object_get(line, "id")),
               *event = json_string_value(json_object_get(line, "event"));
    if (!id || !event)
        return;
    int is_end = strcmp(event, "ended") == 0;
    json_t *action = json_object_get(known, id);
    if (!action) {
        action = must(json_object());
        json_object_set_new(known, id, action);
        json_array_append(order, action);
    }
    json_object_set(line, is_end ? "ended_ms" : "begun_ms", json_object_get(line, "time_ms"));
    json_object_del(line, "time_ms");
    json_object_update(action, line);
}

/* Reads the whole file: any number of other actions can have been recorded since. */
json_t *records_find(const web *self, const char *id)
{
    json_t *known = must(json_object()), *order = must(json_array());
    FILE *file = fopen(self->history, "re");
    char *line = NULL;
    size_t room = 0;
    while (file && getline(&line, &room, file) >= 0) {
        if (!strstr(line, id))
            continue;
        json_t *object = json_loads(line, 0, NULL);
        add_line(known, order, object);
        json_decref(object);
    }
    if (file)
        fclose(file);
    free(line);
    json_t *found = json_incref(json_object_get(known, id));
    json_decref(known);
    json_decref(order);
    return found;
}

json_t *records_json(const web *self)
{
    json_t *known = must(json_object()), *order = must(json_array()), *list = must(json_array());
    char *text = read_end(self->history), *rest = NULL;
    for (char *line = text ? strtok_r(text, "\n", &rest) : NULL; line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *object = json_loads(line, 0, NULL);
        add_line(known, order, object);
        json_decref(object);
    }
    for (size_t i = json_array_size(order); i > 0 && json_array_size(list) < MOST_RECORDS; i--)
        json_array_append(list, json_array_get(order, i - 1));
    json_decref(known);
    json_decref(order);
    free(text);
    return list;
}
