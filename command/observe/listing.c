#include "observe/listing.h"

#include "common/output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

enum { PATIENT_MS = 2000 };

/* A byte hands the fields from one side to the other: from the caller with a question, from the
 * thread with the answer. */
struct listing {
    management *api;
    pthread_t thread;
    int sides[2]; /* the caller's, the thread's */
    int wants_work;
    char prefix[256];
    listed found;
    int is_asked; /* the thread has the fields */
    int is_late;
};

static void answer(listing *self)
{
    listed *found = &self->found;
    if (self->wants_work)
        found->has_work = management_find_queues(self->api, &found->work) == EX_OK;
    if (self->wants_work && !found->has_work) /* a silent API gets one request */
        return;
    found->has_waiting = *self->prefix != '\0';
    if (found->has_waiting)
        management_list_queues(self->api, self->prefix, &found->waiting);
}

static int pass(int side)
{
    ssize_t size;
    do
        size = write(side, "", 1);
    while (size < 0 && errno == EINTR);
    return size == 1;
}

static int receive(int side)
{
    char byte;
    ssize_t size;
    do
        size = read(side, &byte, 1);
    while (size < 0 && errno == EINTR);
    return size == 1;
}

static void *run(void *data)
{
    listing *self = data;
    do {
        if (!receive(self->sides[1]))
            return NULL;
        answer(self);
    } while (pass(self->sides[1]));
    return NULL;
}

/* Starts the thread with all signals blocked: they end the caller's poll. */
static int start(listing *self)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int problem = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return problem;
}

int listing_open(listing **out, management *api)
{
    listing *self = must(calloc(1, sizeof *self));
    *self = (listing){.api = api, .sides = {-1, -1}};
    int problem = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, self->sides) == 0 ? start(self) : errno;
    *out = problem == 0 ? self : NULL;
    if (problem == 0)
        return 1;
    complain("no thread could be started: %s", strerror(problem));
    close(self->sides[0]);
    close(self->sides[1]);
    free(self);
    return 0;
}

void listing_close(listing *self)
{
    if (!self)
        return;
    management_stop(self->api);
    shutdown(self->sides[0], SHUT_RDWR);
    pthread_join(self->thread, NULL);
    close(self->sides[0]);
    close(self->sides[1]);
    listed_free(&self->found);
    free(self);
}

static int is_answered(const listing *self)
{
    struct pollfd answered = {.fd = self->sides[0], .events = POLLIN};
    return poll(&answered, 1, self->is_late ? 0 : PATIENT_MS) == 1 && receive(self->sides[0]);
}

int listing_ask(listing *self, int wants_work, const char *prefix, listed *out)
{
    if (!self->is_asked && !wants_work && !*prefix)
        return 0;
    if (!self->is_asked) {
        self->wants_work = wants_work;
        snprintf(self->prefix, sizeof self->prefix, "%s", prefix);
        self->is_asked = pass(self->sides[0]);
    }
    self->is_late = !self->is_asked || !is_answered(self);
    if (self->is_late)
        return 0;
    self->is_asked = 0;
    *out = self->found;
    self->found = (listed){.has_work = 0};
    return 1;
}

void listed_free(listed *self)
{
    queue_names_free(&self->work);
    queue_names_free(&self->waiting);
    *self = (listed){.has_work = 0};
}
