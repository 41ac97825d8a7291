/*
 * A child of fork gets `closed` from its parent's handles, opens nothing while
 * its parent had handles open, and is never kept waiting by what other threads
 * of the parent held at the fork. The parent notices nothing.
 */
#include "every_verb.h"
#include <signal.h>

/*
 * A leak checker would blame the child for what only its parent's threads
 * point to; it does not look when the child ends as another program.
 */
NORETURN static void end_child(void)
{
    if (getenv("CHECK_LEAKS") != NULL) {
        execlp("true", "true", (char *)NULL);
    }
    exit(0);
}

/*
 * The sanitizer's own allocator does not survive a fork while other threads are
 * inside it, and those of an open handle may be at any time.
 */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

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

static void cannot_open(const char *config)
{
    aware_t *handle = NULL;
    char *reply = NULL;
    CHECK(aware_open(config, &handle, &reply) == AWARE_UNSUPPORTED);
    CHECK(handle == NULL);
    CHECK(strstr(reply, "{\"error\":{\"code\":\"unsupported\"") == reply && strstr(reply, "fork") != NULL);
    aware_string_free(reply);
}

static void nothing_can_be_opened(void)
{
    cannot_open("{\"database\":\"" DATABASE "\"}");
    cannot_open("{\"database\":\"" DATABASE "\",\"readOnly\":true}");
    cannot_open("{\"database\":\"never.db\"}");
    CHECK(access("never.db", F_OK) != 0);
}

/* Goes through what a host does; the handle stays open. */
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

/* Runs `body` in a child process; whoever calls it may do something before join_process. */
static pid_t start_process(void (*body)(void *), void *argument)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        start_watchdog();
        body(argument);
        end_child();
    }
    return child;
}

static void on_wake(void *user, const char *wake_json)
{
    CHECK(strstr(wake_json, MANAGER) != NULL);
    count_up((count_t *)user);
}

static void see_nothing(void *inherited)
{
    everything_is_closed((aware_t *)inherited);
    nothing_can_be_opened();
}

static void see_nothing_nor_lets_its_child(void *inherited)
{
    see_nothing(inherited);
    join_process(start_process(see_nothing, inherited));
}

static void the_parent_goes_on(void)
{
    static count_t woken = COUNT_OF_ZERO;
    aware_t *handle = open_at(DATABASE);
    pid_t child;

    watch_child(handle);
    CHECK(aware_set_wake_callback(handle, on_wake, &woken) == AWARE_OK);
    raise_wake(handle);
    wait_for_count(&woken, 1);
    child = start_process(see_nothing_nor_lets_its_child, handle);
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

static void works_alone(void *closed)
{
    aware_t *own;
    everything_is_closed((aware_t *)closed);
    own = works_in("before.db");
    CHECK(own != (aware_t *)closed);
    /* What the child opened is to its own child as its parent's was to it. */
    if (!SANITIZED) {
        join_process(start_process(see_nothing, own));
    }
    CHECK(aware_close(own) == AWARE_OK);
}

static void what_was_closed_before_hinders_nobody(void)
{
    aware_t *handle = open_at("before.db");
    CHECK(aware_close(handle) == AWARE_OK);
    join_process(start_process(works_alone, handle));
    handle = open_at("before.db");
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

static void no_lock_of_the_parent_is_waited_for(void)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    busy = open_at("busy.db");
    watch_child(busy);
    for (int at = 0; at < THREADS; at++) {
        threads[at] = start_thread(record_until_enough, NULL);
    }
    for (int turn = 0; turn < times(100); turn++) {
        wait_for_count(&recorded, turn * THREADS);
        join_process(start_process(see_nothing, busy));
    }
    count_up(&enough);
    for (int at = 0; at < THREADS; at++) {
        join(threads[at]);
    }
    CHECK(NUMBER(aware_stats, busy, "{}", "events") == count_now(&recorded));
    CHECK(aware_close(busy) == AWARE_OK);
}

/* Opens a handle with a wake pending, leaves a child that lives on, and is killed. */
static void leaves_a_child(int ready)
{
    aware_t *handle = open_at("left.db");
    watch_child(handle);
    raise_wake(handle);
    if (fork() == 0) {
        /* No exec: it has copies of all its parent's descriptors. */
        alarm(60);
        CHECK(write(ready, ".", 1) == 1);
        pause();
        _exit(0);
    }
    pause();
}

static void a_child_that_lives_on_keeps_no_handle_of_its_parent_alive(void)
{
    int ready[2];
    char byte;
    pid_t parent;
    aware_t *handle;

    CHECK(pipe(ready) == 0);
    parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        setpgid(0, 0);
        leaves_a_child(ready[1]);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    kill(parent, SIGKILL);
    CHECK(waitpid(parent, NULL, 0) == parent);

    handle = open_at("left.db");
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0}", AWARE_OK, "{\"wakes\":[{\"sessionKey\":\"" MANAGER "\"");
    CHECK(aware_close(handle) == AWARE_OK);
    kill(-parent, SIGKILL);
    close(ready[0]), close(ready[1]);
}

static count_t forked = COUNT_OF_ZERO;
static pid_t returned;

static void fork_and_return(void *user, const char *wake_json)
{
    (void)user, (void)wake_json;
    if (count_now(&forked) == 0) {
        returned = fork();
        CHECK(returned >= 0);
        if (returned == 0) {
            start_watchdog();
            return;
        }
    }
    count_up(&forked);
}

/* What a child has of the library's thread ends, and so the child, without a word to the database. */
static void a_child_that_returns_from_a_callback_ends(void)
{
    aware_t *handle = open_at("inside.db");
    watch_child(handle);
    CHECK(aware_set_wake_callback(handle, fork_and_return, NULL) == AWARE_OK);
    raise_wake(handle);
    wait_for_count(&forked, 1);
    join_process(returned);
    CHECK(aware_drain_notices(handle, DRAIN(MANAGER), NULL) == AWARE_OK);
    raise_wake(handle);
    wait_for_count(&forked, 2);
    CHECK(aware_close(handle) == AWARE_OK);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    a_child_that_lives_on_keeps_no_handle_of_its_parent_alive();
    if (!SANITIZED) {
        the_parent_goes_on();
        no_lock_of_the_parent_is_waited_for();
    }
    what_was_closed_before_hinders_nobody();
    /* A leak checker would blame the child, which ends as a process does. */
    if (!SANITIZED && getenv("CHECK_LEAKS") == NULL) {
        a_child_that_returns_from_a_callback_ends();
    }
    return 0;
}
