/*
 * program: where a program is that somebody names.
 */
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

#include "common/err.h"

/* Path of a program that this process may execute: a name with a slash as it stands; another one beside the program
 * that runs here, so that a build folder works without installation, then in PATH. ERR_NOTFOUND; mem_free() `*out`. */
ERR_MUST_CHECK enum err program_find(const char *name, char **out);

#endif
