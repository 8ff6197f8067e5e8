/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest trainer of one's own: every island fits the same 2000 numbers from its own noisy view of them, with
 * plain SGD, and takes part in the run through libdiloco.
 *
 *     cc example-trainer.c -o example-trainer $(pkg-config --cflags --libs diloco)
 *     DILOCO_SOCKET=/run/diloco/worker.sock ./example-trainer
 *
 * The island's dilocod.conf has `program =` (empty) in [worker], or names this program and its arguments; then the
 * daemon starts and watches it, and sets DILOCO_SOCKET. Of the run spec, [run], [sync] and [outer] count; [model],
 * [data] and [train] are about diloco-worker. All islands register the same tensors.
 */
#include <diloco.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 2000, BATCH = 32 };

/* A number between -1 and 1. */
static float noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

/* One optimizer step on w; returns the loss before it. */
static double sgd_step(float *w, uint64_t *random)
{
    double loss = 0;
    for (int i = 0; i < COUNT; i++) {
        float wanted = (float)(i % 17) / 17 + noise(random); /* what this batch shows of number i */
        float error = w[i] - wanted;
        loss += 0.5 * error * error / COUNT;
        w[i] -= 0.05f * error;
    }
    return loss;
}

static int failed(struct diloco *d, const char *what)
{
    fprintf(stderr, "%s: %s\n", what, diloco_error(d));
    diloco_detach(d);
    return 1;
}

int main(void)
{
    float w[COUNT] = {0}; /* all islands begin with the same values: here, zeros */
    struct diloco_options options = {.size = sizeof options, .trainer = "example", .wait_ms = 5000};
    struct diloco *d;
    if (diloco_attach(&options, &d) != DILOCO_OK)
        return failed(d, "attach");

    struct diloco_tensor tensor = {
        .size = sizeof tensor, .name = "w", .data = w, .dims = 1, .shape = {COUNT}, .layer = DILOCO_LAYER_NONE};
    if (diloco_register(d, &tensor) != DILOCO_OK)
        return failed(d, "register");

    struct diloco_start start = {.size = sizeof start};
    if (diloco_begin(d, &start) != DILOCO_OK) /* w now holds the run's parameters */
        return failed(d, "begin");
    printf("island %s, after step %llu of %llu\n", start.island, (unsigned long long)start.step,
           (unsigned long long)start.steps);

    uint64_t random = diloco_seed(d, 1); /* each island its own data, and others after a restart */
    int result = start.step < start.steps ? DILOCO_OK : DILOCO_STOP;
    while (result == DILOCO_OK) {
        struct diloco_report report = {.size = sizeof report, .tokens = BATCH, .loss = sgd_step(w, &random)};
        result = diloco_step(d, &report); /* w may have changed: the others' work is in it */
    }
    result = result == DILOCO_STOP ? diloco_finish(d) : result;
    if (result == DILOCO_OPEN) /* this island leaves, or others are away: the run may go on */
        printf("not the end: %s\n", diloco_error(d));
    else if (result != DILOCO_OK)
        return failed(d, "train");
    /* w now holds the run's last parameters */
    printf("done: w[16] = %.3f, wanted %.3f\n", w[16], 16.0 / 17);
    diloco_detach(d);
    return 0;
}
