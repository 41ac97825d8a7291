/* The wake callback gets the wakes alone, may call every verb, and is never called once another has taken its place. */
#include "every_verb.h"

/* A watch of `target` by the session `watcher`, and a turn that wakes it. */
static void wake_up(aware_t *handle, const char *watcher, const char *target)
{
    char *request = text("{\"watcherSessionKey\":\"%s\",\"targetSessionKey\":\"%s\"}", watcher, target);
    ANSWERS(aware_watch, handle, request, AWARE_OK, "\"watched\":true");
    free(request);
    request = text("{\"sessionKey\":\"%s\",\"kind\":\"human_direct_message\",\"actorType\":\"human\"}", target);
    ANSWERS(aware_record, handle, request, AWARE_OK, "\"recorded\":true");
    free(request);
}

static void wake_again(aware_t *handle)
{
    CHECK(aware_drain_notices(handle, DRAIN(MANAGER), NULL) == AWARE_OK);
    raise_wake(handle);
}

static void count_wake(void *user, const char *wake_json)
{
    CHECK(strcmp(wake_json, "{\"sessionKey\":\"" MANAGER "\",\"targetSessionKey\":\"" CHILD
                            "\",\"targetAgentId\":\"main\",\"reason\":\"session-state\"}") == 0);
    count_up((count_t *)user);
}

static void it_gets_the_wakes_alone(aware_t *handle)
{
    static count_t woken = COUNT_OF_ZERO;
    /* A wake that waits when it is set is told too. */
    raise_wake(handle);
    CHECK(aware_set_wake_callback(handle, count_wake, &woken) == AWARE_OK);
    wait_for_count(&woken, 1);
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0}", AWARE_OK, "{\"wakes\":[]}");
    for (int turn = 2; turn <= 5; turn++) {
        wake_again(handle);
        wait_for_count(&woken, turn);
        ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0}", AWARE_OK, "{\"wakes\":[]}");
    }
    CHECK(aware_set_wake_callback(handle, NULL, NULL) == AWARE_OK);
    wake_again(handle);
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0}", AWARE_OK, "\"sessionKey\":\"" MANAGER "\"");
    CHECK(count_now(&woken) == 5);
}

typedef struct {
    aware_t *own;
    aware_t *other;
    count_t woken;
    count_t replaced;
} inside_t;

static void count_only(void *user, const char *wake_json)
{
    (void)wake_json;
    count_up(&((inside_t *)user)->replaced);
}

static void call_everything(void *user, const char *wake_json)
{
    inside_t *inside = (inside_t *)user;
    CHECK(strstr(wake_json, MANAGER) != NULL);
    CHECK(aware_close(inside->own) == AWARE_BUSY);
    ANSWERS(aware_drain_notices, inside->own, DRAIN(MANAGER), AWARE_OK, "\"text\":");
    for (int at = 0; at < VERBS; at++) {
        int32_t status = EVERY_VERB[at].call(inside->own, EVERY_VERB[at].request, NULL);
        CHECK(status == AWARE_OK || (EVERY_VERB[at].call == aware_feed && status == AWARE_NOT_FOUND));
    }
    CHECK(aware_wake_fd(inside->own) >= 0);
    CHECK(aware_close(inside->other) == AWARE_OK);
    CHECK(aware_close(inside->own) == AWARE_BUSY);
    /* From inside it returns at once, and the next wake is the new one's. */
    CHECK(aware_set_wake_callback(inside->own, count_only, inside) == AWARE_OK);
    CHECK(aware_set_wake_callback(inside->own, NULL, NULL) == AWARE_OK);
    CHECK(aware_set_wake_callback(inside->own, count_only, inside) == AWARE_OK);
    count_up(&inside->woken);
}

static void everything_works_inside(void)
{
    static inside_t inside = {NULL, NULL, COUNT_OF_ZERO, COUNT_OF_ZERO};
    inside.own = open_at("inside.db");
    inside.other = open_at("other.db");
    CHECK(aware_set_wake_callback(inside.own, call_everything, &inside) == AWARE_OK);
    watch_child(inside.own);
    raise_wake(inside.own);
    wait_for_count(&inside.woken, 1);
    CHECK(aware_close(inside.other) == AWARE_CLOSED);
    watch_child(inside.own);
    wake_again(inside.own);
    wait_for_count(&inside.replaced, 1);
    CHECK(count_now(&inside.woken) == 1);
    CHECK(aware_close(inside.own) == AWARE_OK);
}

/* Memory of the host that goes when its callback was replaced; a call after that would be told by the memory checkers. */
typedef struct {
    int is_there;
    int calls;
} user_t;

