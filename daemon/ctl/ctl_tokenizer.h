/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_tokenizer: the vocabulary of bytes as a tokenizer that transformers loads: token n is byte n.
 *
 * Text in, text out: no files. Any thread.
 */
#ifndef DAEMON_CTL_CTL_TOKENIZER_H
#define DAEMON_CTL_CTL_TOKENIZER_H

#include <stdint.h>

#include "common/err.h"

/* tokenizer.json: a BPE without merges over the 256 characters that stand for bytes. Caller frees with mem_free(). */
ERR_MUST_CHECK enum err ctl_tokenizer(char **text);
/* tokenizer_config.json, of a model that was trained on sequences of so many bytes. */
ERR_MUST_CHECK enum err ctl_tokenizer_config(int64_t context, char **text);

#endif
