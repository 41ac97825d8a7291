/* Whatever a host passes is answered: nothing crashes, nothing is stored, the handle stays usable. */
#include "every_verb.h"

static void is_error(char *reply, const char *code)
{
    char *wanted = text("{\"error\":{\"code\":\"%s\",\"message\":\"", code);
    if (reply == NULL || strstr(reply, wanted) != reply) {
        check_failed(__FILE__, __LINE__, wanted, reply == NULL ? "NULL" : reply);
    }
    free(wanted);
    aware_string_free(reply);
}

static void null_in_each_place_of_open(void)
{
    static int somewhere;
    aware_t *handle = (aware_t *)(void *)&somewhere;
    char *reply = NULL;

    CHECK(aware_open(NULL, &handle, &reply) == AWARE_INVALID_ARGUMENT);
    CHECK(handle == NULL);
    is_error(reply, "invalid_argument");
    reply = NULL;
    CHECK(aware_open("{\"database\":\"never.db\"}", NULL, &reply) == AWARE_INVALID_ARGUMENT);
    is_error(reply, "invalid_argument");
    CHECK(aware_open("{\"database\":\"never.db\"}", NULL, NULL) == AWARE_INVALID_ARGUMENT);
    CHECK(access("never.db", F_OK) != 0);
    CHECK(aware_open(NULL, &handle, NULL) == AWARE_INVALID_ARGUMENT);
    CHECK(aware_open(NULL, NULL, NULL) == AWARE_INVALID_ARGUMENT);

    CHECK(aware_open("{\"database\":\"quiet.db\"}", &handle, NULL) == AWARE_OK);
    CHECK(handle != NULL);
    CHECK(aware_close(handle) == AWARE_OK);
}

static void null_in_each_place_of_a_verb(aware_t *handle)
{
    for (int at = 0; at < VERBS; at++) {
        verb_t verb = EVERY_VERB[at].call;
        char *reply = NULL;
        CHECK(verb(NULL, EVERY_VERB[at].request, &reply) == AWARE_CLOSED);
        is_error(reply, "closed");
        reply = NULL;
        CHECK(verb(handle, NULL, &reply) == AWARE_INVALID_ARGUMENT);
        is_error(reply, "invalid_argument");
        CHECK(verb(NULL, EVERY_VERB[at].request, NULL) == AWARE_CLOSED);
        CHECK(verb(handle, NULL, NULL) == AWARE_INVALID_ARGUMENT);
        CHECK(verb(NULL, NULL, NULL) == AWARE_CLOSED);
    }
    /* Without room for the reply the status alone is told, and the verb is carried out. */
    CHECK(aware_record(handle, HUMAN_TURN("agent:main:quiet"), NULL) == AWARE_OK);
    CHECK(aware_session_delete(handle, "{\"sessionKey\":\"agent:main:quiet\"}", NULL) == AWARE_OK);
}

static void null_elsewhere(aware_t *handle)
{
    CHECK(aware_close(NULL) == AWARE_CLOSED);
    CHECK(aware_wake_fd(NULL) == -1);
    CHECK(aware_set_wake_callback(NULL, NULL, NULL) == AWARE_CLOSED);
    CHECK(aware_set_wake_callback(handle, NULL, NULL) == AWARE_OK);
    aware_set_log_callback(NULL, NULL, 3);
    aware_string_free(NULL);
}

/* Every verb, and aware_open, must refuse this text. */
static void everything_refuses(aware_t *handle, const char *request)
{
    static int somewhere;
    aware_t *opened = (aware_t *)(void *)&somewhere;
    char *reply = NULL;
    CHECK(aware_open(request, &opened, &reply) == AWARE_INVALID_ARGUMENT);
    CHECK(opened == NULL);
    is_error(reply, "invalid_argument");
    for (int at = 0; at < VERBS; at++) {
        reply = NULL;
        if (EVERY_VERB[at].call(handle, request, &reply) != AWARE_INVALID_ARGUMENT) {
            check_failed(__FILE__, __LINE__, EVERY_VERB[at].name, reply);
        }
        is_error(reply, "invalid_argument");
    }
}

static void bad_utf8(aware_t *handle)
{
    static const char *const BAD[] = {
        "\xff", "\x80", "\xc3", "\xc3(", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf0\x80\x80\xaf",
    };
    for (size_t at = 0; at < sizeof BAD / sizeof BAD[0]; at++) {
        char *request = text("{\"sessionKey\":\"%s\"}", BAD[at]);
        everything_refuses(handle, request);
        everything_refuses(handle, BAD[at]);
        free(request);
    }
    ANSWERS(aware_stats, handle, "{\"\xff\":1}", AWARE_INVALID_ARGUMENT, "UTF-8");
}

static void bad_json(aware_t *handle)
{
    static const char *const BAD[] = {
        "",       " ",      "nonsense", "null", "true",        "3",     "\"text\"", "[]", "[{}]", "{", "}", "{\"a\"}",
        "{\"a\":}", "{} {}", "{},",      "{a:1}", "{'a':1}",     "{\"a\":1,}", "{\"a\":\"\n\"}", "{\"a\":\"\\ud800\"}",
        "\xef\xbb\xbf{}", "{\"a\":01}", "{\"a\":NaN}", "{\"a\":\"b",
    };
    const int depth = times(100000);
    char *deep = (char *)malloc((size_t)depth * 6 + 1);
    CHECK(deep != NULL);
    for (size_t at = 0; at < sizeof BAD / sizeof BAD[0]; at++) {
        everything_refuses(handle, BAD[at]);
    }
    for (int at = 0; at < depth; at++) {
        memcpy(deep + at * 5, "{\"a\":", 6);
    }
    everything_refuses(handle, deep);
    memset(deep, '[', (size_t)depth);
    deep[depth] = '\0';
    everything_refuses(handle, deep);
    free(deep);
}

