/* The clock on the wall of a host, moved for every process that preloads this: by as many seconds as
 * stand in the file HOST_CLOCK_FILE, eight bytes that are looked at with each question. The monotonic
 * clock stays, as it does when somebody sets the time of a real host. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *moved;
static char preload[4096] = "LD_PRELOAD=", named[4096] = "HOST_CLOCK_FILE=";

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HOST_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *at = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) return;
    moved = at;
    strncat(preload, getenv("LD_PRELOAD"), sizeof preload - 32);
    strncat(named, path, sizeof named - 32);
}

/* Runs get an environment made from nothing, and are on the same host all the same. */
int execve(const char *path, char *const argv[], char *const envp[]) {
    size_t count = 0, known = 0;
    for (; envp[count]; count++) known |= !strncmp(envp[count], "HOST_CLOCK_FILE=", 16);
    const char *own[count + 3];
    memcpy(own, envp, count * sizeof *own);
    if (moved && !known) {
        own[count++] = preload;
        own[count++] = named;
    }
    own[count] = NULL;
    return (int)syscall(SYS_execve, path, argv, own);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    int failed = (int)syscall(SYS_clock_gettime, clock, found);
    if (!failed && moved && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        found->tv_sec += *moved;
    return failed;
}

int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
