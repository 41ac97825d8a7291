/* The host's signal handlers never run on a thread of the library. */
#include "check.h"

#include <dirent.h>
#include <signal.h>

static const int SIGNALS[] = {SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGTERM, SIGCHLD, SIGPROF, SIGWINCH};
enum { SIGNAL_COUNT = sizeof SIGNALS / sizeof SIGNALS[0] };

static volatile sig_atomic_t handled;
static pthread_t main_thread;
static volatile sig_atomic_t handled_elsewhere;

static void handle_signal(int number)
{
    (void)number;
    handled = handled + 1;
    if (!pthread_equal(pthread_self(), main_thread)) {
        handled_elsewhere = handled_elsewhere + 1;
    }
}

static int threads_now(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    struct dirent *entry;
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

/* A callback keeps its library thread at work while the signals come. */
static count_t woken = COUNT_OF_ZERO;

static void work(void *user, const char *wake_json)
{
    aware_t *handle = *(aware_t **)user;
    (void)wake_json;
    aware_drain_notices(handle, DRAIN(MANAGER), NULL);
    aware_record(handle, HUMAN_TURN(CHILD), NULL); /* wakes it again, until the handle is closed */
    count_up(&woken);
}

static void send_all(void)
{
    for (int at = 0; at < SIGNAL_COUNT; at++) {
        CHECK(kill(getpid(), SIGNALS[at]) == 0);
    }
}

/*
 * A signal sent to the process goes at once to any thread that does not block
 * it. With the main thread blocking them all, one that stays pending was taken
 * by no other thread.
 */
static void a_blocked_signal_stays_pending(void)
{
    sigset_t all, pending, before;
    sigemptyset(&all);
    for (int at = 0; at < SIGNAL_COUNT; at++) {
        sigaddset(&all, SIGNALS[at]);
    }
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    for (int turn = 0; turn < 20; turn++) {
        send_all();
        CHECK(sigpending(&pending) == 0);
        for (int at = 0; at < SIGNAL_COUNT; at++) {
            int taken;
            sigset_t one;
            CHECK(sigismember(&pending, SIGNALS[at]) == 1);
            sigemptyset(&one);
            sigaddset(&one, SIGNALS[at]);
            CHECK(sigwait(&one, &taken) == 0 && taken == SIGNALS[at]);
        }
        wait_for_count(&woken, turn);
    }
    CHECK(handled == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

static void a_handler_runs_on_the_hosts_thread(void)
{
    for (int turn = 0; turn < 20; turn++) {
        send_all();
        wait_for_count(&woken, 20 + turn);
    }
    CHECK(handled > 0);
    CHECK(handled_elsewhere == 0);
}

/* The thread that opens a handle has the mask it had before. */
static void the_hosts_mask_is_left_alone(void)
{
    sigset_t now;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    for (int at = 0; at < SIGNAL_COUNT; at++) {
        CHECK(sigismember(&now, SIGNALS[at]) == 0);
    }
}

int main(int argc, char **argv)
{
    static aware_t *handle;
    struct sigaction action;
    start(argc, argv);
    main_thread = pthread_self();
    memset(&action, 0, sizeof action);
    action.sa_handler = handle_signal;
    action.sa_flags = SA_RESTART;
    for (int at = 0; at < SIGNAL_COUNT; at++) {
        CHECK(sigaction(SIGNALS[at], &action, NULL) == 0);
    }
    handle = open_at(DATABASE);
    watch_child(handle);
    CHECK(aware_set_wake_callback(handle, work, &handle) == AWARE_OK);
    the_hosts_mask_is_left_alone();
    raise_wake(handle);
    wait_for_count(&woken, 1);
    CHECK(threads_now() > 2);

    a_blocked_signal_stays_pending();
    a_handler_runs_on_the_hosts_thread();
    the_hosts_mask_is_left_alone();
    CHECK(aware_close(handle) == AWARE_OK);
    return 0;
}
