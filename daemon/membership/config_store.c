/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/membership/config_store.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/founding.h"
#include "daemon/state/ledger.h"
#include "daemon/state/store.h"
#include "net/config/config_proof.h"
#include "net/membership/evidence.h"
#include "net/membership/wire_paxos.h"

/* Who chases older versions fetches a state: configurations of epochs before that are not needed in memory, nor in
 * files of their own. */
enum { EPOCHS_KEPT = 256 };

/* ---- files ---- */

/*
 * File "config-EPOCH", 12 digits: magic u32 "DLE1", version u32, epoch u64, configuration bytes u64, votes u32, zero
 * u32, the configuration, for each vote id u32, zero u32, ballot u64 and signature; then 32 bytes BLAKE2b over all
 * before.
 */
#define CONFIG_MAGIC 0x31454c44u
enum { FILE_VERSION = 1, HEAD_BYTES = 32, VOTE_BYTES = 16 + IDENT_SIGNATURE_BYTES, VOTES_MAX = CONFIG_OWNERS_MAX + 1 };
/* File "configs-EPOCH": so many epochs from that one on, which is a multiple of it, as far as they were here: their
 * files as they were, one after the other. AT_ONCE: a disk that has thousands of files is tidied little by little. */
enum { PACK_EPOCHS = 256, PACKS_AT_ONCE = 4 };
enum { FILE_BYTES_MAX = HEAD_BYTES + CONFIG_BYTES_MAX + VOTES_MAX * VOTE_BYTES + DIGEST_BYTES };

#define PACK_BYTES_MAX ((size_t)PACK_EPOCHS * FILE_BYTES_MAX)

static enum err path_of(const char *folder, uint64_t epoch, char **path)
{
    return mem_printf(path, "%s/config-%012" PRIu64, folder, epoch);
}

static enum err pack_path_of(const char *folder, uint64_t epoch, char **path)
{
    return mem_printf(path, "%s/configs-%012" PRIu64, folder, epoch / PACK_EPOCHS * PACK_EPOCHS);
}

/* ---- one file ---- */

static void write_entry(struct bytes_writer *writer, uint64_t epoch, const struct config_entry *entry)
{
    bytes_put_u32(writer, CONFIG_MAGIC);
    bytes_put_u32(writer, FILE_VERSION);
    bytes_put_u64(writer, epoch);
    bytes_put_u64(writer, entry->bytes_count);
    bytes_put_u32(writer, entry->votes_count);
    bytes_put_u32(writer, 0);
    bytes_put(writer, entry->bytes, entry->bytes_count);
    for (uint32_t i = 0; i < entry->votes_count; i++) {
        bytes_put_u32(writer, entry->votes[i].id);
        bytes_put_u32(writer, 0);
        bytes_put_u64(writer, entry->votes[i].ballot);
        bytes_put(writer, entry->votes[i].signature, IDENT_SIGNATURE_BYTES);
    }
    struct digest digest = digest_of(writer->data, writer->at);
    bytes_put(writer, digest.byte, DIGEST_BYTES);
}

typedef enum err put_file(const char *path, const void *data, size_t bytes, mode_t mode);

static enum err put(const char *folder, uint64_t epoch, const struct config_entry *entry, put_file *file)
{
    char *path;
    uint8_t *data;
    if (entry->bytes_count > CONFIG_BYTES_MAX || entry->votes_count > VOTES_MAX)
        return err_set(ERR_ARG, "a configuration of %zu bytes with %" PRIu32 " votes", entry->bytes_count,
                       entry->votes_count);
    size_t bytes = HEAD_BYTES + entry->bytes_count + entry->votes_count * (size_t)VOTE_BYTES + DIGEST_BYTES;
    TRY(mem_new(bytes, 1, "a configuration", &data));
    struct bytes_writer writer = bytes_writer_init(data, bytes);
    write_entry(&writer, epoch, entry);
    enum err err = path_of(folder, epoch, &path);
    if (err == ERR_OK) {
        err = file(path, data, bytes, 0644);
        mem_free(path);
    }
    mem_free(data);
    return err;
}

