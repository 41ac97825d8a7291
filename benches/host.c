/*
 * A host in C, as small as one can be, for figures that only such a one shows.
 *
 *   host memory LIBRARY DATABASE        its memory, in KiB: at first, after
 *                                       dlopen and open, after 100,000 records
 *   host calls LIBRARY DATABASE ROUNDS  calls record, drain_notices and
 *                                       changes_since, for who counts instructions
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t verb(void *handle, const char *request, char **reply);

static void *library, *handle;
static void (*string_free)(char *);

static void *symbol(const char *name) {
  void *found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "%s is not in the library\n", name);
    exit(1);
  }
  return found;
}

static void call(const char *name, const char *request) {
  char *reply = NULL;
  verb *function;
  *(void **)&function = symbol(name);
  if (function(handle, request, &reply) != 0) {
    fprintf(stderr, "%s: %s\n", name, reply);
    exit(1);
  }
  string_free(reply);
}

static void load(const char *path, const char *database) {
  char config[4096], *reply = NULL;
  int32_t (*open)(const char *, void **, char **);
  library = dlopen(path, RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  *(void **)&open = symbol("aware_open");
  *(void **)&string_free = symbol("aware_string_free");
  snprintf(config, sizeof config, "{\"database\":\"%s\"}", database);
  if (open(config, &handle, &reply) != 0) {
    fprintf(stderr, "aware_open: %s\n", reply);
    exit(1);
  }
  string_free(reply);
}

static long resident(void) {
  char line[256];
  long kib = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  if (status) fclose(status);
  return kib;
}

static const char EVENT[] =
    "{\"sessionKey\":\"agent:main:subagent:child\",\"kind\":\"human_direct_message\","
    "\"actorType\":\"human\",\"payload\":{\"channel\":\"telegram\"}}";
static const char WATCH[] =
    "{\"watcherSessionKey\":\"agent:main:main\",\"targetSessionKey\":\"agent:main:subagent:child\"}";
static const char DRAIN[] = "{\"watcherSessionKey\":\"agent:main:main\"}";
static const char CHANGES[] = "{\"sessionKey\":\"agent:main:subagent:child\",\"changesSince\":0}";

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  if (strcmp(argv[1], "memory") == 0) {
    long first = resident(), opened;
    load(argv[2], argv[3]);
    call("aware_watch", WATCH);
    opened = resident();
    for (int n = 0; n < 100000; n++) call("aware_record", EVENT);
    printf("%ld %ld %ld\n", first, opened, resident());
    return 0;
  }
  load(argv[2], argv[3]);
  call("aware_watch", WATCH);
  int calls = argc > 4 ? atoi(argv[4]) : 100;
  for (int n = 0; n < 200; n++) call("aware_record", EVENT);
  for (int n = 0; n < calls; n++) {
    /* The first opens a notice, the others come behind it. */
    for (int behind = 0; behind < 3; behind++) call("aware_record", EVENT);
    call("aware_drain_notices", DRAIN);
    call("aware_changes_since", CHANGES);
  }
  return 0;
}
