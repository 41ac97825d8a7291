/*
 * SOAK FOLDER SECONDS: sixteen threads over every verb of one handle, for so
 * long, while session files grow and are rewritten, other handles come and go
 * and wake callbacks are swapped. Memory, descriptors and threads must be flat
 * after the warm-up, the log stays short, and all is given back at the end.
 */
#include "../c/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

enum {
    THREADS = 16,
    SESSIONS = 32,
    FILES = 4,
    FILE_BYTES = 256 * 1024, /* a longer file begins anew */
    MOST_SAMPLES = 100000,
    PAUSE_US = 2000, /* between two rounds of a thread */
    /* What memory may rise by between two parts of the run. Less than a tenth
     * of a KiB lost a round would be more. */
    RISE_KIB = 8 * 1024,
    /* How long the write-ahead log may be: what `aware doctor` warns of. */
    LOG_KIB = 64 * 1024
};

typedef void (*round_t)(int turn);

static aware_t *handle;
static volatile int over;
static int64_t rounds[THREADS];
static int64_t woken, called_back;

static const char *config(void)
{
    return "{\"database\":\"" DATABASE "\",\"retention\":{\"maxEvents\":5000},"
           "\"monitor\":{\"intervalMs\":500,\"initialDelayMs\":0}}";
}

/* Calls a verb with a request that is freed; it may answer `also` beside AWARE_OK. The reply is checked and freed. */
#define TRY(verb, request, also) try_call(__LINE__, #verb, verb, request, also)

static int64_t try_call(int line, const char *name, verb_t verb, char *request, int32_t also)
{
    char *reply = NULL;
    int32_t status = verb(handle, request, &reply);
    int64_t length;
    if (reply == NULL || reply[0] != '{' || (status != AWARE_OK && status != also)) {
        fprintf(stderr, "%s(%s) answered %d\n", name, request, (int)status);
        check_failed(__FILE__, line, name, reply == NULL ? "no reply" : reply);
    }
    length = (int64_t)strlen(reply);
    aware_string_free(reply);
    free(request);
    return length;
}

static int of(int turn)
{
    return (int)((unsigned)turn * 2654435761u % SESSIONS);
}

static void record(int turn)
{
    TRY(aware_record,
        text("{\"sessionKey\":\"agent:main:s%d\",\"kind\":\"human_direct_message\",\"actorType\":\"human\","
             "\"payload\":{\"channel\":\"soak\",\"turns\":%d},\"watcherSessionKeys\":[\"agent:ops:w%d\"]}",
             of(turn), turn % 9 + 1, turn % 4),
        AWARE_OK);
}

static void record_batch(int turn)
{
    TRY(aware_record,
        text("{\"events\":[{\"sessionKey\":\"agent:main:s%d\",\"kind\":\"goal_changed\",\"actorType\":\"agent\"},"
             "{\"sessionKey\":\"agent:main:s%d\",\"kind\":\"compacted\",\"actorType\":\"system\"}],\"wait\":%s}",
             of(turn), of(turn + 1), turn % 2 == 0 ? "true" : "false"),
        AWARE_OK);
}

static void drain(int turn)
{
    TRY(aware_drain_notices, text("{\"watcherSessionKey\":\"agent:ops:w%d\",\"ack\":%s}", turn % 4,
                                  turn % 3 == 0 ? "false" : "true"),
        AWARE_OK);
    TRY(aware_ack_notices,
        text("{\"watcherSessionKey\":\"agent:ops:w%d\",\"notices\":[{\"targetSessionKey\":\"agent:main:s%d\","
             "\"notified\":%d}]}",
             turn % 4, of(turn), turn),
        AWARE_OK);
}

