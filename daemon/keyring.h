/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keyring: this island's key, the one that it would have instead (`dilococtl rekey`), and one that it took back.
 *
 * The key lies in the file that `[island] key` names; the new one beside it, with `.next` at its end, until a
 * configuration names it: then it takes the first one's place. One that was taken back ends in `.dropped`, and stays
 * until no order can give it to this island any more; the last one that was replaced ends in `.before`: an island that
 * was away meanwhile is dialled by it, and told. Which one is the island's the newest configuration says, whatever
 * a crash left in which file. The loop's thread, or a command of dilococtl; blocking.
 */
#ifndef DAEMON_KEYRING_H
#define DAEMON_KEYRING_H

#include <stdbool.h>

#include "common/err.h"
#include "daemon/dconf.h"
#include "net/config/config.h"
#include "net/transport/ident.h"

/* Their ends, with that of the configuration kept beside the key; NULL after the last. All are of the run that the
 * island is in: another one must not find them. */
extern const char *const keyring_beside[];

struct keyring {
    const struct dconf *conf; /* borrowed; NULL: the keys are in memory alone */
    struct ident ident;       /* that signs */
    struct ident next;        /* that it would have; zeros: none */
    struct ident asked;       /* our word states it: `next`, where the files of a change can be kept; zeros: none */
    struct ident dropped;     /* that it would have had; zeros: none */
    struct ident before;      /* that it had before `ident`; zeros: none */
    char *next_path, *dropped_path, *before_path;
    char *config_path; /* of the last configuration that gave us or others another key, with `.config` at its end */
};

/* Reads them. One of the other two that is damaged is logged, and as if it were not there. ERR_NOTFOUND, ERR_CONF: of
 * the key itself, with the remedy; `*keyring` is empty. */
ERR_MUST_CHECK enum err keyring_open(const struct dconf *conf, struct keyring *keyring);
/* Forgets the secrets; an empty one is fine. */
void keyring_close(struct keyring *keyring);

/* Reads the other two anew: somebody has called `dilococtl rekey`. One that is the present key is none. ERR_CONF: one
 * is there which is not asked for, since nothing can be kept beside the key, with the remedy; it is as if it were not
 * there, unless it was before. */
ERR_MUST_CHECK enum err keyring_reload(struct keyring *keyring);

/* Whether the configuration gives us another of our keys. */
bool keyring_changes(const struct keyring *keyring, const struct config *config);
/* Whether the configuration names the key that we had before. */
bool keyring_had(const struct keyring *keyring, const struct config *config);
/* The configuration, which is on disk, may name another key of ours: from then on that is ours, with the mark of our
 * votes, and durably. True: it does. Where the files cannot be renamed that is logged, and the key is found where it
 * lies. */
bool keyring_settle(struct keyring *keyring, const struct config *config);
/* Whether no configuration can name the key that was taken back any more: `as`, this island's row in the newest one,
 * rests on the word that it says now, of the number `said` (0: none yet), or a later one, and states another key or
 * none. False where none was taken back. */
bool keyring_dropped_is_over(const struct keyring *keyring, const struct config_member *as, uint64_t said);
/* It goes, then. */
void keyring_forget_dropped(struct keyring *keyring);

/* Whether there is a key. */
bool keyring_has(const struct ident *ident);
/* The other key that a configuration which we do not know yet may have given us; NULL: there is none. */
const struct ident *keyring_other(const struct keyring *keyring);

#endif
