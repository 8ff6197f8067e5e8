/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config_store: which configurations rule this island: those on its disk, the one by which it joined, or, where there
 * are none, the first one of a run that it founds.
 *
 * It keeps the config log and the view that follows its newest configuration; only the loop's thread calls. The
 * functions that take a folder block, and any thread may call them.
 */
#ifndef DAEMON_MEMBERSHIP_CONFIG_STORE_H
#define DAEMON_MEMBERSHIP_CONFIG_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/keyring.h"
#include "net/config/config_log.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/config/view.h"
#include "net/sync/sync.h"
#include "net/transport/ident.h"

struct config_store {
    struct config_log *config_log;
    struct view view;
    const struct dconf *conf;     /* borrowed */
    struct keyring *keyring;      /* borrowed */
    uint32_t ids[VIEW_SLOTS_MAX]; /* by slot, for config_store_sync_view() */
};

/* Reads the configurations, or makes the first one and keeps it. `conf` and `keyring` are borrowed; the keyring's
 * key is the one that the newest configuration names from then on. ERR_CONF: none of our keys is on the roster, with
 * the remedy; what founding_config() fails with. On failure `*configs` is empty. */
ERR_MUST_CHECK enum err config_store_open(const struct dconf *conf, struct keyring *keyring, const struct runspec *spec,
                                          struct config_store *configs);
/* An empty one is fine. */
void config_store_close(struct config_store *configs);

/* The next configuration, decided: config log and view go over to it, and the log names lost and new members. The
 * configuration is taken over; where it gives us another key, the keyring has it then. ERR_STATE: we are not on its
 * roster; then all is as before. */
ERR_MUST_CHECK enum err config_store_adopt(struct config_store *configs, struct config *config,
                                           const struct digest *digest, struct view_changes *changes);

/* Configurations before this epoch no longer need files of their own: they are older than `needed`, the oldest that a
 * restart goes on from, and not among the last 256. */
uint64_t config_store_old(const struct config_store *configs, uint64_t needed);

/* Who takes part, as the core wants to know it; its ids are borrowed until the next call. `votes`: our disk is not in
 * doubt. */
struct sync_view config_store_sync_view(struct config_store *configs, bool votes);

/* Whether the member left the run as its people asked (dilococtl leave), as far as the configurations say: since it
 * last took part it is draining, or away. */
bool config_store_drained(const struct config_store *configs, uint32_t id);

/* ---- the files of a folder ----
 *
 * Configurations are kept as the bytes that were signed, with the votes that decided them, so that they can be passed
 * on and prove who is a member: those that a restart needs in one file each, older ones many in a file. Loading checks
 * every one against the one before it. config_store_read() may run beside any other, since each file is replaced at
 * once, and packed before it is removed. */

/* Durable when it returns. One that is there already is replaced. */
ERR_MUST_CHECK enum err config_store_save(const char *folder, uint64_t epoch, const struct config_entry *entry);
/* The same without a flush: whole after a crash of this program, and whatever there is after one of the machine. */
ERR_MUST_CHECK enum err config_store_copy(const char *folder, uint64_t epoch, const struct config_entry *entry);
/* ERR_NOTFOUND; ERR_CORRUPT: damaged. After a failure there is nothing to free. */
ERR_MUST_CHECK enum err config_store_read(const char *folder, uint64_t epoch, struct config_entry *entry);

/* Loads those that have files of their own into `config_log`, which is empty, from the oldest on, each proved by the
 * one before. Logs and leaves out a damaged or unproved one and all after it: others send them again. ERR_NOTFOUND:
 * there is none. ERR_CONF: they are another run's. */
ERR_MUST_CHECK enum err config_store_load(const char *folder, const uint8_t nonce[CONFIG_NONCE_BYTES], bool nonce_known,
                                          struct config_log *config_log);
/* Removes those before `epoch` that are files of their own. */
void config_store_forget(const char *folder, uint64_t epoch);
/* Puts those before `before`, which no restart needs, into files of 256 epochs each, a few at a time:
 * config_store_load() passes them over, and config_store_read() reads them for a member that was away for long. Whole
 * after a crash at any instant. */
ERR_MUST_CHECK enum err config_store_pack(const char *folder, uint64_t before);

/* ---- evidence that members broke their word (net/membership/evidence.h) ----
 *
 * A file each: whoever broke its word stays evicted, whoever is started again. Nothing is checked here: a file is what
 * somebody left there. One call at a time for one member. */

/* Of the member of this id. Durable when it returns; one that is there already is replaced. */
ERR_MUST_CHECK enum err config_store_save_evidence(const char *folder, uint32_t id, const uint8_t *bytes, size_t count);
/* Caller frees `*bytes`. ERR_NOTFOUND: there is none. */
ERR_MUST_CHECK enum err config_store_load_evidence(const char *folder, uint32_t id, uint8_t **bytes, size_t *count);

#endif
