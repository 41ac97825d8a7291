/* Opening and closing many times leaves no descriptor, no thread and no file behind. */
#include "check.h"

#include <dirent.h>
#include <sched.h>

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

static void ignore_wake(void *user, const char *wake_json)
{
    (void)user, (void)wake_json;
}

/* Has the handle open all that it opens only when it is asked to. */
static void open_use_and_close(int turn)
{
    aware_t *handle = open_at(DATABASE);
    CHECK(aware_wake_fd(handle) >= 0);
    CHECK(aware_set_wake_callback(handle, ignore_wake, NULL) == AWARE_OK);
    watch_child(handle);
    raise_wake(handle);
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == turn + 1);
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"text\":");
    ANSWERS(aware_maintain, handle, "{}", AWARE_OK, "\"prunedEvents\":0");
    CHECK(aware_close(handle) == AWARE_OK);
}

/* The file-event thread of the process ends a moment after the last handle is closed: up to the watchdog to say it does not. */
static void settle_at(const char *folder, int count)
{
    while (entries_of(folder) > count) {
        sched_yield();
    }
    CHECK(entries_of(folder) == count);
}

static void a_refused_open_leaves_nothing(void)
{
    aware_t *handle = NULL;
    FILE *file = fopen("text.db", "w");
    CHECK(file != NULL);
    for (int at = 0; at < 100; at++) {
        fputs("This is no database.", file);
    }
    fclose(file);
    CHECK(aware_open("{\"database\":\"text.db\"}", &handle, NULL) == AWARE_STORAGE);
    CHECK(aware_open("{\"database\":\"never.db\",\"create\":false}", &handle, NULL) == AWARE_NOT_FOUND);
    CHECK(aware_open("{\"database\":\"" DATABASE "\",\"retention\":{\"maxAgeMs\":0}}", &handle, NULL) ==
          AWARE_INVALID_ARGUMENT);
}

int main(int argc, char **argv)
{
    int descriptors, threads, files;
    start(argc, argv);
    open_use_and_close(0);
    /* Before anything is counted the library may keep what it needs only once. */
    settle_at("/proc/self/task", 1);
    descriptors = entries_of("/proc/self/fd");
    threads = entries_of("/proc/self/task");
    files = entries_of(".");
    for (int turn = 1; turn < times(200); turn++) {
        open_use_and_close(turn);
        a_refused_open_leaves_nothing();
        if (turn == 1) {
            files += 1; /* text.db */
        }
    }
    settle_at("/proc/self/task", threads);
    settle_at("/proc/self/fd", descriptors);
    settle_at(".", files);
    return 0;
}
