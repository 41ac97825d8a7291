/* A handle that is closed, or was never one, is an answer and never a crash. */
#include "every_verb.h"

static void answers_closed(aware_t *handle)
{
    for (int at = 0; at < VERBS; at++) {
        ANSWERS(EVERY_VERB[at].call, handle, EVERY_VERB[at].request, AWARE_CLOSED, "{\"error\":{\"code\":\"closed\"");
    }
    CHECK(aware_wake_fd(handle) == -1);
    CHECK(aware_set_wake_callback(handle, NULL, NULL) == AWARE_CLOSED);
    CHECK(aware_close(handle) == AWARE_CLOSED);
}

static aware_t *handle_of(uintptr_t value)
{
    return (aware_t *)value;
}

static void closed_and_closed_again(void)
{
    aware_t *first = open_at(DATABASE), *second, *third;
    CHECK(aware_close(first) == AWARE_OK);
    answers_closed(first);

    /* The key of a closed handle is not given to the next one. */
    second = open_at(DATABASE);
    third = open_at(DATABASE);
    CHECK(first != second && second != third && first != third);
    answers_closed(first);
    CHECK(NUMBER(aware_record, second, HUMAN_TURN(CHILD), "sequence") == 1);

    /* Each handle is closed for itself, also on one database. */
    CHECK(aware_close(second) == AWARE_OK);
    answers_closed(second);
    CHECK(NUMBER(aware_record, third, HUMAN_TURN(CHILD), "sequence") == 2);
    CHECK(aware_close(third) == AWARE_OK);
    answers_closed(third);
}

static void never_opened(void)
{
    static int somewhere;
    void *memory = malloc(64);
    aware_t *open = open_at(DATABASE);
    uintptr_t key = (uintptr_t)open;
    const uintptr_t values[] = {0, 1, 2, 0xa11, UINTPTR_MAX, UINTPTR_MAX - 1, UINTPTR_MAX / 2, (uintptr_t)&somewhere,
                                (uintptr_t)memory, (uintptr_t)&open, key + 1, key - 1, key + 16, key << 1, ~key};
    for (size_t at = 0; at < sizeof values / sizeof values[0]; at++) {
        if (values[at] != key) {
            answers_closed(handle_of(values[at]));
        }
    }
    CHECK(NUMBER(aware_stats, open, "{}", "events") == 2);
    CHECK(aware_close(open) == AWARE_OK);
    free(memory);
}

static void many_at_once(void)
{
    enum { MOST = 20 };
    aware_t *handles[MOST];
    int count = times(MOST);
    for (int at = 0; at < count; at++) {
        char *path = text("many-%d.db", at);
        handles[at] = open_at(path);
        free(path);
    }
    for (int at = 0; at < count; at++) {
        CHECK(NUMBER(aware_record, handles[at], HUMAN_TURN(CHILD), "sequence") == 1);
    }
    for (int at = 0; at < count; at++) {
        CHECK(aware_close(handles[at]) == AWARE_OK);
    }
}

int main(int argc, char **argv)
{
    start(argc, argv);
    closed_and_closed_again();
    never_opened();
    many_at_once();
    return 0;
}
