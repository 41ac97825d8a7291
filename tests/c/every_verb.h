/* Every verb, with a request that is right as far as its JSON goes. */
#ifndef EVERY_VERB_H
#define EVERY_VERB_H

#include "check.h"

static const struct {
    const char *name;
    verb_t call;
    const char *request;
} EVERY_VERB[] = {
    {"record", aware_record, HUMAN_TURN(CHILD)},
    {"state_versions", aware_state_versions, "{\"sessions\":[]}"},
    {"watch", aware_watch, WATCH(MANAGER, CHILD)},
    {"unwatch", aware_unwatch, WATCH(MANAGER, CHILD)},
    {"watches", aware_watches, "{}"},
    {"session_reset", aware_session_reset, "{\"sessionKey\":\"" MANAGER "\"}"},
    {"session_delete", aware_session_delete, "{\"sessionKey\":\"" CHILD "\"}"},
    {"drain_notices", aware_drain_notices, DRAIN(MANAGER)},
    {"ack_notices", aware_ack_notices, "{\"watcherSessionKey\":\"" MANAGER "\",\"notices\":[]}"},
    {"wait_wakes", aware_wait_wakes, "{\"timeoutMs\":0}"},
    {"changes_since", aware_changes_since, "{\"sessionKey\":\"" CHILD "\",\"changesSince\":0}"},
    {"sessions", aware_sessions, "{}"},
    {"events", aware_events, "{}"},
    {"backup", aware_backup, "{\"path\":\"backup.db\"}"},
    {"maintain", aware_maintain, "{}"},
    {"tool_schemas", aware_tool_schemas, "{\"format\":\"openai\"}"},
    {"stats", aware_stats, "{}"},
    {"adopt", aware_adopt, "{\"sessionKey\":\"" CHILD "\",\"catalog\":\"pi\",\"hostId\":\"node\",\"threadId\":\"t\"}"},
    {"release", aware_release, "{\"sessionKey\":\"" CHILD "\"}"},
    {"links", aware_links, "{}"},
    {"discover", aware_discover, "{}"},
    {"scan", aware_scan, "{}"},
    {"set_run_active", aware_set_run_active, "{\"sessionKey\":\"" CHILD "\",\"active\":true}"},
    {"own_message", aware_own_message, "{\"sessionKey\":\"" CHILD "\",\"text\":\"x\"}"},
    /* There may be no link to feed at this point. */
    {"feed", aware_feed, "{\"sessionKey\":\"" CHILD "\",\"rows\":[]}"},
};

enum { VERBS = sizeof EVERY_VERB / sizeof EVERY_VERB[0] };

#endif
