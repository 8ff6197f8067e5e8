/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_init.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "common/mixture.h"
#include "common/origin.h"
#include "common/program.h"
#include "common/runspec.h"
#include "daemon/as_typed.h"
#include "daemon/ctl/ctl_draft.h"
#include "daemon/dconf.h"
#include "daemon/founding.h"
#include "daemon/keyring.h"
#include "net/transport/address.h"
#include "net/transport/ident.h"

enum { PORT_FIRST = 7600, PORT_LAST = 7699, RUN_BYTES_MAX = 1 << 20, SAID_BYTES = 4096 };
/* Folders of the configuration (and its parents) and of the key, state, sockets, key, run spec, draft of the
 * configuration. */
enum { MADE_MAX = 12 };

/* What was made so far, to be removed again if something fails. */
struct made {
    char *path[MADE_MAX];
    size_t count;
};

struct maker {
    const struct home *home;
    const struct ctl_init *init;
    const char *folder; /* of the configuration */
    char *data, *listen, *draft;
    char *key;    /* its path */
    char *fitted; /* the run spec, with --from */
    bool key_was_there, run_was_there;
    char *joined; /* path of the configuration by which it joined */
    struct ctl_admission admission;
    struct ident ident;
    struct made made;
    char *program; /* as it is kept; NULL: as it was said */
};

void ctl_admission_free(struct ctl_admission *admission)
{
    mem_free(admission->run_text);
    mem_free(admission->config);
    *admission = (struct ctl_admission){0};
}

/* ---- the run spec of a run that begins from a model ---- */

/* A comment sign or a blank at the end of a path would be read as something else. */
static enum err check_written(const struct runspec *meant, const char *text)
{
    struct runspec read;
    TRY(runspec_parse(text, "the run spec", &read));
    enum err err = strcmp(read.init, meant->init) == 0
                       ? ERR_OK
                       : err_set(ERR_CONF,
                                 "--from: \"%s\" cannot stand in a run spec, where it would read \"%s\"; "
                                 "rename the folder",
                                 meant->init, read.init);
    runspec_deinit(&read);
    return err;
}

/* The run spec in `run`, or the sample where that is NULL, fitted to the model at `from`, with its place and digest;
 * the caller's to mem_free(). ERR_CONF: the two do not go together, or the place cannot stand in a run spec. */
static enum err fitted_run(const char *from, const char *run, char **text)
{
    const struct origin_base base = {.file = run, .text = ctl_draft_sample, .name = "the sample"};
    struct runspec spec;
    *text = NULL;
    TRY(origin_spec(from, &base, true, &spec));
    enum err err = ctl_draft_run_of(&spec, text);
    if (err == ERR_OK)
        err = check_written(&spec, *text);
    runspec_deinit(&spec);
    if (err != ERR_OK) {
        mem_free(*text);
        *text = NULL;
    }
    return err;
}

/* Whether the text of a run spec, read from `path`, means the same in another folder. ERR_CONF: init is relative. */
static enum err check_moves(const char *text, const char *path)
{
    struct runspec spec;
    TRY(runspec_parse(text, "the run spec", &spec)); /* of no folder, so that paths stay as they are written */
    bool moves = spec.init[0] != '\0' && spec.init[0] != '/';
    enum err err = ERR_OK;
    if (moves)
        err = err_set(ERR_CONF,
                      "--run %s: [run] init is relative to its folder, and the island keeps the run spec in another; "
                      "write the whole path",
                      path);
    runspec_deinit(&spec);
    return err;
}

/* ---- what was asked for ---- */

unsigned ctl_init_port(void)
{
    for (unsigned port = PORT_FIRST; port <= PORT_LAST; port++) {
        struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        struct sockaddr_in all4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int on = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool six = fd >= 0;
        if (!six)
            fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return 0;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* as libzmq does: old connections do not matter */
        bool free =
            bind(fd, six ? (struct sockaddr *)&all : (struct sockaddr *)&all4, six ? sizeof all : sizeof all4) == 0 &&
            listen(fd, 1) == 0;
        close(fd);
        if (free)
            return port;
    }
    return 0;
}

