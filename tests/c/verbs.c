/* Every verb does what the header says, seen through the ABI alone. */
#include "check.h"

#include <sys/stat.h>

#define GROUP "{\"targetSessionKey\":\"" CHILD "\",\"notified\":"

static void recording(aware_t *handle)
{
    char *reply;
    reply = CALL(aware_record, handle, HUMAN_TURN(CHILD), AWARE_OK);
    CHECK(strstr(reply, "\"recorded\":true") != NULL);
    CHECK(strstr(reply, "\"duplicate\":false") != NULL);
    CHECK(strstr(reply, "\"sessionKey\":\"" CHILD "\"") != NULL);
    CHECK(strstr(reply, "\"agentId\":\"main\"") != NULL);
    CHECK(strstr(reply, "\"kind\":\"human_direct_message\"") != NULL);
    CHECK(number_in(reply, "sequence") == 1);
    aware_string_free(reply);

    /* The same key twice is one event. */
    for (int turn = 0; turn < 2; turn++) {
        reply = CALL(aware_record, handle,
                     "{\"sessionKey\":\"" CHILD "\",\"kind\":\"run_failed\",\"actorType\":\"system\",\"runId\":\"r1\","
                     "\"payload\":{\"outcome\":\"timeout\",\"secret\":\"x\"},\"dedupeKey\":\"run-terminal:r1\"}",
                     AWARE_OK);
        CHECK(strstr(reply, turn == 0 ? "\"duplicate\":false" : "\"duplicate\":true") != NULL);
        CHECK(strstr(reply, "\"summary\":\"child run timed out\"") != NULL);
        CHECK(strstr(reply, "secret") == NULL);
        CHECK(number_in(reply, "sequence") == 2);
        aware_string_free(reply);
    }

    ANSWERS(aware_record, handle,
            "{\"sessionKey\":\"agent:main:alone\",\"kind\":\"compacted\",\"actorType\":\"system\","
            "\"onlyIfWatched\":true}",
            AWARE_OK, "{\"recorded\":false,\"reason\":\"unwatched\"}");

    reply = CALL(aware_record, handle, "{\"events\":[" HUMAN_TURN("global") "," HUMAN_TURN("agent:ops:main") "]}",
                 AWARE_OK);
    CHECK(strstr(reply, "{\"results\":[") == reply);
    CHECK(count_in(reply, "\"recorded\":true") == 2);
    aware_string_free(reply);
    ANSWERS(aware_record, handle, "{\"events\":[]}", AWARE_OK, "{\"results\":[]}");

    /* What was queued is stored before what the same thread records next. */
    ANSWERS(aware_record, handle,
            "{\"sessionKey\":\"global\",\"agentId\":\"ops\",\"kind\":\"goal_changed\",\"actorType\":\"human\","
            "\"wait\":false}",
            AWARE_OK, "{\"queued\":true}");
    CHECK(NUMBER(aware_record, handle, HUMAN_TURN("global"), "sequence") == 6);
}