enum err config_store_save(const char *folder, uint64_t epoch, const struct config_entry *entry)
{
    return put(folder, epoch, entry, fsio_replace);
}

enum err config_store_copy(const char *folder, uint64_t epoch, const struct config_entry *entry)
{
    return put(folder, epoch, entry, fsio_put);
}

static enum err read_entry(const char *path, uint64_t epoch, const char *data, size_t bytes, struct config_entry *entry)
{
    struct bytes_reader reader = bytes_reader_init(data, bytes);
    uint32_t magic = bytes_get_u32(&reader), version = bytes_get_u32(&reader);
    uint64_t said = bytes_get_u64(&reader), count = bytes_get_u64(&reader);
    uint32_t votes = bytes_get_u32(&reader);
    (void)bytes_get_u32(&reader);
    bool whole = !reader.failed && magic == CONFIG_MAGIC && version == FILE_VERSION && said == epoch &&
                 count <= CONFIG_BYTES_MAX && votes <= VOTES_MAX &&
                 bytes == HEAD_BYTES + count + votes * (uint64_t)VOTE_BYTES + DIGEST_BYTES;
    if (whole) {
        struct digest digest = digest_of(data, bytes - DIGEST_BYTES);
        whole = memcmp(data + bytes - DIGEST_BYTES, digest.byte, DIGEST_BYTES) == 0;
    }
    if (!whole)
        return err_set(ERR_CORRUPT, "%s is damaged", path);
    entry->bytes_count = (size_t)count;
    entry->votes_count = votes;
    TRY(mem_new(entry->bytes_count, 1, "a configuration", &entry->bytes));
    TRY(mem_new(votes, sizeof *entry->votes, "a configuration", &entry->votes));
    memcpy(entry->bytes, bytes_get(&reader, entry->bytes_count), entry->bytes_count);
    for (uint32_t i = 0; i < votes; i++) {
        entry->votes[i].id = bytes_get_u32(&reader);
        (void)bytes_get_u32(&reader);
        entry->votes[i].ballot = bytes_get_u64(&reader);
        memcpy(entry->votes[i].signature, bytes_get(&reader, IDENT_SIGNATURE_BYTES), IDENT_SIGNATURE_BYTES);
    }
    return ERR_OK;
}

/* Bytes of the configuration that begins here, by its head; `*epoch`: its own. 0: it is no whole one. */
static size_t bytes_of(const char *data, size_t bytes, uint64_t *epoch)
{
    struct bytes_reader reader = bytes_reader_init(data, bytes);
    uint32_t magic = bytes_get_u32(&reader), version = bytes_get_u32(&reader);
    *epoch = bytes_get_u64(&reader);
    uint64_t count = bytes_get_u64(&reader);
    uint32_t votes = bytes_get_u32(&reader);
    if (reader.failed || magic != CONFIG_MAGIC || version != FILE_VERSION || count > CONFIG_BYTES_MAX ||
        votes > VOTES_MAX)
        return 0;
    size_t whole = HEAD_BYTES + (size_t)count + votes * (size_t)VOTE_BYTES + DIGEST_BYTES;
    return whole <= bytes ? whole : 0;
}

static enum err read_alone(const char *folder, uint64_t epoch, struct config_entry *entry)
{
    char *path = NULL, *data = NULL;
    size_t bytes;
    enum err err;
    TRY_OUT(path_of(folder, epoch, &path));
    TRY_OUT(fsio_read(path, FILE_BYTES_MAX, &data, &bytes));
    err = read_entry(path, epoch, data, bytes, entry);
out:
    mem_free(path);
    mem_free(data);
    return err;
}

