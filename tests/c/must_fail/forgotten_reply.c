/* Loses a reply. The memory checkers must tell, or they check nothing. */
#include "../check.h"

int main(int argc, char **argv)
{
    aware_t *handle;
    start(argc, argv);
    handle = open_at(DATABASE);
    CHECK(aware_stats(handle, "{}", NULL) == AWARE_OK);
    for (int turn = 0; turn < 10; turn++) {
        char *reply = NULL;
        CHECK(aware_stats(handle, "{}", &reply) == AWARE_OK);
        CHECK(reply != NULL);
    }
    CHECK(aware_close(handle) == AWARE_OK);
    return 0;
}
