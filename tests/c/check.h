/*
 * What every program here shares. A program is run as `PROGRAM FOLDER`, works
 * in that empty folder, and ends with status 0 when all that it checks holds.
 *
 * Valid as C11 and as C++17. Nothing here waits for a time to pass: what takes
 * too long is ended by the watchdog. With CHECK_SLOW in the environment less is
 * done, with CHECK_LEAKS a leak checker looks on.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE /* g++ defines it, and with it all of POSIX */
#define _POSIX_C_SOURCE 200809L
#endif

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "session_awareness.h"

#define DATABASE "aware.db"
#define MANAGER "agent:main:main"
#define CHILD "agent:main:subagent:child"

/* The record of a turn that a person typed into the session `key`, a string literal. */
#define HUMAN_TURN(key) "{\"sessionKey\":\"" key "\",\"kind\":\"human_direct_message\",\"actorType\":\"human\"}"
#define WATCH(watcher, target) "{\"watcherSessionKey\":\"" watcher "\",\"targetSessionKey\":\"" target "\"}"
#define DRAIN(watcher) "{\"watcherSessionKey\":\"" watcher "\"}"

typedef int32_t (*verb_t)(aware_t *handle, const char *request_json, char **reply_json);

#ifdef __cplusplus
#define NORETURN [[noreturn]]
#else
#define NORETURN _Noreturn
#endif

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, ""))

NORETURN static inline void check_failed(const char *file, int line, const char *what, const char *seen)
{
    fprintf(stderr, "%s:%d: not so: %s %s\n", file, line, what, seen);
    _exit(1); /* other threads may still be at work */
}

/* Whether a tool that makes everything slow runs this program. */
static inline int is_slow(void)
{
    return getenv("CHECK_SLOW") != NULL;
}

/* How often to repeat something: fewer times where everything is slow. */
static inline int times(int count)
{
    return is_slow() ? count / 10 : count;
}

/* Ends the program when it hangs. A child of fork needs its own. */
static inline void start_watchdog(void)
{
    alarm(is_slow() ? 300 : 60);
}

static inline void start(int argc, char **argv)
{
    CHECK(argc >= 2);
    start_watchdog();
    CHECK(chdir(argv[1]) == 0);
    /* No agent's real store is looked into. */
    CHECK(setenv("HOME", ".", 1) == 0 && unsetenv("CODEX_HOME") == 0 && unsetenv("CLAUDE_CONFIG_DIR") == 0);
    CHECK(unsetenv("XDG_DATA_HOME") == 0 && unsetenv("PI_CODING_AGENT_DIR") == 0);
}

static inline int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A formatted text; the caller frees it. */
static inline char *text(const char *format, ...)
{
    va_list list, again;
    int length;
    char *made;
    va_start(list, format);
    va_copy(again, list);
    length = vsnprintf(NULL, 0, format, list);
    CHECK(length >= 0);
    made = (char *)malloc((size_t)length + 1);
    CHECK(made != NULL);
    vsnprintf(made, (size_t)length + 1, format, again);
    va_end(again);
    va_end(list);
    return made;
}

/* Calls a verb, which must answer `status`; the reply, for aware_string_free. */
#define CALL(verb, handle, request, status) check_call(__FILE__, __LINE__, #verb, verb, handle, request, status)

static inline char *check_call(const char *file, int line, const char *name, verb_t verb, aware_t *handle,
                               const char *request, int32_t status)
{
    char *reply = NULL;
    int32_t answered = verb(handle, request, &reply);
    if (reply == NULL) {
        check_failed(file, line, name, "left the reply NULL");
    }
    if (answered != status) {
        check_failed(file, line, name, reply);
    }
    return reply;
}

/* Calls a verb, which must answer `status` with `part` somewhere in its reply. */
#define ANSWERS(verb, handle, request, status, part)                                                                   \
    check_answer(__FILE__, __LINE__, #verb, verb, handle, request, status, part)

static inline void check_answer(const char *file, int line, const char *name, verb_t verb, aware_t *handle,
                                const char *request, int32_t status, const char *part)
{
    char *reply = check_call(file, line, name, verb, handle, request, status);
    if (strstr(reply, part) == NULL) {
        check_failed(file, line, part, reply);
    }
    aware_string_free(reply);
}

/* Calls a verb that must succeed; the number that its reply has under `field`. */
#define NUMBER(verb, handle, request, field) check_number(__FILE__, __LINE__, #verb, verb, handle, request, field)

/* The number under `field` where that first stands in a reply. */
static inline int64_t number_in(const char *reply, const char *field)
{
    char name[64];
    const char *at;
    snprintf(name, sizeof name, "\"%s\":", field);
    at = strstr(reply, name);
    if (at == NULL) {
        check_failed(__FILE__, __LINE__, name, reply);
    }
    return strtoll(at + strlen(name), NULL, 10);
}

static inline int64_t check_number(const char *file, int line, const char *name, verb_t verb, aware_t *handle,
                                   const char *request, const char *field)
{
    char *reply = check_call(file, line, name, verb, handle, request, AWARE_OK);
    int64_t number = number_in(reply, field);
    aware_string_free(reply);
    return number;
}

/* How often `part` stands in a reply. */
static inline int count_in(const char *reply, const char *part)
{
    int count = 0;
    while ((reply = strstr(reply, part)) != NULL) {
        count += 1;
        reply += strlen(part);
    }
    return count;
}

/* Opens the database at `path`, which must succeed. */
static inline aware_t *open_at(const char *path)
{
    aware_t *handle = NULL;
    char *reply = NULL;
    char *config = text("{\"database\":\"%s\"}", path);
    int32_t status = aware_open(config, &handle, &reply);
    if (status != AWARE_OK || handle == NULL) {
        check_failed(__FILE__, __LINE__, config, reply);
    }
    CHECK(strstr(reply, "\"opened\":true") != NULL);
    aware_string_free(reply);
    free(config);
    return handle;
}

/* Has MANAGER watch CHILD, so that a turn in the one raises a wake for the other. */
static inline void watch_child(aware_t *handle)
{
    ANSWERS(aware_watch, handle, WATCH(MANAGER, CHILD), AWARE_OK, "\"watched\":true");
}

/* Makes one wake for MANAGER; the notice before it must be drained. */
static inline void raise_wake(aware_t *handle)
{
    ANSWERS(aware_record, handle, HUMAN_TURN(CHILD), AWARE_OK, "\"recorded\":true");
}

/* A number that threads wait for. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int value;
} count_t;

#define COUNT_OF_ZERO {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

static inline void count_up(count_t *count)
{
    pthread_mutex_lock(&count->lock);
    count->value += 1;
    pthread_cond_broadcast(&count->changed);
    pthread_mutex_unlock(&count->lock);
}

static inline int count_now(count_t *count)
{
    int value;
    pthread_mutex_lock(&count->lock);
    value = count->value;
    pthread_mutex_unlock(&count->lock);
    return value;
}

static inline void wait_for_count(count_t *count, int least)
{
    pthread_mutex_lock(&count->lock);
    while (count->value < least) {
        pthread_cond_wait(&count->changed, &count->lock);
    }
    pthread_mutex_unlock(&count->lock);
}

static inline pthread_t start_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

static inline void join(pthread_t thread)
{
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Waits for a child process, which must end with status 0. */
static inline void join_process(pid_t child)
{
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
