/*
 * A gateway that keeps its sessions aware of each other, in one story.
 *
 * usage: gateway [DATABASE]
 *
 * DATABASE is a file that is not there yet; without it a temporary one is used. What happens is
 * what happened in four real sessions (data/traffic.jsonl), in that order and with those times.
 * Each step is checked: the exit status is 0 only when the story went as it is told.
 *
 * After `make install`:
 *
 *   cc -std=c11 -o gateway examples/gateway.c $(pkg-config --cflags --libs session-awareness)
 *   ./gateway
 */

#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "session_awareness.h"

#define MANAGER "agent:main:main"
#define RESEARCH "agent:main:subagent:research"
#define BUILD "agent:main:subagent:build"
#define COORDINATOR "agent:ops:main"
#define PEER "agent:coder:main"
#define GROUP "agent:main:telegram:group:travel"

/* Which session of this gateway each session of the data plays, and the channel people use there. */
static const struct {
    const char *session, *key, *channel;
} CAST[] = {
    {"pi", RESEARCH, "telegram"},
    {"opencode", PEER, "slack"},
    {"codex-1", GROUP, "telegram"},
    {"codex-2", BUILD, "telegram"},
};

enum { TEXT = 4096, LINE = 256 };

typedef int32_t (*verb_t)(aware_t *awareness, const char *request_json, char **reply_json);

/* Ends the program when the story does not happen as told. */
static void expect(const char *what, int holds, const char *got)
{
    if (!holds) {
        fprintf(stderr, "not as told: %s: %s\n", what, got);
        exit(1);
    }
}

static void chapter(const char *title)
{
    printf("\n%s\n", title);
}

static void say(const char *label, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    printf("  %-13s ", label);
    vprintf(format, list);
    printf("\n");
    va_end(list);
}

/*
 * Reading JSON. A host has a library for this; these few functions do for the
 * compact objects that the library answers and for the lines of the data.
 */

/* What follows a value. */
static const char *after(const char *value)
{
    int depth = 0;
    do {
        if (*value == '"') {
            for (value++; *value != '"' && *value != '\0'; value++) {
                value += *value == '\\' && value[1] != '\0';
            }
        }
        depth += *value == '{' || *value == '[';
        depth -= *value == '}' || *value == ']';
        value += *value != '\0';
    } while (*value != '\0' && (depth > 0 || (depth == 0 && strchr(",:]}", *value) == NULL)));
    return value;
}

/* The value of an object's member. */
static const char *member(const char *object, const char *name)
{
    const char *at = object;
    while ((*at == '{' || *at == ',') && at[1] == '"') {
        const char *colon = after(++at);
        if (strncmp(at + 1, name, strlen(name)) == 0 && at + strlen(name) + 2 == colon) {
            return colon + 1;
        }
        at = after(colon + 1);
    }
    expect(name, 0, object);
    return NULL;
}

/* The next element of an array, from its beginning or from the element before; NULL at the end. */
static const char *next(const char *at)
{
    at = *at == '[' ? at : after(at);
    return *at == ']' || *at == '\0' || at[1] == ']' ? NULL : at + 1;
}

/* A member that is a string. No key and no text of this story needs an escape but \" and \\. */
static const char *string(const char *object, const char *name, char *into, size_t size)
{
    const char *at = member(object, name);
    char *end = into;
    expect(name, *at++ == '"', object);
    while (*at != '"' && *at != '\0' && end + 1 < into + size) {
        at += *at == '\\';
        *end++ = *at++;
    }
    *end = '\0';
    return into;
}

static int string_is(const char *object, const char *name, const char *wanted)
{
    char found[TEXT];
    return strcmp(string(object, name, found, sizeof found), wanted) == 0;
}

static int64_t number(const char *object, const char *name)
{
    return strtoll(member(object, name), NULL, 10);
}

static int is_true(const char *object, const char *name)
{
    return strncmp(member(object, name), "true", 4) == 0;
}

/* Calls a verb, which must succeed; the reply, for aware_string_free. */
static char *call(const char *what, verb_t verb, aware_t *awareness, const char *format, ...)
{
    /* The keys of this story need no escapes; a host has them written by its JSON library. */
    char request[TEXT];
    char *reply = NULL;
    va_list list;
    va_start(list, format);
    vsnprintf(request, sizeof request, format, list);
    va_end(list);
    expect(what, verb(awareness, request, &reply) == AWARE_OK, reply);
    return reply;
}

/* What a gateway does when something happens in one of its sessions. */

