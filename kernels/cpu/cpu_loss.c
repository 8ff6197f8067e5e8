/* Softmax and cross-entropy in one pass over the logits, whose place the gradient takes. */
#include <math.h>

#include "kernels/cpu/cpu.h"

void CPU(cross_entropy)(struct kern_dev *dev, float *losses, kern_act *logits_, const int32_t *targets, int64_t R,
                        int64_t V, float scale)
{
    (void)dev;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < R; r++) {
        float *restrict x = (float *)logits_ + r * V;
        float most = x[0];
#pragma omp simd reduction(max : most)
        for (int64_t i = 0; i < V; i++)
            most = x[i] > most ? x[i] : most;
        float at_target = x[targets[r]];
        float sum = 0;
        if (scale == 0) {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < V; i++)
                sum += cpu_exp(x[i] - most);
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t i = 0; i < V; i++) {
                float e = cpu_exp(x[i] - most);
                x[i] = e;
                sum += e;
            }
            float factor = scale / sum;
            for (int64_t i = 0; i < V; i++)
                x[i] *= factor;
            x[targets[r]] -= scale;
        }
        losses[r] = logf(sum) + most - at_target;
    }
}
