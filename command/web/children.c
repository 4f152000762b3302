#include "web/children.h"

#include "base/buffer.h"
#include "common/output.h"
#include "worker/wire/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { READ_BYTES = 65536, CLOSE_POLL_MS = 50, BUSY_POLL_MS = 100, ENDING_POLL_MS = 5 };

struct child {
    children *owner;
    pid_t process;
    int out, problem; /* pipes; -1: closed */
    bh__buffer line, text;
    size_t total;
    int64_t until_ms; /* monotonic; 0: no limit */
    int stops;
    int stopped_by; /* CHILD_TOO_SLOW or CHILD_TOO_LARGE; 0: no limit stopped it */
    child_listener listener;
};

/* ------------------------------------------------------------------------------------- starting */

static _Noreturn void become(const texts *arguments, const int pipes[4], int kept, pid_t parent)
{
    char **words = must(calloc(arguments->count + 2, sizeof *words));
    words[0] = copy_text(bh_str("backhop"));
    for (size_t i = 0; i < arguments->count; i++)
        words[i + 1] = copy_text(bh_str(arguments->items[i]));
    setpgid(0, 0); /* Ctrl-C is for the parent, which stops its children */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EX_TEMPFAIL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (kept >= 0)
        fcntl(kept, F_SETFD, 0);
    int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(pipes[1], STDOUT_FILENO);
    dup2(pipes[3], STDERR_FILENO);
    execv("/proc/self/exe", words);
    _exit(EX_OSERR);
}

/* Forks with all signals blocked: the parent's handler in the child would swallow a SIGTERM that
 * comes before its exec. */
static pid_t fork_with_signals_blocked(void)
{
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t process = fork();
    if (process != 0)
        sigprocmask(SIG_SETMASK, &before, NULL);
    return process;
}

static child **find_place(children *self)
{
    for (size_t i = 0; i < CHILDREN_MOST; i++)
        if (!self->items[i])
            return &self->items[i];
    return NULL;
}

child *children_start(children *self, const texts *arguments, int64_t limit_ms, int kept,
                      const child_listener *listener)
{
    child **place = find_place(self);
    int pipes[4] = {-1, -1, -1, -1};
    pid_t parent = getpid();
    if (!place || pipe2(pipes, O_CLOEXEC) != 0)
        return NULL;
    pid_t process = pipe2(pipes + 2, O_CLOEXEC) == 0 ? fork_with_signals_blocked() : -1;
    if (process == 0)
        become(arguments, pipes, kept, parent);
    close(pipes[1]);
    if (pipes[3] >= 0)
        close(pipes[3]);
    if (process < 0) {
        close(pipes[0]);
        if (pipes[2] >= 0)
            close(pipes[2]);
        return NULL;
    }
    fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    fcntl(pipes[2], F_SETFL, O_NONBLOCK);
    child *made = must(calloc(1, sizeof *made));
    *made = (child){.owner = self,
                    .process = process,
                    .out = pipes[0],
                    .problem = pipes[2],
                    .until_ms = limit_ms ? bh__monotonic_ms() + limit_ms : 0,
                    .listener = *listener};
    *place = made;
    return made;
}

void child_stop(child *self)
{
    kill(self->process, self->stops++ < 2 ? SIGTERM : SIGKILL);
}

/* -------------------------------------------------------------------------------------- reading */

size_t children_fill(const children *self, struct pollfd *out)
{
    size_t count = 0;
    for (size_t i = 0; i < CHILDREN_MOST; i++) {
        const child *each = self->items[i];
        if (each && each->out >= 0)
            out[count++] = (struct pollfd){.fd = each->out, .events = POLLIN};
        if (each && each->problem >= 0)
            out[count++] = (struct pollfd){.fd = each->problem, .events = POLLIN};
    }
    return count;
}

int children_poll_ms(const children *self, int idle_ms)
{
    int limit_ms = idle_ms;
    for (size_t i = 0; i < CHILDREN_MOST; i++) {
        const child *each = self->items[i];
        int is_ending = each && each->out < 0 && each->problem < 0;
        int own_ms = is_ending ? ENDING_POLL_MS : BUSY_POLL_MS;
        if (each && own_ms < limit_ms)
            limit_ms = own_ms;
    }
    return limit_ms;
}

