/* SPDX-License-Identifier: Apache-2.0 */
/*
 * newfolder: a folder of files that is either whole or not there, as fsio has it for one file.
 *
 * It is filled beside its name, under that name and ".new", and renamed. So after a crash at any instant the name holds
 * what it held before, or all of the new. What a try that was killed has left beside it the next one clears away; two
 * at a time do not disturb each other. Nothing is removed but files that the maker of the folder knows by name.
 * Blocking.
 */
#ifndef COMMON_NEWFOLDER_H
#define COMMON_NEWFOLDER_H

#include <stdbool.h>

#include "common/err.h"

struct newfolder {
    char *path;  /* where it is to be */
    char *place; /* where it is filled: files go here */
    bool (*ours)(const char *name);
    bool replaces;
    int fd;        /* of `place`, locked */
    int parent_fd; /* of the folder that both are in */
};

/* Makes the place to fill. `ours`: whether a file of this name is one that such a folder has. At `path` there may be
 * nothing, or an empty folder; also, where `mark` is not NULL, a folder of nothing but files of ours, with the one that
 * is called so. ERR_STATE: it is something else, or another program is at it; ERR_ARG: no name of a folder. Each with
 * the remedy; that for a folder that could be replaced is --force. */
ERR_MUST_CHECK enum err newfolder_begin(struct newfolder *folder, const char *path, const char *mark,
                                        bool (*ours)(const char *name));
/* Ends it whatever the outcome. */
ERR_MUST_CHECK enum err newfolder_commit(struct newfolder *folder);
void newfolder_abort(struct newfolder *folder);

#endif