static void watch(int turn)
{
    TRY(aware_watch, text("{\"watcherSessionKey\":\"agent:ops:w%d\",\"targetSessionKey\":\"agent:main:s%d\"}", turn % 4,
                          of(turn)),
        AWARE_OK);
    TRY(aware_unwatch, text("{\"watcherSessionKey\":\"agent:ops:w%d\",\"targetSessionKey\":\"agent:main:s%d\"}",
                            turn % 4, of(turn + 5)),
        AWARE_OK);
    if (turn % 64 == 0) {
        TRY(aware_session_reset, text("{\"sessionKey\":\"agent:ops:w%d\"}", turn / 64 % 4), AWARE_OK);
    }
}

static void wait_for_wakes(int turn)
{
    char *reply = NULL;
    (void)turn;
    CHECK(aware_wake_fd(handle) >= 0);
    CHECK(aware_wait_wakes(handle, "{\"timeoutMs\":20}", &reply) == AWARE_OK);
    __atomic_add_fetch(&woken, count_in(reply, "\"reason\""), __ATOMIC_RELAXED);
    aware_string_free(reply);
}

static void on_wake(void *user, const char *wake_json)
{
    CHECK(wake_json[0] == '{');
    __atomic_add_fetch((int64_t *)user, 1, __ATOMIC_RELAXED);
    /* Every verb may be called from here. */
    TRY(aware_state_versions, text("{\"sessions\":[{\"sessionKey\":\"agent:main:s0\"}]}"), AWARE_OK);
}

static void swap_callback(int turn)
{
    CHECK(aware_set_wake_callback(handle, turn % 2 == 0 ? on_wake : NULL, &called_back) == AWARE_OK);
    usleep(5000);
}

static void scan(int turn)
{
    TRY(aware_scan, text(turn % 2 == 0 ? "{}" : "{\"catalog\":\"claude\"}"), AWARE_OK);
    TRY(aware_own_message, text("{\"sessionKey\":\"agent:main:up%d\",\"text\":\"sent %d\"}", turn % FILES, turn),
        AWARE_OK);
    TRY(aware_set_run_active,
        text("{\"sessionKey\":\"agent:main:up%d\",\"active\":%s}", turn % FILES, turn % 8 == 0 ? "true" : "false"),
        AWARE_OK);
    usleep(20000);
}

static void read_all(int turn)
{
    TRY(aware_stats, text("{}"), AWARE_OK);
    TRY(aware_events, text("{\"after\":%d,\"limit\":50}", turn), AWARE_OK);
    TRY(aware_sessions, text("{\"limit\":10}"), AWARE_OK);
    TRY(aware_changes_since, text("{\"sessionKey\":\"agent:main:s%d\",\"changesSince\":%d}", of(turn), turn),
        AWARE_OK);
    TRY(aware_watches, text("{\"limit\":20,\"offset\":%d}", turn % 40), AWARE_OK);
    TRY(aware_links, text("{}"), AWARE_OK);
    TRY(aware_discover, text("{\"limit\":10}"), AWARE_OK);
}

static void maintain(int turn)
{
    char *path = text("backup-%d.db", turn);
    TRY(aware_maintain, text("{}"), AWARE_OK);
    if (turn % 16 == 0) {
        TRY(aware_backup, text("{\"path\":\"%s\"}", path), AWARE_OK);
        CHECK(unlink(path) == 0);
    }
    free(path);
    usleep(50000);
}

static void open_others(int turn)
{
    aware_t *other = NULL;
    CHECK(aware_open(turn % 3 == 0 ? "{\"database\":\"" DATABASE "\",\"readOnly\":true}" : config(), &other, NULL) ==
          AWARE_OK);
    ANSWERS(aware_stats, other, "{}", AWARE_OK, "\"events\":");
    if (turn % 3 != 0) {
        ANSWERS(aware_record, other, HUMAN_TURN("agent:main:s1"), AWARE_OK, "\"recorded\":true");
    }
    CHECK(aware_close(other) == AWARE_OK);
    CHECK(aware_stats(other, "{}", NULL) == AWARE_CLOSED);
    usleep(20000);
}

