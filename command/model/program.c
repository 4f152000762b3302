#include "model/program.h"

#include "common/output.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { NOT_EXECUTABLE = 126, NOT_FOUND = 127, SIGNALLED = 128 }; /* exit statuses, as a shell has them */

static void on_end(int number)
{
    (void)number; /* poll ends with EINTR */
}

void program_watch(void)
{
    struct sigaction action = {.sa_handler = on_end, .sa_flags = SA_NOCLDSTOP};
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* ppoll lets them through */
    sigaction(SIGCHLD, &action, NULL);
}

static _Noreturn void become(char **words, pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EX_TEMPFAIL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(words[0], words);
    int error = errno;
    complain("cannot run %s: %s", words[0], strerror(error));
    _exit(error == ENOENT ? NOT_FOUND : NOT_EXECUTABLE);
}

int program_start(program *self, char **words)
{
    pid_t parent = getpid();
    self->process = fork();
    if (self->process == 0)
        become(words, parent);
    if (self->process > 0)
        return 1;
    complain("cannot run %s: %s", words[0], strerror(errno));
    self->process = 0;
    return 0;
}

int program_has_ended(program *self)
{
    int status = 0;
    if (self->process == 0)
        return 1;
    pid_t ended = waitpid(self->process, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR))
        return 0;
    self->process = 0;
    self->code = WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
    return 1;
}

void program_stop(program *self)
{
    if (self->process > 0)
        kill(self->process, SIGTERM);
}
