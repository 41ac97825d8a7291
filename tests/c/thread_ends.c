/* Threads come and go as the host likes: what one made others use, and one may call while it ends. */
#ifndef _GNU_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "every_verb.h"

/* Goes through every verb but the copy, which is as it is wherever it is called. */
static void call_everything(aware_t *handle)
{
    for (int at = 0; at < VERBS; at++) {
        char *reply = NULL;
        int32_t status;
        if (EVERY_VERB[at].call == aware_backup) {
            continue;
        }
        status = EVERY_VERB[at].call(handle, EVERY_VERB[at].request, &reply);
        if (status != AWARE_OK && !(EVERY_VERB[at].call == aware_feed && status == AWARE_NOT_FOUND)) {
            check_failed(__FILE__, __LINE__, EVERY_VERB[at].name, reply);
        }
        aware_string_free(reply);
    }
}

static count_t woken = COUNT_OF_ZERO;

static void count_wake(void *user, const char *wake_json)
{
    CHECK(user == &woken && strstr(wake_json, MANAGER) != NULL);
    count_up(&woken);
}

static char *left_behind;

static void *open_and_end(void *argument)
{
    aware_t *handle = open_at((const char *)argument);
    watch_child(handle);
    CHECK(aware_set_wake_callback(handle, count_wake, &woken) == AWARE_OK);
    left_behind = CALL(aware_record, handle, HUMAN_TURN(CHILD), AWARE_OK);
    return handle;
}

static void *close_and_end(void *argument)
{
    CHECK(aware_close((aware_t *)argument) == AWARE_OK);
    return NULL;
}

static void what_a_thread_made_outlives_it(void)
{
    void *made = NULL;
    aware_t *handle;
    CHECK(pthread_join(start_thread(open_and_end, (void *)DATABASE), &made) == 0);
    handle = (aware_t *)made;
    aware_string_free(left_behind);
    wait_for_count(&woken, 1);
    call_everything(handle);
    join(start_thread(close_and_end, handle));
    CHECK(aware_close(handle) == AWARE_CLOSED);
}

/* Destructors of a thread's own values run when the library's own are gone already. */
static pthread_key_t at_the_end;

static void call_while_ending(void *value)
{
    aware_t *handle = (aware_t *)value, *another;
    call_everything(handle);
    another = open_at("another.db");
    call_everything(another);
    CHECK(aware_close(another) == AWARE_OK);
}

static void *set_value_and_end(void *argument)
{
    CHECK(pthread_setspecific(at_the_end, argument) == 0);
    call_everything((aware_t *)argument);
    return NULL;
}

static void *only_set_value_and_end(void *argument)
{
    CHECK(pthread_setspecific(at_the_end, argument) == 0);
    return NULL;
}

static void a_thread_may_call_while_it_ends(void)
{
    aware_t *handle = open_at("ending.db");
    CHECK(pthread_key_create(&at_the_end, call_while_ending) == 0);
    for (int turn = 0; turn < 3; turn++) {
        join(start_thread(set_value_and_end, handle));
        join(start_thread(only_set_value_and_end, handle));
    }
    CHECK(pthread_key_delete(at_the_end) == 0);
    CHECK(aware_close(handle) == AWARE_OK);
}

static void *call_and_end(void *argument)
{
    call_everything((aware_t *)argument);
    return NULL;
}

/* As small as a language with threads of its own makes them. */
static void a_small_stack_is_enough(void)
{
    aware_t *handle = open_at("small.db");
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)(getenv("CHECK_LEAKS") == NULL ? 192 : 1024) << 10) == 0);
    CHECK(pthread_create(&thread, &attributes, call_and_end, handle) == 0);
    join(thread);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    CHECK(aware_close(handle) == AWARE_OK);
}

static count_t cancellable = COUNT_OF_ZERO;

/* What cancels a thread waits for its call: it would end it inside a transaction, which others wait for. */
static void *record_until_cancelled(void *argument)
{
    for (;;) {
        CHECK(aware_record((aware_t *)argument, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
        CHECK(aware_drain_notices((aware_t *)argument, DRAIN(MANAGER), NULL) == AWARE_OK);
        count_up(&cancellable);
        pthread_testcancel();
    }
    return NULL;
}

static void a_thread_may_be_cancelled_in_a_call(void)
{
    aware_t *handle = open_at("cancelled.db");
    watch_child(handle);
    for (int turn = 0; turn < times(100); turn++) {
        pthread_t thread = start_thread(record_until_cancelled, handle);
        void *ended = NULL;
        wait_for_count(&cancellable, turn + 1);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
        CHECK(aware_record(handle, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
    }
    CHECK(aware_close(handle) == AWARE_OK);
}

/* The process may end while calls are under way: some of them are, as a rule, and one handle is closed on the way out. */
static aware_t *closed_at_exit, *left_open;
static count_t recorded = COUNT_OF_ZERO;

static void *record_on(void *argument)
{
    for (;;) {
        aware_record((aware_t *)argument, HUMAN_TURN(CHILD), NULL);
        aware_drain_notices((aware_t *)argument, DRAIN(MANAGER), NULL);
        count_up(&recorded);
    }
    return NULL;
}

static void close_at_exit(void)
{
    CHECK(aware_close(closed_at_exit) == AWARE_OK);
}

static int end_in_the_middle(void)
{
    left_open = open_at("left.db");
    closed_at_exit = open_at("closed.db");
    watch_child(left_open);
    CHECK(atexit(close_at_exit) == 0);
    for (int at = 0; at < 4; at++) {
        start_thread(record_on, at % 2 == 0 ? left_open : closed_at_exit);
    }
    wait_for_count(&recorded, 50);
    return 0;
}

static void the_process_may_end_at_any_time(const char *program)
{
    for (int turn = 0; turn < times(20); turn++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execl(program, program, ".", "end", (char *)NULL);
            _exit(127);
        }
        join_process(child);
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    if (argc == 3) {
        return end_in_the_middle();
    }
    what_a_thread_made_outlives_it();
    /* What is kept for a thread that is ending is made when nothing frees it any more: less than 1 KiB. */
    if (getenv("CHECK_LEAKS") == NULL) {
        a_thread_may_call_while_it_ends();
    }
    a_small_stack_is_enough();
    a_thread_may_be_cancelled_in_a_call();
    the_process_may_end_at_any_time(argv[0]);
    return 0;
}
