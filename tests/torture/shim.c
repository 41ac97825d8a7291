/*
 * Preloaded into a program that uses the library, it stands between SQLite and
 * the operating system: it shows on a board in shared memory what each thread
 * is doing, writes down what becomes of the files of one folder, and makes
 * operations on them fail. What is written down outlives a SIGKILL.
 *
 * TORTURE_FOLDER  the folder of the database, an absolute path
 * TORTURE_BOARD   a file of BOARD_BYTES, mapped
 * TORTURE_JOURNAL a file, appended to: what torture_say said and, when
 *                 TORTURE_TRACE is set, every change of the folder's files
 * TORTURE_TRACE   a number: after so many changes the process ends at once;
 *                 0 for never
 *
 * Nothing is really synced: neither a SIGKILL nor the images made from the
 * journal ask the disk.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BOARD_BYTES = 4096, SLOTS = 64, FILES = 4096, BACKGROUND = 15 };
/* Where SQLite's locks on the WAL index lie: write, checkpoint, recover. */
enum { BYTE_WRITE = 120, BYTE_CHECKPOINT = 121, BYTE_RECOVER = 122 };

/* Mirrored in board.rs. */
struct board {
    _Atomic uint32_t slots;       /* how many threads have one */
    _Atomic uint32_t writing;     /* the phase of the thread in a write transaction */
    _Atomic uint32_t checkpoint;  /* whether pages are being moved to the database */
    _Atomic uint32_t recovery;    /* whether the WAL is being read for the first time */
    _Atomic uint32_t phase[SLOTS];
};

static struct board *board;
static int journal = -1;
static int tracing, dies_after;
static char folder[1024];
static size_t folder_length;
/* Over each operation and its record, so that the journal has their order. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

static __thread int slot = -1;
static __thread uint32_t own_phase;
static __thread int moves_pages;

/* The function of this name behind ours. */
#define REAL(name)                                                        \
    ({                                                                    \
        static __typeof__(&name) real;                                    \
        if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name);     \
        real;                                                             \
    })

/* What a descriptor is open on: 0 for what is not in the folder. */
enum { OTHER = 1, DATABASE, WAL, SHM, FOLDER };
static struct { uint8_t kind; uint32_t id; } files[FILES];
static struct { ino_t inode; uint32_t id; } inodes[FILES];
static uint32_t inode_count, last_id;

static uint8_t kind_of(int fd) { return fd >= 0 && fd < FILES ? files[fd].kind : 0; }

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("TORTURE_FOLDER");
    if (!path) return;
    strncpy(folder, path, sizeof folder - 1);
    folder_length = strlen(folder);
    int fd = syscall(SYS_openat, AT_FDCWD, getenv("TORTURE_BOARD"), O_RDWR | O_CLOEXEC);
    board = mmap(NULL, BOARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    journal = syscall(SYS_openat, AT_FDCWD, getenv("TORTURE_JOURNAL"),
                      O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || board == MAP_FAILED || journal < 0) abort();
    tracing = getenv("TORTURE_TRACE") != NULL;
    dies_after = tracing ? atoi(getenv("TORTURE_TRACE")) : 0;
}

/* One record: its kind, the file, the place and the bytes. */
struct head { uint32_t kind, file, length; uint64_t place; } __attribute__((packed));

static void write_down(char kind, uint32_t file, uint64_t place, const void *bytes, size_t length) {
    struct head head = {(uint32_t)kind, file, (uint32_t)length, place};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)bytes, length}};
    if (syscall(SYS_writev, journal, parts, 2) != (long)(sizeof head + length)) abort();
}

static void trace(char kind, uint32_t file, uint64_t place, const void *bytes, size_t length) {
    if (!tracing) return;
    write_down(kind, file, place, bytes, length);
    /* Between two operations, so that what is written down is what was done. */
    if (dies_after && --dies_after == 0) _exit(0);
}

/* ---- what the program itself calls ---- */

void torture_say(const char *text) {
    pthread_mutex_lock(&order);
    write_down('S', 0, 0, text, strlen(text));
    pthread_mutex_unlock(&order);
}

