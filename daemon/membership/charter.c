/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/charter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/as_typed.h"
#include "daemon/founding.h"
#include "daemon/joined.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/ledger.h"
#include "daemon/membership/records.h"
#include "daemon/state/store.h"

/* Who chases older versions fetches a state: records of epochs before that are not needed in memory, nor in files of
 * their own. */
enum { EPOCHS_KEPT = 256 };

/* ---- the first record ---- */

/* Kept, so that it rules from now on. */
static enum err first_record(struct charter *charter, const struct ident *ident, const struct runspec *spec)
{
    enum err err;
    struct record record = {0};
    struct record_entry entry = {0};
    TRY_OUT(founding_record(charter->conf, ident, spec, &record));
    TRY_OUT(record_pack(&record, &entry.bytes, &entry.bytes_count));
    struct digest digest = record_digest(entry.bytes, entry.bytes_count);
    TRY_OUT(records_save(charter->conf->state_folder, 0, &entry));
    TRY_OUT(chain_add(charter->chain, &record, &digest));
out:
    record_deinit(&record);
    record_entry_free(&entry);
    return err;
}

/* A founder that is alone and has made nothing yet founds the run that its configuration and run spec describe now. */
static bool begun(const struct charter *charter)
{
    const struct record *record = chain_last(charter->chain);
    const char *folder = charter->conf->state_folder;
    return record != NULL && (record->epoch > 0 || record->members_count > 1 || ledger_in(folder) || store_in(folder));
}

/* `record` is taken over. */
static enum err begin_with(struct charter *charter, struct record *record, const struct record_entry *entry)
{
    struct digest digest = record_digest(entry->bytes, entry->bytes_count);
    chain_free(charter->chain);
    TRY(chain_new(&charter->chain));
    TRY(records_save(charter->conf->state_folder, record->epoch, entry));
    return chain_add(charter->chain, record, &digest);
}

/* The copy beside the sockets: the others send what came after it. ERR_NOTFOUND: there is none. */
static enum err begin_from_copy(struct charter *charter)
{
    struct record_entry entry;
    struct record record;
    chain_free(charter->chain);
    TRY(chain_new(&charter->chain));
    TRY(records_load(charter->conf->run_folder, NULL, false, charter->chain));
    uint64_t epoch = chain_last(charter->chain)->epoch;
    TRY(record_copy(chain_last(charter->chain), &record));
    enum err err = records_read(charter->conf->run_folder, epoch, &entry);
    if (err == ERR_OK) {
        err = begin_with(charter, &record, &entry);
        record_entry_free(&entry);
    }
    record_deinit(&record);
    if (err == ERR_OK)
        log_warn("%s has no view record, as if it had been emptied: this island goes on from that of epoch %" PRIu64
                 " in %s, and fetches the run's state from the others",
                 charter->conf->state_folder, epoch, charter->conf->run_folder);
    return err;
}

static enum err begin_as_joined(struct charter *charter)
{
    struct record record;
    struct record_entry entry;
    const char *path = charter->conf->joined;
    enum err err = joined_read(path, &record, &entry);
    if (err == ERR_NOTFOUND) /* as after a reset */
        return err_set(ERR_CONF,
                       "%s: is not there; it is the view record by which this island joined its run: join again with "
                       "an invitation of another island: %s join TOKEN --name %s",
                       path, as_typed(), charter->conf->name);
    if (err != ERR_OK)
        return err_set(ERR_CONF,
                       "%s: is damaged; it is the view record by which this island joined its run: %s reset, "
                       "and join again with an invitation of another island",
                       path, as_typed());
    err = begin_with(charter, &record, &entry);
    record_deinit(&record);
    record_entry_free(&entry);
    if (err == ERR_OK)
        log_info("this island begins from the view record of epoch %" PRIu64 ", by which it joined",
                 chain_last(charter->chain)->epoch);
    return err;
}

/* The records of the state folder; where that was emptied, the newest one that lies beside the sockets, or the one by
 * which this island joined. */
