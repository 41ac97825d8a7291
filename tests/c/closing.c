/* aware_close loses nothing, keeps nobody waiting, and is carried out once. */
#include "check.h"

#include <dirent.h>

static const char *const QUEUED =
    "{\"sessionKey\":\"" CHILD "\",\"kind\":\"compacted\",\"actorType\":\"system\",\"wait\":false}";

static int64_t events_in(const char *path)
{
    aware_t *handle = open_at(path);
    int64_t events = NUMBER(aware_stats, handle, "{}", "events");
    CHECK(aware_close(handle) == AWARE_OK);
    return events;
}

static count_t waiting = COUNT_OF_ZERO;

static void *wait_for_a_wake(void *argument)
{
    count_up(&waiting);
    ANSWERS(aware_wait_wakes, (aware_t *)argument, "{\"timeoutMs\":9007199254740991}", AWARE_CLOSED,
            "{\"error\":{\"code\":\"closed\"");
    return NULL;
}

/* Once more and once more, so that close meets the waiter before, at and after the beginning of its wait. */
static void a_waiter_is_told(void)
{
    for (int turn = 1; turn <= times(20); turn++) {
        aware_t *handle = open_at(DATABASE);
        pthread_t waiter = start_thread(wait_for_a_wake, handle);
        int64_t began;
        wait_for_count(&waiting, turn);
        began = now_ms();
        CHECK(aware_close(handle) == AWARE_OK);
        join(waiter);
        CHECK(now_ms() - began < (is_slow() ? 20000 : 2000));
    }
}

typedef struct {
    aware_t *handle;
    const char *request;
    int stored;
} recorder_t;

static count_t recorded = COUNT_OF_ZERO;

static void *record_until_closed(void *argument)
{
    recorder_t *self = (recorder_t *)argument;
    for (;;) {
        char *reply = NULL;
        int32_t status = aware_record(self->handle, self->request, &reply);
        if (status != AWARE_OK) {
            CHECK(status == AWARE_CLOSED);
            CHECK(strstr(reply, "{\"error\":{\"code\":\"closed\"") == reply);
            aware_string_free(reply);
            return NULL;
        }
        self->stored += strstr(reply, "\"recorded\":true") != NULL || strstr(reply, "\"queued\":true") != NULL;
        aware_string_free(reply);
        count_up(&recorded);
    }
}

/* What answered OK is there when the database is opened again, and nothing else is. */
static void a_record_is_stored_or_closed(const char *path)
{
    enum { THREADS = 4 };
    int64_t stored = 0;
    for (int turn = 0; turn < times(10); turn++) {
        recorder_t recorders[THREADS];
        pthread_t threads[THREADS];
        aware_t *handle = open_at(path);
        int before = count_now(&recorded);
        for (int at = 0; at < THREADS; at++) {
            recorders[at].handle = handle;
            recorders[at].request = at % 2 == 0 ? HUMAN_TURN(CHILD) : QUEUED;
            recorders[at].stored = 0;
            threads[at] = start_thread(record_until_closed, &recorders[at]);
        }
        wait_for_count(&recorded, before + 50);
        CHECK(aware_close(handle) == AWARE_OK);
        for (int at = 0; at < THREADS; at++) {
            join(threads[at]);
            stored += recorders[at].stored;
        }
        CHECK(events_in(path) == stored);
    }
}

static void what_is_queued_is_written(const char *path)
{
    aware_t *handle = open_at(path);
    int64_t queued = 0;
    for (int at = 0; at < times(5000); at++) {
        char *reply = CALL(aware_record, handle, QUEUED, AWARE_OK);
        queued += strstr(reply, "{\"queued\":true}") != NULL;
        aware_string_free(reply);
    }
    CHECK(aware_close(handle) == AWARE_OK);
    CHECK(queued == times(5000));
    CHECK(events_in(path) == queued);
}

typedef struct {
    aware_t *handle;
    int number;
} copier_t;

static count_t copied = COUNT_OF_ZERO;

static void *copy_until_closed(void *argument)
{
    copier_t *self = (copier_t *)argument;
    int32_t status = AWARE_OK;
    for (int turn = 0; status == AWARE_OK; turn++) {
        char *request = text("{\"path\":\"copy-%d-%d.db\"}", self->number, turn);
        status = aware_backup(self->handle, request, NULL);
        free(request);
        count_up(&copied);
    }
    CHECK(status == AWARE_CLOSED);
    return NULL;
}

/* Copies that are being written are whole, and nothing unfinished lies beside them, when close returns. */
static void a_copy_is_finished(const char *path)
{
    enum { THREADS = 3 };
    copier_t copiers[THREADS];
    pthread_t threads[THREADS];
    aware_t *handle = open_at(path);
    DIR *folder;
    struct dirent *entry;
    for (int at = 0; at < THREADS; at++) {
        copiers[at].handle = handle;
        copiers[at].number = at;
        threads[at] = start_thread(copy_until_closed, &copiers[at]);
    }
    wait_for_count(&copied, 2 * THREADS);
    CHECK(aware_close(handle) == AWARE_OK);
    folder = opendir(".");
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        const char *name = entry->d_name;
        CHECK(strncmp(name, "copy-", 5) != 0 || strcmp(name + strlen(name) - 3, ".db") == 0);
    }
    closedir(folder);
    for (int at = 0; at < THREADS; at++) {
        join(threads[at]);
    }
}

static count_t closed = COUNT_OF_ZERO;

static void *close_it(void *argument)
{
    int32_t status = aware_close((aware_t *)argument);
    CHECK(status == AWARE_OK || status == AWARE_CLOSED);
    if (status == AWARE_OK) {
        count_up(&closed);
    }
    return NULL;
}

static void one_of_many_closes_it(const char *path)
{
    enum { THREADS = 4 };
    for (int turn = 1; turn <= times(20); turn++) {
        pthread_t threads[THREADS];
        aware_t *handle = open_at(path);
        for (int at = 0; at < THREADS; at++) {
            threads[at] = start_thread(close_it, handle);
        }
        for (int at = 0; at < THREADS; at++) {
            join(threads[at]);
        }
        CHECK(count_now(&closed) == turn);
        CHECK(aware_close(handle) == AWARE_CLOSED);
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    a_waiter_is_told();
    a_record_is_stored_or_closed("recording.db");
    what_is_queued_is_written("queued.db");
    a_copy_is_finished("queued.db");
    one_of_many_closes_it("many.db");
    return 0;
}