void torture_phase(uint32_t phase) {
    if (slot < 0) slot = atomic_fetch_add(&board->slots, 1) % SLOTS;
    own_phase = phase;
    atomic_store(&board->phase[slot], phase);
}

/* ---- faults ---- */

enum { NO_FAULT, SYNC_FAILS, WRITE_FAILS, WRITE_SHORT, DISK_FULL, TRUNCATE_FAILS, OPEN_FAILS,
       DATABASE_SYNC_FAILS };
static struct { int kind, skip, count, met; } fault;

/* The next `skip` operations of the kind go well, the `count` after them do not. */
void torture_fault(int kind, int skip, int count) {
    pthread_mutex_lock(&order);
    fault.kind = kind, fault.skip = skip, fault.count = count, fault.met = 0;
    pthread_mutex_unlock(&order);
}

/* How many operations failed since then. */
int torture_faults_met(void) {
    pthread_mutex_lock(&order);
    int met = fault.met;
    pthread_mutex_unlock(&order);
    return met;
}

static int strikes(int kind) {
    if (fault.kind != kind) return 0;
    if (fault.skip > 0) return fault.skip--, 0;
    if (fault.count == 0) return 0;
    return fault.count--, fault.met++, 1;
}

/* ---- files of the folder ---- */

static const char *name_in_folder(const char *path) {
    if (!folder_length || strncmp(path, folder, folder_length) || path[folder_length] != '/')
        return NULL;
    return path + folder_length + 1;
}

static uint8_t kind_of_name(const char *name) {
    size_t length = strlen(name);
    if (length > 4 && !strcmp(name + length - 4, "-wal")) return WAL;
    if (length > 4 && !strcmp(name + length - 4, "-shm")) return SHM;
    if (length > 3 && !strcmp(name + length - 3, ".db")) return DATABASE;
    return OTHER;
}

/* The number of the file that is open: a new one for a file just made. */
static uint32_t number(int fd, const char *name, int made) {
    struct stat found;
    if (fstat(fd, &found)) abort();
    uint32_t at = 0;
    while (at < inode_count && inodes[at].inode != found.st_ino) at++;
    if (at == FILES) abort();
    if (at == inode_count || made) {
        inode_count += at == inode_count;
        inodes[at].inode = found.st_ino;
        inodes[at].id = ++last_id;
        trace(made ? 'C' : 'O', last_id, 0, name, strlen(name));
    }
    return inodes[at].id;
}