static void close_pipe(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Appends what the pipe has to the buffer; closes it at its end. */
static void read_pipe(int *fd, bh__buffer *into)
{
    for (ssize_t got = 1; *fd >= 0 && got != 0;) {
        if (!bh__buffer_reserve(into, READ_BYTES))
            must(NULL);
        got = read(*fd, into->data + into->end, READ_BYTES);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0) {
            close_pipe(fd);
        } else {
            into->end += (size_t)got;
            if (bh__buffer_size(into) > CHILD_MOST_BYTES)
                return;
        }
    }
}

static void take_lines(child *self)
{
    char *end;
    while (bh__buffer_size(&self->line) > 0 &&
           (end = memchr(self->line.data + self->line.begin, '\n', bh__buffer_size(&self->line))) != NULL) {
        const char *line = self->line.data + self->line.begin;
        size_t size = (size_t)(end - line);
        *end = '\0';
        self->line.begin += size + 1;
        self->total += size;
        if (self->listener.on_line)
            self->listener.on_line(self->listener.data, line, size);
    }
}

static void read_problem(child *self)
{
    read_pipe(&self->problem, &self->text);
    size_t size = bh__buffer_size(&self->text);
    if (size > CHILD_PROBLEM_BYTES) /* the last ones say why it ended */
        self->text.begin += size - CHILD_PROBLEM_BYTES;
}

static int exit_code_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : EX_SOFTWARE;
}

static void end_child(children *self, size_t index, int status)
{
    child *it = self->items[index];
    self->items[index] = NULL;
    char *problem =
        copy_text((bh_bytes){it->text.data ? it->text.data + it->text.begin : "", bh__buffer_size(&it->text)});
    int code = exit_code_of(status);
    it->listener.on_end(it->listener.data, code != EX_OK && it->stopped_by ? it->stopped_by : code, problem);
    free(problem);
    bh__buffer_free(&it->line);
    bh__buffer_free(&it->text);
    free(it);
}

/* Reaps a child that has closed its pipes. */
static void reap(children *self, size_t index)
{
    child *it = self->items[index];
    int status;
    if (it->out < 0 && it->problem < 0 && waitpid(it->process, &status, WNOHANG) == it->process)
        end_child(self, index, status);
}

static void kill_child(children *self, size_t index)
{
    child *it = self->items[index];
    int status;
    complain("process %ld did not end and was killed", (long)it->process);
    kill(it->process, SIGKILL);
    waitpid(it->process, &status, 0);
    close_pipe(&it->out);
    close_pipe(&it->problem);
    end_child(self, index, status);
}

void children_work(children *self)
{
    int64_t now_ms = bh__monotonic_ms();
    for (size_t i = 0; i < CHILDREN_MOST; i++) {
        child *each = self->items[i];
        if (!each)
            continue;
        read_pipe(&each->out, &each->line);
        take_lines(each);
        read_problem(each);
        int is_late = each->until_ms && now_ms >= each->until_ms,
            is_large = bh__buffer_size(&each->line) > CHILD_MOST_BYTES;
        if (is_late || is_large) {
            each->stopped_by = is_large ? CHILD_TOO_LARGE : each->stopped_by ? each->stopped_by : CHILD_TOO_SLOW;
            each->until_ms = now_ms + 5000;
            child_stop(each);
        }
        reap(self, i);
    }
}

void children_close(children *self, int64_t limit_ms)
{
    int64_t until_ms = bh__monotonic_ms() + limit_ms;
    size_t count = 1;
    for (size_t i = 0; i < CHILDREN_MOST; i++)
        if (self->items[i])
            child_stop(self->items[i]);
    while (count > 0 && bh__monotonic_ms() < until_ms) {
        struct pollfd polled[2 * CHILDREN_MOST];
        poll(polled, children_fill(self, polled), CLOSE_POLL_MS);
        children_work(self);
        count = 0;
        for (size_t i = 0; i < CHILDREN_MOST; i++)
            count += self->items[i] != NULL;
    }
    for (size_t i = 0; i < CHILDREN_MOST; i++)
        if (self->items[i])
            kill_child(self, i);
}