/* Records one act; how it reads in the log. */
static void record(aware_t *awareness, const char *act, const char *key, const char *channel, char *told)
{
    int64_t at = number(act, "at");
    char who[LINE], what[LINE], summary[LINE], more[TEXT];
    char *reply;
    string(act, "who", who, sizeof who);
    string(act, "what", what, sizeof what);
    if (strcmp(what, "session_started") == 0) {
        if (strcmp(key, RESEARCH) != 0 && strcmp(key, BUILD) != 0) {
            snprintf(told, LINE, "session started (not a change to record)");
            return;
        }
        snprintf(who, sizeof who, "agent");
        snprintf(more, sizeof more,
                 "\"kind\":\"child_spawned\",\"actorId\":\"" MANAGER "\",\"watcherSessionKeys\":[\"" MANAGER "\"]");
    } else if (strcmp(what, "human_turn") == 0) {
        snprintf(more, sizeof more, "\"kind\":\"human_direct_message\",\"payload\":{\"channel\":\"%s\"}", channel);
    } else {
        /* A run ends once: whichever part of the gateway tells it second stores nothing. */
        int length = snprintf(more, sizeof more,
                              "\"runId\":\"run-%" PRId64 "\",\"dedupeKey\":\"run-terminal:run-%" PRId64 "\",", at, at);
        if (strcmp(what, "run_completed") == 0) {
            snprintf(more + length, sizeof more - (size_t)length, "\"kind\":\"run_completed\",\"actorId\":\"%s\"", key);
        } else {
            snprintf(more + length, sizeof more - (size_t)length,
                     "\"kind\":\"run_failed\",\"payload\":{\"outcome\":\"timeout\"}");
        }
    }
    reply = call("record", aware_record, awareness,
                 "{\"sessionKey\":\"%s\",\"actorType\":\"%s\",\"occurredAt\":%" PRId64 ",%s}", key, who, at, more);
    expect("the act is recorded", is_true(reply, "recorded"), reply);
    string(member(reply, "event"), "summary", summary, sizeof summary);
    snprintf(told, LINE * 2, "#%" PRId64 " %s", number(member(reply, "event"), "sequence"), summary);
    aware_string_free(reply);
}

/* Takes the next act of the data, records it and tells it. */
static void happens(aware_t *awareness, FILE *traffic)
{
    char act[LINE], clock[LINE], told[LINE * 2];
    size_t role = 0;
    time_t seconds;
    struct tm utc;
    int64_t at;
    expect("another act", fgets(act, sizeof act, traffic) != NULL, "the data is at its end");
    while (role < sizeof CAST / sizeof CAST[0] && !string_is(act, "session", CAST[role].session)) {
        role++;
    }
    expect("a session of the cast", role < sizeof CAST / sizeof CAST[0], act);
    record(awareness, act, CAST[role].key, CAST[role].channel, told);
    at = number(act, "at");
    seconds = (time_t)(at / 1000);
    gmtime_r(&seconds, &utc);
    snprintf(clock, sizeof clock, "%02d:%02d:%02d.%03d", utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(at % 1000));
    say(clock, "%s  %s", CAST[role].key, told);
}

/* What a watching session does. */

static void is_woken(aware_t *awareness, const char *watcher, const char *target)
{
    char *reply = call("wait_wakes", aware_wait_wakes, awareness, "{\"timeoutMs\":5000}");
    const char *wake = next(member(reply, "wakes"));
    expect("one wake", wake != NULL && next(wake) == NULL, reply);
    expect("one wake", string_is(wake, "sessionKey", watcher) && string_is(wake, "targetSessionKey", target), reply);
    say("wake", "%s, for %s", watcher, target);
    aware_string_free(reply);
}

static void is_not_woken(aware_t *awareness)
{
    char *reply = call("wait_wakes", aware_wait_wakes, awareness, "{\"timeoutMs\":100}");
    expect("no wake", next(member(reply, "wakes")) == NULL, reply);
    say("no wake", "for anyone");
    aware_string_free(reply);
}

typedef struct {
    int64_t changes_since, notified;
} notice_t;

static notice_t drains_one_notice(aware_t *awareness, const char *watcher, const char *ack)
{
    char *reply = call("drain_notices", aware_drain_notices, awareness, "{\"watcherSessionKey\":\"%s\",\"ack\":%s}",
                       watcher, ack);
    const char *found = next(member(reply, "notices"));
    char text[TEXT];
    notice_t notice;
    expect("one notice", found != NULL && next(found) == NULL, reply);
    say("notice", "%s", string(found, "text", text, sizeof text));
    notice.changes_since = number(found, "changesSince");
    notice.notified = number(found, "notified");
    aware_string_free(reply);
    return notice;
}

static void drains_nothing(aware_t *awareness, const char *watcher)
{
    char *reply = call("drain_notices", aware_drain_notices, awareness, "{\"watcherSessionKey\":\"%s\"}", watcher);
    expect("no notice", next(member(reply, "notices")) == NULL, reply);
    say("no notice", "for %s", watcher);
    aware_string_free(reply);
}

