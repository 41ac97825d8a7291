/*
 * A host that loads and unloads the library again and again, as one that looks
 * for plugins does: memory, threads and descriptors stay what they were.
 */
#include "find.h"

#include <dirent.h>
#include <sched.h>

enum { WARM = 40, TURNS = 160 };

static int entries_of(const char *folder)
{
    DIR *listed = opendir(folder);
    int count = 0;
    struct dirent *entry;
    CHECK(listed != NULL);
    while ((entry = readdir(listed)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(listed);
    return count;
}

/* The memory of the process that is in use, in KiB. */
static long resident_kib(void)
{
    long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &all, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void load_use_and_unload(const char *path)
{
    int32_t (*open_it)(const char *, aware_t **, char **);
    int32_t (*close_it)(aware_t *);
    verb_t record, drain, watch;
    aware_t *handle = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    FIND(library, "aware_open", open_it);
    FIND(library, "aware_close", close_it);
    FIND(library, "aware_watch", watch);
    FIND(library, "aware_record", record);
    FIND(library, "aware_drain_notices", drain);
    CHECK(open_it("{\"database\":\"" DATABASE "\",\"retention\":{\"maxEvents\":100}}", &handle, NULL) == AWARE_OK);
    CHECK(watch(handle, WATCH(MANAGER, CHILD), NULL) == AWARE_OK);
    CHECK(record(handle, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
    CHECK(drain(handle, DRAIN(MANAGER), NULL) == AWARE_OK);
    CHECK(close_it(handle) == AWARE_OK);
    CHECK(dlclose(library) == 0);
    /* The file-event thread ends a moment after the last handle: up to the watchdog to say it does not. */
    while (entries_of("/proc/self/task") > 1) {
        sched_yield();
    }
}

int main(int argc, char **argv)
{
    const char *path = getenv("SESSION_AWARENESS_LIB");
    int descriptors = 0, files = 0;
    long resident = 0, grown;
    start(argc, argv);
    CHECK(path != NULL);
    for (int turn = 0; turn < times(TURNS); turn++) {
        if (turn == times(WARM)) {
            descriptors = entries_of("/proc/self/fd");
            files = entries_of(".");
            resident = resident_kib();
        }
        load_use_and_unload(path);
    }
    CHECK(entries_of("/proc/self/fd") == descriptors);
    CHECK(entries_of(".") == files);
    grown = resident_kib() - resident;
    printf("%d loads and unloads: %ld KiB more in use\n", times(TURNS - WARM), grown);
    /* The tools that look on keep memory of their own. */
    CHECK(getenv("CHECK_LEAKS") != NULL || grown < 2048);
    return 0;
}
