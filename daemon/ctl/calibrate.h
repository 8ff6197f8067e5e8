/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibrate: the cost of an exchange on this machine, measured for about a second, and reckoned for a run.
 *
 * One thread measures each piece of a daemon's work as dilocod does it: encoding with zstd and digest, decoding, outer
 * step, hash tree, cipher, copies, disk. Costs are of one core's time, in nanoseconds: what else this machine does
 * meanwhile hardly counts. docs/DECISIONS.md ("Where the processor's time goes") says what each phase does.
 */
#ifndef DAEMON_CTL_CALIBRATE_H
#define DAEMON_CTL_CALIBRATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "outer_opt/codec.h"

/* Of what does not depend on the codec. */
struct calibration {
    double step_ns, hash_ns,
        copy_ns;                 /* a value: outer step; anchor and momentum into the hash tree; from here to there */
    double digest_ns, cipher_ns; /* a byte; a cipher's work on one side */
    double disk_ns;              /* a byte, written and flushed: time, not a core's */
};

struct calibrate_codec {
    double encode_ns, add_ns, look_ns; /* a value: to a frame; from a frame, added up; only whether it can be decoded */
};

/* One exchange of one island, a parameter of the model; and what its daemon holds. */
struct calibrate_cost {
    double encode_ns, apply_ns; /* of the whole model: with its snapshot; with giving it to the trainer */
    double hash_ns;             /* of the whole model, as a version; the trainer does not wait for it */
    double reduce_ns;           /* of what this island owns */
    double store_ns;            /* of a result, wherever it comes from: looked at and written */
    double link_ns;             /* a byte that is sent or received */
    double disk_ns;             /* of a result */
    double all_ns;              /* a core's time for all of it, per parameter of the model */
    double memory_bytes;        /* per parameter of the model */
};

/* Whose cost: islands, of which the first so many own equal shards; an encoded value's bits. */
struct calibrate_run {
    uint32_t islands, owners;
    double bits;
    bool error_feedback;
};

/* `folder`: where a file is written for the disk, which has no name and is gone at once. ERR_NOMEM; ERR_IO; ERR_ARG: no
 * such codec. */
ERR_MUST_CHECK enum err calibrate_measure(const char *folder, struct calibration *out);
ERR_MUST_CHECK enum err calibrate_measure_codec(const struct codec_choice *choice, struct calibrate_codec *out);

/* Pure. */
struct calibrate_cost calibrate_cost(const struct calibration *machine, const struct calibrate_codec *codec,
                                     const struct calibrate_run *run);

#endif
