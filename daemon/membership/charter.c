/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/charter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/as_typed.h"
#include "daemon/founding.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/state/ledger.h"
#include "daemon/membership/records.h"
#include "daemon/state/store.h"
#include "net/membership/wire_epoch.h"

/* Who chases older versions fetches a state: records of epochs before that are not needed in memory, nor in files of
 * their own. */
enum { EPOCHS_KEPT = 256 };

/* ---- record 0 ---- */

/* What was drawn when the run was founded makes its nonce another one than that of a run of the same founders before.
 */
static enum err mix_founding(const struct charter *charter, struct record *record)
{
    uint8_t both[RECORD_NONCE_BYTES + FOUNDING_BYTES];
    const struct dconf *conf = charter->conf;
    if (conf->founded[0] == '\0') {
        log_info("nothing was drawn for this run ([island] founded is empty): if islands of the same names, keys and "
                 "run spec began one before, this one is the same, and what they signed in that can have them evicted "
                 "in this; a run that is begun anew takes another [run] name, or a new file of [island] founded, the "
                 "same for all founders");
        return ERR_OK;
    }
    memcpy(both, record->nonce, RECORD_NONCE_BYTES);
    TRY(founding_read(conf->founded, both + RECORD_NONCE_BYTES));
    struct digest digest = digest_of(both, sizeof both);
    memcpy(record->nonce, digest.byte, RECORD_NONCE_BYTES);
    return ERR_OK;
}

/* What the configuration says makes the first record: kept, so that it rules from now on. */
static enum err first_record(struct charter *charter, const struct view_entry *entries, size_t count,
                             const struct runspec *spec)
{
    enum err err;
    struct record record = {0};
    struct record_entry entry = {0};
    TRY_OUT(view_record0(entries, count, &spec->digest, (uint64_t)spec->steps, &record));
    TRY_OUT(mix_founding(charter, &record));
    TRY_OUT(record_pack(&record, &entry.bytes, &entry.bytes_count));
    struct digest digest = record_digest(entry.bytes, entry.bytes_count);
    TRY_OUT(records_save(charter->conf->state_folder, 0, &entry));
    TRY_OUT(chain_add(charter->chain, &record, &digest));
out:
    record_deinit(&record);
    record_entry_free(&entry);
    return err;
}

/* A run of hand-written members that has made nothing yet is the one that they describe now. */
static bool begun(const struct charter *charter)
{
    const struct record *record = chain_last(charter->chain);
    const char *folder = charter->conf->state_folder;
    return record != NULL && (record->epoch > 0 || ledger_in(folder) || store_in(folder));
}

static enum err begin_with(struct charter *charter, const struct record_entry *entry)
{
    struct record record;
    chain_free(charter->chain);
    TRY(chain_new(&charter->chain));
    TRY(record_unpack(entry->bytes, entry->bytes_count, &record));
    struct digest digest = record_digest(entry->bytes, entry->bytes_count);
    enum err err = records_save(charter->conf->state_folder, record.epoch, entry);
    if (err == ERR_OK)
        err = chain_add(charter->chain, &record, &digest);
    record_deinit(&record);
    return err;
}

/* The copy beside the sockets: the others send what came after it. ERR_NOTFOUND: there is none. */
static enum err begin_from_copy(struct charter *charter)
{
    struct record_entry entry;
    chain_free(charter->chain);
    TRY(chain_new(&charter->chain));
    TRY(records_load(charter->conf->run_folder, NULL, false, charter->chain));
    uint64_t epoch = chain_last(charter->chain)->epoch;
    TRY(records_read(charter->conf->run_folder, epoch, &entry));
    enum err err = begin_with(charter, &entry);
    record_entry_free(&entry);
    if (err == ERR_OK)
        log_warn("%s has no view record, as if it had been emptied: this island goes on from that of epoch %" PRIu64
                 " in %s, and fetches the run's state from the others",
                 charter->conf->state_folder, epoch, charter->conf->run_folder);
    return err;
}

