/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direction: contributions that point away from what the others do, round after round.
 *
 * A contribution is judged by its cosine to the mean of the others, as these weigh in the round's mean: part by part,
 * each by its owner, who names it in its result. A member is below in a version of a fragment if its cosine is below
 * DIRECTION_LEAST in more than half of the values that count it, by more than half of their owners. It is turned away
 * in a fragment when it has been below in DIRECTION_ROUNDS rounds running, of those that count it, until it has not
 * been in as many. Whoever is turned away in fragments of more than half of the values that counted it lately weighs
 * nothing, anywhere; its contributions are counted. One round says little, so none is judged by itself; and what a
 * contribution weighs follows from the rounds before, so none has to be read before others are weighed.
 *
 * Why most of the model. In some tensors, as the rows of words that one island alone has, honest islands pull against
 * each other for good; over the whole model they do not (tests/num/test_direction.c). And where the others have no
 * direction in common nobody is below: the squares of their sum have to be DIRECTION_AGREE times what they would be if
 * they had nothing to do with each other. Else honest islands of different data would be turned away where a run comes
 * to rest: there the sum of all is nothing, and each one the opposite of all the others.
 *
 * Who judges. Owners are judged by owners alone, for whoever owns nothing is many, perhaps, and easily made; others by
 * the owners, or, where fewer than two of these weigh anything, by all. Fewer than two others judge nobody: of two
 * nobody can tell which is wrong; so a member that is turned away weighs again when there is only one other left. And
 * those that are turned away weigh nothing only as long as the owners that contribute (all, where no owner does) are at
 * most half turned away: with more of them nobody could tell which side is wrong. A minority that works together can
 * thus not have the others turned away.
 *
 * Who has to agree. An owner sees its own part alone, and to ask the others would cost each round an exchange. What it
 * says is in its result, so the state of a member in a fragment follows from the results, as the anchor does, for all
 * islands (daemon/state/dedup.h): a restart, a repair and the next owner begin with it. Fragments are counted apart
 * since their versions are made in no common order; so the last word, over all fragments, is that of whoever weighs,
 * by what stands in its anchors then. It is in the result, like every weight, and two owners differ in it for a round
 * at most. An owner that lies about
 * cosines turns nobody away alone, where two count that member.
 *
 * Of how much. A part is cut into pieces, and of large parts one piece in up to DIRECTION_OF is looked at, as decoding
 * a contribution once more costs half as much as the mean itself. Which, follows from the bytes of all contributions:
 * the bits are the same wherever it is computed again, and nobody who contributes knows it beforehand.
 *
 * Pure.
 */
#ifndef OUTER_OPT_DIRECTION_H
#define OUTER_OPT_DIRECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DIRECTION_ROUNDS = 5,
    DIRECTION_JUDGES_MIN = 2, /* others */
    DIRECTION_OF = 8,
    DIRECTION_VALUES_MIN = 1 << 18, /* of a part, so many values are looked at, or about; all, if it has no more */
    DIRECTION_STATES = 2 * DIRECTION_ROUNDS, /* less than DIRECTION_ROUNDS: so many rounds running below; from there
                                                on it is turned away, and was not below in so many rounds since */
};
#define DIRECTION_LEAST (-0.2f)
#define DIRECTION_AGREE 1.1

/* The state after a round that counts a member in `state`. */
uint32_t direction_next(uint32_t state, bool below);
bool direction_turned(uint32_t state);

/* A contribution, as who weighs and judges knows it. */
struct direction_input {
    bool owner;  /* its maker owns shards */
    bool turned; /* it is turned away */
};
/* Who is to weigh nothing: `out[i]`. */
void direction_weightless(const struct direction_input *inputs, size_t count, bool *out);
/* Whose mean the others are compared with, `judges[i]`, and who is judged, `judged[i]`. `weighs[i]`: it weighs
 * something, which whoever is turned away does not. False: nobody is judged. */
bool direction_judges(const struct direction_input *inputs, const bool *weighs, size_t count, bool *judges,
                      bool *judged);

/* Whether piece `piece`, of `piece_values`, of a part of `values` values is looked at: one in up to DIRECTION_OF, of no
 * more than there are of this size; so all of a part that is one piece. */
bool direction_looks(uint64_t seed, uint64_t values, uint64_t piece, uint64_t piece_values);

/* Of a contribution c and the sum S of what its judges contribute, itself left out, over some stretches of values. */
struct direction_sums {
    double square; /* c * c */
    double along;  /* c * S */
    double others; /* S * S */
    double apart;  /* what that would be if no two of them had anything in common */
};
/* Adds a stretch. Of each input: c * T and c * c, T being the sum of all judges', each times its weight. */
void direction_add(const bool *judges, const float *weights, const double *along, const double *squares, size_t count,
                   struct direction_sums *sums);
void direction_add_sums(const struct direction_sums *more, struct direction_sums *sums);
/* The square of the cosine, with the cosine's sign, -1 to 1; 0 where there is none, or the others have no direction. */
double direction_cosine_square(const struct direction_sums *sums);

#endif
