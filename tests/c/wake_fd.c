/* aware_wake_fd tells an event loop that wakes wait, and that none do. */
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

static const char *const NOBODY = "{\"wakes\":[]}";

static int is_readable(int fd)
{
    struct pollfd one;
    one.fd = fd;
    one.events = POLLIN;
    CHECK(poll(&one, 1, 0) >= 0);
    CHECK((one.revents & ~POLLIN) == 0);
    return one.revents == POLLIN;
}

/* Waits as an event loop does. */
static void wait_until_readable(int fd)
{
    struct pollfd one;
    one.fd = fd;
    one.events = POLLIN;
    CHECK(poll(&one, 1, -1) == 1);
    CHECK(one.revents == POLLIN);
}

static int bytes_in(int fd)
{
    int bytes = -1;
    CHECK(ioctl(fd, FIONREAD, &bytes) == 0);
    return bytes;
}

/* A turn in the session of this number, which MANAGER watches. */
static void wake_for(aware_t *handle, int number)
{
    char *request = text("{\"watcherSessionKey\":\"" MANAGER "\",\"targetSessionKey\":\"agent:main:subagent:%d\"}",
                         number);
    CHECK(aware_watch(handle, request, NULL) == AWARE_OK);
    free(request);
    request = text("{\"sessionKey\":\"agent:main:subagent:%d\",\"kind\":\"human_direct_message\","
                   "\"actorType\":\"human\"}",
                   number);
    CHECK(aware_record(handle, request, NULL) == AWARE_OK);
    free(request);
}

static void take(aware_t *handle, const char *request, int wanted)
{
    char *reply = CALL(aware_wait_wakes, handle, request, AWARE_OK);
    CHECK(count_in(reply, "\"sessionKey\":") == wanted);
    aware_string_free(reply);
}

static void drain(aware_t *handle)
{
    CHECK(aware_drain_notices(handle, DRAIN(MANAGER), NULL) == AWARE_OK);
}

static void it_is_a_pipe_of_the_library(aware_t *handle, int fd)
{
    CHECK(fd >= 0);
    CHECK(aware_wake_fd(handle) == fd);
    CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

static void readable_while_wakes_wait(aware_t *handle, int fd)
{
    CHECK(!is_readable(fd));
    wake_for(handle, 1);
    CHECK(is_readable(fd));
    CHECK(bytes_in(fd) == 1);
    wake_for(handle, 2);
    wake_for(handle, 3);
    CHECK(bytes_in(fd) == 1); /* one byte, however many wakes */
    take(handle, "{\"timeoutMs\":0,\"max\":1}", 1);
    CHECK(is_readable(fd));
    take(handle, "{\"timeoutMs\":0}", 2);
    CHECK(!is_readable(fd));
    take(handle, "{\"timeoutMs\":0}", 0);
    CHECK(!is_readable(fd));
    drain(handle);
}

static void a_host_may_read_the_byte(aware_t *handle, int fd)
{
    char byte[8];
    wake_for(handle, 1);
    wake_for(handle, 2);
    CHECK(read(fd, byte, sizeof byte) == 1);
    CHECK(!is_readable(fd));
    /* The next wake writes another, and so does who leaves wakes behind. */
    wake_for(handle, 3);
    CHECK(read(fd, byte, sizeof byte) == 1);
    take(handle, "{\"timeoutMs\":0,\"max\":1}", 1);
    CHECK(read(fd, byte, sizeof byte) == 1);
    take(handle, "{\"timeoutMs\":0,\"max\":1}", 1);
    CHECK(is_readable(fd));
    take(handle, "{\"timeoutMs\":0,\"max\":1}", 1);
    CHECK(!is_readable(fd));
    CHECK(read(fd, byte, sizeof byte) == -1);
    drain(handle);
}

static void a_withdrawn_wake_is_not_told(aware_t *handle, int fd)
{
    wake_for(handle, 1);
    CHECK(is_readable(fd));
    drain(handle);
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0}", AWARE_OK, NOBODY);
    CHECK(!is_readable(fd));
}

static void count_wake(void *user, const char *wake_json)
{
    CHECK(strstr(wake_json, MANAGER) != NULL);
    count_up((count_t *)user);
}

