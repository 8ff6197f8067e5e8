/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dilocod: the daemon of one island.
 *
 * Exit status: 0 stopped in order, 1 failed, 2 wrong usage or configuration, or its state was removed: starting it
 * again cannot help, and a supervisor or systemd does not.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/args.h"
#include "common/digest.h"
#include "common/fsio.h"
#include "common/log.h"
#include "daemon/as_typed.h"
#include "daemon/check.h"
#include "daemon/dconf.h"
#include "daemon/engine.h"
#include "daemon/home.h"
#include "daemon/supervisor.h"

static const char usage[] =
    "usage: dilocod [--home DIR | --config FILE] [--set SECTION.KEY=VALUE ...] [--until-over]\n"
    "       dilocod --check-config | --print-config [--home DIR | --config FILE]\n"
    "       dilocod --supervise --home DIR\n"
    "\n"
    "The daemon of one island: exchanges outer gradients with the other islands while a trainer trains.\n"
    "\n";

struct arguments {
    const char *home, *config, *user;
    struct args_list set;
    bool check, print, supervise, until_over, help, version;
};

/* Signals are read from a descriptor by the loop, so that nothing is interrupted anywhere. */
static enum err take_signals(int *fd)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set_errno(ERR_IO, "cannot block signals");
    *fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (*fd < 0)
        return err_set_errno(ERR_IO, "cannot open a signal descriptor");
    signal(SIGPIPE, SIG_IGN);
    return ERR_OK;
}

static enum err serve(const struct home *home, const struct dconf *conf)
{
    struct engine *engine = NULL;
    int signal_fd = -1, lock_fd = -1;
    enum err err = ERR_OK;
    if (home->folder != NULL)
        TRY_OUT(home_lock(home, &lock_fd));
    TRY_OUT(fsio_mkdirs(conf->state_folder, 0755));
    TRY_OUT(take_signals(&signal_fd));
    TRY_OUT(engine_new(conf, &engine));
    TRY_OUT(engine_run(engine, signal_fd));
out:
    engine_free(engine);
    if (signal_fd >= 0)
        close(signal_fd);
    if (lock_fd >= 0)
        close(lock_fd);
    return err;
}

/* In a folder the daemon runs as whoever starts it; the service as a user of its own. */
static enum err check(const struct home *home, const struct dconf *conf, const char *user)
{
    if (home->folder == NULL || user != NULL)
        TRY(check_as(user));
    return check_start(conf);
}

static enum err act(const struct arguments *a, const struct home *home)
{
    struct conf_override overrides[ARGS_LIST_MAX];
    struct dconf conf;
    for (size_t i = 0; i < a->set.count; i++)
        overrides[i].text = a->set.item[i];
    TRY(dconf_load_home(home, a->config, overrides, a->set.count, &conf));
    supervised_take(&conf.supervised);
    conf.until_over = a->until_over;
    log_set_level((enum log_level)conf.log_level);
    enum err err = ERR_OK;
    if (a->print)
        dconf_print(home, &conf, stdout);
    else if (a->check)
        err = check(home, &conf, a->user);
    else
        err = serve(home, &conf);
    conf_deinit(&dconf_schema, &conf);
    return err;
}

static enum err supervise(const struct arguments *a, const struct home *home, int *status)
{
    if (home->folder == NULL || a->config != NULL || a->set.count > 0 || a->check || a->print || a->until_over)
        return err_set(ERR_ARG, "--supervise goes with --home DIR and nothing else");
    return supervisor_run(home, status);
}

static enum err run(int argc, char **argv, int *status)
{
    struct arguments a = {0};
    const struct args_option options[] = {
        {"home", ARGS_STRING, &a.home, "DIR",
         "an island with all its files in one folder, as dilococtl init --home makes one (default DILOCO_HOME)"},
        {"config", ARGS_STRING, &a.config, "FILE", "configuration (default /etc/diloco/dilocod.conf, or that in DIR)"},
        {"set", ARGS_LIST, &a.set, "S.KEY=VALUE", "change a configuration value; may be given several times"},
        {"check-config", ARGS_FLAG, &a.check, NULL,
         "check configuration, key, run spec, trainer, corpus and folders, then end"},
        {"user", ARGS_STRING, &a.user, "NAME", "check-config, by root: as this user (default diloco, if there is one)"},
        {"print-config", ARGS_FLAG, &a.print, NULL,
         "print the configuration in force with its documentation, then end"},
        {"supervise", ARGS_FLAG, &a.supervise, NULL,
         "start the daemon of DIR again when it dies, as dilococtl start has it done"},
        {"until-over", ARGS_FLAG, &a.until_over, NULL,
         "end in order once the run is over and no other island needs this one, as a job of a batch system is to"},
        {"version", ARGS_FLAG, &a.version, NULL, "print the version"},
        {"help", ARGS_FLAG, &a.help, NULL, "print this"},
    };
    const size_t count = sizeof options / sizeof options[0];
    struct home home;
    TRY(args_parse(argc, argv, options, count, NULL));
    if (a.help || a.version) {
        printf("%s", a.version ? "dilocod " DILOCO_VERSION "\n" : usage);
        if (a.help)
            args_help(options, count, stdout);
        return ERR_OK;
    }
    /* A configuration that is named is meant, whatever the environment says. */
    enum err err = home_find(a.config != NULL ? a.home : home_chosen(a.home), &home);
    as_typed_add("--home", home.folder);
    as_typed_add("--config", a.config);
    if (err == ERR_OK)
        err = a.supervise ? supervise(&a, &home, status) : act(&a, &home);
    home_free(&home);
    return err;
}

int main(int argc, char **argv)
{
    log_init("dilocod", LOG_LEVEL_INFO);
    int status = 0;
    enum err err = digest_init();
    if (err == ERR_OK)
        err = run(argc, argv, &status);
    if (err == ERR_OK)
        return status;
    log_error("%s", err_text());
    return err == ERR_ARG || err == ERR_CONF || err == ERR_NOTFOUND ? 2 : 1;
}
