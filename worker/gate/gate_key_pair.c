/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/gate/gate_key_pair.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"

#define GATEWAY_WORD "diloco-gateway-key-1"

static enum err write_two(const char *path, const char *word, const char *one, const char *two)
{
    char text[256];
    int bytes = snprintf(text, sizeof text, "%s %s %s\n", word, one, two);
    enum err err = fsio_replace(path, text, (size_t)bytes, S_IRUSR | S_IWUSR);
    explicit_bzero(text, sizeof text);
    return err;
}

enum err gate_key_of_gateway(const struct gate_zmq *zmq, const char *path, const char *site_path, struct gate_key *out)
{
    char rank_secret[GATE_KEY_TEXT];
    enum err err = ERR_OK;
    bool there = access(path, F_OK) == 0;
    if (there)
        err = gate_key_read(path, GATEWAY_WORD, out->own_secret, rank_secret);
    else if (zmq->zmq_curve_keypair(out->own_public, out->own_secret) != 0 ||
             zmq->zmq_curve_keypair(out->other_public, rank_secret) != 0)
        err = gate_zmq_failed(zmq, ERR_IO, "cannot make keys");
    if (err == ERR_OK)
        err = gate_key_public(zmq, path, out->own_secret, out->own_public);
    if (err == ERR_OK)
        err = gate_key_public(zmq, path, rank_secret, out->other_public);
    /* The site's first: after a crash between the two both are made anew. */
    if (err == ERR_OK && (!there || access(site_path, F_OK) != 0))
        err = write_two(site_path, GATE_SITE_WORD, out->own_public, rank_secret);
    if (err == ERR_OK && !there)
        err = write_two(path, GATEWAY_WORD, out->own_secret, rank_secret);
    explicit_bzero(rank_secret, sizeof rank_secret);
    return err;
}
