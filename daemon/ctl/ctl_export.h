/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_export: a model of ours as a folder that others read: config.json and safetensors, as transformers has them.
 *
 * The folder is whole or not there (newfolder.h). Values are read and written by pieces, so that a model takes no more
 * memory than a small one. It asks no daemon: the caller names the file. Blocking.
 */
#ifndef DAEMON_CTL_CTL_EXPORT_H
#define DAEMON_CTL_CTL_EXPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ctl_export {
    const char *from;       /* a checkpoint or an anchor, or a folder that holds a model */
    const char *folder;     /* to be made */
    const char *format;     /* "hf"; NULL: not said, which is refused */
    const char *dtype;      /* f32, bf16 or f16; NULL: f32 */
    const char *shard_size; /* of a file at most, as "5GB", but for one tensor; NULL: that */
    bool force;             /* one of ours that is there is replaced */
    bool json;
};

/* What can be said before any file is looked at. ERR_ARG. */
ERR_MUST_CHECK enum err ctl_export_check(const struct ctl_export *export);

/* Makes the folder and says what it made. */
ERR_MUST_CHECK enum err ctl_export(const struct ctl_export *export);

/* ---- the vocabulary of bytes as a tokenizer that transformers loads: token n is byte n ---- */

/* tokenizer.json: a BPE without merges over the 256 characters that stand for bytes. Caller frees with mem_free(). */
ERR_MUST_CHECK enum err ctl_tokenizer(char **text);
/* tokenizer_config.json, of a model that was trained on sequences of so many bytes. */
ERR_MUST_CHECK enum err ctl_tokenizer_config(int64_t context, char **text);

#endif
