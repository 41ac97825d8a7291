/* For programs that load the library by its name. */
#ifndef FIND_H
#define FIND_H

#include "check.h"

#include <dlfcn.h>

/* ISO C has no cast from an object's address to a function's. */
#define FIND(library, name, into)                                                                                      \
    do {                                                                                                               \
        void *address = dlsym(library, name);                                                                          \
        CHECK(address != NULL);                                                                                        \
        memcpy(&(into), &address, sizeof address);                                                                     \
    } while (0)

#endif