static void what_is_no_request(aware_t *handle)
{
    ANSWERS(aware_stats, handle, "{\"tpyo\":1}", AWARE_INVALID_ARGUMENT, "\"field\":\"tpyo\"");
    ANSWERS(aware_stats, handle, "{\"tpyo\":null}", AWARE_INVALID_ARGUMENT, "\"field\":\"tpyo\"");
    ANSWERS(aware_record, handle, "{\"sessionKey\":\"" CHILD "\",\"kind\":\"nothing\",\"actorType\":\"human\"}",
            AWARE_INVALID_ARGUMENT, "human_direct_message");
    ANSWERS(aware_record, handle, "{\"sessionKey\":\"" CHILD "\",\"kind\":\"nothing\",\"actorType\":\"human\"}",
            AWARE_INVALID_ARGUMENT, "\"field\":\"kind\"");
    ANSWERS(aware_record, handle, HUMAN_TURN("agent:main:"), AWARE_INVALID_ARGUMENT, "\"field\":\"sessionKey\"");
    ANSWERS(aware_record, handle, "{\"events\":[" HUMAN_TURN(CHILD) ",{\"sessionKey\":\"" CHILD "\"}]}",
            AWARE_INVALID_ARGUMENT, "\"field\":\"events[1].kind\"");
    ANSWERS(aware_changes_since, handle, "{\"sessionKey\":\"" CHILD "\",\"changesSince\":9007199254740992}",
            AWARE_INVALID_ARGUMENT, "\"field\":\"changesSince\"");
    ANSWERS(aware_sessions, handle, "{\"limit\":0}", AWARE_INVALID_ARGUMENT, "\"field\":\"limit\"");
    ANSWERS(aware_watches, handle, "{\"offset\":-1}", AWARE_INVALID_ARGUMENT, "\"field\":\"offset\"");
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0,\"max\":0}", AWARE_INVALID_ARGUMENT, "\"field\":\"max\"");
    /* null is the same as absent. */
    ANSWERS(aware_sessions, handle, "{\"limit\":null,\"after\":null}", AWARE_OK, "\"sessions\":[]");
}

static void what_is_no_config(void)
{
    static const struct {
        const char *config;
        int32_t status;
        const char *field;
    } BAD[] = {
        {"{}", AWARE_INVALID_ARGUMENT, "database"},
        {"{\"database\":null}", AWARE_INVALID_ARGUMENT, "database"},
        {"{\"database\":\"\"}", AWARE_INVALID_ARGUMENT, "database"},
        {"{\"database\":\"a\\u0000b\"}", AWARE_INVALID_ARGUMENT, "database"},
        {"{\"database\":\".\"}", AWARE_INVALID_ARGUMENT, "database"},
        {"{\"database\":\"never.db\",\"durability\":\"none\"}", AWARE_INVALID_ARGUMENT, "durability"},
        {"{\"database\":\"never.db\",\"retention\":{\"maxEvents\":0}}", AWARE_INVALID_ARGUMENT, "retention.maxEvents"},
        {"{\"database\":\"never.db\",\"wakes\":{\"agents\":[\"a b\"]}}", AWARE_INVALID_ARGUMENT, "wakes.agents[0]"},
        {"{\"database\":\"never.db\",\"monitor\":{\"roots\":{\"vi\":\"/\"}}}", AWARE_INVALID_ARGUMENT,
         "monitor.roots.vi"},
        {"{\"database\":\"never.db\",\"create\":false}", AWARE_NOT_FOUND, "database"},
        {"{\"database\":\"never.db\",\"readOnly\":true}", AWARE_NOT_FOUND, "database"},
        {"{\"database\":\"no/folder.db\"}", AWARE_NOT_FOUND, "database"},
    };
    for (size_t at = 0; at < sizeof BAD / sizeof BAD[0]; at++) {
        aware_t *handle = NULL;
        char *reply = NULL;
        char *field = text("\"field\":\"%s\"", BAD[at].field);
        if (aware_open(BAD[at].config, &handle, &reply) != BAD[at].status || strstr(reply, field) == NULL) {
            check_failed(__FILE__, __LINE__, BAD[at].config, reply);
        }
        CHECK(handle == NULL);
        aware_string_free(reply);
        free(field);
    }
    CHECK(access("never.db", F_OK) != 0);
}

static void too_long(aware_t *handle)
{
    const size_t most = (size_t)16 << 20;
    char *request = (char *)malloc(most + 2);
    CHECK(request != NULL);
    memset(request, ' ', most + 1);
    memcpy(request, "{}", 2);
    request[most + 1] = '\0';
    everything_refuses(handle, request);
    ANSWERS(aware_stats, handle, request, AWARE_INVALID_ARGUMENT, "16 MiB");
    request[most] = '\0';
    ANSWERS(aware_stats, handle, request, AWARE_OK, "\"events\":0");
    free(request);
}

int main(int argc, char **argv)
{
    aware_t *handle;
    start(argc, argv);
    null_in_each_place_of_open();
    what_is_no_config();
    handle = open_at(DATABASE);
    null_in_each_place_of_a_verb(handle);
    null_elsewhere(handle);
    bad_utf8(handle);
    bad_json(handle);
    what_is_no_request(handle);
    if (!is_slow()) {
        too_long(handle);
    }

    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 0);
    ANSWERS(aware_record, handle, HUMAN_TURN(CHILD), AWARE_OK, "\"recorded\":true");
    CHECK(aware_close(handle) == AWARE_OK);
    return 0;
}