static void reading(aware_t *handle)
{
    char *reply;
    reply = CALL(aware_state_versions, handle,
                 "{\"sessions\":[{\"sessionKey\":\"" CHILD "\"},{\"sessionKey\":\"global\",\"agentId\":\"ops\"},"
                 "{\"sessionKey\":\"agent:main:alone\"}]}",
                 AWARE_OK);
    CHECK(strcmp(reply, "{\"versions\":[{\"sessionKey\":\"" CHILD "\",\"agentId\":\"main\",\"stateVersion\":2},"
                        "{\"sessionKey\":\"global\",\"agentId\":\"ops\",\"stateVersion\":5},"
                        "{\"sessionKey\":\"agent:main:alone\",\"agentId\":\"main\",\"stateVersion\":0}]}") == 0);
    aware_string_free(reply);

    reply = CALL(aware_changes_since, handle, "{\"sessionKey\":\"" CHILD "\",\"changesSince\":0,\"limit\":1}",
                 AWARE_OK);
    CHECK(number_in(reply, "stateVersion") == 2);
    CHECK(strstr(reply, "\"truncated\":true") != NULL);
    CHECK(strstr(reply, "\"historyGap\":false") != NULL);
    CHECK(number_in(reply, "nextChangesSince") == 1);
    CHECK(strstr(reply, "futureCursor") == NULL);
    aware_string_free(reply);
    ANSWERS(aware_changes_since, handle, "{\"sessionKey\":\"" CHILD "\",\"changesSince\":1}", AWARE_OK,
            "\"payload\":{\"outcome\":\"timeout\"}");
    ANSWERS(aware_changes_since, handle, "{\"sessionKey\":\"" CHILD "\",\"changesSince\":3}", AWARE_OK,
            "\"futureCursor\":true");

    reply = CALL(aware_sessions, handle, "{\"limit\":2}", AWARE_OK);
    CHECK(count_in(reply, "\"sessionKey\":") == 2);
    CHECK(strstr(reply, "\"prunedBelow\":0") != NULL);
    CHECK(strstr(reply, "\"more\":true") != NULL);
    aware_string_free(reply);
    ANSWERS(aware_sessions, handle, "{\"after\":{\"agentId\":\"ops\",\"sessionKey\":\"agent:ops:main\"}}", AWARE_OK,
            "{\"sessions\":[{\"sessionKey\":\"global\",\"agentId\":\"ops\",\"stateVersion\":5,\"prunedBelow\":0}],"
            "\"more\":false}");

    reply = CALL(aware_events, handle, "{\"after\":1,\"kinds\":[\"human_direct_message\"]}", AWARE_OK);
    CHECK(count_in(reply, "\"sequence\":") == 3);
    CHECK(number_in(reply, "sequence") == 3);
    CHECK(strstr(reply, "\"more\":false") != NULL);
    aware_string_free(reply);
}

static void watching(aware_t *handle)
{
    char *reply;
    ANSWERS(aware_watch, handle, WATCH(MANAGER, CHILD), AWARE_OK,
            "{\"watched\":true,\"created\":true,\"stateVersion\":2}");
    ANSWERS(aware_watch, handle, WATCH(MANAGER, CHILD), AWARE_OK, "\"created\":false");
    ANSWERS(aware_watch, handle, WATCH(MANAGER, MANAGER), AWARE_OK, "{\"watched\":false,\"reason\":\"self\"}");
    ANSWERS(aware_watch, handle, WATCH("global", CHILD), AWARE_OK,
            "{\"watched\":false,\"reason\":\"unqualified_watcher\"}");
    ANSWERS(aware_watch, handle,
            "{\"watcherSessionKey\":\"" MANAGER "\",\"targetSessionKey\":\"global\",\"targetAgentId\":\"ops\","
            "\"provenance\":\"ambient-group\",\"notifyKinds\":[\"goal_changed\"]}",
            AWARE_OK, "\"created\":true");

    reply = CALL(aware_watches, handle, DRAIN(MANAGER), AWARE_OK);
    CHECK(count_in(reply, "\"watcherSessionKey\":") == 2);
    CHECK(strstr(reply, "\"provenance\":\"ambient-group\",\"notifyKinds\":[\"goal_changed\"]") != NULL);
    CHECK(strstr(reply, "\"lastSeen\":2,\"notified\":2,\"material\":2,\"pending\":false") != NULL);
    aware_string_free(reply);
    ANSWERS(aware_watches, handle, "{\"limit\":1,\"offset\":1}", AWARE_OK, "\"more\":false");

    ANSWERS(aware_unwatch, handle, WATCH(MANAGER, "agent:main:alone"), AWARE_OK, "{\"unwatched\":false}");
    ANSWERS(aware_session_reset, handle, "{\"sessionKey\":\"" MANAGER "\"}", AWARE_OK, "{\"removedWatches\":2}");
    watch_child(handle);
}

