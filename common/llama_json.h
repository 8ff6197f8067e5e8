/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llama_json: config.json of a published model, read and written as `LlamaForCausalLM` has it.
 *
 * Reading is strict: it refuses by name any key that would make the model compute something else than ours. A missing
 * key has the published code's default, or is refused where that has none. No files: text in, text out. Any thread.
 */
#ifndef COMMON_LLAMA_JSON_H
#define COMMON_LLAMA_JSON_H

#include <stddef.h>

#include "common/dtype.h"
#include "common/err.h"
#include "common/llama.h"

/* `path` names the text in errors. ERR_CONF: of another architecture, or with something that ours has not; ERR_CORRUPT:
 * no config.json. */
ERR_MUST_CHECK enum err llama_json_parse(const char *text, size_t bytes, const char *path, struct llama_config *out);

/* Caller frees with mem_free(). */
ERR_MUST_CHECK enum err llama_json_text(const struct llama_config *config, enum dtype dtype, char **text);

#endif