static int opened(const char *path, int flags, mode_t mode) {
    __typeof__(&open64) next = REAL(open64);
    if (folder_length && !strcmp(path, folder)) {
        int fd = next(path, flags, mode);
        if (fd >= 0 && fd < FILES) files[fd].kind = FOLDER;
        return fd;
    }
    const char *name = name_in_folder(path);
    if (!name) return next(path, flags, mode);
    pthread_mutex_lock(&order);
    if (strikes(OPEN_FAILS)) {
        pthread_mutex_unlock(&order);
        errno = EIO;
        return -1;
    }
    int made = (flags & O_CREAT) && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    int fd = next(path, flags, mode);
    int saved = errno;
    if (fd >= FILES) abort();
    if (fd >= 0) {
        files[fd].kind = kind_of_name(name);
        files[fd].id = number(fd, name, made);
        if (!made && (flags & O_TRUNC)) trace('T', files[fd].id, 0, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = saved;
    return fd;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}

int close(int fd) {
    if (fd >= 0 && fd < FILES) files[fd].kind = 0;
    return REAL(close)(fd);
}

static ssize_t written(int fd, const void *bytes, size_t length, off64_t place) {
    __typeof__(&pwrite64) next = REAL(pwrite64);
    uint8_t kind = kind_of(fd);
    if (!kind) return next(fd, bytes, length, place);
    pthread_mutex_lock(&order);
    if (kind == DATABASE) {
        moves_pages = 1;
        atomic_store(&board->checkpoint, 1);
    }
    ssize_t done;
    if (kind != SHM && strikes(WRITE_FAILS)) {
        errno = EIO;
        done = -1;
    } else if (kind != SHM && strikes(DISK_FULL)) {
        errno = ENOSPC;
        done = -1;
    } else {
        /* A torn write: some of it is there, and the caller is told how much. */
        if (kind != SHM && length > 1 && strikes(WRITE_SHORT)) length /= 2;
        done = next(fd, bytes, length, place);
    }
    if (done > 0 && kind != SHM) trace('W', files[fd].id, (uint64_t)place, bytes, (size_t)done);
    int saved = errno;
    pthread_mutex_unlock(&order);
    errno = saved;
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t place) {
    return written(fd, bytes, length, place);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t place) {
    return written(fd, bytes, length, place);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    uint8_t kind = kind_of(fd);
    /* The library writes to the folder's files at places alone. */
    if (kind && kind != SHM && length) abort();
    return REAL(write)(fd, bytes, length);
}

static int truncated(int fd, off64_t length) {
    __typeof__(&ftruncate64) next = REAL(ftruncate64);
    uint8_t kind = kind_of(fd);
    if (!kind || kind == SHM) return next(fd, length);
    pthread_mutex_lock(&order);
    int done = -1;
    if (strikes(TRUNCATE_FAILS)) {
        errno = EIO;
    } else {
        done = next(fd, length);
    }
    if (done == 0) trace('T', files[fd].id, (uint64_t)length, NULL, 0);
    int saved = errno;
    pthread_mutex_unlock(&order);
    errno = saved;
    return done;
}

int ftruncate64(int fd, off64_t length) { return truncated(fd, length); }
int ftruncate(int fd, off_t length) { return truncated(fd, length); }

static int synced(int fd) {
    uint8_t kind = kind_of(fd);
    if (!kind) return 0;
    int done = 0;
    pthread_mutex_lock(&order);
    if (strikes(SYNC_FAILS) || (kind == DATABASE && strikes(DATABASE_SYNC_FAILS))) {
        if (kind != FOLDER) trace('E', files[fd].id, 0, NULL, 0);
        done = -1;
    } else if (kind == FOLDER) {
        trace('D', 0, 0, NULL, 0);
    } else {
        trace('F', files[fd].id, 0, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    if (done) errno = EIO;
    return done;
}

int fsync(int fd) { return synced(fd); }
int fdatasync(int fd) { return synced(fd); }

int unlink(const char *path) {
    const char *name = name_in_folder(path);
    if (!name) return REAL(unlink)(path);
    pthread_mutex_lock(&order);
    int done = REAL(unlink)(path);
    if (done == 0) trace('U', 0, 0, name, strlen(name));
    int saved = errno;
    pthread_mutex_unlock(&order);
    errno = saved;
    return done;
}

int rename(const char *from, const char *to) {
    /* A copy is renamed where there are no links; the database never is. */
    if (name_in_folder(from) || name_in_folder(to)) abort();
    return REAL(rename)(from, to);
}

/* ---- SQLite's locks tell what it is about to do ---- */

static void locked(int fd, int command, const struct flock *lock) {
    if (kind_of(fd) != SHM || (command != F_SETLK && command != F_SETLKW)) return;
    off_t first = lock->l_start, last = lock->l_start + lock->l_len - 1;
    int held = lock->l_type == F_WRLCK;
    if (lock->l_type == F_RDLCK) return;
    if (first <= BYTE_WRITE && BYTE_WRITE <= last)
        atomic_store(&board->writing, held ? (own_phase ? own_phase : BACKGROUND) : 0);
    if (first <= BYTE_RECOVER && BYTE_RECOVER <= last) atomic_store(&board->recovery, held);
    if (!held && moves_pages && first <= BYTE_CHECKPOINT && BYTE_CHECKPOINT <= last) {
        moves_pages = 0;
        atomic_store(&board->checkpoint, 0);
    }
}

static int controlled(int fd, int command, void *argument) {
    int done = REAL(fcntl64)(fd, command, argument);
    if (done == 0) locked(fd, command, argument);
    return done;
}

int fcntl64(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return controlled(fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    return controlled(fd, command, argument);
}
