// Goes before the system's library: writes and flushes of files fail, and the clock jumps, as a file of four numbers says that
// the proof maps and changes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int64_t failing_writes; // the error's number, or 0
    int64_t failing_flushes;
    int64_t torn_writes; // not 0: what fails writes a half before
    int64_t seconds_ahead;
};

static volatile struct faults *faults;

__attribute__((constructor)) static void open_faults(void) {
    const char *path = getenv("PROOF_FAULTS");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(struct faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) faults = mapped;
}

static int is_file(int file) {
    struct stat facts;
    return fstat(file, &facts) == 0 && S_ISREG(facts.st_mode);
}

static int64_t fails(int file) { return faults && faults->failing_writes && is_file(file) ? faults->failing_writes : 0; }

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    int64_t error = fails(file);
    if (!error) return real(file, bytes, count, at);
    if (faults->torn_writes) real(file, bytes, count / 2, at);
    errno = (int)error;
    return -1;
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) { return pwrite64(file, bytes, count, at); }

ssize_t write(int file, const void *bytes, size_t count) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = dlsym(RTLD_NEXT, "write");
    int64_t error = fails(file);
    if (!error) return real(file, bytes, count);
    if (faults->torn_writes) real(file, bytes, count / 2);
    errno = (int)error;
    return -1;
}

static int flush(const char *name, int file) {
    if (faults && faults->failing_flushes && is_file(file)) {
        errno = (int)faults->failing_flushes;
        return -1;
    }
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    return real(file);
}

int fsync(int file) { return flush("fsync", file); }

int fdatasync(int file) { return flush("fdatasync", file); }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, now);
    if (done == 0 && clock == CLOCK_REALTIME && faults) now->tv_sec += faults->seconds_ahead;
    return done;
}

int gettimeofday(struct timeval *now, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int done = real(now, zone);
    if (done == 0 && faults) now->tv_sec += faults->seconds_ahead;
    return done;
}
