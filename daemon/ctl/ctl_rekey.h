/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_rekey: dilococtl rekey: makes a new key for this island and has its daemon ask for it; takes it back; or, at an
 * operator, orders that an island which asked has it. Blocking; reports on standard output.
 */
#ifndef DAEMON_CTL_CTL_REKEY_H
#define DAEMON_CTL_CTL_REKEY_H

#include <stdbool.h>

#include "common/err.h"
#include "daemon/ctl/ctl_members.h"
#include "daemon/home.h"

struct ctl_rekey {
    const struct home *home;
    const char *config; /* the daemon's configuration; NULL: the home's own */
    const char *socket; /* where the daemon answers, if it runs */
    const char *old;    /* the only key that is to be changed, as text; NULL: whichever it is */
    bool json;
};

/* Makes the key beside the present one, durably, and tells the daemon; where one is there already it stays, and is told
 * again. Without a daemon the next one asks for it. Where the key is not `old`, it was changed before, and stays.
 * ERR_ARG: `old` is no key; ERR_STATE: one that was taken back may still be given, or the daemon cannot ask for it,
 * with the remedy: one that was made now is gone then; ERR_AGAIN: it has just been given the one that was there;
 * ERR_IO, ERR_CONF: of the files. */
ERR_MUST_CHECK enum err ctl_rekey_begin(const struct ctl_rekey *rekey);
/* Takes it back. ERR_NOTFOUND: there is none; ERR_STATE: too late, the daemon has it. */
ERR_MUST_CHECK enum err ctl_rekey_cancel(const struct ctl_rekey *rekey);

/* The order for an island that asked: shows both keys and, with `yes`, gives it and waits as ctl_members_order() does.
 * `old`: as above. ERR_STATE: the island asks for no other key. */
ERR_MUST_CHECK enum err ctl_rekey_order(const struct ctl_members *ctl, const char *name, const char *old, bool yes);

#endif
