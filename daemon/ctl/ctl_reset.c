/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_reset.h"

#include <errno.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/as_typed.h"
#include "daemon/dconf.h"
#include "daemon/founding.h"
#include "daemon/keyring.h"

enum { ASIDE_MAX = 1000 };

static enum err check_stopped(const struct home *home, const char *socket)
{
    json_t *answer;
    int pid = 0;
    if (home->folder != NULL)
        TRY(home_holder(home, &pid));
    if (home->folder != NULL && pid == 0) /* whose next daemon would be in the way */
        TRY(home_supervisor(home, &pid));
    if (pid > 0)
        return err_set(ERR_STATE, "dilocod runs here (pid %d); stop it first: %s stop", pid, as_typed());
    if (ctl_ask(socket, "status", &answer) != ERR_OK)
        return ERR_OK;
    json_decref(answer);
    return err_set(ERR_STATE, "dilocod runs here: it answers at %s; stop it first: %s stop", socket, as_typed());
}

/* A folder beside the state that is not there yet. */
static enum err make_aside(const char *state, char **aside)
{
    for (int i = 1; i < ASIDE_MAX; i++) {
        TRY(mem_printf(aside, "%s.before-%d", state, i));
        if (mkdir(*aside, 0750) == 0)
            return ERR_OK;
        enum err err = errno == EEXIST ? ERR_OK : err_set_errno(ERR_IO, "cannot make %s", *aside);
        mem_free(*aside);
        *aside = NULL;
        TRY(err);
    }
    return err_set(ERR_STATE, "%s.before-1 to -%d are all there; remove some", state, ASIDE_MAX - 1);
}

/* What is not there is no fault. */
static enum err move(const char *path, const char *aside, int *moved)
{
    const char *slash = strrchr(path, '/');
    char *to;
    TRY(mem_printf(&to, "%s/%s", aside, slash != NULL ? slash + 1 : path));
    enum err err = ERR_OK;
    if (rename(path, to) == 0)
        ++*moved;
    else if (errno != ENOENT)
        err = err_set_errno(ERR_IO, "cannot move %s to %s", path, to);
    mem_free(to);
    return err;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    return lstat(a, &of_a) == 0 && lstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* Not the file `kept`, should it lie there. */
static enum err move_matching(const char *folder, const char *pattern, const char *kept, const char *aside, int *moved)
{
    char path[PATH_MAX];
    glob_t found = {0};
    enum err err = ERR_OK;
    snprintf(path, sizeof path, "%s/%s", folder, pattern);
    if (glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && err == ERR_OK; i++)
            if (!is_same_file(found.gl_pathv[i], kept))
                err = move(found.gl_pathv[i], aside, moved);
    globfree(&found);
    return err;
}

/* Of a disk that keeps nothing any more. */
static enum err remove_mark(const struct dconf *conf)
{
    struct ident ident;
    char *mark;
    bool exposed;
    bool known = ident_load(conf->key_path, &ident) == ERR_OK;
    TRY(home_mark(conf->in_home && known, ident.public_text, conf->run_folder, &mark, &exposed));
    bool gone = unlink(mark) == 0 || errno == ENOENT;
    enum err err = gone ? ERR_OK : err_set_errno(ERR_IO, "cannot remove %s", mark);
    mem_free(mark);
    return err;
}

/* The key stays; but a new one that it had asked for would be asked for again, whoever has a copy of that, too. */
static enum err move_beside(const char *key_path, const char *aside, int *moved)
{
    enum err err = ERR_OK;
    for (size_t i = 0; keyring_beside[i] != NULL && err == ERR_OK; i++) {
        char *path;
        TRY(mem_printf(&path, "%s%s", key_path, keyring_beside[i]));
        err = move(path, aside, moved);
        mem_free(path);
    }
    return err;
}

/* The copy of the newest configuration, beside the sockets, and the mark go last: with them the daemon would go on, or
 * know that its state was taken away. */
static enum err move_all(const struct dconf *conf, const char *aside, int *moved)
{
    TRY(move_matching(conf->state_folder, "*", conf->key_path, aside, moved));
    TRY(move_matching(conf->run_folder, "config-*", conf->key_path, aside, moved));
    TRY(remove_mark(conf));
    TRY(move_beside(conf->key_path, aside, moved));
    return conf->joined[0] != '\0' ? move(conf->joined, aside, moved) : ERR_OK;
}

/* Nothing that was signed in the run before is to count in the one that begins now. */
static enum err draw_anew(const struct dconf *conf, const char *aside)
{
    int moved = 0;
    if (conf->joined[0] != '\0' || conf->founded[0] == '\0')
        return ERR_OK;
    TRY(move(conf->founded, aside, &moved));
    return founding_draw(conf->founded);
}

/* The remedy: how an island with an empty state begins. An island that joined does not start again without the
 * configuration by which it joined. */
static enum err describe_next(const struct dconf *conf, char **text)
{
    bool ours;
    TRY(dconf_starts_ours(conf->worker_program, &ours));
    const char *what = conf->witness ? "--witness" : ours ? "--data FILE" : "--program COMMAND";
    if (conf->joined[0] != '\0')
        return mem_printf(text, "%s join TOKEN --name %s %s, with a new invitation", as_typed(), conf->name, what);
    return mem_printf(text, "%s start founds another run; %s join TOKEN --name %s %s joins one", as_typed(), as_typed(),
                      conf->name, what);
}

static enum err say(const char *aside, const char *next, bool json)
{
    if (json)
        printf("{\"ok\":\"reset\",\"moved_to\":\"%s\"}\n", aside);
    else
        printf("What this island kept of its run is in %s now; its key and its configuration are as they "
               "were.\nNext: %s\n",
               aside, next);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

enum err ctl_reset(const struct home *home, const char *socket, bool json)
{
    struct dconf conf;
    char *aside = NULL, *next = NULL;
    int moved = 0;
    enum err err;
    TRY(check_stopped(home, socket));
    TRY(dconf_load_home(home, NULL, NULL, 0, &conf));
    TRY_OUT(describe_next(&conf, &next));
    TRY_OUT(make_aside(conf.state_folder, &aside));
    err = move_all(&conf, aside, &moved);
    if (err == ERR_OK && moved == 0) {
        rmdir(aside);
        err = err_set(ERR_NOTFOUND, "%s is empty: there is nothing to reset; %s", conf.state_folder, next);
    }
    if (err == ERR_OK)
        err = draw_anew(&conf, aside);
    if (err == ERR_OK)
        err = say(aside, next, json);
out:
    mem_free(aside);
    mem_free(next);
    conf_deinit(&dconf_schema, &conf);
    return err;
}