/* Asks for the changes after `since`: the watcher is in sync again. `wanted` ends with NULL. */
static void reconciles(aware_t *awareness, const char *watcher, const char *target, int64_t since,
                       const char *const *wanted)
{
    char *reply = call("changes_since", aware_changes_since, awareness,
                       "{\"sessionKey\":\"%s\",\"changesSince\":%" PRId64 "}", target, since);
    const char *changes = member(reply, "stateChanges");
    const char *event;
    char label[LINE], summary[LINE], actor[LINE];
    expect("nothing is missing", !is_true(changes, "historyGap") && !is_true(changes, "truncated"), reply);
    for (event = next(member(changes, "events")); event != NULL; event = next(event)) {
        expect("the changes", *wanted != NULL && string_is(event, "summary", *wanted), reply);
        wanted++;
    }
    expect("the changes", *wanted == NULL, reply);
    snprintf(label, sizeof label, "since %" PRId64, since);
    for (event = next(member(changes, "events")); event != NULL; event = next(event)) {
        string(event, "summary", summary, sizeof summary);
        string(event, "actorType", actor, sizeof actor);
        say(label, "#%" PRId64 " %s (%s)", number(event, "sequence"), summary, actor);
    }
    say("in sync", "%s with %s at %" PRId64, watcher, target, number(reply, "stateVersion"));
    aware_string_free(reply);
}

static void watches(aware_t *awareness, const char *watcher, const char *target, const char *provenance)
{
    char *reply = call("watch", aware_watch, awareness,
                       "{\"watcherSessionKey\":\"%s\",\"targetSessionKey\":\"%s\",\"provenance\":\"%s\"}", watcher,
                       target, provenance);
    expect("the watch is new", is_true(reply, "watched") && is_true(reply, "created"), reply);
    say("watch", "%s watches %s from version %" PRId64, watcher, target, number(reply, "stateVersion"));
    aware_string_free(reply);
}

/* The story. */

static void a_person_writes_to_a_child(aware_t *awareness, FILE *traffic)
{
    static const char *const wanted[] = {"human message via telegram", NULL};
    int64_t since;
    chapter("1. A manager spawns a child; a person writes to the child by another channel.");
    happens(awareness, traffic);
    happens(awareness, traffic);
    is_woken(awareness, MANAGER, RESEARCH);
    since = drains_one_notice(awareness, MANAGER, "true").changes_since;
    reconciles(awareness, MANAGER, RESEARCH, since, wanted);
    drains_nothing(awareness, MANAGER);
}

static void a_second_change_while_it_drains(aware_t *awareness, FILE *traffic)
{
    notice_t notice;
    char *reply;
    chapter("2. A second change while the manager drains: exactly one more notice opens.");
    happens(awareness, traffic);
    is_woken(awareness, MANAGER, RESEARCH);
    notice = drains_one_notice(awareness, MANAGER, "false");
    happens(awareness, traffic);
    is_not_woken(awareness);
    reply = call("ack_notices", aware_ack_notices, awareness,
                 "{\"watcherSessionKey\":\"" MANAGER "\",\"notices\":[{\"targetSessionKey\":\"" RESEARCH
                 "\",\"notified\":%" PRId64 "}]}",
                 notice.notified);
    expect("one handled, one more", number(reply, "acknowledged") == 1 && number(reply, "reopened") == 1, reply);
    aware_string_free(reply);
    say("acknowledged", "up to %" PRId64 "; one more notice is open", notice.notified);
    is_woken(awareness, MANAGER, RESEARCH);
    happens(awareness, traffic);
    happens(awareness, traffic);
    is_not_woken(awareness);
}

static void the_gateway_restarts(aware_t *awareness)
{
    static const char *const wanted[] = {"human message via telegram", "child run completed", "child run completed",
                                         NULL};
    int64_t since;
    chapter("3. The gateway restarts with that notice pending: it is there again, and its wake.");
    say("restart", "the database is closed and opened again");
    is_woken(awareness, MANAGER, RESEARCH);
    since = drains_one_notice(awareness, MANAGER, "true").changes_since;
    reconciles(awareness, MANAGER, RESEARCH, since, wanted);
    drains_nothing(awareness, MANAGER);
}

static void a_coordinator_watches_a_peer(aware_t *awareness, FILE *traffic)
{
    static const char *const wanted[] = {"human message via slack", NULL};
    int64_t since;
    chapter("4. A coordinator watches a peer it did not spawn.");
    happens(awareness, traffic);
    watches(awareness, COORDINATOR, PEER, "explicit");
    happens(awareness, traffic);
    is_woken(awareness, COORDINATOR, PEER);
    since = drains_one_notice(awareness, COORDINATOR, "true").changes_since;
    reconciles(awareness, COORDINATOR, PEER, since, wanted);
    happens(awareness, traffic);
    drains_nothing(awareness, COORDINATOR);
}

