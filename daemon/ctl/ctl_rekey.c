/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_rekey.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "daemon/as_typed.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/dconf.h"
#include "daemon/keyring.h"

/* ---- only one key is to be changed ---- */

static enum err check_old(const char *old)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if (old == NULL || (strlen(old) == IDENT_TEXT_BYTES - 1 && strspn(old, letters) == IDENT_TEXT_BYTES - 1))
        return ERR_OK;
    return err_set(ERR_ARG, "--old %s: no public key, which has %d characters; %s peers --json shows those of all", old,
                   IDENT_TEXT_BYTES - 1, as_typed());
}

static bool was_changed(const char *old, const char *present)
{
    return old != NULL && strcmp(old, present) != 0;
}

static enum err say_changed(const char *name, const char *present, bool json)
{
    if (json)
        printf("{\"island\":\"%s\",\"public_key\":\"%s\",\"already\":true}\n", name, present);
    else
        printf("Island %s has another key already, and keeps it: %s\n", name, present);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* ---- at the island ---- */

/* Whoever owns the key owns the new one: the daemon has to read it. It may write to that folder, too. */
static enum err save_for_owner(const struct ident *next, const char *path, const char *key_path)
{
    struct stat status;
    if (stat(key_path, &status) != 0)
        return err_set_errno(ERR_IO, "%s: cannot look at it", key_path);
    return status.st_uid == geteuid() ? ident_save(next, path)
                                      : ident_save_for(next, path, status.st_uid, status.st_gid);
}

static enum err make_next(struct keyring *keyring)
{
    struct ident next;
    if (access(keyring->next_path, F_OK) == 0)
        return err_set(ERR_CONF,
                       "%s is there, and is no key that can be read, or the present one: nobody was told of it; remove "
                       "it, and call this again",
                       keyring->next_path);
    TRY(ident_generate(&next));
    TRY(save_for_owner(&next, keyring->next_path, keyring->conf->key_path));
    keyring->next = next;
    return ERR_OK;
}

/* What the daemon's public key is; "": none runs, or none answers. */
static void present_key(const char *socket, char text[IDENT_TEXT_BYTES])
{
    json_t *peers, *row;
    size_t index;
    text[0] = '\0';
    if (ctl_ask(socket, "peers", &peers) != ERR_OK)
        return;
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (json_is_true(json_object_get(row, "self")))
            snprintf(text, IDENT_TEXT_BYTES, "%s", ctl_text(row, "public_key"));
    json_decref(peers);
}

static enum err put_in_place(struct keyring *keyring, const struct ident *ident, const char *path)
{
    const char *key_path = keyring->conf->key_path;
    if (rename(path, key_path) != 0)
        return err_set_errno(ERR_IO, "cannot rename %s to %s", path, key_path);
    TRY(fsio_sync_folder_of(key_path));
    keyring->ident = *ident;
    return keyring_reload(keyring);
}

/* A daemon that may not write beside its key has the new one where it was made; or one that was taken back at the
 * instant in which it was given, where that put it: it takes its place now. */
static enum err finish_last(const struct ctl_rekey *rekey, struct keyring *keyring)
{
    char present[IDENT_TEXT_BYTES];
    if (!keyring_has(&keyring->next) && !keyring_has(&keyring->dropped))
        return ERR_OK;
    present_key(rekey->socket, present);
    if (keyring_has(&keyring->next) && strcmp(present, keyring->next.public_text) == 0)
        return put_in_place(keyring, &keyring->next, keyring->next_path);
    if (keyring_has(&keyring->dropped) && strcmp(present, keyring->dropped.public_text) == 0)
        return put_in_place(keyring, &keyring->dropped, keyring->dropped_path);
    return ERR_OK;
}

/* Whether a daemon heard of it, and which key it asks for then; "": none. */
static enum err tell_daemon(const struct ctl_rekey *rekey, bool *told, char asked[IDENT_TEXT_BYTES])
{
    json_t *answer;
    asked[0] = '\0';
    enum err err = ctl_ask(rekey->socket, "rekey", &answer);
    *told = err == ERR_OK;
    if (err == ERR_OK) {
        snprintf(asked, IDENT_TEXT_BYTES, "%s", ctl_text(answer, "next_key"));
        json_decref(answer);
    }
    return err == ERR_CLOSED ? ERR_OK : err;
}

static enum err not_asked(const struct ctl_rekey *rekey, const struct keyring *keyring)
{
    char present[IDENT_TEXT_BYTES];
    present_key(rekey->socket, present);
    if (strcmp(present, keyring->next.public_text) == 0)
        return err_set(ERR_AGAIN, "this island has just been given the key %s; call this again for another one",
                       present);
    return err_set(
        ERR_STATE,
        "the daemon does not ask for the key in %s: it cannot read that file, and its log says why; have its "
        "user own it, and call this again",
        keyring->next_path);
}

/* A key that it refuses goes again: the next daemon would ask for it. */
static enum err ask_for_next(const struct ctl_rekey *rekey, struct keyring *keyring, bool was_there, bool *told)
{
    char asked[IDENT_TEXT_BYTES];
    enum err err = tell_daemon(rekey, told, asked);
    if (err == ERR_OK && *told && strcmp(asked, keyring->next.public_text) != 0)
        err = not_asked(rekey, keyring);
    if (err != ERR_STATE || was_there)
        return err;
    return unlink(keyring->next_path) == 0 ? err : err_suffix(err, "remove %s, too", keyring->next_path);
}

static enum err say_pending(const struct ctl_rekey *rekey, const struct keyring *keyring, bool was_there, bool told)
{
    const char *key = keyring->next.public_text, *name = keyring->conf->name;
    if (rekey->json) {
        printf("{\"island\":\"%s\",\"public_key\":\"%s\",\"next_key\":\"%s\",\"was_there\":%s,\"told\":%s}\n", name,
               keyring->ident.public_text, key, was_there ? "true" : "false", told ? "true" : "false");
    } else {
        printf("Island %s %s the key %s\n", name, was_there ? "asks already for" : "asks for", key);
        printf("%s until an operator of the run orders it; there: dilococtl rekey %s\nTo take it back: %s rekey "
               "--cancel\n",
               told ? "It keeps its present one" : "No daemon runs here; it asks once one does, and keeps its key",
               name, as_typed());
    }
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

static enum err begin(const struct ctl_rekey *rekey, struct keyring *keyring)
{
    bool told;
    TRY(finish_last(rekey, keyring));
    if (was_changed(rekey->old, keyring->ident.public_text))
        return say_changed(keyring->conf->name, keyring->ident.public_text, rekey->json);
    if (keyring_has(&keyring->dropped))
        return err_set(ERR_STATE,
                       "the key %s, which was taken back, may still be ordered, until the run's next configuration is "
                       "there; call this again then (%s lies there until it cannot be)",
                       keyring->dropped.public_text, keyring->dropped_path);
    bool was_there = keyring_has(&keyring->next);
    if (!was_there)
        TRY(make_next(keyring));
    TRY(ask_for_next(rekey, keyring, was_there, &told));
    return say_pending(rekey, keyring, was_there, told);
}

static enum err say_cancelled(const struct ctl_rekey *rekey, const char *key)
{
    if (rekey->json)
        printf("{\"ok\":\"taken back\",\"next_key\":\"%s\"}\n", key);
    else
        printf("This island asks for the key %s no more. It is sure from the next configuration on: what is decided "
               "already, or is being, may give it that key still\n",
               key);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

static enum err too_late(const char *key)
{
    return err_set(ERR_STATE, "too late: the run has given this island the key %s; for another one: %s rekey", key,
                   as_typed());
}

static enum err cancel(const struct ctl_rekey *rekey, struct keyring *keyring)
{
    bool told;
    char key[IDENT_TEXT_BYTES], asked[IDENT_TEXT_BYTES];
    TRY(finish_last(rekey, keyring));
    if (!keyring_has(&keyring->next))
        return err_set(ERR_NOTFOUND, "this island asks for no other key");
    snprintf(key, sizeof key, "%s", keyring->next.public_text);
    if (rename(keyring->next_path, keyring->dropped_path) != 0)
        return errno == ENOENT
                   ? too_late(key)
                   : err_set_errno(ERR_IO, "cannot rename %s to %s", keyring->next_path, keyring->dropped_path);
    TRY(fsio_sync_folder_of(keyring->dropped_path));
    TRY(tell_daemon(rekey, &told, asked));
    TRY(keyring_reload(keyring));
    TRY(finish_last(rekey, keyring)); /* the daemon may have taken it meanwhile */
    return strcmp(keyring->ident.public_text, key) == 0 ? too_late(key) : say_cancelled(rekey, key);
}

static enum err with_keyring(const struct ctl_rekey *rekey,
                             enum err (*act)(const struct ctl_rekey *rekey, struct keyring *keyring))
{
    struct dconf conf;
    struct keyring keyring;
    TRY(dconf_load_home(rekey->home, rekey->config, NULL, 0, &conf));
    enum err err = keyring_open(&conf, &keyring);
    if (err == ERR_OK) {
        err = act(rekey, &keyring);
        keyring_close(&keyring);
    }
    conf_deinit(&dconf_schema, &conf);
    return err;
}

enum err ctl_rekey_begin(const struct ctl_rekey *rekey)
{
    TRY(check_old(rekey->old));
    return with_keyring(rekey, begin);
}

enum err ctl_rekey_cancel(const struct ctl_rekey *rekey)
{
    return with_keyring(rekey, cancel);
}

/* ---- at an operator ---- */

static enum err find_keys(const struct ctl_members *ctl, const char *name, char present[IDENT_TEXT_BYTES],
                          char next[IDENT_TEXT_BYTES])
{
    json_t *peers, *row;
    size_t index;
    bool there = false;
    present[0] = next[0] = '\0';
    TRY(ctl_ask(ctl->socket, "peers", &peers));
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (strcmp(ctl_text(row, "name"), name) == 0) {
            there = true;
            snprintf(present, IDENT_TEXT_BYTES, "%s", ctl_text(row, "public_key"));
            snprintf(next, IDENT_TEXT_BYTES, "%s", ctl_text(row, "next_key"));
        }
    json_decref(peers);
    if (there)
        return ERR_OK;
    return err_set(ERR_NOTFOUND, "no island called \"%.63s\" is on the roster; %s peers lists them", name, as_typed());
}

static enum err show(const struct ctl_members *ctl, const char *name, const char *old, const char *next)
{
    if (ctl->json)
        printf("{\"island\":\"%s\",\"public_key\":\"%s\",\"next_key\":\"%s\"}\n", name, old, next);
    else
        printf("Island %s has the key      %s\n%*s and asks for  %s\nAsk whoever runs it whether that is what "
               "dilococtl rekey says there; if so: %s rekey %s --yes\n",
               name, old, (int)strlen(name) + (int)strlen("Island "), "", next, as_typed(), name);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

enum err ctl_rekey_order(const struct ctl_members *ctl, const char *name, const char *old, bool yes)
{
    char present[IDENT_TEXT_BYTES], next[IDENT_TEXT_BYTES];
    TRY(check_old(old));
    TRY(find_keys(ctl, name, present, next));
    if (was_changed(old, present))
        return say_changed(name, present, ctl->json);
    if (next[0] == '\0')
        return err_set(ERR_STATE,
                       "%s asks for no other key, as far as the run's configuration says: there, dilococtl rekey; if "
                       "it has just done so, ask again in half a minute",
                       name);
    return yes ? ctl_members_rekey(ctl, name, next) : show(ctl, name, present, next);
}
