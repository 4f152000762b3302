#include "move/guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SILENCE_MS = 5000 };

/* In a session of its own, which no Ctrl-C and no kill of a process group reaches. */
static _Noreturn void stand_by(int socket, int alive)
{
    char word, bytes[65536];
    setsid();
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    for (int each = STDIN_FILENO; each <= STDERR_FILENO;
         each++) /* a reader of the killed process's output sees its end */
        close(each);
    if (read(alive, &word, 1) != 0)
        _exit(0);
    struct pollfd polled = {.fd = socket, .events = POLLIN};
    while (poll(&polled, 1, SILENCE_MS) > 0 && recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    _exit(0);
}

guard guard_begin(int socket)
{
    int ends[2];
    guard none = {0, -1};
    if (pipe(ends) != 0)
        return none;
    pid_t process = fork();
    if (process == 0) {
        close(ends[1]);
        stand_by(socket, ends[0]);
    }
    close(ends[0]);
    if (process > 0)
        return (guard){process, ends[1]};
    close(ends[1]);
    return none;
}

void guard_end(guard self)
{
    if (!self.process)
        return;
    if (write(self.alive, "", 1) != 1) /* it has ended: SIGPIPE is ignored */
        kill(self.process, SIGKILL);
    close(self.alive);
    while (waitpid(self.process, NULL, 0) < 0 && errno == EINTR)
        ;
}