static enum err read_packed(const char *folder, uint64_t epoch, struct config_entry *entry)
{
    char *path = NULL, *data = NULL;
    size_t bytes, whole;
    uint64_t said;
    enum err err;
    TRY_OUT(pack_path_of(folder, epoch, &path));
    TRY_OUT(fsio_read(path, PACK_BYTES_MAX, &data, &bytes));
    err = err_set(ERR_NOTFOUND, "%s does not hold the configuration of epoch %" PRIu64, path, epoch);
    for (size_t at = 0; at < bytes; at += whole) {
        whole = bytes_of(data + at, bytes - at, &said);
        if (whole == 0) {
            err = err_set(ERR_CORRUPT, "%s is damaged", path);
            break;
        }
        if (said == epoch) {
            err = read_entry(path, epoch, data + at, whole, entry);
            break;
        }
    }
out:
    mem_free(path);
    mem_free(data);
    return err;
}

enum err config_store_read(const char *folder, uint64_t epoch, struct config_entry *entry)
{
    *entry = (struct config_entry){0};
    enum err err = read_alone(folder, epoch, entry);
    if (err == ERR_NOTFOUND)
        err = read_packed(folder, epoch, entry);
    if (err != ERR_OK)
        config_entry_free(entry);
    return err;
}

/* ---- all of them ---- */

static bool epoch_of(const char *name, uint64_t *epoch)
{
    char *end;
    static const char head[] = "config-";
    if (strncmp(name, head, sizeof head - 1) != 0 || name[sizeof head - 1] < '0' || name[sizeof head - 1] > '9')
        return false;
    *epoch = strtoull(name + sizeof head - 1, &end, 10);
    return *end == '\0' && end - name == (long)sizeof head - 1 + 12;
}

/* The lowest epoch from `least` on that there is a file of. */
static bool oldest(const char *folder, uint64_t least, uint64_t *out)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint64_t epoch;
    bool found = false;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (epoch_of(entry->d_name, &epoch) && epoch >= least && (!found || epoch < *out)) {
            *out = epoch;
            found = true;
        }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static enum err check_run(const char *folder, const struct config *config, const uint8_t *nonce, bool nonce_known)
{
    if (!nonce_known || memcmp(config->nonce, nonce, CONFIG_NONCE_BYTES) == 0)
        return ERR_OK;
    return err_set(
        ERR_CONF,
        "the configurations in %s are of another run; give this run a state folder of its own, or empty that "
        "one with: %s reset",
        folder, as_typed());
}

static enum err add(const char *folder, uint64_t epoch, struct config_log *config_log, const uint8_t *nonce,
                    bool nonce_known)
{
    struct config_entry entry = {0};
    struct config config = {0};
    enum err err;
    TRY_OUT(read_alone(folder, epoch, &entry));
    struct digest digest = config_digest(entry.bytes, entry.bytes_count);
    TRY_OUT(config_unpack(entry.bytes, entry.bytes_count, &config));
    TRY_OUT(check_run(folder, &config, nonce, nonce_known));
    if (config_log_last(config_log) != NULL)
        TRY_OUT(config_proved(config_log_last(config_log), config_log_last_digest(config_log), &config, &digest,
                              entry.votes, entry.votes_count));
    TRY_OUT(config_log_add(config_log, &config, &digest));
out:
    config_deinit(&config);
    config_entry_free(&entry);
    return err;
}

enum err config_store_load(const char *folder, const uint8_t nonce[CONFIG_NONCE_BYTES], bool nonce_known,
                           struct config_log *config_log)
{
    uint64_t epoch;
    if (!oldest(folder, 0, &epoch))
        return err_set(ERR_NOTFOUND, "no configuration in %s", folder);
    for (;; epoch++) {
        enum err err = add(folder, epoch, config_log, nonce, nonce_known);
        if (err == ERR_CONF || err == ERR_NOMEM)
            return err;
        if (err == ERR_OK)
            continue;
        if (err != ERR_NOTFOUND)
            log_error("configuration %" PRIu64 " is not used: %s; the others send it again", epoch, err_text());
        if (config_log_last(config_log) != NULL)
            return ERR_OK;
        /* The oldest is of no use: what follows the gap is as good a beginning. */
        if (!oldest(folder, epoch + 1, &epoch))
            return err_set(ERR_NOTFOUND, "no configuration in %s", folder);
        epoch--;
    }
}