static void silent_while_a_callback_is_set(aware_t *handle, int fd)
{
    static count_t woken = COUNT_OF_ZERO;
    wake_for(handle, 1);
    CHECK(is_readable(fd));
    CHECK(aware_set_wake_callback(handle, count_wake, &woken) == AWARE_OK);
    CHECK(!is_readable(fd));
    wake_for(handle, 2);
    wait_for_count(&woken, 2);
    CHECK(!is_readable(fd));
    CHECK(aware_set_wake_callback(handle, NULL, NULL) == AWARE_OK);
    wake_for(handle, 3);
    CHECK(is_readable(fd));
    take(handle, "{\"timeoutMs\":0}", 1);
    drain(handle);
}

static void *record_one(void *argument)
{
    wake_for((aware_t *)argument, 1);
    return NULL;
}

/* A loop that sleeps in poll is woken by other threads, and by other handles on the database. */
static void a_loop_is_woken(aware_t *handle, int fd)
{
    aware_t *other = open_at(DATABASE);
    for (int turn = 0; turn < times(20); turn++) {
        pthread_t recording = start_thread(record_one, turn % 2 == 0 ? handle : other);
        wait_until_readable(fd);
        take(handle, "{\"timeoutMs\":0}", 1);
        CHECK(!is_readable(fd));
        join(recording);
        drain(handle);
    }
    CHECK(aware_close(other) == AWARE_OK);
}

static void what_waits_at_the_first_call_is_told(void)
{
    aware_t *handle = open_at("late.db");
    int fd;
    wake_for(handle, 1);
    fd = aware_wake_fd(handle);
    CHECK(is_readable(fd));
    take(handle, "{\"timeoutMs\":0}", 1);
    CHECK(!is_readable(fd));
    CHECK(aware_close(handle) == AWARE_OK);
    CHECK(aware_wake_fd(handle) == -1);

    /* A notice that is pending at the opening is one too. */
    handle = open_at("late.db");
    CHECK(is_readable(aware_wake_fd(handle)));
    take(handle, "{\"timeoutMs\":0}", 1);
    CHECK(!is_readable(aware_wake_fd(handle)));
    CHECK(aware_close(handle) == AWARE_OK);
}

/* A host that closes it all the same, as a language's file object may, ends nobody; what has its number then stays open. */
static void a_host_that_closes_it_loses_it_alone(void)
{
    aware_t *handle = open_at("gone.db");
    int fd = aware_wake_fd(handle), own;
    own = open("own.txt", O_CREAT | O_RDWR, 0600);
    CHECK(own >= 0 && dup2(own, fd) == fd && close(own) == 0);
    wake_for(handle, 1); /* no SIGPIPE */
    take(handle, "{\"timeoutMs\":0}", 1);
    drain(handle);
    wake_for(handle, 1);
    CHECK(lseek(fd, 0, SEEK_END) == 0);
    CHECK(aware_close(handle) == AWARE_OK);
    CHECK(fcntl(fd, F_GETFD) != -1);
    CHECK(close(fd) == 0);
}

/* Nor is anybody kept waiting when a host makes reading it block. */
static void a_host_may_make_it_block(void)
{
    aware_t *handle = open_at("blocking.db");
    int fd = aware_wake_fd(handle);
    CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0);
    readable_while_wakes_wait(handle, fd);
    CHECK(aware_close(handle) == AWARE_OK);
}

int main(int argc, char **argv)
{
    aware_t *handle;
    int fd;
    start(argc, argv);
    handle = open_at(DATABASE);
    fd = aware_wake_fd(handle);
    it_is_a_pipe_of_the_library(handle, fd);
    readable_while_wakes_wait(handle, fd);
    a_host_may_read_the_byte(handle, fd);
    a_withdrawn_wake_is_not_told(handle, fd);
    silent_while_a_callback_is_set(handle, fd);
    a_loop_is_woken(handle, fd);
    CHECK(aware_close(handle) == AWARE_OK);
    what_waits_at_the_first_call_is_told();
    a_host_that_closes_it_loses_it_alone();
    a_host_may_make_it_block();
    return 0;
}
