/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/keyring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/home.h"

static const char next_end[] = ".next", dropped_end[] = ".dropped", config_end[] = ".config", before_end[] = ".before";
const char *const keyring_beside[] = {next_end, dropped_end, before_end, config_end, NULL};
/* Of a file that is there for a moment, to see whether one can be. */
static const char try_end[] = ".try";

enum { KEY_FILE_BYTES_MAX = 4096 };

bool keyring_has(const struct ident *ident)
{
    return ident->public_text[0] != '\0';
}

static void forget(struct ident *ident)
{
    sodium_memzero(ident, sizeof *ident);
}

/* The present one is left under another name where it could not be renamed: no other one. */
static void load_other(const char *path, const struct ident *present, struct ident *ident)
{
    forget(ident);
    enum err err = access(path, F_OK) == 0 ? ident_load(path, ident) : ERR_NOTFOUND;
    if (err == ERR_OK && memcmp(ident->key, present->key, sizeof ident->key) != 0)
        return;
    forget(ident);
    if (err != ERR_OK && err != ERR_NOTFOUND)
        log_error("%s; as long as it is so, this island does not ask for that key", err_text());
}

/* Whether the files of a change of keys can be kept beside the key: a daemon that could not would be left without the
 * key before, and without the configuration from which it goes on where its state is lost. */
static enum err check_folder(const struct keyring *keyring)
{
    char *path;
    TRY(mem_printf(&path, "%s%s", keyring->conf->key_path, try_end));
    unlink(path); /* of a daemon that was killed here; or of somebody else, and nothing that would be waited for */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), failed = errno;
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    mem_free(path);
    if (fd >= 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "this island's daemon cannot write beside its key %s: %s; as long as it is so, it asks for no other "
                   "key. Let its user write there; or stop it, move the key into a folder where its user may write, as "
                   "/etc/diloco/key is for a service, write that into its configuration ([island] key), and start it",
                   keyring->conf->key_path, strerror(failed));
}

static enum err read_others(struct keyring *keyring)
{
    if (keyring->conf != NULL) {
        load_other(keyring->next_path, &keyring->ident, &keyring->next);
        load_other(keyring->dropped_path, &keyring->ident, &keyring->dropped);
    }
    forget(&keyring->asked);
    if (keyring->conf != NULL && keyring_has(&keyring->next))
        TRY(check_folder(keyring));
    keyring->asked = keyring->next;
    return ERR_OK;
}

enum err keyring_reload(struct keyring *keyring)
{
    bool had = keyring_has(&keyring->next);
    enum err err = read_others(keyring);
    if (err != ERR_OK && !had)
        forget(&keyring->next);
    return err;
}

enum err keyring_open(const struct dconf *conf, struct keyring *keyring)
{
    enum err err;
    *keyring = (struct keyring){.conf = conf};
    TRY_OUT(ident_load(conf->key_path, &keyring->ident));
    TRY_OUT(mem_printf(&keyring->next_path, "%s%s", conf->key_path, next_end));
    TRY_OUT(mem_printf(&keyring->dropped_path, "%s%s", conf->key_path, dropped_end));
    TRY_OUT(mem_printf(&keyring->before_path, "%s%s", conf->key_path, before_end));
    TRY_OUT(mem_printf(&keyring->config_path, "%s%s", conf->key_path, config_end));
    if (read_others(keyring) != ERR_OK) /* the key stays: a configuration may have given it */
        log_error("%s", err_text());
    load_other(keyring->before_path, &keyring->ident, &keyring->before);
out:
    if (err != ERR_OK)
        keyring_close(keyring);
    return err;
}

void keyring_close(struct keyring *keyring)
{
    mem_free(keyring->next_path);
    mem_free(keyring->dropped_path);
    mem_free(keyring->config_path);
    mem_free(keyring->before_path);
    sodium_memzero(keyring, sizeof *keyring);
}