/* A session file that grows, and begins anew when it is long. */
static void grow(int turn)
{
    char *path = text("up%d.jsonl", turn % FILES);
    char *row = text("{\"type\":\"user\",\"uuid\":\"u-%d\",\"sessionId\":\"s\",\"timestamp\":\"2026-11-30T10:00:00.000Z\","
                     "\"origin\":{\"kind\":\"human\"},\"message\":{\"role\":\"user\",\"content\":\"turn %d\"}}\n",
                     turn, turn);
    struct stat found;
    int fresh = stat(path, &found) == 0 && found.st_size > FILE_BYTES;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | (fresh ? O_TRUNC : 0), 0600);
    CHECK(file >= 0);
    /* In two pieces, so that a pass may meet half a row. */
    CHECK(write(file, row, 20) == 20);
    CHECK(write(file, row + 20, strlen(row) - 20) == (ssize_t)strlen(row) - 20);
    close(file);
    TRY(aware_adopt, text("{\"sessionKey\":\"agent:main:up%d\",\"catalog\":\"claude\",\"source\":\"%s\"}", turn % FILES,
                          path),
        AWARE_OK);
    if (turn % 200 == 199) {
        TRY(aware_release, text("{\"sessionKey\":\"agent:main:up%d\"}", turn % FILES), AWARE_OK);
    }
    free(row);
    free(path);
    usleep(5000);
}

static void feed(int turn)
{
    TRY(aware_adopt, text("{\"sessionKey\":\"agent:main:far\",\"catalog\":\"claude\",\"hostId\":\"node\","
                          "\"threadId\":\"t\"}"),
        AWARE_OK);
    TRY(aware_feed,
        text("{\"sessionKey\":\"agent:main:far\",\"rows\":[{\"type\":\"user\",\"uuid\":\"f-%d\",\"sessionId\":\"t\","
             "\"origin\":{\"kind\":\"human\"},\"message\":{\"role\":\"user\",\"content\":\"far %d\"}}]}",
             turn % 500, turn),
        AWARE_NOT_FOUND);
    if (turn % 50 == 0) {
        TRY(aware_session_delete, text("{\"sessionKey\":\"agent:main:far\"}"), AWARE_OK);
    }
    if (turn % 200 == 0) {
        TRY(aware_session_delete, text("{\"sessionKey\":\"agent:main:s%d\"}", of(turn)), AWARE_OK);
    }
    usleep(5000);
}

static const round_t ROLES[THREADS] = {record,         record,        record, record, record_batch, record_batch,
                                       drain,          watch,         scan,   feed,   read_all,     maintain,
                                       wait_for_wakes, swap_callback, grow,   open_others};

static void *run(void *argument)
{
    int role = (int)(intptr_t)argument;
    int turn;
    for (turn = role; !over; turn++) {
        ROLES[role](turn);
        rounds[role] += 1;
        usleep(PAUSE_US);
    }
    return NULL;
}

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

/* The memory of the process that is in RAM, in KiB. */
static int64_t resident(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    int64_t kib = -1;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kib = strtoll(line + 6, NULL, 10);
        }
    }
    fclose(file);
    CHECK(kib > 0);
    return kib;
}

typedef struct {
    int64_t kib, descriptors, threads, log;
} sample_t;

static sample_t samples[MOST_SAMPLES];