static void remove_alone(const char *folder, uint64_t epoch)
{
    char *path;
    if (path_of(folder, epoch, &path) != ERR_OK)
        return;
    unlink(path);
    mem_free(path);
}

void config_store_forget(const char *folder, uint64_t epoch)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    uint64_t old;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (epoch_of(entry->d_name, &old) && old < epoch)
            remove_alone(folder, old);
    if (dir != NULL)
        closedir(dir);
}

/* ---- those that a restart does not need ---- */

/* Behind what is in the pack so far; one that is damaged is left out: nobody can use it. */
static enum err add_to_pack(const char *folder, uint64_t epoch, char **pack, size_t *bytes)
{
    char *path = NULL, *data = NULL;
    size_t count;
    struct config_entry checked = {0};
    enum err err;
    TRY_OUT(path_of(folder, epoch, &path));
    err = fsio_read(path, FILE_BYTES_MAX, &data, &count);
    if (err == ERR_OK)
        err = read_entry(path, epoch, data, count, &checked);
    if (err == ERR_OK)
        err = mem_grow(pack, *bytes, *bytes + count, 1, "configurations");
    if (err == ERR_OK) {
        memcpy(*pack + *bytes, data, count);
        *bytes += count;
    } else if (err == ERR_CORRUPT) {
        log_warn("%s; it is removed, as no restart needs it", err_text());
        err = ERR_OK;
    } else if (err == ERR_NOTFOUND) {
        err = ERR_OK;
    }
out:
    config_entry_free(&checked);
    mem_free(path);
    mem_free(data);
    return err;
}

/* All from `first` on, which begins a pack, into one file. What is in that file already, since a crash came before the
 * others were removed, is the same. */
static enum err pack_one(const char *folder, uint64_t first)
{
    char *pack = NULL, *path = NULL;
    size_t bytes = 0;
    enum err err;
    TRY_OUT(pack_path_of(folder, first, &path));
    for (uint64_t epoch = first; epoch < first + PACK_EPOCHS; epoch++)
        TRY_OUT(add_to_pack(folder, epoch, &pack, &bytes));
    if (access(path, F_OK) != 0)
        TRY_OUT(fsio_replace(path, pack, bytes, 0644));
    for (uint64_t epoch = first; epoch < first + PACK_EPOCHS; epoch++)
        remove_alone(folder, epoch);
out:
    mem_free(pack);
    mem_free(path);
    return err;
}

enum err config_store_pack(const char *folder, uint64_t before)
{
    uint64_t epoch;
    for (int i = 0; i < PACKS_AT_ONCE && oldest(folder, 0, &epoch); i++) {
        uint64_t first = epoch / PACK_EPOCHS * PACK_EPOCHS;
        if (first + PACK_EPOCHS > before)
            break;
        TRY(pack_one(folder, first));
    }
    return ERR_OK;
}

/* ---- the first configuration ---- */

/* Kept, so that it rules from now on. */
static enum err first_config(struct config_store *configs, const struct ident *ident, const struct runspec *spec)
{
    enum err err;
    struct config config = {0};
    struct config_entry entry = {0};
    TRY_OUT(founding_config(configs->conf, ident, spec, &config));
    TRY_OUT(config_pack(&config, &entry.bytes, &entry.bytes_count));
    struct digest digest = config_digest(entry.bytes, entry.bytes_count);
    TRY_OUT(config_store_save(configs->conf->state_folder, 0, &entry));
    TRY_OUT(config_log_add(configs->config_log, &config, &digest));
out:
    config_deinit(&config);
    config_entry_free(&entry);
    return err;
}

/* A founder that is alone and has made nothing yet founds the run that its configuration and run spec describe now. */
static bool begun(const struct config_store *configs)
{
    const struct config *config = config_log_last(configs->config_log);
    const char *folder = configs->conf->state_folder;
    return config != NULL && (config->epoch > 0 || config->members_count > 1 || ledger_in(folder) || store_in(folder));
}

