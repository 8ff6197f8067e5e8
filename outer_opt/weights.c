/* SPDX-License-Identifier: Apache-2.0 */
#include "outer_opt/weights.h"

#include <stdlib.h>

/* A set of numbers in order. */
struct sorted {
    double values[WEIGHT_INPUTS_MAX];
    size_t count;
};

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

static double rounds_of(const struct weight_input *input)
{
    return input->missed < WEIGHT_ROUNDS_MAX ? (double)(input->missed + 1) : WEIGHT_ROUNDS_MAX;
}

static double rate_of(const struct weight_input *input)
{
    return (double)input->tokens / rounds_of(input);
}

/* The upper median of a set without one number that may be in it. */
static double median_without(const struct sorted *set, bool in_set, double own)
{
    size_t middle = (set->count - in_set) / 2;
    return set->values[in_set && own <= set->values[middle] ? middle + 1 : middle];
}

/* What inputs weigh by `max`; and the sum of it. */
static double bound_each(double max, const struct weight_input *inputs, size_t count, double *bounded)
{
    struct sorted all = {.count = 0}, owners = {.count = 0};
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        all.values[all.count++] = rate_of(&inputs[i]);
        if (inputs[i].owner)
            owners.values[owners.count++] = rate_of(&inputs[i]);
    }
    qsort(all.values, all.count, sizeof *all.values, by_size);
    qsort(owners.values, owners.count, sizeof *owners.values, by_size);
    for (size_t i = 0; i < count; i++) {
        bool of_owners = owners.count - inputs[i].owner >= 2;
        double usual = median_without(of_owners ? &owners : &all, !of_owners || inputs[i].owner, rate_of(&inputs[i]));
        double tokens = (double)inputs[i].tokens, most = max * usual * rounds_of(&inputs[i]);
        bounded[i] = tokens < most ? tokens : most;
        sum += bounded[i];
    }
    return sum;
}

void weights_bound(double max, const struct weight_input *inputs, size_t count, float *weights)
{
    double bounded[WEIGHT_INPUTS_MAX], owners = 0, others = 0;
    if (count == 1) {
        weights[0] = (float)inputs[0].tokens;
        return;
    }
    double sum = bound_each(max, inputs, count, bounded);
    for (size_t i = 0; i < count; i++) {
        double half = 0.5 * (sum - bounded[i]);
        double weight = count >= 3 && bounded[i] > half ? half : bounded[i];
        weights[i] = (float)weight;
        *(inputs[i].owner ? &owners : &others) += weight;
    }
    for (size_t i = 0; owners > 0 && others > owners && i < count; i++)
        if (!inputs[i].owner)
            weights[i] = (float)((double)weights[i] * (owners / others));
}

bool weights_far_beyond(uint64_t tokens, float weight, uint64_t usual)
{
    return (double)tokens > (double)WEIGHT_CLAIM_FAR * (double)usual && (double)tokens >= 4 * (double)weight;
}