static enum err load(struct charter *charter, const struct ident *ident, const struct runspec *spec)
{
    TRY(chain_new(&charter->chain));
    TRY(fsio_mkdirs(charter->conf->state_folder, 0755));
    enum err err = records_load(charter->conf->state_folder, NULL, false, charter->chain);
    if (err == ERR_OK && begun(charter))
        return ERR_OK;
    if (err == ERR_NOTFOUND)
        err = begin_from_copy(charter);
    if (err == ERR_OK && begun(charter))
        return ERR_OK;
    if (err != ERR_OK && err != ERR_NOTFOUND)
        return err;
    if (charter->conf->joined[0] != '\0')
        return begin_as_joined(charter);
    chain_free(charter->chain);
    TRY(chain_new(&charter->chain));
    return first_record(charter, ident, spec);
}

/* A copy of the newest record beside the sockets, for a state folder that is emptied. Not as precious as the record:
 * the loop waits for no flush of it. */
static void keep_copy(const struct charter *charter)
{
    struct record_entry entry;
    uint64_t epoch = chain_last(charter->chain)->epoch;
    enum err err = records_read(charter->conf->state_folder, epoch, &entry);
    if (err == ERR_OK) {
        err = records_copy(charter->conf->run_folder, epoch, &entry);
        record_entry_free(&entry);
    }
    if (err == ERR_OK)
        records_forget(charter->conf->run_folder, epoch);
    else
        log_warn("no copy of the newest view record: %s", err_text());
}

/* ---- life ---- */

static enum err not_on_the_roster(const struct charter *charter)
{
    char text[IDENT_TEXT_BYTES];
    ident_text(charter->key, text);
    return err_set(ERR_CONF,
                   "the key of this island, %s, is not on the roster of epoch %" PRIu64
                   ": %s reset, and then join with a new invitation of another island; or give it back its key",
                   text, chain_last(charter->chain)->epoch, as_typed());
}

/* The record rules; who is told to be the other of the two would do what nobody expects. */
static enum err check_witness(const struct charter *charter)
{
    bool is = view_is_witness(&charter->view);
    if (is == charter->conf->witness)
        return ERR_OK;
    return err_set(ERR_CONF,
                   is ? "the run's record has this island as its witness: set [island] witness = yes, and take "
                        "[worker] data out"
                      : "[island] witness = yes, but the run's record has this island as one that trains, which it "
                        "stays: set witness = no; for a witness, join with a name and a key of its own");
}

enum err charter_open(const struct dconf *conf, const struct ident *ident, const struct runspec *spec,
                      struct charter *charter)
{
    enum err err;
    struct view_way *ways = NULL;
    struct view_changes changes;
    size_t count;
    *charter = (struct charter){.conf = conf};
    memcpy(charter->key, ident->key, sizeof charter->key);
    TRY_OUT(dconf_ways(conf, &ways, &count));
    TRY_OUT(view_init(ways, count, &charter->view));
    TRY_OUT(load(charter, ident, spec));
    TRY_OUT(view_update(&charter->view, chain_last(charter->chain), chain_last_digest(charter->chain), charter->key,
                        &changes));
    charter->view.nonce_id = digest_of(charter->view.nonce, sizeof charter->view.nonce);
    if (charter->view.self == VIEW_NOBODY)
        err = not_on_the_roster(charter);
    else
        err = check_witness(charter);
out:
    mem_free(ways);
    if (err != ERR_OK)
        charter_close(charter);
    return err;
}

void charter_close(struct charter *charter)
{
    chain_free(charter->chain);
    view_free(&charter->view);
    *charter = (struct charter){0};
}

