/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gate_key_pair: a gateway's own key, and that by which it knows ranks: made when they are needed first.
 */
#ifndef WORKER_GATE_GATE_KEY_PAIR_H
#define WORKER_GATE_GATE_KEY_PAIR_H

#include "common/err.h"
#include "worker/gate/gate_key.h"

/* From its file; where there is none new ones are made and written there, and what ranks need to `site_path`, which is
 * also written anew where it is not there. Both are readable by their owner alone. ERR_CONF: one that others may read,
 * or that is no such file; ERR_IO, ERR_NOSPACE. */
ERR_MUST_CHECK enum err gate_key_of_gateway(const struct gate_zmq *zmq, const char *path, const char *site_path,
                                            struct gate_key *out);

#endif
