/* SPDX-License-Identifier: Apache-2.0 */
/*
 * complete: what makes a shell complete a program's words, made from the tables that its command line is read by.
 *
 * Options complete to those that the command takes, values to those of a fixed set, names of files and folders where
 * such are wanted, and --set to the keys of a configuration and their choices. An option's value_name says which: words
 * between '|' are the set; FILE, PATH and SOCKET are files, DIR and FOLDER folders. So does a command's usage, where
 * NAME stands for the names that the program itself prints (commands.h, tells_names); its errors are dropped.
 */
#ifndef COMMON_COMPLETE_H
#define COMMON_COMPLETE_H

#include <stdio.h>

#include "common/commands.h"
#include "common/err.h"

/* `shell`: bash, zsh or fish; ERR_ARG: there is no other; NULL, too. */
ERR_MUST_CHECK enum err complete_print(const struct commands *commands, const char *shell, FILE *file);

#endif
