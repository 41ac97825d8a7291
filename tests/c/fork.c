/* A child of fork gets `closed` from its parent's handles and harms nothing; other databases are open to it. */
#include "every_verb.h"

#include <fcntl.h>

/* A leak checker would blame the child for what only its parent's threads point to. */
#if defined(__SANITIZE_ADDRESS__)
#define END_CHILD(status) _exit(status)
#else
#define END_CHILD(status) exit(status)
#endif

static void on_wake(void *user, const char *wake_json)
{
    CHECK(strstr(wake_json, MANAGER) != NULL);
    count_up((count_t *)user);
}

static void everything_is_closed(aware_t *inherited)
{
    for (int at = 0; at < VERBS; at++) {
        ANSWERS(EVERY_VERB[at].call, inherited, EVERY_VERB[at].request, AWARE_CLOSED, "{\"error\":{\"code\":\"closed\"");
    }
    CHECK(aware_wake_fd(inherited) == -1);
    CHECK(aware_set_wake_callback(inherited, NULL, NULL) == AWARE_CLOSED);
    CHECK(aware_close(inherited) == AWARE_CLOSED);
    CHECK(aware_close(inherited) == AWARE_CLOSED);
}

static void the_parents_database_is_refused(const char *config)
{
    aware_t *handle = NULL;
    char *reply = NULL;
    CHECK(aware_open(config, &handle, &reply) == AWARE_UNSUPPORTED);
    CHECK(handle == NULL);
    CHECK(strstr(reply, "fork") != NULL);
    aware_string_free(reply);
}

/* Opens a database of its own and goes through what a host does with it; the handle stays open. */
static aware_t *works_in(const char *path)
{
    aware_t *handle = open_at(path);
    watch_child(handle);
    raise_wake(handle);
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":60000}", AWARE_OK, "\"sessionKey\":\"" MANAGER "\"");
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"changesSince\":0");
    ANSWERS(aware_record, handle,
            "{\"sessionKey\":\"" CHILD "\",\"kind\":\"compacted\",\"actorType\":\"system\",\"wait\":false}", AWARE_OK,
            "{\"queued\":true}");
    return handle;
}

static void child_of(aware_t *inherited)
{
    aware_t *own;
    pid_t grandchild;

    start_watchdog();
    everything_is_closed(inherited);
    the_parents_database_is_refused("{\"database\":\"" DATABASE "\"}");
    the_parents_database_is_refused("{\"database\":\"" DATABASE "\",\"readOnly\":true}");
    own = works_in("child.db");
    CHECK(own != inherited);
    everything_is_closed(inherited);

    /* What the child opened is closed to its own child, as what the parent had open is. */
    grandchild = fork();
    CHECK(grandchild >= 0);
    if (grandchild == 0) {
        start_watchdog();
        everything_is_closed(own);
        everything_is_closed(inherited);
        the_parents_database_is_refused("{\"database\":\"child.db\"}");
        the_parents_database_is_refused("{\"database\":\"" DATABASE "\"}");
        CHECK(aware_close(works_in("grandchild.db")) == AWARE_OK);
        END_CHILD(0);
    }
    join_process(grandchild);
    CHECK(NUMBER(aware_record, own, HUMAN_TURN(CHILD), "sequence") == 3);
    CHECK(aware_close(own) == AWARE_OK);
    END_CHILD(0);
}

static void a_quiet_parent(void)
{
    static count_t woken = COUNT_OF_ZERO;
    aware_t *handle = open_at(DATABASE);
    pid_t child;

    watch_child(handle);
    CHECK(aware_set_wake_callback(handle, on_wake, &woken) == AWARE_OK);
    raise_wake(handle);
    wait_for_count(&woken, 1);
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 1);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        child_of(handle);
    }
    /* The parent goes on, while its child is there and after that. */
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"changesSince\":0");
    raise_wake(handle);
    wait_for_count(&woken, 2);
    join_process(child);
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"changesSince\":1");
    raise_wake(handle);
    wait_for_count(&woken, 3);
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 3);
    CHECK(aware_close(handle) == AWARE_OK);
}

/* What the parent closed before the fork is as open to the child as any other. */
static void a_parent_that_has_closed(void)
{
    aware_t *handle = open_at("closed.db");
    pid_t child;
    CHECK(aware_close(handle) == AWARE_OK);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        start_watchdog();
        everything_is_closed(handle);
        CHECK(aware_close(works_in("closed.db")) == AWARE_OK);
        END_CHILD(0);
    }
    join_process(child);
    handle = open_at("closed.db");
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 2);
    CHECK(aware_close(handle) == AWARE_OK);
}

static aware_t *busy;
static count_t recorded = COUNT_OF_ZERO;
static count_t enough = COUNT_OF_ZERO;

static void *record_until_enough(void *unused)
{
    while (count_now(&enough) == 0) {
        CHECK(aware_record(busy, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
        CHECK(aware_events(busy, "{\"limit\":5}", NULL) == AWARE_OK);
        count_up(&recorded);
    }
    return unused;
}

/* Whatever lock a thread of the parent held at the fork, the child does not wait for it. */
static void a_busy_parent(void)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    int children = times(40);
    busy = open_at("busy.db");
    watch_child(busy);
    for (int at = 0; at < THREADS; at++) {
        threads[at] = start_thread(record_until_enough, NULL);
    }
    for (int at = 0; at < children; at++) {
        pid_t child;
        wait_for_count(&recorded, (at + 1) * THREADS);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char *path = text("busy-child-%d.db", at);
            aware_t *own;
            start_watchdog();
            CHECK(aware_record(busy, HUMAN_TURN(CHILD), NULL) == AWARE_CLOSED);
            CHECK(aware_close(busy) == AWARE_CLOSED);
            the_parents_database_is_refused("{\"database\":\"busy.db\"}");
            own = works_in(path);
            CHECK(aware_close(own) == AWARE_OK);
            free(path);
            END_CHILD(0);
        }
        join_process(child);
    }
    count_up(&enough);
    for (int at = 0; at < THREADS; at++) {
        join(threads[at]);
    }
    CHECK(NUMBER(aware_stats, busy, "{}", "events") == count_now(&recorded));
    CHECK(aware_close(busy) == AWARE_OK);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    a_quiet_parent();
    a_parent_that_has_closed();
    a_busy_parent();
    return 0;
}