static enum err choose_listen(struct maker *maker)
{
    const struct ctl_init *init = maker->init;
    const char *colon = init->address != NULL ? strrchr(init->address, ':') : NULL;
    if (init->address != NULL && !address_good(init->address)) /* whose port it would be */
        return err_set(ERR_CONF, "--address %s: not host:port, as in paris.example.org:7600", init->address);
    if (init->listen != NULL)
        return mem_strdup(init->listen, &maker->listen);
    if (colon != NULL)
        return mem_printf(&maker->listen, "*%s", colon);
    unsigned port = maker->home->folder != NULL ? ctl_init_port() : PORT_FIRST;
    if (port == 0)
        return err_set(ERR_STATE, "no port from %d to %d is free; choose one with --listen '*:PORT'", PORT_FIRST,
                       PORT_LAST);
    return mem_printf(&maker->listen, "*:%u", port);
}

static enum err check_files(const char *pattern)
{
    glob_t found = {0};
    enum err err = ERR_OK;
    off_t bytes = 0;
    if (glob(pattern, 0, NULL, &found) != 0)
        err = err_set(ERR_CONF, "--data %s: there is no such file", pattern);
    for (size_t i = 0; err == ERR_OK && i < found.gl_pathc; i++) {
        struct stat status;
        const char *path = found.gl_pathv[i];
        if (access(path, R_OK) != 0 || stat(path, &status) != 0)
            err = err_set_errno(ERR_CONF, "--data: cannot read %s", path);
        else if (S_ISDIR(status.st_mode))
            err =
                err_set(ERR_CONF, "--data %s: a folder; name a file, or a pattern of files as '%s/*.txt'", path, path);
        else if (!S_ISREG(status.st_mode)) /* it is mapped into memory */
            err = err_set(ERR_CONF, "--data %s: no file but a device, pipe or socket; name a file of text", path);
        else
            bytes += status.st_size;
    }
    if (err == ERR_OK && bytes == 0)
        err = err_set(ERR_CONF, "--data %s: there is nothing in it; name a file with the text to train on", pattern);
    globfree(&found);
    return err;
}

/* Absolute: the configuration stands elsewhere. */
static enum err find_data(const char *data, char **out)
{
    struct mixture mixture;
    char *here = getcwd(NULL, 0);
    if (here == NULL)
        return err_set_errno(ERR_IO, "--data %s: cannot find out which folder this is in", data);
    enum err err = mixture_parse(data, here, &mixture);
    free(here);
    if (err == ERR_OK)
        err = mixture_check(&mixture);
    if (err != ERR_OK)
        err = err_prefix(err, "--data");
    for (size_t i = 0; err == ERR_OK && i < mixture.count; i++)
        err = check_files(mixture.sources[i].path);
    if (err == ERR_OK)
        err = mixture_text(&mixture, " ", out);
    mixture_free(&mixture);
    return err;
}

/* Whether the island that is here takes part in a run, or has begun one. */
static bool in_a_run(const struct home *home)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/config-*", home->state);
    bool there = glob(pattern, 0, NULL, &found) == 0;
    globfree(&found);
    return there;
}

/* A witness trains on nothing, and what a program of one's own trains on is its own business. */
static enum err needs_text(const struct ctl_init *init, bool *needs)
{
    *needs = !init->witness;
    if (init->witness || init->program == NULL)
        return ERR_OK;
    enum err err = dconf_starts_ours(init->program, needs);
    return err == ERR_OK ? ERR_OK : err_prefix(err, "--program %s", init->program);
}

static enum err check_asked(const struct home *home, const struct ctl_init *init)
{
    bool joins = init->redeem != NULL, text;
    TRY(needs_text(init, &text));
    if (init->name == NULL || (init->data == NULL && text))
        return err_set(ERR_ARG, "%s needs a name%s: %s %s --name NAME%s%s%s", joins ? "join" : "init",
                       text ? " and a text" : "", as_typed(), joins ? "join TOKEN" : "init", text ? " --data FILE" : "",
                       home->folder == NULL ? " [--home DIR]" : "",
                       text ? " (a program of your own needs no text: --program COMMAND)" : "");
    if (home->folder == NULL && geteuid() != 0)
        return err_set(ERR_ARG, "only root can make this machine's service; call it with sudo, or make an island in a "
                                "folder of your own with --home DIR");
    if (access(home->conf, F_OK) != 0)
        return ERR_OK;
    if (joins && !in_a_run(home)) /* it was reset; its settings are put aside */
        return ERR_OK;
    if (joins)
        return err_set(
            ERR_STATE,
            "%s: an island is here already, on the roster of a run: %s start is enough if it is this one; to "
            "join another, or if it was revoked: stop, then reset, then join; or join in another folder with "
            "--home",
            home->conf, as_typed());
    return err_set(ERR_STATE,
                   "%s: an island is here already; %s start starts it; for another, name another folder with "
                   "--home; to begin anew, move this one's files away",
                   home->conf, as_typed());
}

