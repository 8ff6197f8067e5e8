/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diloco-gateway: the program that a daemon starts as its trainer where it has no rank beside it: ranks on other
 * machines attach to it over TCP.
 *
 * Exit status: 0 the trainer is done, or it was told to end; 1 failed; 2 wrong usage, or a key that cannot be used.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/args.h"
#include "common/log.h"
#include "worker/gateway.h"

static sigset_t stop_signals;

static bool stopped(void)
{
    static const struct timespec at_once;
    static bool is_stopped;
    is_stopped = is_stopped || sigtimedwait(&stop_signals, NULL, &at_once) > 0;
    return is_stopped;
}

struct arguments {
    const char *listen, *socket, *key, *site_key;
    bool help, version;
};

static int fail(enum err err)
{
    log_error("%s", err_text());
    return err == ERR_ARG || err == ERR_CONF || err == ERR_NOTFOUND ? 2 : 1;
}

static void help(const struct args_option *options, size_t count)
{
    puts("usage: diloco-gateway --listen HOST:PORT [OPTIONS]\n\n"
         "Stands for ranks on other machines beside the daemon that starts it ([worker] program). They attach with\n"
         "DILOCO_SOCKET=tcp://THIS-MACHINE:PORT and DILOCO_SITE_KEY=FILE, a copy of the site.key that it makes.\n");
    args_help(options, count, stdout);
}

static int run(const struct arguments *a, char **argv)
{
    const char *socket = a->socket != NULL ? a->socket : getenv("DILOCO_SOCKET");
    struct gateway_conf conf = {
        .socket_path = socket, .listen = a->listen, .key_path = a->key, .site_path = a->site_key, .stopped = stopped};
    enum gateway_end end;
    if (a->listen == NULL)
        return fail(err_set(ERR_ARG, "--listen HOST:PORT is missing: where ranks on other machines reach this one"));
    if (socket == NULL)
        return fail(err_set(ERR_ARG, "--socket is missing, and DILOCO_SOCKET, which the daemon sets"));
    log_info("waiting for a trainer at %s; ranks need %s", a->listen, a->site_key);
    enum err err = gateway_run(&conf, &end);
    if (err != ERR_OK)
        return fail(err);
    if (end == GATEWAY_OVER)
        return 0;
    execv("/proc/self/exe", argv);
    return fail(err_set_errno(ERR_IO, "cannot begin anew"));
}

int main(int argc, char **argv)
{
    struct arguments a = {.key = "gateway.key", .site_key = "site.key"};
    const struct args_option options[] = {
        {"listen", ARGS_STRING, &a.listen, "HOST:PORT", "where ranks connect; *:PORT for every interface"},
        {"socket", ARGS_STRING, &a.socket, "PATH", "the daemon's socket for trainers; default: DILOCO_SOCKET"},
        {"key", ARGS_STRING, &a.key, "FILE", "this gateway's own key, made where it is missing; default: gateway.key"},
        {"site-key", ARGS_STRING, &a.site_key, "FILE", "what ranks need, made with it; default: site.key"},
        {"help", ARGS_FLAG, &a.help, NULL, "this"},
        {"version", ARGS_FLAG, &a.version, NULL, "version"},
    };
    const size_t count = sizeof options / sizeof options[0];
    sigemptyset(&stop_signals);
    sigaddset(&stop_signals, SIGINT);
    sigaddset(&stop_signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop_signals, NULL);
    log_init("diloco-gateway", LOG_LEVEL_INFO);
    enum err err = args_parse(argc, argv, options, count, NULL);
    if (err != ERR_OK)
        return fail(err);
    if (a.help || a.version) {
        if (a.help)
            help(options, count);
        else
            puts("diloco-gateway " DILOCO_VERSION);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    return run(&a, argv);
}
