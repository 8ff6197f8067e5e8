/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool_logits: the logits that follow each token of a text, for comparing with what others compute of the same model.
 *
 *   tool_logits MODEL TOKEN...     MODEL: a checkpoint, an anchor, or the folder of a published model
 *
 * One line a token: as many numbers as the vocabulary has, with all their digits. On the CPU.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/digest.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "worker/ckpt.h"
#include "worker/model/model.h"

static enum err print_logits(struct model *model, char **tokens, float *logits)
{
    for (; *tokens != NULL; tokens++) {
        long token = strtol(*tokens, NULL, 10);
        if (token < 0 || token >= model->V)
            return err_set(ERR_ARG, "token %ld is not below %lld", token, (long long)model->V);
        TRY(model_decode(model, (int32_t)token, logits));
        for (int64_t i = 0; i < model->V; i++)
            printf("%.9g%c", (double)logits[i], i + 1 < model->V ? ' ' : '\n');
    }
    return ERR_OK;
}

static enum err run(const char *path, char **tokens)
{
    const struct kern *kern;
    const struct model_conf conf = {.batch = 1};
    struct kern_dev *dev = NULL;
    struct model *model = NULL;
    struct runspec spec;
    float *logits = NULL;
    enum err err;
    TRY(ckpt_read_spec(path, &spec));
    TRY_OUT(kern_find("cpu", &kern));
    TRY_OUT(kern->open(&(struct kern_place){.threads = 1}, &dev));
    TRY_OUT(model_new(&spec, kern, dev, &conf, &model));
    TRY_OUT(ckpt_load_params(path, &spec, model));
    TRY_OUT(mem_new((size_t)model->V, sizeof *logits, "logits", &logits));
    err = print_logits(model, tokens, logits);
out:
    mem_free(logits);
    model_free(model);
    if (dev != NULL)
        kern->close(dev);
    runspec_deinit(&spec);
    return err;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: tool_logits MODEL TOKEN...\n");
        return 2;
    }
    enum err err = digest_init();
    if (err == ERR_OK)
        err = run(argv[1], argv + 2);
    if (err != ERR_OK)
        fprintf(stderr, "tool_logits: %s\n", err_text());
    return err == ERR_OK ? 0 : 1;
}
