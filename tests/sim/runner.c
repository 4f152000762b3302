#include "runner.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LIMIT_S = 120,       /* of one history: a loop without end in which time does not pass */
    REPORT_SEEDS = 10000 /* between two lines of progress */
};

/* The next seed, in memory that parent and child share. */
static volatile uint64_t *next;

static double seconds_since(const struct timespec *begun)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - begun->tv_sec) + (double)(now.tv_nsec - begun->tv_nsec) / 1e9;
}

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

static void report(uint64_t from, uint64_t failures, const struct timespec *begun)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    double wall = seconds_since(begun), cpu = seconds_of(&used.ru_utime) + seconds_of(&used.ru_stime);
    uint64_t played = *next - from;
    printf("%" PRIu64 " histories, %" PRIu64 " failures, %.0f s, %.0f per second, %.0f per second of processor time\n",
           played, failures, wall, wall > 0 ? (double)played / wall : 0, cpu > 0 ? (double)played / cpu : 0);
    fflush(stdout);
}

static int play_until(uint64_t end)
{
    pid_t child = fork();
    if (child < 0) {
        perror("test-sim: fork");
        exit(EXIT_FAILURE);
    }
    if (child == 0) {
        for (; *next < end; ++*next) {
            alarm(LIMIT_S);
            play_seed(*next);
        }
        _exit(EXIT_SUCCESS);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    return status;
}

uint64_t run_seeds(uint64_t from, uint64_t count, uint64_t most)
{
    struct timespec begun;
    uint64_t failures = 0, end = from + count;
    void *shared = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("test-sim: mmap");
        exit(EXIT_FAILURE);
    }
    next = shared;
    *next = from;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    while (*next < end && failures < most) {
        uint64_t part = end - *next < REPORT_SEEDS ? end : *next + REPORT_SEEDS;
        int status = play_until(part);
        if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS) {
            report(from, failures, &begun);
            continue;
        }
        failures++;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
            printf("seed %" PRIu64 " FAILED: no end within %d s\n", *next, LIMIT_S);
        else
            printf("seed %" PRIu64 " FAILED\n", *next);
        fflush(stdout);
        ++*next;
    }
    if (failures)
        report(from, failures, &begun);
    munmap(shared, sizeof *next);
    return failures;
}
