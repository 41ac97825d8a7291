#include "other.h"

uint32_t abi_seen_by_other(void)
{
    return aware_abi_version();
}

const char *version_seen_by_other(void)
{
    return aware_version();
}
