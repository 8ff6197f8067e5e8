#include "daemon/state/mean.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "outer_opt/outer.h"

/* Whether means are taken value by value over all contributions at once. */
static bool by_value(const struct outlier_conf *conf)
{
    return conf->action == OUTLIER_TRIMMED || conf->action == OUTLIER_MEDIAN;
}

/* ---- life ---- */

void mean_deinit(struct mean *mean)
{
    mem_free(mean->decoded);
    for (size_t i = 0; i < MEAN_PIECES; i++)
        mem_free(mean->scores[i]);
    *mean = (struct mean){0};
}

uint64_t mean_bytes(const struct outlier_conf *conf, uint64_t values, uint32_t inputs)
{
    return (by_value(conf) ? inputs : 0) * values * sizeof(float) +
           (inputs + MEAN_PIECE - 1) / MEAN_PIECE * MEAN_PIECE * sizeof(struct outlier_score);
}

enum err mean_members(struct mean *mean, uint32_t count)
{
    assert(count <= MEAN_MEMBERS_MAX);
    for (uint32_t i = 0; i * MEAN_PIECE < count; i++)
        if (mean->scores[i] == NULL)
            TRY(mem_new(MEAN_PIECE, sizeof *mean->scores[i], "scores", &mean->scores[i]));
    return ERR_OK;
}

void mean_forget(struct mean *mean)
{
    for (size_t i = 0; i < MEAN_PIECES; i++)
        if (mean->scores[i] != NULL)
            memset(mean->scores[i], 0, MEAN_PIECE * sizeof *mean->scores[i]);
}

/* ---- means ---- */

/* Where there are more contributors than ever, or our own shards are more. */
static enum err room_to_decode(struct mean *mean, size_t values)
{
    if (values <= mean->decoded_room)
        return ERR_OK;
    mem_free(mean->decoded);
    mean->decoded = NULL;
    mean->decoded_room = 0;
    TRY(mem_new(values, sizeof(float), "contributions", &mean->decoded));
    mean->decoded_room = values;
    return ERR_OK;
}

/* Trimmed mean or median; no weights. */
static enum err middle(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs,
                       size_t inputs_count, struct codec *codec, float *out, size_t count, size_t *bad)
{
    const float *decoded[MEAN_MEMBERS_MAX];
    TRY(room_to_decode(mean, inputs_count * count));
    for (size_t i = 0; i < inputs_count; i++) {
        float *values = mean->decoded + i * count;
        *bad = i;
        TRY(codec_decode(codec, inputs[i].frame, inputs[i].bytes, values, count));
        decoded[i] = values;
        inputs[i].factor = 1;
    }
    uint32_t trim = conf->action == OUTLIER_MEDIAN ? MEAN_MEMBERS_MAX : conf->trim;
    outlier_trimmed_mean(decoded, inputs_count, trim, out, count);
    return ERR_OK;
}

/* The median of the inputs' weights. */
static float usual_weight(const struct mean_input *inputs, size_t inputs_count)
{
    float usual = 0;
    for (size_t i = 0; i < inputs_count; i++) {
        size_t lighter = 0;
        for (size_t k = 0; k < inputs_count; k++)
            lighter += inputs[k].weight < inputs[i].weight || (inputs[k].weight == inputs[i].weight && k < i);
        if (lighter == inputs_count / 2)
            usual = inputs[i].weight;
    }
    return usual;
}

static struct outlier_score *score_of(struct mean *mean, uint32_t member)
{
    struct outlier_score *piece = mean->scores[member / MEAN_PIECE];
    assert(piece != NULL); /* mean_members() was not told of it */
    return &piece[member % MEAN_PIECE];
}

/* Looks at every contribution by itself first. One that comes after an absence holds the work of several rounds: it may
 * be that many times larger, and is no outlier for it. */
static enum err judge(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs,
                      size_t inputs_count, struct codec *codec, float *scratch, size_t count, size_t *bad)
{
    struct outlier_score *scores[MEAN_MEMBERS_MAX];
    double squares[MEAN_MEMBERS_MAX] = {0};
    float factors[MEAN_MEMBERS_MAX];
    float usual = usual_weight(inputs, inputs_count);
    for (size_t i = 0; i < inputs_count; i++) {
        *bad = i;
        TRY(codec_decode(codec, inputs[i].frame, inputs[i].bytes, scratch, count));
        double rounds = inputs[i].weight > usual && usual > 0 ? (double)(inputs[i].weight / usual) : 1;
        squares[i] = outer_square_sum(scratch, NULL, count) / (rounds * rounds);
        scores[i] = score_of(mean, inputs[i].member);
    }
    outlier_judge(conf, scores, squares, inputs_count, factors);
    for (size_t i = 0; i < inputs_count; i++)
        inputs[i].factor = factors[i];
    return ERR_OK;
}

static enum err weighted(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs,
                         size_t inputs_count, struct codec *codec, float *out, size_t count, size_t *bad)
{
    float weights[MEAN_MEMBERS_MAX];
    for (size_t i = 0; i < inputs_count; i++)
        inputs[i].factor = 1;
    if (conf->action != OUTLIER_KEEP && inputs_count >= OUTLIER_INPUTS_MIN)
        TRY(judge(mean, conf, inputs, inputs_count, codec, out, count, bad));
    memset(out, 0, count * sizeof *out);
    for (size_t i = 0; i < inputs_count; i++) {
        *bad = i;
        /* One scaled down keeps its weight in the mean; one left out has none. */
        weights[i] = inputs[i].factor > 0 ? inputs[i].weight : 0;
        if (inputs[i].factor > 0)
            TRY(codec_decode_add(codec, inputs[i].frame, inputs[i].bytes, inputs[i].weight * inputs[i].factor, out,
                                 count));
    }
    outer_mean_finish(out, count, weights, inputs_count);
    return ERR_OK;
}

enum err mean_make(struct mean *mean, const struct outlier_conf *conf, struct mean_input *inputs, size_t inputs_count,
                   struct codec *codec, float *out, size_t count, size_t *bad)
{
    assert(inputs_count <= MEAN_MEMBERS_MAX);
    return (by_value(conf) ? middle : weighted)(mean, conf, inputs, inputs_count, codec, out, count, bad);
}

size_t mean_culprit(const struct mean_input *inputs, size_t inputs_count, struct codec *codec, float *scratch,
                    size_t count)
{
    size_t worst = 0;
    float most = -1;
    for (size_t i = 0; i < inputs_count; i++) {
        if (codec_decode(codec, inputs[i].frame, inputs[i].bytes, scratch, count) != ERR_OK)
            return i;
        for (size_t k = 0; k < count; k++) {
            if (!isfinite(scratch[k]))
                return i;
            if (fabsf(scratch[k]) > most) {
                most = fabsf(scratch[k]);
                worst = i;
            }
        }
    }
    return worst;
}

double mean_weight(const struct mean_input *inputs, size_t inputs_count)
{
    double sum = 0;
    for (size_t i = 0; i < inputs_count; i++)
        sum += (double)inputs[i].weight;
    return sum / (double)inputs_count;
}