/* ---- making, and taking back ---- */

static enum err remember(struct made *made, const char *path)
{
    TRY(mem_strdup(path, &made->path[made->count]));
    made->count++;
    return ERR_OK;
}

static void take_back(struct made *made)
{
    for (size_t i = made->count; i > 0; i--)
        if (unlink(made->path[i - 1]) != 0)
            rmdir(made->path[i - 1]);
}

static void forget(struct made *made)
{
    for (size_t i = 0; i < made->count; i++)
        mem_free(made->path[i]);
    made->count = 0;
}

static enum err make_folder(struct made *made, const char *path, mode_t mode)
{
    struct stat status;
    if (stat(path, &status) == 0)
        return S_ISDIR(status.st_mode) ? ERR_OK : err_set(ERR_CONF, "%s: not a folder; move it away", path);
    TRY(fsio_mkdirs(path, mode));
    return remember(made, path);
}

/* Whether nobody but root can put something into this folder, or, of one `above`, in the place of what is there. */
static bool is_roots(const struct stat *status, bool above)
{
    bool open = (status->st_mode & (S_IWGRP | S_IWOTH)) != 0, sticky = (status->st_mode & S_ISVTX) != 0;
    return status->st_uid == 0 && (!open || (above && sticky));
}

/* What root starts there runs, and writes, as root. So it is with every folder above. */
static enum err check_root_alone(const char *folder)
{
    char path[PATH_MAX];
    struct stat status;
    if (geteuid() != 0)
        return ERR_OK;
    snprintf(path, sizeof path, "%s", folder);
    for (bool last = false; !last;) {
        last = strcmp(path, "/") == 0;
        if (stat(path, &status) == 0 && !is_roots(&status, strcmp(path, folder) != 0))
            return err_set(ERR_CONF,
                           "%s: a user other than root can write to it, and could change what root runs from %s: run "
                           "this as the user whose island it is to be, or choose a folder that is root's alone",
                           path, folder);
        char *slash = strrchr(path, '/');
        if (slash != NULL)
            slash[slash == path ? 1 : 0] = '\0';
    }
    return ERR_OK;
}

/* One at a time; the lock goes with the descriptor. */
static enum err lock_folder(const char *folder, int *fd)
{
    *fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return err_set_errno(ERR_IO, "%s: cannot open", folder);
    bool held;
    enum err err = fsio_lock(*fd, folder, &held);
    if (err == ERR_OK && !held)
        err = err_set(ERR_STATE, "%s: another dilococtl is making an island here", folder);
    if (err == ERR_OK)
        return ERR_OK;
    close(*fd);
    *fd = -1;
    return err;
}

/* Of what lies in a folder of root's. */
static enum err own(const struct passwd *user, const char *path)
{
    if (user != NULL && chown(path, user->pw_uid, user->pw_gid) != 0)
        return err_set_errno(ERR_IO, "%s: cannot give it to user %s", path, user->pw_name);
    return ERR_OK;
}

/* Who joins anew has the key that the settings name which are put aside: by another one it would be another island,
 * beside its own name on the roster. Where there is none any more, since a new one is wanted, that is made where keys
 * are. */