static int by_size(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The median of what the samples have at `offset`. */
static int64_t median(int from, int to, size_t offset)
{
    static int64_t values[MOST_SAMPLES];
    int at;
    CHECK(from < to);
    for (at = from; at < to; at++) {
        values[at - from] = *(int64_t *)((char *)&samples[at] + offset);
    }
    qsort(values, (size_t)(to - from), sizeof *values, by_size);
    return values[(to - from) / 2];
}

/* What memory rises by in an hour, by the line that lies best through the samples. */
static double slope(int from, int to, double seconds)
{
    double n = to - from, x = 0, y = 0, xx = 0, xy = 0;
    int at;
    for (at = from; at < to; at++) {
        double t = at * seconds, v = (double)samples[at].kib;
        x += t, y += v, xx += t * t, xy += t * v;
    }
    return (n * xy - x * y) / (n * xx - x * x) * 3600;
}

static void settle_at(const char *folder, int count)
{
    while (entries_of(folder) > count) {
        usleep(1000);
    }
    CHECK(entries_of(folder) == count);
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int seconds, taken = 0, descriptors, tasks, early, late, at;
    int64_t all = 0, before, after;
    const double step = 0.25;
    struct stat log;
    CHECK(argc == 3);
    seconds = atoi(argv[2]);
    CHECK(seconds >= 5 && seconds / step < MOST_SAMPLES);
    start(argc, argv);
    alarm((unsigned)seconds + 120);
    /* Once, so that what the library keeps for good is there before anything is counted. */
    handle = open_at(DATABASE);
    CHECK(aware_close(handle) == AWARE_OK);
    settle_at("/proc/self/task", 1);
    descriptors = entries_of("/proc/self/fd");
    tasks = entries_of("/proc/self/task");

    CHECK(aware_open(config(), &handle, NULL) == AWARE_OK);
    for (at = 0; at < THREADS; at++) {
        threads[at] = start_thread(run, (void *)(intptr_t)at);
    }
    for (before = now_ms(); now_ms() - before < (int64_t)seconds * 1000;) {
        usleep((useconds_t)(step * 1e6));
        samples[taken].kib = resident();
        samples[taken].descriptors = entries_of("/proc/self/fd");
        samples[taken].threads = entries_of("/proc/self/task");
        samples[taken].log = stat(DATABASE "-wal", &log) == 0 ? log.st_size / 1024 : 0;
        taken += 1;
    }
    over = 1;
    for (at = 0; at < THREADS; at++) {
        join(threads[at]);
        CHECK(rounds[at] > 0);
        all += rounds[at];
    }
    CHECK(NUMBER(aware_stats, handle, "{}", "failedAppends") == 0);
    CHECK(woken + called_back > 0);
    CHECK(aware_close(handle) == AWARE_OK);

    /* The first two fifths are the warm-up. */
    early = taken * 2 / 5, late = taken * 4 / 5;
    before = median(early, early + taken / 5, offsetof(sample_t, kib));
    after = median(late, taken, offsetof(sample_t, kib));
    printf("%d s, %d threads, %" PRId64 " rounds, %" PRId64 " wakes (%" PRId64 " by callback)\n", seconds, THREADS, all,
           woken + called_back, called_back);
    printf("memory: %.1f MiB after the warm-up, %.1f at the end, %+.2f MiB/h by the best line\n",
           (double)before / 1024, (double)after / 1024, slope(early, taken, step) / 1024);
    printf("descriptors %" PRId64 " to %" PRId64 ", threads %" PRId64 " to %" PRId64 " (medians)\n",
           median(early, early + taken / 5, offsetof(sample_t, descriptors)),
           median(late, taken, offsetof(sample_t, descriptors)),
           median(early, early + taken / 5, offsetof(sample_t, threads)),
           median(late, taken, offsetof(sample_t, threads)));
    printf("write-ahead log: %" PRId64 " KiB at the end (median)\n", median(late, taken, offsetof(sample_t, log)));
    CHECK(after - before <= RISE_KIB);
    CHECK(median(late, taken, offsetof(sample_t, log)) <= LOG_KIB);
    /* One that comes and goes with the other handles may stand in a median. */
    CHECK(median(late, taken, offsetof(sample_t, descriptors)) <=
          median(early, early + taken / 5, offsetof(sample_t, descriptors)) + 16);
    CHECK(median(late, taken, offsetof(sample_t, threads)) <=
          median(early, early + taken / 5, offsetof(sample_t, threads)) + 8);
    settle_at("/proc/self/task", tasks);
    settle_at("/proc/self/fd", descriptors);
    return 0;
}