/* What people want to know of it: who is lost, who came. */
static void tell_changes(const struct charter *charter, const struct record *before)
{
    const struct view *view = &charter->view;
    uint32_t owners = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        const struct record_member *old = record_member(before, member->id);
        if (!member->used)
            continue;
        if (member->leaving) {
            log_info("island %s is not on the roster any more", member->name);
            continue;
        }
        owners += member->role == RECORD_OWNER;
        if (old == NULL)
            log_info("island %s is on the roster now%s", member->name,
                     member->role == RECORD_WITNESS ? ", as the witness" : "");
        else if (member->role == RECORD_AWAY && old->role == RECORD_DRAINING)
            log_info("island %s, which left, is away", member->name);
        else if (member->role == RECORD_AWAY && old->role != RECORD_AWAY)
            log_warn("island %s is lost: the run goes on without it, and it comes back by itself", member->name);
        else if (member->role == RECORD_OWNER && old->role != RECORD_OWNER)
            log_info("island %s takes part%s", member->name, old->role == RECORD_OBSERVER ? "" : " again");
    }
    log_info("epoch %" PRIu64 " has begun, with %" PRIu32 " of %" PRIu32 " islands as owners", view->epoch, owners,
             chain_last(charter->chain)->members_count);
}

static enum err adopt(struct charter *charter, struct record *record, const struct digest *digest,
                      struct view_changes *changes)
{
    TRY(chain_add(charter->chain, record, digest));
    const struct record *last = chain_last(charter->chain);
    if (last->epoch > EPOCHS_KEPT)
        chain_forget(charter->chain, last->epoch - EPOCHS_KEPT);
    keep_copy(charter);
    return view_update(&charter->view, chain_last(charter->chain), digest, charter->key, changes);
}

uint64_t charter_old(const struct charter *charter, uint64_t needed)
{
    uint64_t last = chain_last(charter->chain)->epoch, kept = last > EPOCHS_KEPT ? last - EPOCHS_KEPT : 0;
    return needed < kept ? needed : kept;
}

static bool has_us(const struct charter *charter, const struct record *record)
{
    for (uint32_t i = 0; i < record->members_count; i++)
        if (memcmp(record->members[i].key, charter->key, sizeof charter->key) == 0)
            return true;
    return false;
}

enum err charter_adopt(struct charter *charter, struct record *record, const struct digest *digest,
                       struct view_changes *changes)
{
    struct record before;
    if (!has_us(charter, record)) /* the view stays, so that the daemon can end in order */
        return err_set(ERR_STATE,
                       "this island was taken off the roster; to come back: %s reset, then join with a "
                       "new invitation of another island",
                       as_typed());
    TRY(record_copy(chain_last(charter->chain), &before));
    enum err err = adopt(charter, record, digest, changes);
    if (err == ERR_OK)
        tell_changes(charter, &before);
    record_deinit(&before);
    return err;
}

/* ---- looking in ---- */

struct sync_view charter_sync_view(struct charter *charter, bool votes)
{
    const struct view *view = &charter->view;
    struct sync_view out = {.epoch = view->epoch, .self = view->self, .slots = view->count, .ids = charter->ids};
    out.certifying = record_certifying(chain_last(charter->chain));
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        charter->ids[i] = member->id;
        if (!member->used || member->leaving)
            continue;
        bitset_add(&out.members, i);
        if (member->role == RECORD_WITNESS)
            bitset_add(&out.witness, i);
        else if (member->voter)
            bitset_add(&out.keepers, i);
        if (member->role == RECORD_OWNER || member->role == RECORD_CONTRIBUTOR || member->role == RECORD_DRAINING)
            bitset_add(&out.taking_part, i);
    }
    out.votes = votes && bitset_has(&out.keepers, view->self);
    return out;
}

bool charter_drained(const struct charter *charter, uint32_t id)
{
    const struct record *record = chain_last(charter->chain);
    for (; record != NULL; record = chain_at(charter->chain, record->epoch - 1)) {
        const struct record_member *member = record_member(record, id);
        if (member == NULL || member->role != RECORD_AWAY)
            return member != NULL && member->role == RECORD_DRAINING;
        if (record->epoch == 0)
            break;
    }
    return false;
}