static void noticing(aware_t *handle)
{
    char *reply, *request;
    int64_t notified;

    raise_wake(handle);
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":0,\"max\":1}", AWARE_OK,
            "{\"wakes\":[{\"sessionKey\":\"" MANAGER "\",\"targetSessionKey\":\"" CHILD "\","
            "\"targetAgentId\":\"main\",\"reason\":\"session-state\"}]}");
    ANSWERS(aware_wait_wakes, handle, "{\"timeoutMs\":1}", AWARE_OK, "{\"wakes\":[]}");

    /* Read, changed once more, acknowledged: one more notice, which is then taken. */
    reply = CALL(aware_drain_notices, handle, "{\"watcherSessionKey\":\"" MANAGER "\",\"ack\":false}", AWARE_OK);
    CHECK(strstr(reply, "\"text\":\"Session \\\"" CHILD "\\\" changed (other actor). Reconcile before acting: "
                        "session_status sessionKey \\\"" CHILD "\\\" changesSince 2.\"") != NULL);
    CHECK(strstr(reply, "\"contextKey\":\"session-state:6167656e743a6d61696e3a73756261") != NULL);
    CHECK(number_in(reply, "changesSince") == 2);
    notified = number_in(reply, "notified");
    aware_string_free(reply);
    raise_wake(handle);
    request = text("{\"watcherSessionKey\":\"" MANAGER "\",\"notices\":[" GROUP "%" PRId64 "}]}", notified);
    ANSWERS(aware_ack_notices, handle, request, AWARE_OK, "{\"acknowledged\":1,\"reopened\":1}");
    ANSWERS(aware_ack_notices, handle, request, AWARE_OK, "{\"acknowledged\":0,\"reopened\":0}");
    free(request);
    reply = CALL(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK);
    CHECK(count_in(reply, "\"text\":") == 1);
    CHECK(number_in(reply, "changesSince") == notified);
    aware_string_free(reply);
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_OK, "{\"notices\":[],\"more\":false}");
    ANSWERS(aware_unwatch, handle, WATCH(MANAGER, CHILD), AWARE_OK, "{\"unwatched\":true}");
}

static void keeping(aware_t *handle)
{
    struct stat copy;
    aware_t *other;
    char *reply;

    reply = CALL(aware_stats, handle, "{}", AWARE_OK);
    CHECK(number_in(reply, "events") == 8);
    CHECK(number_in(reply, "watches") == 0);
    CHECK(number_in(reply, "failedAppends") == 0);
    CHECK(strstr(reply, DATABASE "\"") != NULL);
    aware_string_free(reply);
    ANSWERS(aware_maintain, handle, "{}", AWARE_OK, "{\"prunedEvents\":0,\"prunedCursors\":0}");

    ANSWERS(aware_tool_schemas, handle, "{\"format\":\"openai\"}", AWARE_OK, "\"name\":\"session_status\"");
    ANSWERS(aware_tool_schemas, handle, "{\"format\":\"anthropic\"}", AWARE_OK, "\"input_schema\":{");
    ANSWERS(aware_tool_schemas, handle, "{\"format\":\"json-schema\"}", AWARE_OK, "\"$schema\":");
    ANSWERS(aware_tool_schemas, handle, "{\"format\":\"xml\"}", AWARE_INVALID_ARGUMENT, "\"field\":\"format\"");

    CHECK(NUMBER(aware_backup, handle, "{\"path\":\"copy.db\"}", "bytes") > 0);
    CHECK(stat("copy.db", &copy) == 0 && (copy.st_mode & 0777) == 0600);
    ANSWERS(aware_backup, handle, "{\"path\":\"copy.db\"}", AWARE_INVALID_ARGUMENT, "\"field\":\"path\"");
    other = open_at("copy.db");
    CHECK(NUMBER(aware_stats, other, "{}", "events") == 8);
    CHECK(aware_close(other) == AWARE_OK);

    ANSWERS(aware_session_delete, handle, "{\"sessionKey\":\"" CHILD "\"}", AWARE_OK, "{\"deleted\":true}");
    ANSWERS(aware_session_delete, handle, "{\"sessionKey\":\"" CHILD "\"}", AWARE_OK, "{\"deleted\":false}");
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 4);
}

#define UP "agent:main:up"
#define OF(key) "{\"sessionKey\":\"" key "\"}"

