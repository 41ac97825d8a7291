/*
 * A host that loads the library by name, as a plugin does, and unloads it while
 * a handle is open: the library stays, its threads go on, the process ends cleanly.
 */
#include "find.h"

static count_t woken = COUNT_OF_ZERO;

static void count_wake(void *user, const char *wake_json)
{
    CHECK(user == &woken);
    CHECK(strstr(wake_json, MANAGER) != NULL);
    count_up(&woken);
}

int main(int argc, char **argv)
{
    int32_t (*open_it)(const char *, aware_t **, char **);
    int32_t (*set_callback)(aware_t *, aware_wake_callback, void *);
    int32_t (*close_it)(aware_t *);
    void (*free_it)(char *);
    verb_t watch, record, drain;
    aware_t *handle = NULL, *second = NULL;
    char *reply = NULL;
    const char *path = getenv("SESSION_AWARENESS_LIB");
    void *library, *again, *address;

    start(argc, argv);
    CHECK(path != NULL);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    FIND(library, "aware_open", open_it);
    FIND(library, "aware_close", close_it);
    FIND(library, "aware_set_wake_callback", set_callback);
    FIND(library, "aware_string_free", free_it);
    FIND(library, "aware_watch", watch);
    FIND(library, "aware_record", record);
    FIND(library, "aware_drain_notices", drain);

    CHECK(open_it("{\"database\":\"" DATABASE "\"}", &handle, &reply) == AWARE_OK);
    free_it(reply);
    CHECK(open_it("{\"database\":\"second.db\"}", &second, NULL) == AWARE_OK);
    CHECK(set_callback(handle, count_wake, &woken) == AWARE_OK);
    CHECK(watch(handle, WATCH(MANAGER, CHILD), NULL) == AWARE_OK);
    address = dlsym(library, "aware_open");
    CHECK(dlclose(library) == 0);

    CHECK(record(handle, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
    wait_for_count(&woken, 1);
    CHECK(drain(handle, DRAIN(MANAGER), NULL) == AWARE_OK);
    CHECK(close_it(second) == AWARE_OK);

    /* Loaded once more it is the same library, with the same handles. */
    again = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    CHECK(again != NULL);
    CHECK(dlsym(again, "aware_open") == address);
    CHECK(record(handle, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
    wait_for_count(&woken, 2);
    CHECK(dlclose(again) == 0);
    return 0; /* `handle` is still open */
}