/* `config` is taken over. */
static enum err begin_with(struct config_store *configs, struct config *config, const struct config_entry *entry)
{
    struct digest digest = config_digest(entry->bytes, entry->bytes_count);
    config_log_free(configs->config_log);
    TRY(config_log_new(&configs->config_log));
    TRY(config_store_save(configs->conf->state_folder, config->epoch, entry));
    return config_log_add(configs->config_log, config, &digest);
}

/* The copy beside the sockets: the others send what came after it. ERR_NOTFOUND: there is none. */
static enum err begin_from_copy(struct config_store *configs)
{
    struct config_entry entry;
    struct config config;
    config_log_free(configs->config_log);
    TRY(config_log_new(&configs->config_log));
    TRY(config_store_load(configs->conf->run_folder, NULL, false, configs->config_log));
    uint64_t epoch = config_log_last(configs->config_log)->epoch;
    TRY(config_copy(config_log_last(configs->config_log), &config));
    enum err err = config_store_read(configs->conf->run_folder, epoch, &entry);
    if (err == ERR_OK) {
        err = begin_with(configs, &config, &entry);
        config_entry_free(&entry);
    }
    config_deinit(&config);
    if (err == ERR_OK)
        log_warn("%s has no configuration, as if it had been emptied: this island goes on from that of epoch %" PRIu64
                 " in %s, and fetches the run's state from the others",
                 configs->conf->state_folder, epoch, configs->conf->run_folder);
    return err;
}

static bool has_us(const struct config_store *configs, const struct config *config)
{
    for (uint32_t i = 0; i < config->members_count; i++)
        if (view_is_own(&config->members[i], configs->keyring->ident.key))
            return true;
    return keyring_changes(configs->keyring, config);
}

/* Of the same run, later, and with a key of ours. */
static bool leads_on(const struct config_store *configs, const struct config *from, const struct config *to)
{
    return memcmp(from->nonce, to->nonce, sizeof from->nonce) == 0 && to->epoch > from->epoch && has_us(configs, to);
}

/* Where keys have changed since this island came, no older configuration names them. `from`: what is here; it is not
 * looked at where it is NULL. Configurations before go: a start would find a gap behind them. ERR_NOTFOUND: there is
 * none, that file is none, or it leads nowhere; then all is as before. */
static enum err begin_as_rekeyed(struct config_store *configs, const struct config *from)
{
    struct config config;
    struct config_entry entry;
    const char *path = configs->keyring->config_path;
    if (path == NULL || founding_read_joined(path, &config, &entry) != ERR_OK)
        return ERR_NOTFOUND;
    enum err err =
        from == NULL || leads_on(configs, from, &config) ? begin_with(configs, &config, &entry) : ERR_NOTFOUND;
    config_deinit(&config);
    config_entry_free(&entry);
    if (err != ERR_OK)
        return err;
    uint64_t epoch = config_log_last(configs->config_log)->epoch;
    config_store_forget(configs->conf->state_folder, epoch);
    log_info("this island begins from the configuration of epoch %" PRIu64 ", by which keys changed last", epoch);
    return ERR_OK;
}

/* A copy of the state folder from before this island had its key names another one. The others send what came after
 * the configuration beside the key. Without that one it stays as it is: not_on_the_roster() says what to do. */
static enum err look_for_key(struct config_store *configs)
{
    const struct config *last = config_log_last(configs->config_log);
    uint64_t epoch = last->epoch;
    if (has_us(configs, last))
        return ERR_OK;
    enum err err = begin_as_rekeyed(configs, last);
    if (err == ERR_OK)
        log_warn("%s is from before this island had its key: its newest configuration was that of epoch %" PRIu64
                 "; this island fetches from the others what came since",
                 configs->conf->state_folder, epoch);
    return err == ERR_NOTFOUND ? ERR_OK : err;
}

