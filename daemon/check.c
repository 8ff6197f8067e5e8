/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/check.h"

#include <errno.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/mixture.h"
#include "common/program.h"
#include "common/runspec.h"
#include "common/words.h"
#include "daemon/founding.h"
#include "daemon/rules.h"
#include "daemon/trainer/command.h"
#include "net/config/config_proof.h"

/* Of the unit file. */
static const char unit_user[] = "diloco";

enum { SAID_BYTES = 4096 };

enum err check_as(const char *user)
{
    if (geteuid() != 0)
        return user == NULL ? ERR_OK : err_set(ERR_ARG, "--user %s: only root can check as another user", user);
    const struct passwd *who = getpwnam(user != NULL ? user : unit_user);
    if (who == NULL)
        return user == NULL ? ERR_OK : err_set(ERR_ARG, "--user %s: there is no such user", user);
    if (initgroups(who->pw_name, who->pw_gid) != 0 || setgid(who->pw_gid) != 0 || setuid(who->pw_uid) != 0)
        return err_set_errno(ERR_STATE, "cannot check as user %s", who->pw_name);
    return ERR_OK;
}

static const char *user_name(void)
{
    const struct passwd *who = getpwuid(geteuid());
    return who != NULL ? who->pw_name : "unnamed";
}

/* ---- the trainer ---- */

/* `*ours`: it is diloco-worker, to which corpus and device are said. */
static enum err check_program(const struct dconf *conf, bool *ours)
{
    struct words words;
    enum err err = words_split(conf->worker_program, &words);
    *ours = false;
    if (err != ERR_OK)
        return err_prefix(err, "[worker] program");
    const char *program = words.count > 0 ? words.word[0] : "";
    char *name = NULL, *path = NULL;
    if (words.count > 0)
        err = dconf_program(conf, program, &name);
    if (name != NULL)
        err = program_find(name, &path);
    if (err == ERR_NOTFOUND)
        err = strchr(program, '/') != NULL
                  ? err_set(ERR_CONF, "[worker] program: user %s finds no program at %s", user_name(), name)
                  : err_set(ERR_CONF,
                            "[worker] program: there is no program %s beside dilocod or in PATH; write its whole path "
                            "there, as /srv/venv/bin/%s",
                            program, program);
    *ours = dconf_is_ours(program);
    if (path != NULL && !*ours && strchr(program, '/') == NULL)
        log_info("[worker] program: %s is %s here; where another PATH holds, as in a service, it may be another one: "
                 "its whole path is certain",
                 program, path);
    mem_free(name);
    mem_free(path);
    words_free(&words);
    return err;
}

static enum err check_group(const char *group)
{
    if (group[0] == '\0' || getgrnam(group) != NULL)
        return ERR_OK;
    return err_set(ERR_CONF, "[worker] group: there is no group %s", group);
}

static enum err check_files(const char *pattern)
{
    glob_t found = {0};
    enum err err = ERR_OK;
    if (glob(pattern, 0, NULL, &found) != 0)
        err = err_set(ERR_CONF, "[worker] data = %s: there is no such file that user %s can see", pattern, user_name());
    for (size_t i = 0; err == ERR_OK && i < found.gl_pathc; i++)
        if (access(found.gl_pathv[i], R_OK) != 0)
            err = err_set_errno(ERR_CONF, "[worker] data: user %s cannot read %s", user_name(), found.gl_pathv[i]);
    globfree(&found);
    return err;
}

static enum err check_corpus(const char *data)
{
    struct mixture mixture;
    TRY(mixture_parse(data, NULL, &mixture));
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < mixture.count; i++)
        err = check_files(mixture.sources[i].path);
    mixture_free(&mixture);
    return err;
}

/* By the trainer itself, as it would start: whether its data and its device are there. What it warns of is shown. */
static enum err check_trainer(const struct dconf *conf)
{
    struct command command;
    char said[SAID_BYTES];
    int status = 0;
    TRY(command_make(conf, &command));
    command.arguments[command.arguments_count] = (char *)(uintptr_t) "--check";
    enum err err = program_run((const char *const *)command.arguments, said, sizeof said, true, &status);
    command.arguments[command.arguments_count] = NULL;
    command_free(&command);
    TRY(err);
    size_t bytes = strlen(said);
    while (bytes > 0 && said[bytes - 1] == '\n')
        said[--bytes] = '\0';
    if (status == 0) {
        if (bytes > 0)
            fprintf(stderr, "%s\n", said);
        return ERR_OK;
    }
    const char *last = strrchr(said, '\n');
    last = last != NULL ? last + 1 : said;
    const char *why = strstr(last, " error: "); /* after the time of a line of log */
    return err_set(ERR_CONF, "[worker]: the trainer would not start: %s",
                   why != NULL ? why + strlen(" error: ") : last);
}

/* ---- the rest ---- */

/* One that is not there may be made by then, as systemd makes these two. */
static enum err check_folder(const char *key, const char *path)
{
    if (access(path, R_OK | W_OK | X_OK) == 0 || errno == ENOENT)
        return ERR_OK;
    return err_set_errno(ERR_CONF, "[island] %s: user %s cannot write to %s", key, user_name(), path);
}

/* The configuration by which it joined. */
static enum err check_joined(const char *path)
{
    struct config config;
    struct config_entry entry;
    if (access(path, R_OK) != 0)
        return err_set(ERR_CONF, "[island] joined: user %s cannot read %s", user_name(), path);
    if (founding_read_joined(path, &config, &entry) != ERR_OK)
        return err_prefix(ERR_CONF, "[island] joined: %s", path);
    config_deinit(&config);
    config_entry_free(&entry);
    return ERR_OK;
}

static enum err check_run(const struct dconf *conf)
{
    struct runspec spec;
    char hex[DIGEST_HEX_BYTES];
    TRY(runspec_load(conf->run_path, NULL, 0, &spec));
    enum err err = dconf_check_grid(conf, &spec);
    if (err == ERR_OK)
        printf("ok: island %s, run %s (%s), for user %s\n", conf->name, spec.name, digest_hex(&spec.digest, hex),
               user_name());
    else
        err = err_prefix(err, "%s", conf->run_path);
    runspec_deinit(&spec);
    return err;
}

enum err check_start(const struct dconf *conf)
{
    struct ident ident;
    uint8_t drawn[FOUNDING_BYTES];
    bool ours;
    TRY(ident_load(conf->key_path, &ident));
    if (conf->joined[0] != '\0')
        TRY(check_joined(conf->joined));
    else if (conf->founded[0] != '\0')
        TRY(founding_read(conf->founded, drawn));
    TRY(check_program(conf, &ours));
    if (ours && conf->data[0] != '\0')
        TRY(check_corpus(conf->data));
    TRY(check_group(conf->worker_group));
    TRY(check_folder("state", conf->state_folder));
    TRY(check_folder("sockets", conf->run_folder));
    TRY(check_run(conf));
    if (ours && conf->data[0] != '\0')
        TRY(check_trainer(conf));
    if (conf->joined[0] == '\0')
        log_info("this island founds its run, and trains alone until others join by its invitation");
    return ERR_OK;
}