/* What dilococtl join was told: a DECIDED, as it was packed. */
static enum err begin_as_joined(struct charter *charter)
{
    struct wire_epoch message;
    char *data;
    size_t bytes;
    const char *path = charter->conf->joined;
    enum err err = fsio_read(path, WIRE_EPOCH_BYTES_MAX, &data, &bytes);
    if (err == ERR_OK) {
        err = wire_epoch_unpack(WIRE_DECIDED, data, bytes, &message);
        mem_free(data);
    }
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
    struct record_entry entry = {.bytes = (uint8_t *)(uintptr_t)message.decided.record,
                                 .bytes_count = message.decided.record_bytes,
                                 .votes = (struct record_vote *)(uintptr_t)message.decided.votes,
                                 .votes_count = message.decided.votes_count};
    err = begin_with(charter, &entry);
    wire_epoch_deinit(&message);
    if (err == ERR_OK)
        log_info("this island begins from the view record of epoch %" PRIu64 ", by which it joined",
                 chain_last(charter->chain)->epoch);
    return err;
}

/* The records of the state folder; where that was emptied, the newest one that lies beside the sockets, or the one by
 * which this island joined: the configuration alone would make it a run of its own. */
static enum err load(struct charter *charter, const struct view_entry *entries, size_t count,
                     const struct runspec *spec)
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
    return first_record(charter, entries, count, spec);
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

/* Once: what the configuration says without effect, now that a record rules. Nothing is wrong with that. */
static void tell_void(const struct charter *charter)
{
    const struct dconf *conf = charter->conf;
    const struct dconf_peer *peers = conf->peers;
    char uplinks[300] = "";
    for (size_t i = 0; charter->view.epoch > 0 && i < conf->peers_count; i++) {
        uint32_t slot = view_slot_named(&charter->view, peers[i].name);
        if (slot == VIEW_NOBODY)
            log_info("[peer %s] has no effect: it is not on the roster of epoch %" PRIu64 ", which rules",
                     peers[i].name, charter->view.epoch);
        else if (slot != charter->view.self && charter->view.members[slot].uplink != peers[i].uplink)
            snprintf(uplinks + strlen(uplinks), sizeof uplinks - strlen(uplinks), " %s", peers[i].name);
    }
    if (uplinks[0] != '\0')
        log_info("[peer] uplink has no effect, since a record rules, which says another figure of%s: what counts is "
                 "what each says of itself; %s peers shows it",
                 uplinks, as_typed());
}

enum err charter_open(const struct dconf *conf, const struct ident *ident, const struct runspec *spec,
                      struct charter *charter)
{
    enum err err;
    struct view_entry *entries = NULL;
    struct view_changes changes;
    size_t count;
    *charter = (struct charter){.conf = conf};
    memcpy(charter->key, ident->key, sizeof charter->key);
    TRY_OUT(dconf_entries(conf, ident, &entries, &count));
    TRY_OUT(view_init(entries, count, &charter->view));
    TRY_OUT(load(charter, entries, count, spec));
    TRY_OUT(view_update(&charter->view, chain_last(charter->chain), chain_last_digest(charter->chain), charter->key,
                        &changes));
    charter->view.nonce_id = digest_of(charter->view.nonce, sizeof charter->view.nonce);
    if (charter->view.self == VIEW_NOBODY)
        err = not_on_the_roster(charter);
    else
        err = check_witness(charter);
    if (err == ERR_OK)
        tell_void(charter);
out:
    mem_free(entries);
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

void charter_difference(const struct charter *charter, char *text, size_t text_bytes)
{
    const struct dconf *conf = charter->conf;
    const struct dconf_peer *peers = conf->peers;
    text[0] = '\0';
    for (size_t i = 0; i < conf->peers_count; i++) {
        uint32_t slot = view_slot_named(&charter->view, peers[i].name);
        bool first = charter->view.epoch == 0; /* later members have come and gone, and sections stay: tell_void() */
        if (slot == VIEW_NOBODY && first)
            snprintf(text, text_bytes, "[peer %s] is not on the roster: the run began without it, and its record rules",
                     peers[i].name);
        else if (slot != VIEW_NOBODY && strcmp(charter->view.members[slot].key_text, peers[i].public_key) != 0)
            snprintf(text, text_bytes, "[peer %s] public_key is not the one on the roster, which rules", peers[i].name);
    }
}