static enum err begin_as_joined(struct config_store *configs)
{
    struct config config;
    struct config_entry entry;
    const char *path = configs->conf->joined;
    enum err err = founding_read_joined(path, &config, &entry);
    if (err == ERR_NOTFOUND) /* as after a reset */
        return err_set(ERR_CONF,
                       "%s: is not there; it is the configuration by which this island joined its run: join again with "
                       "an invitation of another island: %s join TOKEN --name %s",
                       path, as_typed(), configs->conf->name);
    if (err != ERR_OK)
        return err_set(ERR_CONF,
                       "%s: is damaged; it is the configuration by which this island joined its run: %s reset, "
                       "and join again with an invitation of another island",
                       path, as_typed());
    err = begin_with(configs, &config, &entry);
    config_deinit(&config);
    config_entry_free(&entry);
    if (err == ERR_OK)
        log_info("this island begins from the configuration of epoch %" PRIu64 ", by which it joined",
                 config_log_last(configs->config_log)->epoch);
    return err;
}

/* The configurations of the state folder; where that was emptied, the newest one that lies beside the sockets, or the
 * one by which this island joined; where it is older than this island's key, the one that lies beside that. */
static enum err load(struct config_store *configs, const struct ident *ident, const struct runspec *spec)
{
    TRY(config_log_new(&configs->config_log));
    TRY(fsio_mkdirs(configs->conf->state_folder, 0755));
    enum err err = config_store_load(configs->conf->state_folder, NULL, false, configs->config_log);
    if (err == ERR_NOTFOUND)
        err = begin_from_copy(configs);
    if (err == ERR_OK && begun(configs))
        return look_for_key(configs);
    if (err != ERR_OK && err != ERR_NOTFOUND)
        return err;
    err = begin_as_rekeyed(configs, NULL);
    if (err != ERR_NOTFOUND)
        return err;
    if (configs->conf->joined[0] != '\0')
        return begin_as_joined(configs);
    config_log_free(configs->config_log);
    TRY(config_log_new(&configs->config_log));
    return first_config(configs, ident, spec);
}

/* A copy of the newest configuration beside the sockets, for a state folder that is emptied. Not as precious as the
 * configuration in the state folder: the loop waits for no flush of it. */
static void keep_copy(const struct config_store *configs)
{
    struct config_entry entry;
    uint64_t epoch = config_log_last(configs->config_log)->epoch;
    enum err err = config_store_read(configs->conf->state_folder, epoch, &entry);
    if (err == ERR_OK) {
        err = config_store_copy(configs->conf->run_folder, epoch, &entry);
        config_entry_free(&entry);
    }
    if (err == ERR_OK)
        config_store_forget(configs->conf->run_folder, epoch);
    else
        log_warn("no copy of the newest configuration: %s", err_text());
}

/* ---- another key ---- */

static enum err keep_beside_key(const struct config_store *configs, uint64_t epoch)
{
    struct config_entry entry;
    uint8_t *bytes;
    size_t count;
    TRY(config_store_read(configs->conf->state_folder, epoch, &entry));
    struct paxos_message decided = {.type = WIRE_DECIDED,
                                    .bytes = entry.bytes,
                                    .bytes_count = entry.bytes_count,
                                    .votes = entry.votes,
                                    .votes_count = entry.votes_count};
    enum err err = wire_paxos_pack(&decided, &bytes, &count);
    if (err == ERR_OK) {
        err = fsio_replace(configs->keyring->config_path, bytes, count, 0644);
        mem_free(bytes);
    }
    config_entry_free(&entry);
    return err;
}

/* A configuration that is on disk may give another key to us, or to others. It is kept beside ours first: with an older
 * one, as an emptied state folder has it, we would know neither them nor ourselves. */
static void take_key(struct config_store *configs, const struct config *config)
{
    bool changes = keyring_changes(configs->keyring, config);
    for (uint32_t i = 0; i < config->orders_count; i++)
        changes |= config->orders[i].kind == ORDER_REKEY;
    if (!changes)
        return;
    if (configs->keyring->config_path != NULL && keep_beside_key(configs, config->epoch) != ERR_OK)
        log_warn("%s: where the state folder is lost, this island has to join anew", err_text());
    (void)keyring_settle(configs->keyring, config);
}

