/* A disk that fails on demand: preloaded, it refuses calls on the files whose
 * path begins with FAILING_DISK_AT, as the two numbers in the file
 * FAILING_DISK say: which calls, and with which errno. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* POSIX lets dlsym answer functions, ISO C does not. */
#pragma GCC diagnostic ignored "-Wpedantic"

enum { READS = 1, WRITES = 2, OPENS = 4, SYNCS = 8 };

static volatile uint32_t *control;
static const char *at;

static int (*real_open)(const char *, int, ...);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAILING_DISK");
    int file;

    real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    at = getenv("FAILING_DISK_AT");
    if (path == NULL || at == NULL || (file = real_open(path, O_RDONLY)) < 0) {
        return;
    }
    control = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

static int fails(uint32_t what, const char *path)
{
    if (control == NULL || (control[0] & what) == 0 || strncmp(path, at, strlen(at)) != 0) {
        return 0;
    }
    errno = (int)control[1];
    return 1;
}

static int fails_at(uint32_t what, int file)
{
    char link[64], path[4096];
    ssize_t length;

    if (control == NULL || (control[0] & what) == 0) {
        return 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0) {
        return 0;
    }
    path[length] = '\0';
    return fails(what, path);
}

#define REAL(name, ...) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

#define OPEN(name)                                   \
    int name(const char *path, int flags, ...)       \
    {                                                \
        va_list rest;                                \
        mode_t mode;                                 \
        va_start(rest, flags);                       \
        mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                \
        if (fails(OPENS, path)) {                    \
            return -1;                               \
        }                                            \
        return REAL(name, path, flags, mode);        \
    }
OPEN(open)
OPEN(open64)

#define ON_FILE(type, name, what, parameters, arguments) \
    type name parameters                                 \
    {                                                    \
        if (fails_at(what, file)) {                      \
            return -1;                                   \
        }                                                \
        return ((__typeof__(&name))dlsym(RTLD_NEXT, #name)) arguments; \
    }
ON_FILE(ssize_t, read, READS, (int file, void *to, size_t most), (file, to, most))
ON_FILE(ssize_t, pread, READS, (int file, void *to, size_t most, off_t from), (file, to, most, from))
ON_FILE(ssize_t, pread64, READS, (int file, void *to, size_t most, off64_t from), (file, to, most, from))
ON_FILE(ssize_t, write, WRITES, (int file, const void *of, size_t count), (file, of, count))
ON_FILE(ssize_t, pwrite, WRITES, (int file, const void *of, size_t count, off_t to), (file, of, count, to))
ON_FILE(ssize_t, pwrite64, WRITES, (int file, const void *of, size_t count, off64_t to), (file, of, count, to))
ON_FILE(int, ftruncate, WRITES, (int file, off_t size), (file, size))
ON_FILE(int, ftruncate64, WRITES, (int file, off64_t size), (file, size))
ON_FILE(int, fsync, SYNCS, (int file), (file))
ON_FILE(int, fdatasync, SYNCS, (int file), (file))
