/* The header stands alone, may be included twice and from several units, and says what the library does. */
#include "session_awareness.h"

#include "session_awareness.h"

#include "other.h"

#include <string.h>

/* Does not compile when two statuses have one number. */
static int is_status(int32_t number)
{
    switch (number) {
    case AWARE_OK:
    case AWARE_INVALID_ARGUMENT:
    case AWARE_NOT_FOUND:
    case AWARE_STORAGE:
    case AWARE_BUSY:
    case AWARE_CLOSED:
    case AWARE_UNSUPPORTED:
    case AWARE_INTERNAL:
        return 1;
    default:
        return 0;
    }
}

int main(void)
{
    aware_wake_callback nobody = NULL;
    aware_log_callback silence = NULL;
    if (AWARE_OK != 0 || !is_status(aware_close(NULL)) || is_status(-1)) {
        return 1;
    }
    aware_set_log_callback(silence, NULL, 0);
    if (aware_set_wake_callback(NULL, nobody, NULL) != AWARE_CLOSED) {
        return 2;
    }
    if (aware_abi_version() != AWARE_ABI_VERSION || abi_seen_by_other() != AWARE_ABI_VERSION) {
        return 3;
    }
    return strcmp(aware_version(), version_seen_by_other()) == 0 ? 0 : 4;
}
