/* Eight threads on one handle: nothing is lost, nothing comes twice, and every verb goes with every other. */
#include "every_verb.h"

enum { THREADS = 8, MOST = 200 };

typedef struct {
    int number;
    aware_t *handle;
    int64_t sequences[MOST];
} worker_t;

static worker_t workers[THREADS];
static int rounds;

static void start_all(pthread_t *threads, aware_t *handle, void *(*body)(void *))
{
    for (int at = 0; at < THREADS; at++) {
        workers[at].number = at;
        workers[at].handle = handle;
        threads[at] = start_thread(body, &workers[at]);
    }
}

static void join_all(const pthread_t *threads)
{
    for (int at = 0; at < THREADS; at++) {
        join(threads[at]);
    }
}

static void *record_many(void *argument)
{
    worker_t *self = (worker_t *)argument;
    for (int turn = 0; turn < rounds; turn++) {
        char *request = text("{\"sessionKey\":\"agent:main:subagent:%d\",\"kind\":\"run_completed\","
                             "\"actorType\":\"agent\",\"dedupeKey\":\"%d-%d\"}",
                             turn % 2 == 0 ? self->number : 0, self->number, turn);
        self->sequences[turn] = NUMBER(aware_record, self->handle, request, "sequence");
        free(request);
    }
    return NULL;
}

static int by_number(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void each_record_has_its_own_place(void)
{
    static int64_t all[THREADS * MOST];
    pthread_t threads[THREADS];
    aware_t *handle = open_at(DATABASE);
    start_all(threads, handle, record_many);
    join_all(threads);
    for (int at = 0; at < THREADS; at++) {
        for (int turn = 0; turn < rounds; turn++) {
            CHECK(turn == 0 || workers[at].sequences[turn] > workers[at].sequences[turn - 1]);
            all[at * rounds + turn] = workers[at].sequences[turn];
        }
    }
    qsort(all, (size_t)(THREADS * rounds), sizeof all[0], by_number);
    for (int at = 0; at < THREADS * rounds; at++) {
        CHECK(all[at] == at + 1);
    }
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == THREADS * rounds);
    CHECK(NUMBER(aware_stats, handle, "{}", "failedAppends") == 0);
    CHECK(aware_close(handle) == AWARE_OK);
}

/* The same dedupe keys by all threads at once: each is stored once, and all are told the same place. */
static void *record_the_same(void *argument)
{
    worker_t *self = (worker_t *)argument;
    for (int turn = 0; turn < rounds; turn++) {
        char *request = text("{\"sessionKey\":\"" CHILD "\",\"kind\":\"run_completed\",\"actorType\":\"agent\","
                             "\"dedupeKey\":\"run-terminal:%d\"}",
                             turn);
        self->sequences[turn] = NUMBER(aware_record, self->handle, request, "sequence");
        free(request);
    }
    return NULL;
}

static void a_run_ends_once(void)
{
    pthread_t threads[THREADS];
    aware_t *handle = open_at("once.db");
    start_all(threads, handle, record_the_same);
    join_all(threads);
    for (int at = 1; at < THREADS; at++) {
        CHECK(memcmp(workers[at].sequences, workers[0].sequences, sizeof(int64_t) * (size_t)rounds) == 0);
    }
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == rounds);
    CHECK(aware_close(handle) == AWARE_OK);
}

/* Each thread goes through all verbs, beginning with another one. */
static void *every_verb(void *argument)
{
    worker_t *self = (worker_t *)argument;
    for (int turn = 0; turn < VERBS * times(10); turn++) {
        int at = (turn + self->number * 3) % VERBS;
        verb_t verb = EVERY_VERB[at].call;
        char *reply = NULL;
        int32_t status;
        if (verb == aware_backup) {
            char *request = text("{\"path\":\"backup-%d-%d.db\"}", self->number, turn);
            status = verb(self->handle, request, &reply);
            free(request);
        } else {
            status = verb(self->handle, EVERY_VERB[at].request, &reply);
        }
        if (status != AWARE_OK && !(verb == aware_feed && status == AWARE_NOT_FOUND)) {
            check_failed(__FILE__, __LINE__, EVERY_VERB[at].name, reply);
        }
        aware_string_free(reply);
    }
    return NULL;
}

static void all_verbs_together(void)
{
    pthread_t threads[THREADS];
    aware_t *handle = open_at("mixed.db");
    start_all(threads, handle, every_verb);
    join_all(threads);
    /* Whatever came of it, the log and its watches still fit together. */
    ANSWERS(aware_session_delete, handle, "{\"sessionKey\":\"" CHILD "\"}", AWARE_OK, "\"deleted\":");
    ANSWERS(aware_sessions, handle, "{}", AWARE_OK, "{\"sessions\":[],\"more\":false}");
    ANSWERS(aware_watches, handle, "{}", AWARE_OK, "{\"watches\":[],\"more\":false}");
    CHECK(aware_close(handle) == AWARE_OK);
}

/* Several threads wait for wakes: each wake goes to one of them. */
static count_t taken = COUNT_OF_ZERO;

static void *take_wakes(void *argument)
{
    worker_t *self = (worker_t *)argument;
    char *reply;
    while ((reply = NULL, aware_wait_wakes(self->handle, "{\"timeoutMs\":600000,\"max\":1}", &reply)) == AWARE_OK) {
        CHECK(count_in(reply, "\"sessionKey\":") == 1);
        aware_string_free(reply);
        count_up(&taken);
    }
    CHECK(strstr(reply, "\"code\":\"closed\"") != NULL);
    aware_string_free(reply);
    return NULL;
}

static void each_wake_goes_to_one_waiter(void)
{
    pthread_t threads[THREADS];
    aware_t *handle = open_at("waiters.db");
    start_all(threads, handle, take_wakes);
    watch_child(handle);
    for (int turn = 1; turn <= times(50); turn++) {
        raise_wake(handle);
        wait_for_count(&taken, turn);
        ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"text\":");
    }
    CHECK(aware_close(handle) == AWARE_OK);
    join_all(threads);
    CHECK(count_now(&taken) == times(50));
}

int main(int argc, char **argv)
{
    start(argc, argv);
    rounds = times(MOST);
    each_record_has_its_own_place();
    a_run_ends_once();
    all_verbs_together();
    each_wake_goes_to_one_waiter();
    return 0;
}
