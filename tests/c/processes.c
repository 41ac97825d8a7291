/* Two processes on one database: wakes cross, notices are taken once, and no event is lost. */
#include "check.h"

enum { RECORDS = 100 };

/* One byte over a pipe: how the two keep step. */
static void tell(int fd)
{
    CHECK(write(fd, ".", 1) == 1);
}

static void hear(int fd)
{
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

static void wait_for_wake(aware_t *handle)
{
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":600000}", AWARE_OK,
            "{\"wakes\":[{\"sessionKey\":\"" MANAGER "\",\"targetSessionKey\":\"" CHILD "\"");
}

static void record_many(aware_t *handle)
{
    for (int turn = 0; turn < times(RECORDS); turn++) {
        ANSWERS(aware_record, handle,
                "{\"sessionKey\":\"agent:main:other\",\"kind\":\"compacted\",\"actorType\":\"system\"}", AWARE_OK,
                "\"recorded\":true");
    }
}

/* The second process: standard input and output are the pipes to the first. */
static void second(void)
{
    aware_t *handle = open_at(DATABASE);
    tell(STDOUT_FILENO);
    wait_for_wake(handle);
    tell(STDOUT_FILENO);

    hear(STDIN_FILENO);
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"text\":");
    raise_wake(handle);
    tell(STDOUT_FILENO);

    record_many(handle);
    CHECK(aware_close(handle) == AWARE_OK);
}

static void first(const char *program)
{
    int to[2], from[2];
    aware_t *handle = open_at(DATABASE);
    int64_t began;
    pid_t other;

    watch_child(handle);
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    other = fork();
    CHECK(other >= 0);
    if (other == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
        execl(program, program, ".", "second", (char *)NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);

    hear(from[0]);
    began = now_ms();
    raise_wake(handle);
    hear(from[0]);
    CHECK(now_ms() - began < (is_slow() ? 20000 : 1000));

    /* Each handle was offered the wake once; it goes with its notice. */
    wait_for_wake(handle);
    tell(to[1]);
    hear(from[0]);
    wait_for_wake(handle);
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "\"changesSince\":1,\"notified\":2");
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "{\"notices\":[],\"more\":false}");

    record_many(handle);
    join_process(other);
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 2 + 2 * times(RECORDS));
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0}", AWARE_OK, "{\"wakes\":[]}");
    CHECK(aware_close(handle) == AWARE_OK);
    close(to[1]), close(from[0]);
}

int main(int argc, char **argv)
{
    start(argc, argv);
    if (argc == 3) {
        second();
    } else {
        first(argv[0]);
    }
    return 0;
}
