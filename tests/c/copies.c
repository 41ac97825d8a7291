/*
 * A second copy of the library in a process, as two packages that each bring
 * one make it: it opens no database that the first has open, since neither
 * would see the other's locks and both would write.
 */
#include "find.h"

static int32_t (*second_open)(const char *, aware_t **, char **);
static int32_t (*second_close)(aware_t *);
static void (*second_free)(char *);
static verb_t second_record;

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 16];
    size_t count;
    FILE *source = fopen(from, "rb"), *copy = fopen(to, "wb");
    CHECK(source != NULL && copy != NULL);
    while ((count = fread(bytes, 1, sizeof bytes, source)) > 0) {
        CHECK(fwrite(bytes, 1, count, copy) == count);
    }
    CHECK(fclose(source) == 0 && fclose(copy) == 0);
}

static void load_the_second(void)
{
    void *library;
    copy_file(getenv("SESSION_AWARENESS_LIB"), "second.so");
    library = dlopen("./second.so", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    FIND(library, "aware_open", second_open);
    FIND(library, "aware_close", second_close);
    FIND(library, "aware_string_free", second_free);
    FIND(library, "aware_record", second_record);
    CHECK(second_open != aware_open);
}

static void the_second_is_refused(void)
{
    aware_t *handle = NULL;
    char *reply = NULL;
    CHECK(second_open("{\"database\":\"" DATABASE "\"}", &handle, &reply) == AWARE_UNSUPPORTED);
    CHECK(handle == NULL);
    CHECK(strstr(reply, "another copy of this library") != NULL);
    second_free(reply);
}

static aware_t *the_second_opens(const char *config)
{
    aware_t *handle = NULL;
    CHECK(second_open(config, &handle, NULL) == AWARE_OK);
    CHECK(second_record(handle, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
    return handle;
}

int main(int argc, char **argv)
{
    aware_t *first, *beside, *second;
    start(argc, argv);
    load_the_second();
    first = open_at(DATABASE);
    beside = open_at(DATABASE); /* one copy may open it as often as it likes */
    CHECK(aware_close(first) == AWARE_OK);
    the_second_is_refused();

    /* Another database is nobody's harm. */
    second = the_second_opens("{\"database\":\"other.db\"}");
    CHECK(aware_record(beside, HUMAN_TURN(CHILD), NULL) == AWARE_OK);
    the_second_is_refused();
    CHECK(second_close(second) == AWARE_OK);

    /* Nor is one after the other. */
    CHECK(aware_close(beside) == AWARE_OK);
    second = the_second_opens("{\"database\":\"" DATABASE "\"}");
    first = NULL;
    CHECK(aware_open("{\"database\":\"" DATABASE "\"}", &first, NULL) == AWARE_UNSUPPORTED);
    CHECK(second_close(second) == AWARE_OK);
    first = open_at(DATABASE);
    CHECK(NUMBER(aware_stats, first, "{}", "events") == 2);
    CHECK(aware_close(first) == AWARE_OK);
    return 0;
}