static void upstream(aware_t *handle)
{
    static const char ROW[] = "{\"type\":\"user\",\"uuid\":\"u1\",\"message\":{\"role\":\"user\",\"content\":\"typed\"}}\n";
    FILE *file = fopen("s.jsonl", "wb");
    CHECK(file != NULL && fwrite(ROW, 1, sizeof ROW - 1, file) == sizeof ROW - 1 && fclose(file) == 0);

    ANSWERS(aware_adopt, handle, "{\"sessionKey\":\"" UP "\",\"catalog\":\"claude\",\"source\":\"none.jsonl\"}",
            AWARE_NOT_FOUND, "\"field\":\"source\"");
    ANSWERS(aware_adopt, handle,
            "{\"sessionKey\":\"" UP "\",\"catalog\":\"claude\",\"source\":\"s.jsonl\",\"baseline\":\"start\"}", AWARE_OK,
            "{\"adopted\":true,\"linked\":true,\"link\":{\"sessionKey\":\"" UP "\"");
    ANSWERS(aware_links, handle, "{}", AWARE_OK, "\"threadId\":\"s\"");
    ANSWERS(aware_set_run_active, handle, "{\"sessionKey\":\"" UP "\",\"active\":true}", AWARE_OK, "{\"active\":true}");
    ANSWERS(aware_scan, handle, "{}", AWARE_OK, "\"outcome\":\"deferred\"");
    ANSWERS(aware_set_run_active, handle, "{\"sessionKey\":\"" UP "\",\"active\":false}", AWARE_OK, "{\"active\":false}");
    ANSWERS(aware_scan, handle, "{}", AWARE_OK, "\"outcome\":\"activity\",\"humanTurns\":1,\"prompts\":1");
    ANSWERS(aware_scan, handle, "{\"catalog\":\"claude\"}", AWARE_OK, "\"outcome\":\"unchanged\"");
    ANSWERS(aware_own_message, handle, "{\"sessionKey\":\"" UP "\",\"text\":\"x\"}", AWARE_OK, "{\"remembered\":true}");
    ANSWERS(aware_discover, handle, "{}", AWARE_OK, "{\"sessions\":[],\"more\":false}");
    ANSWERS(aware_release, handle, OF(UP), AWARE_OK, "{\"released\":true}");
    ANSWERS(aware_release, handle, OF(UP), AWARE_OK, "{\"released\":false}");

    ANSWERS(aware_feed, handle, "{\"sessionKey\":\"" UP "\",\"rows\":[]}", AWARE_NOT_FOUND, "\"code\":\"not_found\"");
    ANSWERS(aware_adopt, handle,
            "{\"sessionKey\":\"" UP "\",\"catalog\":\"claude\",\"hostId\":\"node\",\"threadId\":\"t\",\"baseline\":\"start\"}",
            AWARE_OK, "\"hostId\":\"node\"");
    ANSWERS(aware_feed, handle,
            "{\"sessionKey\":\"" UP "\",\"rows\":[{\"type\":\"user\",\"uuid\":\"u2\",\"message\":{\"role\":\"user\",\"content\":\"x y\"}}]}",
            AWARE_OK, "\"humanTurns\":1");
    ANSWERS(aware_session_delete, handle, OF(UP), AWARE_OK, "{\"deleted\":true}");
}

static void read_only(void)
{
    aware_t *handle = NULL;
    char *reply = NULL;
    CHECK(aware_open("{\"database\":\"" DATABASE "\",\"readOnly\":true}", &handle, &reply) == AWARE_OK);
    aware_string_free(reply);
    CHECK(NUMBER(aware_stats, handle, "{}", "events") == 4);
    ANSWERS(aware_record, handle, HUMAN_TURN(CHILD), AWARE_UNSUPPORTED, "\"code\":\"unsupported\"");
    ANSWERS(aware_drain_notices, handle, DRAIN(MANAGER), AWARE_UNSUPPORTED, "\"code\":\"unsupported\"");
    ANSWERS(aware_drain_notices, handle, "{\"watcherSessionKey\":\"" MANAGER "\",\"ack\":false}", AWARE_OK,
            "{\"notices\":[],\"more\":false}");
    CHECK(aware_wake_fd(handle) == -1);
    CHECK(aware_close(handle) == AWARE_OK);
}

int main(int argc, char **argv)
{
    aware_t *handle;
    start(argc, argv);
    CHECK(aware_abi_version() == AWARE_ABI_VERSION);
    CHECK(strchr(aware_version(), '.') != NULL);
    handle = open_at(DATABASE);
    recording(handle);
    reading(handle);
    watching(handle);
    noticing(handle);
    keeping(handle);
    CHECK(aware_close(handle) == AWARE_OK);
    /* Without the background, which would look before the scan does. */
    CHECK(aware_open("{\"database\":\"" DATABASE "\",\"monitor\":{\"enabled\":false}}", &handle, NULL) == AWARE_OK);
    upstream(handle);
    CHECK(aware_close(handle) == AWARE_OK);
    read_only();
    return 0;
}