/* ---- life ---- */

static enum err not_on_the_roster(const struct config_store *configs)
{
    char text[IDENT_TEXT_BYTES];
    const struct keyring *keyring = configs->keyring;
    ident_text(keyring->ident.key, text);
    if (keyring->config_path != NULL && keyring_had(keyring, config_log_last(configs->config_log)))
        return err_set(ERR_CONF,
                       "%s is from before this island had the key %s, and %s, from which it could go on all the same, "
                       "is missing or damaged: put that back, or a newer state folder; or %s reset, and then join with "
                       "a new invitation of another island",
                       configs->conf->state_folder, text, keyring->config_path, as_typed());
    return err_set(ERR_CONF,
                   "the key of this island, %s, is not on the roster of epoch %" PRIu64
                   ": %s reset, and then join with a new invitation of another island; or give it back its key",
                   text, config_log_last(configs->config_log)->epoch, as_typed());
}

/* The configuration rules; who is told to be the other of the two would do what nobody expects. */
static enum err check_witness(const struct config_store *configs)
{
    bool is = view_is_witness(&configs->view);
    if (is == configs->conf->witness)
        return ERR_OK;
    return err_set(
        ERR_CONF,
        is ? "the run's configuration has this island as its witness: set [island] witness = yes, and take "
             "[worker] data out"
           : "[island] witness = yes, but the run's configuration has this island as one that trains, which it "
             "stays: set witness = no; for a witness, join with a name and a key of its own");
}

enum err config_store_open(const struct dconf *conf, struct keyring *keyring, const struct runspec *spec,
                           struct config_store *configs)
{
    enum err err;
    struct view_way *ways = NULL;
    struct view_changes changes;
    size_t count;
    *configs = (struct config_store){.conf = conf, .keyring = keyring};
    TRY_OUT(dconf_ways(conf, &ways, &count));
    TRY_OUT(view_init(ways, count, &configs->view));
    TRY_OUT(load(configs, &keyring->ident, spec));
    take_key(configs, config_log_last(configs->config_log));
    TRY_OUT(view_update(&configs->view, config_log_last(configs->config_log),
                        config_log_last_digest(configs->config_log), keyring->ident.key, &changes));
    configs->view.nonce_id = digest_of(configs->view.nonce, sizeof configs->view.nonce);
    if (configs->view.self == VIEW_NOBODY)
        err = not_on_the_roster(configs);
    else
        err = check_witness(configs);
out:
    mem_free(ways);
    if (err != ERR_OK)
        config_store_close(configs);
    return err;
}

void config_store_close(struct config_store *configs)
{
    config_log_free(configs->config_log);
    view_free(&configs->view);
    *configs = (struct config_store){0};
}

/* What people want to know of it: who is lost, who came. */
static void tell_changes(const struct config_store *configs, const struct config *before)
{
    const struct view *view = &configs->view;
    uint32_t owners = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        const struct config_member *old = config_member(before, member->as.id);
        if (!member->used)
            continue;
        if (member->leaving) {
            log_info("island %s is not on the roster any more", member->as.name);
            continue;
        }
        owners += member->as.role == CONFIG_OWNER;
        if (old == NULL)
            log_info("island %s is on the roster now%s", member->as.name,
                     member->as.role == CONFIG_WITNESS ? ", as the witness" : "");
        else if (member->as.role == CONFIG_AWAY && old->role == CONFIG_DRAINING)
            log_info("island %s, which left, is away", member->as.name);
        else if (member->as.role == CONFIG_AWAY && old->role != CONFIG_AWAY)
            log_warn("island %s is lost: the run goes on without it, and it comes back by itself", member->as.name);
        else if (member->as.role == CONFIG_OWNER && old->role != CONFIG_OWNER)
            log_info("island %s takes part%s", member->as.name, old->role == CONFIG_OBSERVER ? "" : " again");
    }
    log_info("epoch %" PRIu64 " has begun, with %" PRIu32 " of %" PRIu32 " islands as owners", view->epoch, owners,
             config_log_last(configs->config_log)->members_count);
}