static enum err find_key(struct maker *maker)
{
    struct dconf conf;
    const struct home *home = maker->home;
    if (access(home->conf, F_OK) != 0)
        return mem_strdup(home->key, &maker->key);
    enum err err = dconf_load_home(home, NULL, NULL, 0, &conf);
    if (err != ERR_OK)
        return err_suffix(err, "it says where this island's key is: mend it, or move it away");
    bool gone = access(conf.key_path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
    err = mem_strdup(gone ? home->key : conf.key_path, &maker->key);
    conf_deinit(&dconf_schema, &conf);
    return err;
}

/* A service may write to /etc nowhere else: another key comes beside the present one (daemon/keyring.h). */
static enum err make_key_folder(struct maker *maker, const struct passwd *user)
{
    char *path;
    if (maker->home->folder != NULL)
        return ERR_OK;
    TRY(mem_strdup(maker->home->key, &path));
    const char *folder = dirname(path);
    enum err err = make_folder(&maker->made, folder, S_IRWXU);
    if (err == ERR_OK)
        err = own(user, folder);
    mem_free(path);
    return err;
}

/* A key that is there is this island's: whoever has it knows it by that, and nothing brings it back. */
static enum err make_key(struct maker *maker, const struct passwd *user)
{
    const char *path = maker->key;
    maker->key_was_there = access(path, F_OK) == 0;
    if (maker->key_was_there)
        return ident_load(path, &maker->ident);
    TRY(ident_generate(&maker->ident));
    TRY(user != NULL ? ident_save_for(&maker->ident, path, user->pw_uid, user->pw_gid)
                     : ident_save(&maker->ident, path)); /* first, so that none but our own is taken back */
    return remember(&maker->made, path);
}

static enum err copied_run(const char *path, char **text, size_t *bytes)
{
    struct runspec spec;
    TRY(runspec_load(path, NULL, 0, &spec));
    runspec_deinit(&spec);
    TRY(fsio_read(path, RUN_BYTES_MAX, text, bytes));
    enum err err = check_moves(*text, path);
    if (err != ERR_OK)
        mem_free(*text);
    return err;
}

static enum err run_text(const struct maker *maker, char **text, size_t *bytes)
{
    const struct ctl_init *init = maker->init;
    const char *made = init->redeem != NULL ? maker->admission.run_text : maker->fitted;
    if (made != NULL)
        TRY(mem_strdup(made, text));
    else if (init->run == NULL)
        TRY(ctl_draft_run(text));
    else
        TRY(copied_run(init->run, text, bytes));
    enum err err = init->steps != NULL ? ctl_draft_set_steps(text, init->steps) : ERR_OK;
    if (made != NULL || init->run == NULL || init->steps != NULL)
        *bytes = strlen(*text);
    if (err != ERR_OK)
        mem_free(*text);
    return err;
}

static enum err put_aside(const char *path)
{
    char *aside;
    TRY(mem_printf(&aside, "%s.before", path));
    enum err err = rename(path, aside) == 0 || errno == ENOENT
                       ? ERR_OK
                       : err_set_errno(ERR_IO, "cannot rename %s to %s", path, aside);
    mem_free(aside);
    return err;
}

/* What lies beside a key is of the run that it was in before (daemon/keyring.h). */
static enum err leave_run_of(const char *key_path)
{
    enum err err = ERR_OK;
    for (size_t i = 0; keyring_beside[i] != NULL && err == ERR_OK; i++) {
        char *path;
        TRY(mem_printf(&path, "%s%s", key_path, keyring_beside[i]));
        err = put_aside(path);
        mem_free(path);
    }
    return err;
}

/* Who joins takes the run's. */
static enum err take_run(const struct maker *maker, const char *text, size_t bytes)
{
    char *there;
    size_t there_bytes;
    const char *path = maker->home->run;
    TRY(fsio_read(path, RUN_BYTES_MAX, &there, &there_bytes));
    bool same = there_bytes == bytes && memcmp(there, text, bytes) == 0;
    mem_free(there);
    if (same)
        return ERR_OK;
    TRY(put_aside(path));
    return fsio_replace(path, text, bytes, 0644);
}

/* One that is there was left by a try that was killed, or was put there for us. */
static enum err keep_run(const struct maker *maker, const char *text, size_t bytes)
{
    struct runspec spec;
    char *there;
    size_t there_bytes;
    const char *path = maker->home->run;
    if (maker->init->redeem != NULL)
        return take_run(maker, text, bytes);
    TRY(runspec_load(path, NULL, 0, &spec));
    runspec_deinit(&spec);
    TRY(fsio_read(path, RUN_BYTES_MAX, &there, &there_bytes));
    bool same = there_bytes == bytes && memcmp(there, text, bytes) == 0;
    mem_free(there);
    if (same || (maker->init->run == NULL && maker->fitted == NULL && maker->init->steps == NULL))
        return ERR_OK;
    if (maker->init->run == NULL && maker->fitted == NULL)
        return err_set(ERR_STATE,
                       "%s: is there already, and --steps is for one that is made: change its steps, or leave "
                       "--steps out",
                       path);
    const char *option = maker->fitted != NULL ? "--from" : "--run";
    return err_set(ERR_STATE, "%s: is there already and differs from %s %s; remove it, or leave %s out", path, option,
                   maker->fitted != NULL ? maker->init->from : maker->init->run, option);
}

static enum err make_run(struct maker *maker)
{
    char *text;
    size_t bytes;
    const char *path = maker->home->run;
    TRY(run_text(maker, &text, &bytes));
    maker->run_was_there = access(path, F_OK) == 0;
    enum err err = maker->run_was_there ? keep_run(maker, text, bytes) : fsio_replace(path, text, bytes, 0644);
    if (err == ERR_OK && !maker->run_was_there)
        err = remember(&maker->made, path);
    mem_free(text);
    return err;
}

/* A program of one's own is the one that is found here and now, as in an active Python environment: the daemon may be
 * started where another one of that name comes first, or none. Ours is looked for beside dilocod. A link stays one:
 * by it an environment knows itself. */
static enum err find_program(struct maker *maker)
{
    const char *text = maker->init->program;
    size_t length = text != NULL ? strcspn(text, " \t") : 0;
    char *name, *path = NULL;
    if (length == 0 || strcspn(text, "/\"'\\") < length)
        return ERR_OK;
    TRY(mem_printf(&name, "%.*s", (int)length, text));
    enum err err = dconf_is_ours(name) ? ERR_NOTFOUND : program_find(name, &path);
    mem_free(name);
    if (err == ERR_NOTFOUND) /* its check says so */
        return ERR_OK;
    TRY(err);
    const char *quote = strpbrk(path, " \t") != NULL ? "\"" : "";
    err = strpbrk(path, "\"\\") == NULL ? mem_printf(&maker->program, "%s%s%s%s", quote, path, quote, text + length)
                                        : ERR_OK;
    mem_free(path);
    return err;
}

/* What the run has told it stands there once it has: `joined`. */
static enum err draft_text(const struct maker *maker, const struct runspec *spec, char **text)
{
    const struct home *home = maker->home;
    const struct ctl_init *init = maker->init;
    struct ctl_draft draft = {.name = init->name,
                              .data = maker->data,
                              .listen = maker->listen,
                              .uplink = init->uplink,
                              .address = init->address,
                              .owner = init->owner,
                              .witness = init->witness,
                              .program = maker->program != NULL ? maker->program : init->program,
                              .device = init->device,
                              .devices = init->devices,
                              .ranks = init->ranks,
                              .tensor_parallel = init->tensor_parallel,
                              .other_base = init->other_base,
                              .founded = init->redeem == NULL ? "founded" : NULL,
                              .spec = spec,
                              .key = home->folder != NULL && strcmp(maker->key, home->key) == 0 ? "island.key"
                                                                                                : maker->key,
                              .state = home->folder != NULL ? "state" : home->state,
                              .sockets = home->folder != NULL ? "run" : home->sockets};
    if (maker->joined != NULL) {
        draft.joined = "joined";
        draft.inviter_name = maker->admission.inviter_name;
        draft.inviter_address = maker->admission.inviter_address;
        draft.address = maker->admission.address[0] != '\0' ? maker->admission.address : NULL;
    }
    return ctl_draft_conf(&draft, text);
}

/* The run spec that it will have, by the order of make_run(). */
static enum err foresee_run(const struct maker *maker, struct runspec *spec)
{
    const char *path = maker->init->run != NULL ? maker->init->run : maker->home->run;
    char *text;
    if (maker->fitted != NULL)
        return runspec_parse(maker->fitted, "the run spec", spec);
    if (maker->init->run != NULL || access(path, F_OK) == 0)
        return runspec_load(path, NULL, 0, spec);
    TRY(ctl_draft_run(&text));
    enum err err = runspec_parse(text, "the sample", spec);
    mem_free(text);
    return err;
}

/* Who joins is told the run spec only when it is let in. */
static enum err rehearse_draft(const struct maker *maker)
{
    struct runspec spec;
    char *text = NULL;
    bool joins = maker->init->redeem != NULL;
    if (!joins)
        TRY(foresee_run(maker, &spec));
    enum err err = draft_text(maker, joins ? NULL : &spec, &text);
    mem_free(text);
    if (!joins)
        runspec_deinit(&spec);
    return err;
}

/* Before anything is made, and before anybody is asked: a run that has let us in has used its token up. */
static enum err rehearse(const struct maker *maker)
{
    TRY(rehearse_draft(maker));
    enum err err = maker->listen[0] != '\0' ? here_try(maker->listen) : ERR_OK;
    return err == ERR_OK ? ERR_OK
                         : err_suffix(err, "choose another with --listen, as --listen '*:PORT' (ss -ltnp shows which "
                                           "ports are in use)");
}

static enum err make_draft(struct maker *maker)
{
    char *text;
    TRY(draft_text(maker, NULL, &text));
    TRY(mem_printf(&maker->draft, "%s.draft", maker->home->conf));
    enum err err = fsio_replace(maker->draft, text, strlen(text), 0644);
    if (err == ERR_OK)
        err = remember(&maker->made, maker->draft);
    mem_free(text);
    return err;
}

/* By the eyes of the daemon, and of the user that it runs as. */
static enum err check_draft(const struct maker *maker)
{
    const char *argv[] = {"dilocod", "--check-config", "--config", maker->draft, NULL, NULL, NULL};
    char said[SAID_BYTES];
    int status;
    if (maker->home->folder != NULL) {
        argv[4] = "--home";
        argv[5] = maker->home->folder;
    }
    TRY(program_run(argv, said, sizeof said, true, &status));
    if (status == 0)
        return ERR_OK;
    fputs(said, stderr);
    return err_set(ERR_CONF, "dilocod would not start with this, for the reason above; nothing was made");
}

/* ---- the user of the service ---- */

static enum err find_user(const char *name, const struct passwd **user)
{
    const char *const argv[] = {"useradd", "--system",          "--home-dir", "/var/lib/diloco",
                                "--shell", "/usr/sbin/nologin", name,         NULL};
    int status = 0;
    *user = name != NULL ? getpwnam(name) : NULL;
    if (name == NULL || *user != NULL)
        return ERR_OK;
    TRY(program_run(argv, NULL, 0, false, &status));
    *user = getpwnam(name);
    if (status == 0 && *user != NULL)
        return ERR_OK;
    return err_set(ERR_STATE, "cannot make user %s, as whom the service runs; make it by hand: useradd --system %s",
                   name, name);
}

/* ---- the run that takes it in ---- */

/* It may wait for the voters there: whoever ends us meanwhile leaves the key, by which the next try goes on. */
static enum err ask_run(struct maker *maker)
{
    sigset_t ends, before;
    struct ctl_admission *admission = &maker->admission;
    if (maker->init->redeem == NULL)
        return ERR_OK;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_UNBLOCK, &ends, &before);
    enum err err = maker->init->redeem(maker->init->user_data, &maker->ident, maker->listen, admission);
    sigprocmask(SIG_SETMASK, &before, NULL);
    for (size_t i = 0; admission->asked && i < maker->made.count; i++)
        if (strcmp(maker->made.path[i], maker->key) == 0) {
            mem_free(maker->made.path[i]);
            maker->made.path[i] = maker->made.path[--maker->made.count];
        }
    return err;
}