static void a_group_in_ambient_mode(aware_t *awareness, FILE *traffic)
{
    static const char *const wanted[] = {"child run completed", "human message via telegram", "child run completed",
                                         NULL};
    int64_t since;
    chapter("5. A group in ambient mode: a notice for the next turn, but no wake.");
    happens(awareness, traffic);
    happens(awareness, traffic);
    watches(awareness, MANAGER, GROUP, "ambient-group");
    happens(awareness, traffic);
    happens(awareness, traffic);
    is_not_woken(awareness);
    happens(awareness, traffic);
    since = drains_one_notice(awareness, MANAGER, "true").changes_since;
    reconciles(awareness, MANAGER, GROUP, since, wanted);
}

static void a_run_fails_by_timeout(aware_t *awareness, FILE *traffic)
{
    static const char *const first[] = {"human message via telegram", NULL};
    static const char *const second[] = {"child run completed", "human message via telegram", NULL};
    static const char *const third[] = {"child run timed out", "human message via telegram", "child run completed",
                                        NULL};
    int64_t since;
    chapter("6. A run fails by timeout: no notice tells of it, the next changes do.");
    happens(awareness, traffic);
    happens(awareness, traffic);
    is_woken(awareness, MANAGER, BUILD);
    since = drains_one_notice(awareness, MANAGER, "true").changes_since;
    reconciles(awareness, MANAGER, BUILD, since, first);
    happens(awareness, traffic);
    happens(awareness, traffic);
    is_woken(awareness, MANAGER, BUILD);
    since = drains_one_notice(awareness, MANAGER, "true").changes_since;
    reconciles(awareness, MANAGER, BUILD, since, second);
    happens(awareness, traffic);
    is_not_woken(awareness);
    drains_nothing(awareness, MANAGER);
    happens(awareness, traffic);
    happens(awareness, traffic);
    is_woken(awareness, MANAGER, BUILD);
    since = drains_one_notice(awareness, MANAGER, "true").changes_since;
    reconciles(awareness, MANAGER, BUILD, since, third);
}

static aware_t *open_database(const char *database)
{
    char config[TEXT];
    aware_t *awareness = NULL;
    char *reply = NULL;
    snprintf(config, sizeof config, "{\"database\":\"%s\"}", database);
    expect("the database opens", aware_open(config, &awareness, &reply) == AWARE_OK, reply);
    aware_string_free(reply);
    return awareness;
}

static void close_database(aware_t *awareness)
{
    expect("the database closes", aware_close(awareness) == AWARE_OK, "");
}

/* The data lies beside this source. */
static FILE *open_traffic(void)
{
    char path[TEXT];
    const char *slash = strrchr(__FILE__, '/');
    int folder = slash == NULL ? 0 : (int)(slash + 1 - __FILE__);
    FILE *traffic;
    snprintf(path, sizeof path, "%.*sdata/traffic.jsonl", folder, __FILE__);
    traffic = fopen(path, "r");
    expect("the data is there", traffic != NULL, path);
    return traffic;
}

static void tell(const char *database)
{
    FILE *traffic = open_traffic();
    aware_t *awareness;
    printf("One gateway, six moments. Times are those of the data, in UTC.\n");
    awareness = open_database(database);
    a_person_writes_to_a_child(awareness, traffic);
    a_second_change_while_it_drains(awareness, traffic);
    close_database(awareness);
    awareness = open_database(database);
    the_gateway_restarts(awareness);
    a_coordinator_watches_a_peer(awareness, traffic);
    a_group_in_ambient_mode(awareness, traffic);
    a_run_fails_by_timeout(awareness, traffic);
    close_database(awareness);
    expect("every act is told", fgetc(traffic) == EOF, "the data goes on");
    fclose(traffic);
    printf("\nAll of it happened as told.\n");
}

static char temporary[] = "/tmp/gateway-XXXXXX";

static void remove_temporary(void)
{
    DIR *folder = opendir(temporary);
    struct dirent *entry;
    char path[TEXT];
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", temporary, entry->d_name);
        unlink(path);
    }
    if (folder != NULL) {
        closedir(folder);
        rmdir(temporary);
    }
}

int main(int argc, char **argv)
{
    if (argc > 2 || (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0))) {
        fprintf(stderr, "usage: gateway [DATABASE]\n");
        return 1;
    }
    if (argc == 2) {
        if (access(argv[1], F_OK) == 0) {
            fprintf(stderr, "%s is there already; the story needs a fresh database\n", argv[1]);
            return 1;
        }
        tell(argv[1]);
    } else {
        char database[LINE];
        expect("a temporary folder", mkdtemp(temporary) != NULL, temporary);
        atexit(remove_temporary); /* also when the story ends early */
        snprintf(database, sizeof database, "%s/gateway.db", temporary);
        tell(database);
    }
    return 0;
}
