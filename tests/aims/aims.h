/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aims: what is promised in seconds, measured with real daemons. Each file measures some of them and notes each figure;
 * the table at the end says the worst. A missed aim is not a broken helper: what cannot be measured fails its case.
 */
#ifndef TESTS_AIMS_AIMS_H
#define TESTS_AIMS_AIMS_H

enum aim {
    AIM_OWNER_LOST,
    AIM_PROPOSER_LOST,
    AIM_LOST_AT_RETURN,
    AIM_DIALLED_LOST,
    AIM_OWNER_LOST_SOON, /* away = 500ms */
    AIM_PROPOSER_LOST_SOON,
    AIM_LOST_AT_RETURN_SOON,
    AIM_NOT_HEARD, /* before away ends */
    AIM_NOT_HEARD_SOON,
    AIM_DECIDED, /* after away has ended */
    AIM_JOINED,
    AIM_JOINED_LARGE, /* 64M parameters */
    AIM_JOIN_COST,
    AIM_EPOCH_CHANGE,
    AIM_CERTIFICATE,
    AIMS
};

/* A figure, in the aim's unit. */
void aims_note(enum aim aim, double value);

/* Cases, for cmocka. */
void aims_loss(void **state);      /* of an owner, of who proposes */
void aims_loss_soon(void **state); /* the same with away = 500ms */
void aims_dialled(void **state);
void aims_join(void **state);
void aims_join_large(void **state);
void aims_join_cost(void **state);
void aims_far(void **state); /* over a line of known delay */

#endif
