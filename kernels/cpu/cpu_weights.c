/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights as bf16 products read them: rounded and packed once after each change, not once a product.
 *
 * A copy is made anew by the first product after values of its matrix were written. Operations of the table say so
 * themselves, each by cpu_follow() or wrote(); for writers beside the table there is to_act(). An old copy would be
 * a divergence that nobody sees, so one more thing stands against it: of each matrix some values are remembered as the
 * copy was made from them, others each time, and looked at before each product. Optimizers and moves change nearly all
 * values, so what was not told is found at once, and is a fault.
 */
#include "common/mem.h"
#include "kernels/cpu/cpu.h"

enum { SAMPLES = 64 };

struct matrix {
    const float *at;
    int64_t N, K;
    void *forth, *back; /* packed, for linear_fwd() and linear_bwd_inp(); NULL: that one is not wanted */
    bool old;
    int64_t first; /* of the samples */
    float sample[SAMPLES];
};

struct kern_weights {
    struct kern_weights *next; /* of this device */
    size_t count;
    struct matrix *matrices; /* in memory one behind the other */
    cpu_half *plain;         /* of the largest */
};

/* ---- made and freed ---- */

static size_t largest(const struct kern_matrix *matrices, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t values = (size_t)(matrices[i].N * matrices[i].K);
        most = values > most ? values : most;
    }
    return most;
}

size_t CPU(weights_bytes)(const struct kern_dev *dev, const struct kern_matrix *matrices, size_t count, bool train)
{
    size_t sum = largest(matrices, count) * sizeof(cpu_half);
    if (dev->bf16 == NULL)
        return 0;
    for (size_t i = 0; i < count; i++) {
        sum += CPU(bf16_packed_bytes)(matrices[i].K, matrices[i].N);
        sum += train ? CPU(bf16_packed_bytes)(matrices[i].N, matrices[i].K) : 0;
    }
    return sum;
}

static enum err make_matrix(struct matrix *m, const float *act, const struct kern_matrix *of, bool train)
{
    *m = (struct matrix){.at = act + of->at, .N = of->N, .K = of->K, .old = true};
    TRY(mem_new(CPU(bf16_packed_bytes)(m->K, m->N), 1, "weights in bf16", &m->forth));
    return train ? mem_new(CPU(bf16_packed_bytes)(m->N, m->K), 1, "weights in bf16", &m->back) : ERR_OK;
}

enum err CPU(weights_new)(struct kern_dev *dev, const kern_act *act, const struct kern_matrix *matrices, size_t count,
                          bool train, struct kern_weights **out)
{
    enum err err;
    struct kern_weights *w = NULL;
    *out = NULL;
    if (dev->bf16 == NULL)
        return ERR_OK;
    TRY(mem_new(1, sizeof *w, "weights in bf16", &w));
    w->next = dev->weights;
    dev->weights = w;
    TRY_OUT(mem_new(count, sizeof *w->matrices, "weights in bf16", &w->matrices));
    TRY_OUT(mem_new(largest(matrices, count), sizeof *w->plain, "weights in bf16", &w->plain));
    for (; w->count < count; w->count++) {
        err = make_matrix(&w->matrices[w->count], act, &matrices[w->count], train);
        if (err != ERR_OK) {
            w->count++; /* of which there is a part */
            goto out;
        }
    }
out:
    if (err != ERR_OK)
        CPU(weights_free)(dev, w);
    else
        *out = w;
    return err;
}

void CPU(weights_free)(struct kern_dev *dev, struct kern_weights *w)
{
    if (w == NULL)
        return;
    struct kern_weights **place = &dev->weights;
    while (*place != w)
        place = &(*place)->next;
    *place = w->next;
    for (size_t i = 0; i < w->count; i++) {
        mem_free(w->matrices[i].forth);
        mem_free(w->matrices[i].back);
    }
    mem_free(w->matrices);
    mem_free(w->plain);
    mem_free(w);
}

/* ---- written ---- */

/* The first matrix that ends behind `value`. */
static size_t first_behind(const struct kern_weights *w, const float *value)
{
    size_t low = 0, high = w->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct matrix *m = &w->matrices[middle];
        if (m->at + m->N * m->K > value)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void CPU(wrote)(struct kern_dev *dev, const void *values, size_t bytes)
{
    const float *begin = values;
    const char *end = (const char *)values + bytes;
    for (struct kern_weights *w = dev->weights; w != NULL; w = w->next)
        for (size_t i = first_behind(w, begin); i < w->count && (const char *)w->matrices[i].at < end; i++)
            w->matrices[i].old = true;
}

/* ---- read ---- */

static float sample_of(const struct matrix *m, int i)
{
    return m->at[(m->first + i * (m->N * m->K / SAMPLES + 1)) % (m->N * m->K)];
}

static void look(struct kern_dev *dev, const struct matrix *m)
{
    for (int i = 0; i < SAMPLES; i++) {
        float now = sample_of(m, i);
        if (memcmp(&now, &m->sample[i], sizeof now) != 0) {
            cpu_fault(dev, ERR_STATE,
                      "weights (%lld,%lld) have changed and products were not told: to_act() is missing",
                      (long long)m->N, (long long)m->K);
            return;
        }
    }
}

static void follow(struct kern_dev *dev, const struct kern_weights *w, struct matrix *m)
{
    m->first = (m->first + 7919) % (m->N * m->K);
    for (int i = 0; i < SAMPLES; i++)
        m->sample[i] = sample_of(m, i);
    CPU(bf16_round)(w->plain, m->at, 1, m->N * m->K, m->N * m->K);
    CPU(bf16_pack)(dev, m->forth, w->plain, true, m->K, m->N);
    if (m->back != NULL)
        CPU(bf16_pack)(dev, m->back, w->plain, false, m->N, m->K);
    m->old = false;
}

const void *CPU(weights_packed)(struct kern_dev *dev, const kern_act *at, int64_t N, int64_t K, bool back)
{
    for (struct kern_weights *w = dev->weights; w != NULL; w = w->next) {
        size_t i = first_behind(w, at);
        struct matrix *m = i < w->count ? &w->matrices[i] : NULL;
        if (m == NULL || m->at != at || m->N != N || m->K != K)
            continue;
        if (m->old)
            follow(dev, w, m);
        else
            look(dev, m);
        if (!back || m->back != NULL)
            return back ? m->back : m->forth;
    }
    return NULL;
}
