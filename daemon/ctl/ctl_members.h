/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_members: invitations, members that leave, and orders about members: asks the daemon, and waits until a
 * configuration says it. Blocking; reports on standard output.
 */
#ifndef DAEMON_CTL_CTL_MEMBERS_H
#define DAEMON_CTL_CTL_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

struct ctl_members {
    const char *socket;  /* where the daemon answers */
    const char *expires; /* invite: as 24h; NULL: a day */
    const char *island;  /* invite: the only one that the token lets in; NULL: any */
    const char *note;    /* invite; NULL: none */
    const char *as;      /* invite: owner, contributor; NULL: as the run decides */
    const char *address; /* invite: where guests knock; NULL: the daemon knows */
    uint32_t patience_s; /* for a configuration to say it */
    bool no_wait, now, json;
};

/* Prints one token, and the command to type on the other machine; or that the island is in the run already. */
ERR_MUST_CHECK enum err ctl_members_invite(const struct ctl_members *ctl);
ERR_MUST_CHECK enum err ctl_members_list(const struct ctl_members *ctl);
/* The first digits of its id. */
ERR_MUST_CHECK enum err ctl_members_uninvite(const struct ctl_members *ctl, const char *id);

/* Prints the names of the other islands, one a line. Waits a second at most, for a shell that completes words. */
ERR_MUST_CHECK enum err ctl_members_names(const struct ctl_members *ctl);

/* ERR_AGAIN: it was asked, and no configuration says it in time; with what it waits for. */
ERR_MUST_CHECK enum err ctl_members_leave(const struct ctl_members *ctl);
/* The order of this word about a member: evict, revoke, owner, contributor, grant, ungrant. */
ERR_MUST_CHECK enum err ctl_members_order(const struct ctl_members *ctl, const char *word, const char *name);
/* The order that the member has this key, which it asked for. */
ERR_MUST_CHECK enum err ctl_members_rekey(const struct ctl_members *ctl, const char *name, const char *key);
/* The order about the run: "set", with "steps=N"; "pause" or "resume", with "run". */
ERR_MUST_CHECK enum err ctl_members_order_run(const struct ctl_members *ctl, const char *word, const char *what);
/* Orders that wait, with who gave them and what they wait for. */
ERR_MUST_CHECK enum err ctl_members_orders(const struct ctl_members *ctl);
/* approve, withdraw: the order of this number; `island`: which gave it, NULL: this one. */
ERR_MUST_CHECK enum err ctl_members_about_order(const struct ctl_members *ctl, const char *word, const char *number,
                                                const char *island);

#endif