static enum err keep_config(struct maker *maker)
{
    const struct ctl_admission *admission = &maker->admission;
    if (maker->init->redeem == NULL)
        return ERR_OK;
    TRY(mem_printf(&maker->joined, "%s/joined", maker->folder));
    TRY(fsio_replace(maker->joined, admission->config, admission->config_bytes, 0644));
    return remember(&maker->made, maker->joined);
}

/* Of a run that this island begins: drawn anew with every try, for nothing of it has begun. */
static enum err draw_founding(struct maker *maker)
{
    char *path;
    if (maker->init->redeem != NULL)
        return ERR_OK;
    TRY(mem_printf(&path, "%s/founded", maker->folder));
    enum err err = founding_draw(path);
    if (err == ERR_OK)
        err = remember(&maker->made, path);
    mem_free(path);
    return err;
}

/* ---- all of it ---- */

static enum err make_all(struct maker *maker)
{
    const struct home *home = maker->home;
    const struct passwd *user;
    TRY(find_user(maker->init->user, &user));
    TRY(make_key_folder(maker, user));
    TRY(make_key(maker, user));
    TRY(ask_run(maker));
    TRY(keep_config(maker));
    TRY(draw_founding(maker));
    TRY(make_run(maker));
    TRY(make_folder(&maker->made, home->state, 0750));
    TRY(own(user, home->state));
    if (home->folder != NULL) /* the service's is made anew at every boot, by its unit */
        TRY(make_folder(&maker->made, home->sockets, 0755));
    TRY(make_draft(maker));
    TRY(check_draft(maker));
    TRY(leave_run_of(maker->key)); /* now, since a try that fails leaves all as it was */
    if (maker->init->redeem != NULL)
        TRY(put_aside(home->conf));
    if (rename(maker->draft, home->conf) != 0)
        return err_set_errno(ERR_IO, "cannot rename %s to %s", maker->draft, home->conf);
    return fsio_sync_folder_of(home->conf);
}

