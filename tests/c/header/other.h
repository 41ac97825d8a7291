#ifndef OTHER_H
#define OTHER_H

#include "session_awareness.h"

uint32_t abi_seen_by_other(void);
const char *version_seen_by_other(void);

#endif
