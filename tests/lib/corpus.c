/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/corpus.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CORPUS_BYTES_MIN = 100000 };

bool corpus_link(const char *data, const char *path)
{
    char absolute[PATH_MAX];
    unlink(path);
    if (realpath(data, absolute) != NULL && symlink(absolute, path) == 0)
        return true;
    fprintf(stderr, "%s: %s\n", data, strerror(errno));
    return false;
}

bool corpus_make(const char *data, const char *path, size_t bytes_max)
{
    char text[PATH_MAX + 200];
    struct stat status;
    if (data != NULL)
        return corpus_link(data, path);
    unlink(path);
    snprintf(text, sizeof text,
             "find -L /usr/include -type f -name '*.h' 2>/dev/null | LC_ALL=C sort | xargs cat 2>/dev/null | "
             "head -c %zu > '%s'",
             bytes_max, path);
    if (system(text) == 0 && stat(path, &status) == 0 && status.st_size >= CORPUS_BYTES_MIN)
        return true;
    fprintf(stderr, "too few C headers under /usr/include; give a text: DATA=file\n");
    return false;
}