static count_t calls = COUNT_OF_ZERO;

static void use(void *user, const char *wake_json)
{
    CHECK(strstr(wake_json, MANAGER) != NULL);
    CHECK(((user_t *)user)->is_there);
    ((user_t *)user)->calls += 1;
    count_up(&calls);
}

static count_t enough = COUNT_OF_ZERO;

static void *keep_waking(void *argument)
{
    while (count_now(&enough) == 0) {
        wake_again((aware_t *)argument);
    }
    return NULL;
}

static void the_old_user_may_go(void)
{
    aware_t *handle = open_at("replaced.db");
    pthread_t waking;
    user_t *user = NULL;
    watch_child(handle);
    waking = start_thread(keep_waking, handle);
    for (int turn = 0; turn < times(200); turn++) {
        user_t *next = (user_t *)calloc(1, sizeof *next);
        CHECK(next != NULL);
        next->is_there = 1;
        CHECK(aware_set_wake_callback(handle, use, next) == AWARE_OK);
        if (user != NULL) {
            user->is_there = 0;
            free(user);
        }
        user = next;
        wait_for_count(&calls, turn / 2); /* so that some replace it at work, some at rest */
    }
    CHECK(aware_set_wake_callback(handle, NULL, NULL) == AWARE_OK);
    free(user);
    count_up(&enough);
    join(waking);
    CHECK(aware_close(handle) == AWARE_OK);
}

/* Setting a callback waits for the calls of the old one; the new one may be called, and stay, meanwhile. */
typedef struct {
    aware_t *handle;
    count_t entered;
    count_t set;
} succession_t;

static void stay_until_set(void *user, const char *wake_json)
{
    (void)wake_json;
    wait_for_count(&((succession_t *)user)->set, 1);
}

static void give_way(void *user, const char *wake_json)
{
    succession_t *succession = (succession_t *)user;
    (void)wake_json;
    count_up(&succession->entered);
    /* Long enough, as a rule, for the other thread to be at its wait for this call. */
    for (int turn = 0; turn < times(1000); turn++) {
        CHECK(aware_stats(succession->handle, "{}", NULL) == AWARE_OK);
    }
}

static void *replace_it(void *argument)
{
    succession_t *succession = (succession_t *)argument;
    wait_for_count(&succession->entered, 1);
    CHECK(aware_set_wake_callback(succession->handle, stay_until_set, succession) == AWARE_OK);
    count_up(&succession->set);
    return NULL;
}

static void the_new_one_keeps_nobody_waiting(void)
{
    static succession_t succession = {NULL, COUNT_OF_ZERO, COUNT_OF_ZERO};
    pthread_t replacing;
    succession.handle = open_at("succession.db");
    wake_up(succession.handle, MANAGER, CHILD);
    wake_up(succession.handle, MANAGER, "agent:main:subagent:second");
    CHECK(aware_set_wake_callback(succession.handle, give_way, &succession) == AWARE_OK);
    replacing = start_thread(replace_it, &succession);
    join(replacing);
    CHECK(aware_close(succession.handle) == AWARE_OK);
}

/* Closing waits for the call that is running, and none comes after it. */
static count_t entered = COUNT_OF_ZERO;

static void see_it_close(void *user, const char *wake_json)
{
    aware_t *handle = *(aware_t **)user;
    (void)wake_json;
    count_up(&entered);
    while (aware_stats(handle, "{}", NULL) == AWARE_OK) {
    }
    CHECK(aware_stats(handle, "{}", NULL) == AWARE_CLOSED);
    *(aware_t **)user = NULL;
}

static void closing_waits_for_it(void)
{
    aware_t **user = (aware_t **)malloc(sizeof *user);
    aware_t *handle = open_at("closing.db");
    CHECK(user != NULL);
    *user = handle;
    CHECK(aware_set_wake_callback(handle, see_it_close, user) == AWARE_OK);
    wake_up(handle, MANAGER, CHILD);
    wake_up(handle, MANAGER, "agent:main:subagent:second");
    wait_for_count(&entered, 1);
    CHECK(aware_close(handle) == AWARE_OK);
    CHECK(*user == NULL);
    CHECK(count_now(&entered) == 1);
    free(user);
}

int main(int argc, char **argv)
{
    aware_t *handle;
    start(argc, argv);
    handle = open_at(DATABASE);
    watch_child(handle);
    it_gets_the_wakes_alone(handle);
    CHECK(aware_close(handle) == AWARE_OK);
    everything_works_inside();
    the_old_user_may_go();
    closing_waits_for_it();
    the_new_one_keeps_nobody_waiting();
    return 0;
}