const struct ident *keyring_other(const struct keyring *keyring)
{
    if (keyring_has(&keyring->next))
        return &keyring->next;
    return keyring_has(&keyring->dropped) ? &keyring->dropped : NULL;
}

/* ---- another key ---- */

static bool names(const struct config *config, const struct ident *ident)
{
    for (uint32_t i = 0; keyring_has(ident) && i < config->members_count; i++)
        if (memcmp(config->members[i].key, ident->key, sizeof ident->key) == 0)
            return true;
    return false;
}

/* The mark of the votes lies under the key's name; it is this island's, whatever its key. First, since the name of the
 * key before is lost with that. */
static enum err move_mark(const struct dconf *conf, const char *from, const char *to)
{
    char *old = NULL, *new = NULL;
    bool exposed;
    enum err err;
    TRY_OUT(home_mark(conf->in_home, from, conf->run_folder, &old, &exposed));
    TRY_OUT(home_mark(conf->in_home, to, conf->run_folder, &new, &exposed));
    if (strcmp(old, new) != 0 && rename(old, new) != 0 && errno != ENOENT)
        err = err_set_errno(ERR_IO, "cannot rename %s to %s", old, new);
out:
    mem_free(old);
    mem_free(new);
    return err;
}

static enum err keep_before(const char *key_path, const char *before_path)
{
    char *text;
    size_t bytes;
    TRY(fsio_read(key_path, KEY_FILE_BYTES_MAX, &text, &bytes));
    enum err err = fsio_replace(before_path, text, bytes, 0600);
    sodium_memzero(text, bytes);
    mem_free(text);
    return err;
}

static enum err move_key(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        return err_set_errno(ERR_IO, "cannot rename %s to %s", from, to);
    return fsio_sync_folder_of(to);
}

static void take(struct keyring *keyring, struct ident *ident, const char *path, uint64_t epoch)
{
    enum err err = ERR_OK;
    if (keyring->conf != NULL)
        err = move_mark(keyring->conf, keyring->ident.public_text, ident->public_text);
    if (err == ERR_OK && keyring->conf != NULL)
        err = keep_before(keyring->conf->key_path, keyring->before_path);
    if (err == ERR_OK && keyring->conf != NULL)
        err = move_key(path, keyring->conf->key_path);
    if (err != ERR_OK)
        log_warn("%s: it is found there all the same; rename it yourself before it gets another one", err_text());
    keyring->before = keyring->ident;
    keyring->ident = *ident;
    forget(ident);
    keyring->asked = keyring->next;
    log_info("this island has the key %s from epoch %" PRIu64 " on", keyring->ident.public_text, epoch);
}

bool keyring_changes(const struct keyring *keyring, const struct config *config)
{
    return !names(config, &keyring->ident) && (names(config, &keyring->next) || names(config, &keyring->dropped));
}

bool keyring_had(const struct keyring *keyring, const struct config *config)
{
    return names(config, &keyring->before);
}

bool keyring_settle(struct keyring *keyring, const struct config *config)
{
    if (!keyring_changes(keyring, config))
        return false;
    if (names(config, &keyring->next))
        take(keyring, &keyring->next, keyring->next_path, config->epoch);
    else
        take(keyring, &keyring->dropped, keyring->dropped_path, config->epoch);
    return true;
}

/* The others may have the word that stated it, until a configuration rests on a later one. */
bool keyring_dropped_is_over(const struct keyring *keyring, const struct config_member *as, uint64_t said)
{
    return keyring_has(&keyring->dropped) && said != 0 && said <= config_word_number(as) &&
           memcmp(as->next_key, keyring->dropped.key, sizeof as->next_key) != 0;
}

void keyring_forget_dropped(struct keyring *keyring)
{
    if (!keyring_has(&keyring->dropped))
        return;
    if (keyring->conf != NULL && unlink(keyring->dropped_path) != 0 && errno != ENOENT)
        log_warn("%s, which is of no use any more, cannot be removed: %s", keyring->dropped_path, strerror(errno));
    forget(&keyring->dropped);
}