static enum err make_undisturbed(struct maker *maker)
{
    sigset_t ends, before;
    int lock_fd = -1;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, &before);
    mode_t mask = umask(022); /* the service's user has to read what root makes */
    enum err err = make_folder(&maker->made, maker->folder, maker->home->folder != NULL ? 0750 : 0755);
    if (err == ERR_OK)
        err = lock_folder(maker->folder, &lock_fd);
    if (err == ERR_OK)
        err = check_asked(maker->home, maker->init); /* again: somebody may have been faster */
    if (err == ERR_OK)
        err = make_all(maker);
    if (err != ERR_OK)
        take_back(&maker->made);
    if (lock_fd >= 0)
        close(lock_fd);
    umask(mask);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return err;
}

static void advise(const char *path)
{
    struct runspec spec;
    char text[RUNSPEC_ADVICE_BYTES];
    if (runspec_load(path, NULL, 0, &spec) != ERR_OK)
        return;
    runspec_advice(&spec, text);
    runspec_deinit(&spec);
    if (text[0] != '\0')
        printf("Advice: %s\n", text);
}

static enum err say(const struct maker *maker)
{
    const struct home *home = maker->home;
    const struct ctl_init *init = maker->init;
    if (init->json) {
        static const char *const reached[] = {
            [CTL_UNTRIED] = "null", [CTL_REACHED] = "true", [CTL_UNREACHED] = "false"};
        printf("{\"island\":\"%s\",\"public_key\":\"%s\"", init->name, maker->ident.public_text);
        if (init->redeem != NULL)
            printf(",\"reached\":%s", reached[maker->admission.reached]);
        puts("}");
    } else {
        printf("%s %s is made:\n  %s\n  %s%s\n  %s%s\n  %s/\n", init->witness ? "Witness" : "Island", init->name,
               home->conf, maker->key, maker->key_was_there ? " (was there)" : "", home->run,
               maker->run_was_there   ? " (was there)"
               : init->redeem != NULL ? " (the run's)"
               : init->from != NULL   ? " (for the model)"
               : init->run != NULL    ? ""
                                      : " (a sample)",
               home->state);
        printf("It %s%s. Its public key is %s\n", maker->listen[0] != '\0' ? "listens on " : "does not listen",
               maker->listen, maker->ident.public_text);
        if (init->redeem == NULL)
            advise(home->run);
    }
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

enum err ctl_init(const struct home *home, const struct ctl_init *init)
{
    struct maker maker = {.home = home, .init = init};
    char *conf = NULL;
    enum err err;
    TRY_OUT(check_asked(home, init));
    if (home->folder != NULL)
        TRY_OUT(check_root_alone(home->folder));
    if (init->data != NULL)
        TRY_OUT(find_data(init->data, &maker.data));
    TRY_OUT(choose_listen(&maker));
    TRY_OUT(find_program(&maker));
    TRY_OUT(find_key(&maker));
    if (init->from != NULL)
        TRY_OUT(fitted_run(init->from, init->run, &maker.fitted));
    TRY_OUT(rehearse(&maker));
    TRY_OUT(mem_strdup(home->conf, &conf));
    maker.folder = dirname(conf);
    TRY_OUT(make_undisturbed(&maker));
    TRY_OUT(say(&maker));
out:
    forget(&maker.made);
    mem_free(maker.data);
    mem_free(maker.listen);
    mem_free(maker.draft);
    mem_free(maker.key);
    mem_free(maker.fitted);
    mem_free(maker.joined);
    mem_free(maker.program);
    ctl_admission_free(&maker.admission);
    mem_free(conf);
    return err;
}
