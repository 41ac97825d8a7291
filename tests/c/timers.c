/* A host with timers and signal handlers of its own: a signal every millisecond changes no answer and cuts no wait short. */
#ifndef _GNU_SOURCE
#define _XOPEN_SOURCE 700
#endif
#include "every_verb.h"

#include <signal.h>
#include <sys/time.h>

enum { TURNS = 20, ROWS = 200 };

static volatile sig_atomic_t handled;

static void handle_signal(int number)
{
    (void)number;
    handled = handled + 1;
}

/* SIGALRM is the storm's here, so what ends a program that hangs is a timer of another kind. */
static void start_other_watchdog(void)
{
    struct sigevent event;
    struct itimerspec after;
    timer_t timer;
    alarm(0);
    memset(&event, 0, sizeof event);
    memset(&after, 0, sizeof after);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    after.it_value.tv_sec = is_slow() ? 300 : 60;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &after, NULL) == 0);
}

static void storm(int flags)
{
    struct sigaction action;
    struct itimerval every;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle_signal;
    action.sa_flags = flags;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    every.it_value.tv_sec = every.it_interval.tv_sec = 0;
    every.it_value.tv_usec = every.it_interval.tv_usec = is_slow() ? 20000 : 1000;
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void every_verb_answers(aware_t *handle, const char *copies)
{
    for (int turn = 0; turn < times(TURNS); turn++) {
        for (int at = 0; at < VERBS; at++) {
            verb_t verb = EVERY_VERB[at].call;
            char *reply = NULL;
            int32_t status;
            if (verb == aware_backup) {
                char *request = text("{\"path\":\"%s-%d.db\"}", copies, turn);
                status = verb(handle, request, &reply);
                free(request);
            } else {
                status = verb(handle, EVERY_VERB[at].request, &reply);
            }
            if (status != AWARE_OK && !(verb == aware_feed && status == AWARE_NOT_FOUND)) {
                check_failed(__FILE__, __LINE__, EVERY_VERB[at].name, reply);
            }
            aware_string_free(reply);
        }
    }
}

static void a_wait_is_as_long_as_it_was_asked_to_be(aware_t *handle)
{
    int64_t began = now_ms();
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":200}", AWARE_OK, "{\"wakes\":[]}");
    CHECK(now_ms() - began >= 200);
}

static void a_file_is_read_to_its_end(const char *database)
{
    /* Nothing is read before the scan. */
    char *config = text("{\"database\":\"%s\",\"monitor\":{\"enabled\":false}}", database);
    aware_t *handle = NULL;
    FILE *file = fopen("s.jsonl", "w");
    char *request = text("{\"sessionKey\":\"agent:main:up\",\"catalog\":\"claude\",\"source\":\"s.jsonl\",\"baseline\":"
                         "\"start\"}");
    CHECK(aware_open(config, &handle, NULL) == AWARE_OK);
    CHECK(file != NULL);
    for (int row = 0; row < ROWS; row++) {
        CHECK(fprintf(file, "{\"type\":\"user\",\"uuid\":\"u-%d\",\"origin\":{\"kind\":\"human\"},\"message\":{\"role\":"
                            "\"user\",\"content\":\"%0*d\"}}\n",
                      row, 2000, row) > 0);
    }
    fclose(file);
    ANSWERS(aware_watch, handle, WATCH(MANAGER, "agent:main:up"), AWARE_OK, "\"watched\":true");
    ANSWERS(aware_adopt, handle, request, AWARE_OK, "\"linked\":true");
    CHECK(NUMBER(aware_scan, handle, "{}", "humanTurns") == ROWS);
    CHECK(aware_close(handle) == AWARE_OK);
    free(request);
    free(config);
}

static void opening_and_closing_go_through(const char *path)
{
    for (int turn = 0; turn < times(TURNS); turn++) {
        aware_t *handle = open_at(path);
        CHECK(NUMBER(aware_record, handle, HUMAN_TURN(CHILD), "sequence") == turn + 1);
        CHECK(aware_close(handle) == AWARE_OK);
    }
}

static void all_of_it(int flags, const char *database, const char *copies, const char *opened, const char *read)
{
    aware_t *handle;
    int before = handled;
    storm(flags);
    handle = open_at(database);
    every_verb_answers(handle, copies);
    a_wait_is_as_long_as_it_was_asked_to_be(handle);
    CHECK(aware_close(handle) == AWARE_OK);
    a_file_is_read_to_its_end(read);
    opening_and_closing_go_through(opened);
    CHECK(handled - before > 10);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    start_other_watchdog();
    all_of_it(0, "interrupted.db", "one", "opened-one.db", "read-one.db");
    all_of_it(SA_RESTART, "restarted.db", "two", "opened-two.db", "read-two.db");
    return 0;
}
