/* The log callback is told what went wrong, by level, may call nothing, and can be replaced at any time. */
#include "every_verb.h"

/* A record in a database whose file is gone: it fails to store, which is logged as an error. */
static void fail(aware_t *handle)
{
    ANSWERS(aware_record, handle, HUMAN_TURN(CHILD), AWARE_STORAGE, "{\"error\":{\"code\":\"storage\"");
}

static aware_t *open_and_lose(const char *path)
{
    aware_t *handle = open_at(path);
    CHECK(unlink(path) == 0);
    return handle;
}

typedef struct {
    count_t lines;
    int32_t highest;
} seen_t;

static void see(void *user, int32_t level, const char *target, const char *message)
{
    seen_t *seen = (seen_t *)user;
    CHECK(level >= 1 && level <= 5);
    CHECK(strlen(target) > 0 && strlen(message) > 0);
    if (level > seen->highest) {
        seen->highest = level;
    }
    count_up(&seen->lines);
}

static void each_failure_is_one_line(aware_t *handle)
{
    static seen_t seen = {COUNT_OF_ZERO, 0};
    aware_set_log_callback(see, &seen, 1);
    fail(handle);
    CHECK(count_now(&seen.lines) == 1);
    CHECK(seen.highest == 1);
    fail(handle);
    CHECK(count_now(&seen.lines) == 2);
    aware_set_log_callback(see, &seen, 0);
    fail(handle);
    aware_set_log_callback(NULL, NULL, 5);
    fail(handle);
    CHECK(count_now(&seen.lines) == 2);
    aware_set_log_callback(see, &seen, INT32_MAX);
    fail(handle);
    CHECK(count_now(&seen.lines) >= 3);
    aware_set_log_callback(see, &seen, INT32_MIN);
    fail(handle);
    aware_set_log_callback(NULL, NULL, 0);
}

/* What a session said, or who said it, is in no line of any level. */
static void find_no_secret(void *user, int32_t level, const char *target, const char *message)
{
    (void)level;
    CHECK(strstr(message, "secret") == NULL && strstr(target, "secret") == NULL);
    count_up((count_t *)user);
}

static void no_line_holds_a_text(aware_t *handle)
{
    static count_t lines = COUNT_OF_ZERO;
    aware_set_log_callback(find_no_secret, &lines, 5);
    ANSWERS(aware_record, handle,
            "{\"sessionKey\":\"" CHILD "\",\"kind\":\"human_direct_message\",\"actorType\":\"human\","
            "\"actorId\":\"secret\",\"summary\":\"secret\",\"payload\":{\"secret\":\"secret\"}}",
            AWARE_STORAGE, "\"error\"");
    CHECK(count_now(&lines) >= 1);
    aware_set_log_callback(NULL, NULL, 0);
}

typedef struct {
    aware_t *handle;
    count_t lines;
    count_t others;
} inside_t;

static void count_only(void *user, int32_t level, const char *target, const char *message)
{
    (void)level, (void)target, (void)message;
    count_up(&((inside_t *)user)->others);
}

static void call_everything(void *user, int32_t level, const char *target, const char *message)
{
    inside_t *inside = (inside_t *)user;
    aware_t *opened = inside->handle;
    char *reply = NULL;
    (void)level, (void)target, (void)message;
    for (int at = 0; at < VERBS; at++) {
        ANSWERS(EVERY_VERB[at].call, inside->handle, EVERY_VERB[at].request, AWARE_BUSY, "{\"error\":{\"code\":\"busy\"");
    }
    CHECK(aware_open("{\"database\":\"never.db\"}", &opened, &reply) == AWARE_BUSY);
    CHECK(opened == NULL);
    CHECK(strstr(reply, "\"code\":\"busy\"") != NULL);
    aware_string_free(reply);
    CHECK(aware_close(inside->handle) == AWARE_BUSY);
    CHECK(aware_wake_fd(inside->handle) == -1);
    CHECK(aware_set_wake_callback(inside->handle, NULL, NULL) == AWARE_BUSY);
    /* It may replace itself, which returns at once. */
    aware_set_log_callback(count_only, inside, 1);
    count_up(&inside->lines);
}

static void everything_is_busy_inside(aware_t *handle)
{
    static inside_t inside = {NULL, COUNT_OF_ZERO, COUNT_OF_ZERO};
    inside.handle = handle;
    aware_set_log_callback(call_everything, &inside, 1);
    fail(handle);
    CHECK(count_now(&inside.lines) == 1);
    CHECK(access("never.db", F_OK) != 0);
    fail(handle);
    CHECK(count_now(&inside.lines) == 1 && count_now(&inside.others) == 1);
    aware_set_log_callback(NULL, NULL, 0);
}

/* Memory of the host that goes when its callback was replaced; a call after that would be told by the memory checkers. */
typedef struct {
    int is_there;
    char last[64];
} user_t;

static count_t calls = COUNT_OF_ZERO;

static void use(void *user, int32_t level, const char *target, const char *message)
{
    (void)level, (void)message;
    CHECK(((user_t *)user)->is_there);
    snprintf(((user_t *)user)->last, sizeof((user_t *)user)->last, "%s", target);
    count_up(&calls);
}

static count_t enough = COUNT_OF_ZERO;

static void *keep_failing(void *argument)
{
    while (count_now(&enough) == 0) {
        CHECK(aware_record((aware_t *)argument, HUMAN_TURN(CHILD), NULL) == AWARE_STORAGE);
    }
    return NULL;
}

static void the_old_user_may_go(aware_t *handle)
{
    enum { THREADS = 2 };
    pthread_t threads[THREADS];
    user_t *user = NULL;
    for (int at = 0; at < THREADS; at++) {
        threads[at] = start_thread(keep_failing, handle);
    }
    for (int turn = 0; turn < times(200); turn++) {
        user_t *next = (user_t *)calloc(1, sizeof *next);
        CHECK(next != NULL);
        next->is_there = 1;
        aware_set_log_callback(use, next, 1);
        if (user != NULL) {
            user->is_there = 0;
            free(user);
        }
        user = next;
        wait_for_count(&calls, turn);
    }
    aware_set_log_callback(NULL, NULL, 0);
    free(user);
    count_up(&enough);
    for (int at = 0; at < THREADS; at++) {
        join(threads[at]);
    }
}

int main(int argc, char **argv)
{
    aware_t *handle;
    start(argc, argv);
    handle = open_and_lose("lost.db");
    each_failure_is_one_line(handle);
    no_line_holds_a_text(handle);
    everything_is_busy_inside(handle);
    the_old_user_may_go(handle);
    CHECK(aware_close(handle) == AWARE_OK);
    return 0;
}
