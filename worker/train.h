/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train: the training loop, alone or attached to a daemon through libdiloco's public interface.
 *
 * One process alone, or one of several ranks (worker/launch.h), of which the first speaks for all: files, log, daemon.
 * Owns a run of the trainer from its first file to its last: data, model, inner optimizer, checkpoints, train.jsonl.
 * diloco-worker calls it, one call at a time; a call returns when the work is done. It never ends the process, handles
 * no signal, and knows nothing of the daemon that libdiloco does not say.
 *
 * Owns: diloco-worker: the training loop, data, inner optimizer, checkpoints, sampling.
 * Called by: nobody; diloco-worker.c, its main(), lies beside it.
 * Never includes: daemon/, net/, outer_opt/, <zmq.h>.
 */
#ifndef WORKER_TRAIN_H
#define WORKER_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "worker/launch.h"
#include "worker/model/model.h"

struct train_options {
    const struct runspec *spec;
    const char *data_path;
    const char *folder; /* checkpoints and train.jsonl; created if need be */
    const char *device;
    int threads; /* 0: all */
    enum model_recompute recompute;
    bool stochastic_rounding;       /* of the products' copy; see inner_round() */
    const struct launch_rank *rank; /* one of several; NULL: alone */
    int tensor_parallel; /* ranks that share each layer, a divisor of all; 0 is 1. The others share out each batch */
    const char *socket_path; /* of the island's daemon; NULL: train alone */
    bool stream_published;   /* else the daemon's island number decides, or stream 0 of 1 */
    uint32_t stream, streams_count;
    uint64_t checkpoint_every; /* steps; 0: only at the end */
    uint64_t eval_every;       /* steps; 0: only at the end */
    uint64_t eval_batches;
    bool (*interrupted)(void); /* becomes true on SIGINT or SIGTERM */
};

/* Trains to the run's last step, or until leave or an interrupt; resumes from the folder's newest checkpoint. Returns
 * ERR_OK also when interrupted after saving. ERR_NOMEM says what the device has too little for, and what would fit. */
ERR_MUST_CHECK enum err train_run(const struct train_options *options);

/* What it would stumble over when it starts: data that are none, or too few, and a device that is not there. `device`:
 * number of the first one. Nothing is made. Errors as of train_run(). */
ERR_MUST_CHECK enum err train_check(const struct train_options *options, int device);

struct eval_options {
    const struct runspec *spec;
    const char *params_path; /* NULL: the initial parameters */
    const char *data_path;
    const char *device;
    int threads;
    uint64_t batches;
};

/* Mean held-out loss in nats per token. ERR_NOMEM as train_run(). */
ERR_MUST_CHECK enum err train_eval(const struct eval_options *options, double *loss);

#endif