static enum err adopt(struct config_store *configs, struct config *config, const struct digest *digest,
                      struct view_changes *changes)
{
    TRY(config_log_add(configs->config_log, config, digest));
    const struct config *last = config_log_last(configs->config_log);
    if (last->epoch > EPOCHS_KEPT)
        config_log_forget(configs->config_log, last->epoch - EPOCHS_KEPT);
    keep_copy(configs);
    return view_update(&configs->view, config_log_last(configs->config_log), digest, configs->keyring->ident.key,
                       changes);
}

uint64_t config_store_old(const struct config_store *configs, uint64_t needed)
{
    uint64_t last = config_log_last(configs->config_log)->epoch, kept = last > EPOCHS_KEPT ? last - EPOCHS_KEPT : 0;
    return needed < kept ? needed : kept;
}

enum err config_store_adopt(struct config_store *configs, struct config *config, const struct digest *digest,
                            struct view_changes *changes)
{
    struct config before;
    take_key(configs, config);
    if (!has_us(configs, config)) /* the view stays, so that the daemon can end in order */
        return err_set(ERR_STATE,
                       "this island was taken off the roster; to come back: %s reset, then join with a "
                       "new invitation of another island",
                       as_typed());
    TRY(config_copy(config_log_last(configs->config_log), &before));
    enum err err = adopt(configs, config, digest, changes);
    if (err == ERR_OK)
        tell_changes(configs, &before);
    config_deinit(&before);
    return err;
}

/* ---- looking in ---- */

struct sync_view config_store_sync_view(struct config_store *configs, bool votes)
{
    const struct view *view = &configs->view;
    struct sync_view out = {.epoch = view->epoch, .self = view->self, .slots = view->count, .ids = configs->ids};
    out.commit_quorum = config_commit_quorum(config_log_last(configs->config_log));
    out.paused = config_log_last(configs->config_log)->paused;
    for (uint32_t i = 0; i < view->count; i++) {
        const struct view_member *member = &view->members[i];
        configs->ids[i] = member->as.id;
        if (!member->used || member->leaving)
            continue;
        bitset_add(&out.members, i);
        if (member->as.role == CONFIG_WITNESS)
            bitset_add(&out.witness, i);
        else if (member->as.voter)
            bitset_add(&out.keepers, i);
        if (member->as.role == CONFIG_OWNER || member->as.role == CONFIG_CONTRIBUTOR ||
            member->as.role == CONFIG_DRAINING)
            bitset_add(&out.taking_part, i);
    }
    out.votes = votes && bitset_has(&out.keepers, view->self);
    return out;
}

bool config_store_drained(const struct config_store *configs, uint32_t id)
{
    const struct config *config = config_log_last(configs->config_log);
    for (; config != NULL; config = config_log_at(configs->config_log, config->epoch - 1)) {
        const struct config_member *member = config_member(config, id);
        if (member == NULL || member->role != CONFIG_AWAY)
            return member != NULL && member->role == CONFIG_DRAINING;
        if (config->epoch == 0)
            break;
    }
    return false;
}

/* ---- evidence ---- */

static enum err evidence_path(const char *folder, uint32_t id, char **path)
{
    return mem_printf(path, "%s/proof-%010" PRIu32, folder, id);
}

enum err config_store_save_evidence(const char *folder, uint32_t id, const uint8_t *bytes, size_t count)
{
    char *path;
    TRY(evidence_path(folder, id, &path));
    enum err err = fsio_replace(path, bytes, count, 0644);
    mem_free(path);
    return err;
}

enum err config_store_load_evidence(const char *folder, uint32_t id, uint8_t **bytes, size_t *count)
{
    char *path, *data = NULL;
    *bytes = NULL;
    TRY(evidence_path(folder, id, &path));
    enum err err = fsio_read(path, EVIDENCE_BYTES_MAX, &data, count);
    mem_free(path);
    if (err == ERR_OK)
        *bytes = (uint8_t *)data;
    return err;
}
