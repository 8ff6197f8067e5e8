/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members: the control commands about who takes part: invitations, and members that leave or are sent away.
 *
 * Each answers at once: what is ordered is decided by the voters, and `status` and `peers` show when. Only the loop's
 * thread calls.
 */
#ifndef DAEMON_CONTROL_MEMBERS_H
#define DAEMON_CONTROL_MEMBERS_H

#include <jansson.h>
#include <stdint.h>

#include "common/err.h"
#include "daemon/dconf.h"
#include "daemon/membership/doorway.h"
#include "daemon/peers/peers.h"
#include "daemon/trainer/trainer.h"
#include "net/transport/link.h"

/* Where the commands act; borrowed. */
struct members {
    const struct dconf *conf;
    const struct view *view;
    const struct link *link;
    struct doorway *doorway;
    struct peers *peers;
    struct trainer *trainer;
    uint64_t now_ms;
    bool draining; /* the trainer is leaving; when it has, the others are told */
};

/* `words`: what stands after the command. `*answer`, as in docs/FORMATS.md, is the caller's; after a failure there is
 * none, and the text is fit to be told. */

/* "SECONDS ADDRESS|- NOTE" */
ERR_MUST_CHECK enum err members_invite(struct members *members, const char *words, json_t **answer);
json_t *members_invites(const struct members *members);
/* The first digits of an invitation's id. */
ERR_MUST_CHECK enum err members_uninvite(struct members *members, const char *words, json_t **answer);
/* "" or "now": without waiting for the trainer's last contributions to be counted. */
ERR_MUST_CHECK enum err members_leave(struct members *members, const char *words, json_t **answer);
/* A name. */
ERR_MUST_CHECK enum err members_evict(struct members *members, const char *words, json_t **answer);
ERR_MUST_CHECK enum err members_revoke(struct members *members, const char *words, json_t **answer);

/* This island takes part (again). */
void members_return(struct members *members);
/* Once a turn. */
void members_run(struct members *members);

#endif
