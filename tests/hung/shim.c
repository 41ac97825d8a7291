/*
 * Stands in for a mount whose server is gone: while the file named by HANG_GATE
 * is there, a call named by HANG_CALL on a path below a folder `HANG` never comes
 * back to a thread of the library, or to one that is named like those. It says
 * so by making the file HANG_GATE.met.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NEXT(name)                                                                                                     \
    static __typeof__(&name) next;                                                                                     \
    if (next == NULL) {                                                                                                \
        void *found = dlsym(RTLD_NEXT, #name);                                                                         \
        memcpy(&next, &found, sizeof next);                                                                            \
    }

static int is_librarys(void)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    return strncmp(name, "aware-", 6) == 0 || strncmp(name, "notify-", 7) == 0;
}

static void hang_at(const char *call, const char *path)
{
    const char *gate = getenv("HANG_GATE"), *wanted = getenv("HANG_CALL");
    char met[4096];
    if (gate == NULL || wanted == NULL || path == NULL || strcmp(call, wanted) != 0 || strstr(path, "/HANG") == NULL ||
        !is_librarys() || syscall(SYS_faccessat, AT_FDCWD, gate, F_OK) != 0) {
        return;
    }
    snprintf(met, sizeof met, "%s.met", gate);
    syscall(SYS_mknodat, AT_FDCWD, met, S_IFREG | 0600, 0);
    for (;;) {
        pause();
    }
}

static void hang_at_fd(const char *call, int fd)
{
    char link[64], path[4096];
    ssize_t length;
    const char *wanted = getenv("HANG_CALL");
    if (wanted == NULL || strcmp(call, wanted) != 0) {
        return;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = '\0';
        hang_at(call, path);
    }
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;
    NEXT(open64)
    va_start(rest, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    hang_at("open", path);
    return next(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode;
    NEXT(open)
    va_start(rest, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    hang_at("open", path);
    return next(path, flags, mode);
}

ssize_t read(int fd, void *into, size_t most)
{
    NEXT(read)
    hang_at_fd("read", fd);
    return next(fd, into, most);
}

ssize_t pread64(int fd, void *into, size_t most, off64_t from)
{
    NEXT(pread64)
    hang_at_fd("read", fd);
    return next(fd, into, most, from);
}

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *into)
{
    NEXT(statx)
    hang_at("stat", path);
    return next(folder, path, flags, mask, into);
}

int stat64(const char *path, struct stat64 *into)
{
    NEXT(stat64)
    hang_at("stat", path);
    return next(path, into);
}

DIR *opendir(const char *path)
{
    NEXT(opendir)
    hang_at("open", path);
    return next(path);
}

int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
    NEXT(inotify_add_watch)
    hang_at("inotify_add_watch", path);
    return next(fd, path, mask);
}
