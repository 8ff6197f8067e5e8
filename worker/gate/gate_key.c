/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gate/gate_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* By statx() and not fstat(), which programs built today take from C libraries of 2021 on only: see conf/wheel.sh. */
static enum err check_mode(const char *path, int fd)
{
    struct statx status;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_MODE, &status) != 0)
        return err_set_errno(ERR_IO, "%s", path);
    if ((status.stx_mode & (S_IRWXG | S_IRWXO)) != 0)
        return err_set(ERR_CONF, "%s: others may read this key (mode %04o); chmod 600 %s", path,
                       (unsigned)status.stx_mode & 07777u, path);
    return ERR_OK;
}

enum err gate_key_read(const char *path, const char *word, char one[GATE_KEY_TEXT], char two[GATE_KEY_TEXT])
{
    char text[256] = "", said[32];
    int end = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(errno == ENOENT ? ERR_NOTFOUND : ERR_IO, "%s", path);
    enum err err = check_mode(path, fd);
    ssize_t bytes = err == ERR_OK ? read(fd, text, sizeof text - 1) : 0;
    if (bytes < 0)
        err = err_set_errno(ERR_IO, "%s", path);
    close(fd);
    bool good = sscanf(text, "%31s %40s %40s %n", said, one, two, &end) == 3 && end == bytes &&
                strcmp(said, word) == 0 && strlen(one) == GATE_KEY_TEXT - 1 && strlen(two) == GATE_KEY_TEXT - 1;
    explicit_bzero(text, sizeof text);
    if (err == ERR_OK && !good)
        err = err_set(ERR_CONF, "%s: is no key of this kind: one line, which begins with %s", path, word);
    return err;
}

enum err gate_key_public(const struct gate_zmq *zmq, const char *path, const char *secret, char public[GATE_KEY_TEXT])
{
    if (zmq->zmq_curve_public(public, secret) != 0)
        return err_set(ERR_CONF, "%s: what stands there is no key", path);
    return ERR_OK;
}

enum err gate_key_of_rank(const struct gate_zmq *zmq, const char *path, struct gate_key *out)
{
    TRY(gate_key_read(path, GATE_SITE_WORD, out->other_public, out->own_secret));
    return gate_key_public(zmq, path, out->own_secret, out->own_public);
}
