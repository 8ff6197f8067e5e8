/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dilococtl: the command line by which people and scripts look at a daemon and steer it.
 *
 * Exit status: 0 done, 1 failed, 2 wrong usage, 3 no daemon answers; of status --check: enum verdict.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/args.h"
#include "common/commands.h"
#include "common/complete.h"
#include "common/digest.h"
#include "common/env.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_export.h"
#include "daemon/ctl/ctl_home.h"
#include "daemon/ctl/ctl_init.h"
#include "daemon/ctl/ctl_join.h"
#include "daemon/ctl/ctl_members.h"
#include "daemon/ctl/ctl_plan.h"
#include "daemon/ctl/ctl_print.h"
#include "daemon/ctl/ctl_rekey.h"
#include "daemon/ctl/ctl_reset.h"
#include "daemon/ctl/ctl_service.h"
#include "daemon/ctl/ctl_wait.h"
#include "daemon/ctl/ctl_watch.h"
#include "daemon/dconf.h"
#include "daemon/home.h"
#include "net/transport/ident.h"

/* For monitors, which know these numbers. */
enum verdict { GOOD, DEGRADED, UNREACHABLE };

enum { JOIN_S = 60, DECIDE_S = 600, MEMBERS_S = 30 }; /* --wait, where it is not said */
static const uint64_t NOT_SAID = UINT64_MAX;
enum { STOP_MS = 15000 }; /* as [worker] stop, where no configuration can be read */

struct arguments {
    const char *home_option, *socket, *config;
    struct home home;
    bool json, verbose, no_wait, no_start, now, check, follow, trainer, help, version, list, witness, names;
    bool contributor, as_owner, whole_run, cancel, yes;
    enum verdict verdict; /* of status --check */
    uint64_t interval_ms;
    struct ctl_plan plan;
    struct ctl_init init;
    struct ctl_export export;
    const char *expires, *island, *note, *revoke, *owner, *token_file, *params, *old_key;
    uint64_t wait_s;
    struct args_list rest, given;
    char socket_path[512], state_path[512];
    uint64_t stop_ms;
    const struct args_option *options; /* that there are */
    size_t options_count;
};

typedef enum err command_fn(struct arguments *a);

struct command {
    const char *name, *usage, *help;
    command_fn *run;
    size_t arguments_max; /* with the command's name; of two rows of one name the one that takes fewer comes first */
    enum needs { NOTHING, PLACE, ISLAND, DAEMON } needs; /* where an island may be, is, or where its daemon answers */
    const char *takes;                                   /* options, with a blank between two, and at both ends */
};

/* ---- printing what a daemon says ---- */

typedef void print_fn(const json_t *answer, const struct ctl_text_look *look, FILE *file);

static enum err print_answer(const struct arguments *a, const json_t *answer, print_fn *print)
{
    struct ctl_text_look look = ctl_text_look();
    char *text = NULL;
    size_t bytes;
    look.verbose = a->verbose;
    if (a->json) {
        json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        putchar('\n');
    } else {
        FILE *stream = open_memstream(&text, &bytes);
        if (stream == NULL)
            return err_set(ERR_NOMEM, "out of memory for the answer");
        print(answer, &look, stream);
        fclose(stream);
        ctl_text_show(text, bytes);
        free(text);
    }
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

static enum err show(struct arguments *a, const char *request, print_fn *print)
{
    json_t *answer;
    TRY(ctl_ask(a->socket_path, request, &answer));
    enum err err = print_answer(a, answer, print);
    json_decref(answer);
    return err;
}

/* Whatever keeps the daemon from answering, a monitor is told that it does not. */
static enum err run_check(struct arguments *a)
{
    json_t *answer;
    if (ctl_ask(a->socket_path, "status", &answer) != ERR_OK) {
        a->verdict = UNREACHABLE;
        printf("unreachable: %s\n", err_text());
        return ERR_OK;
    }
    a->verdict = json_array_size(json_object_get(answer, "degraded")) > 0 ? DEGRADED : GOOD;
    enum err err = print_answer(a, answer, ctl_print_check);
    json_decref(answer);
    return err;
}

static enum err run_status(struct arguments *a)
{
    return a->check ? run_check(a) : show(a, "status", ctl_print_status);
}

static void print_peers_and_members(const json_t *answer, const struct ctl_text_look *look, FILE *file)
{
    ctl_print_peers(answer, look, file);
    fputc('\n', file);
    ctl_print_members(answer, look, file);
}

static enum err run_fragments(struct arguments *a)
{
    return show(a, "fragments", ctl_print_fragments);
}

static enum err run_watch(struct arguments *a)
{
    struct ctl_watch watch = {.socket = a->socket_path, .interval_ms = a->interval_ms, .json = a->json};
    return ctl_watch(&watch);
}

/* ---- save ---- */

static enum err wait_for_trainer(const struct arguments *a, const char *const *wanted)
{
    struct ctl_wait wait = {.socket = a->socket_path, .wanted = wanted, .json = a->json};
    return ctl_wait_trainer(&wait);
}

static enum err order(struct arguments *a, const char *request)
{
    json_t *answer;
    TRY(ctl_ask(a->socket_path, request, &answer));
    if (a->json) {
        json_dumpf(answer, stdout, JSON_COMPACT);
        putchar('\n');
    } else {
        printf("%s\n", ctl_text(answer, "ok"));
    }
    json_decref(answer);
    return ERR_OK;
}

static enum err run_save(struct arguments *a)
{
    char saved[CTL_WAIT_PATH_BYTES];
    TRY(order(a, "save"));
    if (a->no_wait)
        return ERR_OK;
    TRY(ctl_wait_saved(a->socket_path, saved));
    if (!a->json)
        printf("%s\n", saved);
    return ERR_OK;
}

static enum err check_island(const struct home *home);
static enum err find_socket(struct arguments *a);

/* Of a file, no daemon is needed; else its present anchor. */
static enum err run_export(struct arguments *a)
{
    char saved[CTL_WAIT_PATH_BYTES];
    json_t *answer;
    a->export.folder = a->rest.count > 1 ? a->rest.item[1] : NULL;
    a->export.from = a->init.from;
    a->export.json = a->json;
    TRY(ctl_export_check(&a->export));
    if (a->export.from != NULL)
        return ctl_export(&a->export);
    TRY(check_island(&a->home));
    TRY(find_socket(a));
    TRY(ctl_ask(a->socket_path, "save", &answer));
    json_decref(answer);
    TRY(ctl_wait_saved(a->socket_path, saved));
    a->export.from = saved;
    return ctl_export(&a->export);
}

/* ---- keys ---- */

static enum err run_keygen(struct arguments *a)
{
    struct ident ident;
    const char *path = a->rest.count > 1 ? a->rest.item[1] : NULL;
    if (path == NULL)
        return err_set(ERR_ARG, "keygen needs a file to write the secret key to: dilococtl keygen FILE");
    TRY(ident_generate(&ident));
    TRY(ident_save(&ident, path));
    if (a->json) {
        printf("{\"public_key\":\"%s\"}\n", ident.public_text);
        return ERR_OK;
    }
    printf("Secret key written to %s. Its public key is %s\n", path, ident.public_text);
    return ERR_OK;
}

static enum err run_plan(struct arguments *a)
{
    a->plan.json = a->json;
    if (a->params != NULL)
        TRY(ctl_plan_params(a->params, &a->plan.params));
    return ctl_plan(&a->plan);
}

/* ---- an island as a whole: init, start, stop, logs ---- */

/* One that was taken apart while its daemon runs can still be stopped. */
static enum err check_island(const struct home *home)
{
    if (home->folder == NULL || access(home->conf, F_OK) == 0 || access(home->pid, F_OK) == 0)
        return ERR_OK;
    if (errno != ENOENT)
        return err_set_errno(ERR_CONF, "%s: cannot look into it", home->folder);
    return err_set(ERR_CONF, "%s: no island is here; %s init makes one", home->folder, as_typed());
}

/* Where the daemon answers and keeps its state, which its configuration says; NULL: the home's own. */
static enum err find_places_in(struct arguments *a, const char *config)
{
    struct dconf conf;
    TRY(dconf_load_home(&a->home, config, NULL, 0, &conf));
    snprintf(a->socket_path, sizeof a->socket_path, "%s/control.sock", conf.run_folder);
    snprintf(a->state_path, sizeof a->state_path, "%s", conf.state_folder);
    a->stop_ms = conf.stop_ms;
    conf_deinit(&dconf_schema, &conf);
    return ERR_OK;
}

static enum err find_socket(struct arguments *a)
{
    if (a->socket == NULL && (a->config != NULL || a->home.folder != NULL))
        return find_places_in(a, a->config);
    snprintf(a->socket_path, sizeof a->socket_path, "%s", a->socket != NULL ? a->socket : "/run/diloco/control.sock");
    return ERR_OK;
}

static struct ctl_home in_home(const struct arguments *a)
{
    return (struct ctl_home){.home = &a->home,
                             .socket = a->socket_path,
                             .state = a->state_path,
                             .stop_ms = a->stop_ms,
                             .no_wait = a->no_wait,
                             .json = a->json};
}

static enum err start(struct arguments *a, bool enable)
{
    if (a->home.folder == NULL)
        return ctl_service_start(ctl_service_mark, enable);
    TRY(find_places_in(a, NULL));
    struct ctl_home ctl = in_home(a);
    return ctl_home_start(&ctl);
}

static enum err run_start(struct arguments *a)
{
    return start(a, false);
}

static enum err run_stop(struct arguments *a)
{
    if (a->home.folder == NULL)
        return ctl_service_stop(ctl_service_mark);
    if (find_places_in(a, a->home.conf) != ERR_OK) { /* what runs can be stopped without one that is good, too */
        snprintf(a->state_path, sizeof a->state_path, "%s", a->home.state);
        a->stop_ms = STOP_MS;
    }
    struct ctl_home ctl = in_home(a);
    return ctl_home_stop(&ctl);
}

static enum err run_logs(struct arguments *a)
{
    return a->home.folder != NULL ? ctl_home_logs(&a->home, a->follow, a->trainer)
                                  : ctl_service_logs(ctl_service_mark, a->follow, a->trainer);
}

static enum err run_init(struct arguments *a)
{
    const char *folder = a->home.folder;
    a->init.user = folder == NULL ? "diloco" : NULL;
    a->init.json = a->json;
    if (folder == NULL && !a->no_start) /* before anything is made */
        TRY(ctl_service_check(ctl_service_mark));
    TRY(ctl_init(&a->home, &a->init));
    enum err err = a->no_start ? ERR_OK : start(a, true);
    if (err != ERR_OK)
        return err_suffix(err, "the island is made, but does not run: correct its files, then %s start", as_typed());
    if (a->json)
        return ERR_OK;
    printf("Next: %s %s, and for another island: %s invite\n", as_typed(), a->no_start ? "start" : "watch", as_typed());
    return ERR_OK;
}

/* What was said, or else what the command has by itself. */
static uint32_t patience_s(const struct arguments *a, uint32_t usual)
{
    if (a->wait_s == NOT_SAID)
        return usual;
    return a->wait_s < UINT32_MAX ? (uint32_t)a->wait_s : UINT32_MAX;
}

static enum err join_by(struct arguments *a, const char *token)
{
    struct ctl_join join = {.token = token,
                            .owner = a->owner,
                            .witness = a->witness,
                            .patience_s = patience_s(a, JOIN_S),
                            .decide_s = patience_s(a, DECIDE_S),
                            .init = a->init};
    const char *folder = a->home.folder;
    join.init.user = folder == NULL ? "diloco" : NULL;
    join.init.json = a->json;
    if (folder == NULL && !a->no_start) /* before anything is made */
        TRY(ctl_service_check(ctl_service_mark));
    TRY(ctl_join(&a->home, &join));
    enum err err = a->no_start ? ERR_OK : start(a, true);
    if (err != ERR_OK)
        return err_suffix(err, "the island is on the run's roster, but does not run: correct its files, then %s start",
                          as_typed());
    if (a->json || join.already)
        return ERR_OK;
    puts(a->witness ? "It votes by itself where that helps: then the run outlives the loss of any one of its members."
                    : "It fetches the run's state from the others and takes part by itself.");
    printf("Next: %s %s\n", as_typed(), a->no_start ? "start" : "watch");
    return ERR_OK;
}

/* A token may be typed, or come from where nobody else looks. */
static enum err run_join_run(struct arguments *a)
{
    char *token = NULL;
    if (a->rest.count < 2 && a->token_file == NULL)
        return err_set(ERR_ARG,
                       "it needs a token of the run, as dilococtl invite prints it at one of its islands: %s join "
                       "TOKEN; to train on here after a pause: %s resume",
                       as_typed(), as_typed());
    TRY(ctl_join_token(a->rest.count > 1 ? (char *)(uintptr_t)a->rest.item[1] : NULL, a->token_file, &token));
    enum err err = join_by(a, token);
    mem_free(token);
    return err;
}

/* ---- members ---- */

static struct ctl_members about_members(const struct arguments *a)
{
    return (struct ctl_members){.socket = a->socket_path,
                                .expires = a->expires,
                                .island = a->island,
                                .note = a->note,
                                .as = a->contributor ? "contributor"
                                      : a->as_owner  ? "owner"
                                                     : NULL,
                                .address = a->init.address,
                                .patience_s = patience_s(a, MEMBERS_S),
                                .no_wait = a->no_wait,
                                .now = a->now,
                                .json = a->json};
}

static enum err run_peers(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    if (a->names && a->json)
        return err_set(ERR_ARG, "peers: --json has the names, too; ask for it or for --names");
    return a->names ? ctl_members_names(&ctl) : show(a, "peers", print_peers_and_members);
}

static enum err run_invite(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    bool asks = a->expires != NULL || a->island != NULL || a->note != NULL || a->init.address != NULL ||
                a->contributor || a->as_owner;
    if (a->contributor && a->as_owner)
        return err_set(ERR_ARG, "invite: --contributor and --as-owner are two things; ask for one");
    if ((a->list || a->revoke != NULL) + asks > 1 || (a->list && a->revoke != NULL))
        return err_set(ERR_ARG, "invite: --list, --revoke ID, and a new invitation with --for, --expires, "
                                "--note, --address, --contributor or --as-owner are three things; ask for one");
    if (a->revoke != NULL)
        return ctl_members_uninvite(&ctl, a->revoke);
    return a->list ? ctl_members_list(&ctl) : ctl_members_invite(&ctl);
}

static enum err run_leave(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    return ctl_members_leave(&ctl);
}

/* An order about one member, by the command's own word. */
static enum err run_about_member(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    const char *word = a->rest.item[0];
    if (a->rest.count < 2)
        return err_set(ERR_ARG, "%s whom? %s %s NAME, as %s peers lists them%s%s%s", word, as_typed(), word, as_typed(),
                       strcmp(word, "revoke") == 0 ? "; an invitation: " : "",
                       strcmp(word, "revoke") == 0 ? as_typed() : "",
                       strcmp(word, "revoke") == 0 ? " invite --revoke ID" : "");
    return ctl_members_order(&ctl, word, a->rest.item[1]);
}

/* This island's key, which it would change; or that of another one, which asked. */
static enum err run_rekey(struct arguments *a)
{
    TRY(find_socket(a));
    const struct ctl_rekey rekey = {
        .home = &a->home, .config = a->config, .socket = a->socket_path, .old = a->old_key, .json = a->json};
    if (a->cancel && a->old_key != NULL)
        return err_set(ERR_ARG, "--cancel, and --old: leave one of the two out");
    return a->cancel ? ctl_rekey_cancel(&rekey) : ctl_rekey_begin(&rekey);
}

static enum err run_rekey_of(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    return ctl_rekey_order(&ctl, a->rest.item[1], a->old_key, a->yes);
}

/* Of the whole run, which its operators decide. */
static enum err order_run(struct arguments *a, const char *word)
{
    struct ctl_members ctl = about_members(a);
    if (a->now)
        return err_set(ERR_ARG, "%s --run: all trainers stand still at their next step, and --now adds nothing", word);
    return ctl_members_order_run(&ctl, word, "run");
}

/* What stops or starts one trainer waits as long as that takes. */
static enum err refuse_wait(const struct arguments *a, const char *word)
{
    return a->wait_s == NOT_SAID ? ERR_OK : err_set(ERR_ARG, "--wait is for %s --run, and not for %s", word, word);
}

static enum err run_resume(struct arguments *a)
{
    static const char *const wanted[] = {"training", "finished", NULL};
    if (a->whole_run)
        return order_run(a, "resume");
    TRY(refuse_wait(a, "resume"));
    TRY(order(a, "resume"));
    return a->no_wait ? ERR_OK : wait_for_trainer(a, wanted);
}

static enum err run_pause(struct arguments *a)
{
    static const char *const wanted[] = {"stopped", "none", "ended", NULL};
    if (a->whole_run)
        return order_run(a, "pause");
    TRY(refuse_wait(a, "pause"));
    TRY(order(a, a->now ? "pause now" : "pause"));
    return a->no_wait ? ERR_OK : wait_for_trainer(a, wanted);
}

static enum err run_set(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    const char *what = a->rest.count > 1 ? a->rest.item[1] : "";
    if (strncmp(what, "steps=", strlen("steps=")) != 0)
        return err_set(ERR_ARG, "set what? %s set steps=N is how many steps the run has", as_typed());
    return ctl_members_order_run(&ctl, "set", what);
}

static enum err run_orders(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    return ctl_members_orders(&ctl);
}

static enum err run_about_order(struct arguments *a)
{
    struct ctl_members ctl = about_members(a);
    const char *word = a->rest.item[0];
    if (a->rest.count < 2)
        return err_set(ERR_ARG, "%s which? %s %s NUMBER, as %s orders lists them", word, as_typed(), word, as_typed());
    return ctl_members_about_order(&ctl, word, a->rest.item[1], a->rest.count > 2 ? a->rest.item[2] : NULL);
}

static enum err run_reset(struct arguments *a)
{
    TRY(find_socket(a));
    return ctl_reset(&a->home, a->socket_path, a->json);
}

/* ---- the command line ---- */

/* Options by which one of this machine's daemons is found. */
#define THE_DAEMON " home socket config json "
/* Keys of [worker], for an island to be made. */
#define OF_TRAINER "program device devices ranks tensor-parallel"

static command_fn run_help, run_completion; /* which tell of what stands here */

/* What a command does not take it refuses: whoever types it means something by it. */
static const struct command commands[] = {
    {"init", "init", "make an island: key, run spec, configuration; and start it", run_init, 1, PLACE,
     " home json name data run steps from listen address uplink " OF_TRAINER " no-start "},
    {"start", "start", "start the daemon in the background", run_start, 1, ISLAND, " home json no-wait "},
    {"stop", "stop", "stop the daemon in order, and its trainer", run_stop, 1, ISLAND, " home json "},
    {"logs", "logs", "print the daemon's log, with what its trainer says", run_logs, 1, ISLAND,
     " home follow f trainer "},
    {"keygen", "keygen FILE", "make this island's key", run_keygen, 2, NOTHING, " json "},
    {"invite", "invite",
     "make a token by which one more island joins this run; --list and --revoke those that are open", run_invite, 1,
     DAEMON, THE_DAEMON "for expires note address list revoke contributor as-owner "},
    {"join", "join TOKEN", "make an island of the run that it invites to, and start it", run_join_run, 2, PLACE,
     " home json name data listen address uplink " OF_TRAINER
     " allow-other-base owner witness token-file no-start no-wait wait "},
    {"pause", "pause",
     "finish the round, have the last contribution counted, stop training here; with --run, all islands stand still",
     run_pause, 1, DAEMON, THE_DAEMON "now run no-wait wait "},
    {"resume", "resume", "train on here, after pause or leave; with --run, all islands after pause --run", run_resume,
     1, DAEMON, THE_DAEMON "run no-wait wait "},
    {"set", "set steps=N", "have the run end after another step than it was to", run_set, 2, DAEMON,
     THE_DAEMON "no-wait wait "},
    {"leave", "leave", "leave the run: pause, and have the others take over what this island owns", run_leave, 1,
     DAEMON, THE_DAEMON "now no-wait wait "},
    {"evict", "evict NAME", "have the run go on without an island, until it has caught up again", run_about_member, 2,
     DAEMON, THE_DAEMON "no-wait wait "},
    {"revoke", "revoke NAME", "take an island's key off the roster", run_about_member, 2, DAEMON,
     THE_DAEMON "no-wait wait "},
    {"contributor", "contributor NAME", "have an island own no shards and not vote; its work goes on counting",
     run_about_member, 2, DAEMON, THE_DAEMON "no-wait wait "},
    {"owner", "owner NAME", "let a contributor own shards and vote", run_about_member, 2, DAEMON,
     THE_DAEMON "no-wait wait "},
    {"grant", "grant NAME", "let an island give orders to the run, as this one does", run_about_member, 2, DAEMON,
     THE_DAEMON "no-wait wait "},
    {"ungrant", "ungrant NAME", "let it give no more", run_about_member, 2, DAEMON, THE_DAEMON "no-wait wait "},
    {"founder", "founder NAME", "have an island grant in the founder's place", run_about_member, 2, DAEMON,
     THE_DAEMON "no-wait wait "},
    {"rekey", "rekey", "make a new key for this island and ask the run for it; --cancel takes that back", run_rekey, 1,
     ISLAND, THE_DAEMON "cancel old "},
    {"rekey", "rekey NAME", "show the key that an island asks for; with --yes, order that it has it", run_rekey_of, 2,
     DAEMON, THE_DAEMON "yes old no-wait wait "},
    {"orders", "orders", "orders that wait: who gave them, and what they wait for", run_orders, 1, DAEMON, THE_DAEMON},
    {"approve", "approve NUMBER ISLAND", "agree to an order that takes the founder, or a majority", run_about_order, 3,
     DAEMON, THE_DAEMON "no-wait "},
    {"withdraw", "withdraw NUMBER", "take an order of this island back", run_about_order, 2, DAEMON,
     THE_DAEMON "no-wait "},
    {"reset", "reset", "forget the run: move aside what is kept of it; key and configuration stay", run_reset, 1,
     ISLAND, " home json "},
    {"status", "status", "how this island is doing, and what is wrong", run_status, 1, DAEMON,
     THE_DAEMON "check verbose v "},
    {"peers", "peers", "all islands: state, traffic, round trip", run_peers, 1, DAEMON, THE_DAEMON "names "},
    {"fragments", "fragments", "all fragments: version, state, what they wait for", run_fragments, 1, DAEMON,
     THE_DAEMON},
    {"watch", "watch", "all of that on a screen, live", run_watch, 1, DAEMON, THE_DAEMON "interval "},
    {"plan", "plan", "how much of its time a run would train on a given link, and what to choose; no daemon needed",
     run_plan, 1, NOTHING,
     " json params layers step-time islands bandwidth half-duplex rtt loss every overlap daemon-cores "
     "daemon-memory plot "},
    {"save", "save", "write the present anchor as a .safetensors file", run_save, 1, DAEMON, THE_DAEMON "no-wait "},
    {"help", "help COMMAND", "tell of one command, as COMMAND --help does", run_help, 2, NOTHING, " "},
    {"completion", "completion bash|zsh|fish", "print what makes that shell complete this program's words",
     run_completion, 2, NOTHING, " "},
    {"export", "export DIR", "write the present anchor, or the model in a file, as a folder that transformers reads",
     run_export, 2, PLACE, THE_DAEMON "format from dtype shard-size force "},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* ---- what help says beside the tables: which commands belong together, and how each is typed ---- */

static const char *const of_making[] = {"init", "join TOKEN", "start", "stop", "keygen FILE", "reset", NULL};
static const char *const of_looking[] = {"status", "watch", "logs", "peers", "fragments", NULL};
static const char *const of_steering[] = {"pause", "resume", "leave", "save", "export DIR", NULL};
static const char *const of_ordering[] = {"invite",
                                          "evict NAME",
                                          "revoke NAME",
                                          "contributor NAME",
                                          "owner NAME",
                                          "grant NAME",
                                          "ungrant NAME",
                                          "founder NAME",
                                          "rekey",
                                          "rekey NAME",
                                          "set steps=N",
                                          "orders",
                                          "approve NUMBER ISLAND",
                                          "withdraw NUMBER",
                                          NULL};
static const char *const of_planning[] = {"plan", NULL};
static const struct commands_group groups[] = {{"I want to make an island, and run it", of_making},
                                               {"I want to look at it", of_looking},
                                               {"I want to steer it", of_steering},
                                               {"I want to say who is in the run, and what", of_ordering},
                                               {"I want to know beforehand", of_planning}};

static const struct commands_example examples[] = {
    {"init", "dilococtl init --home ~/paris --name paris --data book.txt\n"
             "sudo dilococtl init --name paris --data '/srv/text/*.txt' --device cuda\n"},
    {"start", "dilococtl start --home ~/paris\n"},
    {"stop", "dilococtl stop --home ~/paris\n"},
    {"logs", "dilococtl logs --home ~/paris -f\n"
             "dilococtl logs --home ~/paris --trainer\n"},
    {"keygen", "dilococtl keygen /etc/diloco/key/island.key\n"},
    {"invite", "dilococtl invite --home ~/paris --note 'for oslo' --expires 2h\n"
               "dilococtl invite --home ~/paris --list\n"},
    {"join", "dilococtl join TOKEN --home ~/oslo --name oslo --data book.txt\n"
             "dilococtl join --token-file token --home ~/witness --witness\n"},
    {"pause", "dilococtl pause --home ~/oslo\n"
              "dilococtl pause --home ~/oslo --now\n"
              "dilococtl pause --home ~/paris --run\n"},
    {"resume", "dilococtl resume --home ~/oslo\n"
               "dilococtl resume --home ~/paris --run\n"},
    {"set", "dilococtl set steps=20000 --home ~/paris\n"},
    {"leave", "dilococtl leave --home ~/oslo --wait 120\n"},
    {"evict", "dilococtl evict oslo --home ~/paris\n"},
    {"revoke", "dilococtl revoke oslo --home ~/paris\n"},
    {"contributor", "dilococtl contributor oslo --home ~/paris\n"},
    {"owner", "dilococtl owner oslo --home ~/paris\n"},
    {"grant", "dilococtl grant oslo --home ~/paris\n"},
    {"ungrant", "dilococtl ungrant oslo --home ~/paris\n"},
    {"founder", "dilococtl founder oslo --home ~/paris\n"},
    {"rekey", "dilococtl rekey --home ~/oslo\n"
              "dilococtl rekey oslo --yes --home ~/paris\n"},
    {"orders", "dilococtl orders --home ~/paris\n"},
    {"approve", "dilococtl approve 7 oslo --home ~/paris\n"},
    {"withdraw", "dilococtl withdraw 7 --home ~/oslo\n"},
    {"reset", "dilococtl reset --home ~/oslo\n"},
    {"status", "dilococtl status --home ~/paris\n"
               "dilococtl status --check || echo 'the island is degraded'\n"},
    {"peers", "dilococtl peers --home ~/paris\n"
              "dilococtl peers --names\n"},
    {"fragments", "dilococtl fragments --home ~/paris\n"},
    {"watch", "dilococtl watch --home ~/paris\n"
              "dilococtl watch --json --interval 5000 >>watched.jsonl\n"},
    {"plan", "dilococtl plan --params 1e9 --step-time 1 --bandwidth 1Gbit --rtt 50 --plot plan.svg\n"},
    {"save", "dilococtl save --home ~/paris\n"},
    {"export", "dilococtl export --home ~/paris --format hf model\n"},
    {"help", "dilococtl help invite\n"},
    {"completion", "source <(dilococtl completion bash)\n"
                   "dilococtl completion fish >~/.config/fish/completions/dilococtl.fish\n"},
};

/* Without options, which the caller adds. `rows` are borrowed. */
static struct commands help_of(const struct commands_row *rows, size_t rows_count)
{
    return (struct commands){.program = "dilococtl",
                             .about = "Makes an island, looks at its daemon and steers it.",
                             .rows = rows,
                             .rows_count = rows_count,
                             .tells_names = "peers --names",
                             .told_by = " home socket config ",
                             .groups = groups,
                             .groups_count = sizeof groups / sizeof groups[0],
                             .examples = examples,
                             .examples_count = sizeof examples / sizeof examples[0]};
}

/* What is said of all that stands in the tables. */
static enum err tell(struct arguments *a,
                     enum err (*how)(const struct commands *commands, const char *word, FILE *file), const char *word)
{
    struct commands_row rows[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        rows[i] = (struct commands_row){commands[i].name, commands[i].usage, commands[i].help, commands[i].takes};
    struct commands all = help_of(rows, COMMANDS);
    all.options = a->options;
    all.options_count = a->options_count;
    all.common = THE_DAEMON "version help ";
    return how(&all, word, stdout);
}

static enum err run_help(struct arguments *a)
{
    return tell(a, commands_help, a->rest.count > 1 ? a->rest.item[1] : NULL);
}

static enum err run_completion(struct arguments *a)
{
    return tell(a, complete_print, a->rest.count > 1 ? a->rest.item[1] : NULL);
}

/* With what it is for, and all that takes it. */
static enum err refuse_option(const struct command *command, const char *option)
{
    const char *dashes = strlen(option) == 1 ? "-" : "--";
    char others[400] = "";
    if (command->run == run_init && strcmp(option, "witness") == 0)
        return err_set(ERR_ARG, "--witness: a run begins with an island that trains; a witness joins it, by: dilococtl "
                                "join TOKEN --witness");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands_named(commands[i].takes, option))
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s", others[0] != '\0' ? ", " : "",
                     commands[i].usage);
    return err_set(ERR_ARG, "%s%s is for %s, and not for %s", dashes, option, others, command->usage);
}

static enum err find_command(struct arguments *a, const struct command **out)
{
    const struct command *last = NULL;
    size_t words = a->rest.count + (a->token_file != NULL); /* which stands for a word */
    if (a->rest.count == 0)
        return err_set(ERR_ARG, "give a command; --help lists them");
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, a->rest.item[0]) == 0 && (last == NULL || words > last->arguments_max))
            last = &commands[i];
    if (last == NULL)
        return tell(a, commands_help, a->rest.item[0]); /* which refuses it */
    if (a->rest.count > last->arguments_max)
        return err_set(ERR_ARG, "\"%s\" was not expected; usage: dilococtl %s", a->rest.item[last->arguments_max],
                       last->usage);
    *out = last;
    return ERR_OK;
}

static enum err check_options(const struct command *command, const struct args_list *given)
{
    for (size_t i = 0; i < given->count; i++)
        if (!commands_named(command->takes, given->item[i]))
            return refuse_option(command, given->item[i]);
    return ERR_OK;
}

static enum err run_command(struct arguments *a)
{
    const struct command *command = NULL;
    TRY(find_command(a, &command));
    /* What is named on the command line is meant, whatever the environment says. */
    bool named = a->socket != NULL || a->config != NULL;
    if (command->needs >= PLACE)
        TRY(home_find(named ? a->home_option : home_chosen(a->home_option), &a->home));
    as_typed_add("--home", a->home.folder);
    as_typed_add("--socket", a->socket);
    as_typed_add("--config", a->config);
    TRY(check_options(command, &a->given));
    if (command->needs >= ISLAND)
        TRY(check_island(&a->home));
    if (command->needs == DAEMON)
        TRY(find_socket(a));
    return command->run(a);
}

static enum err obey(struct arguments *a)
{
    if (a->version) {
        puts("dilococtl " DILOCO_VERSION);
        return ERR_OK;
    }
    if (a->help)
        return tell(a, commands_help, a->rest.count > 0 ? a->rest.item[0] : NULL);
    enum err err = run_command(a);
    home_free(&a->home);
    return err;
}

static const struct arguments usual = {
    .interval_ms = 1000,
    .wait_s = UINT64_MAX, /* NOT_SAID */
    .plan = {.layers = 24, .islands = 2, .interval = 100, .overlap = 5, .rtt_ms = 50}};

static enum err parse_and_obey(struct arguments *a, const struct args_option *options, size_t options_count, int argc,
                               char **argv, enum verdict *verdict)
{
    a->options = options;
    a->options_count = options_count;
    TRY(args_parse_given(argc, argv, a->options, a->options_count, &a->rest, &a->given));
    enum err err = obey(a);
    *verdict = a->verdict;
    return err;
}

/* --run: a file to init; to pause and resume the whole run, wherever on the line they stand. */
static struct args_option of_run(int argc, char **argv, struct arguments *a)
{
    bool steers = false, makes = false;
    for (int i = 1; i < argc; i++) {
        steers = steers || strcmp(argv[i], "pause") == 0 || strcmp(argv[i], "resume") == 0;
        makes = makes || strcmp(argv[i], "init") == 0;
    }
    if (steers && !makes)
        return (struct args_option){"run", ARGS_FLAG, &a->whole_run, NULL,
                                    "of the whole run, as an operator orders it"};
    return (struct args_option){"run", ARGS_STRING, &a->init.run, "FILE", "run spec to copy (default a sample)"};
}

static enum err run(int argc, char **argv, enum verdict *verdict)
{
    struct arguments a = usual;
    const struct args_option options[] = {
        {"home", ARGS_STRING, &a.home_option, "DIR",
         "an island with all its files in one folder (default DILOCO_HOME; without either, this machine's service)"},
        {"socket", ARGS_STRING, &a.socket, "PATH", "the daemon's control socket (default /run/diloco/control.sock)"},
        {"config", ARGS_STRING, &a.config, "FILE", "the daemon's configuration, to find the socket"},
        {"json", ARGS_FLAG, &a.json, NULL, "print JSON"},
        {"check", ARGS_FLAG, &a.check, NULL, "one line, and exit status 0 good, 1 degraded, 2 unreachable"},
        {"verbose", ARGS_FLAG, &a.verbose, NULL, "what could be better, too, and what follows from what is wrong"},
        {"v", ARGS_FLAG, &a.verbose, NULL, "the same as --verbose"},
        {"now", ARGS_FLAG, &a.now, NULL, "do not wait for the last contribution to be counted; it is given up"},
        {"no-wait", ARGS_FLAG, &a.no_wait, NULL, "do not wait for the outcome"},
        {"follow", ARGS_FLAG, &a.follow, NULL, "the end of it, and then what comes"},
        {"f", ARGS_FLAG, &a.follow, NULL, "the same as --follow"},
        {"trainer", ARGS_FLAG, &a.trainer, NULL, "only what the trainer says"},
        {"names", ARGS_FLAG, &a.names, NULL, "only the names of the others, one a line"},
        {"interval", ARGS_U64, &a.interval_ms, "MS", "milliseconds between screens (default 1000)"},
        {"name", ARGS_STRING, &a.init.name, "NAME", "the island's name"},
        {"data", ARGS_STRING, &a.init.data, "FILE", "the text to train on, a pattern of files, or a mixture of them"},
        of_run(argc, argv, &a),
        {"steps", ARGS_STRING, &a.init.steps, "N", "length of the run (default the run spec's)"},
        {"from", ARGS_STRING, &a.init.from, "MODEL",
         "the model that the run begins from, or that is exported: a published one's folder, a checkpoint, an anchor"},
        {"format", ARGS_STRING, &a.export.format, "hf", "config.json and safetensors (default hf)"},
        {"dtype", ARGS_STRING, &a.export.dtype, "f32|bf16|f16", "of the values (default f32)"},
        {"shard-size", ARGS_STRING, &a.export.shard_size, "SIZE", "of a file at most (default 5GB)"},
        {"force", ARGS_FLAG, &a.export.force, NULL, "replace an export that is there"},
        {"listen", ARGS_STRING, &a.init.listen, "ADDR:PORT",
         "where to listen (default *:7600; with --home, the first free port from 7600 on)"},
        {"address", ARGS_STRING, &a.init.address, "HOST:PORT", "where the other islands, or guests, reach this one"},
        {"uplink", ARGS_STRING, &a.init.uplink, "RATE", "speed of this island's uplink (default 1Gbit)"},
        {"program", ARGS_STRING, &a.init.program, "COMMAND", "the trainer, where it is one of your own"},
        {"device", ARGS_STRING, &a.init.device, "cpu|cuda|auto", "where to train (default cpu)"},
        {"devices", ARGS_STRING, &a.init.devices, "LIST", "a process on each of these GPUs, as in 0-3,6 (and cuda)"},
        {"ranks", ARGS_STRING, &a.init.ranks, "N", "processes that share out the work (default 1)"},
        {"tensor-parallel", ARGS_STRING, &a.init.tensor_parallel, "N", "so many of them share each layer (default 1)"},
        {"allow-other-base", ARGS_FLAG, &a.init.other_base, NULL, "the trainer's frozen base need not be the run's"},
        {"owner", ARGS_STRING, &a.owner, "auto|yes|no", "whether it is to own shards and vote (default: as it comes)"},
        {"witness", ARGS_FLAG, &a.witness, NULL, "as the run's one witness: it votes, and has no trainer and no data"},
        {"token-file", ARGS_STRING, &a.token_file, "FILE", "the token stands in this file, not on the command line"},
        {"expires", ARGS_STRING, &a.expires, "TIME", "how long the token is good for (default 24h)"},
        {"for", ARGS_STRING, &a.island, "NAME", "the token lets in this island alone, and none is made if it is in"},
        {"note", ARGS_STRING, &a.note, "TEXT", "what --list shows of it"},
        {"list", ARGS_FLAG, &a.list, NULL, "the invitations of this island"},
        {"revoke", ARGS_STRING, &a.revoke, "ID", "take one back, by the first digits of its id"},
        {"contributor", ARGS_FLAG, &a.contributor, NULL, "who comes by it owns no shards and does not vote"},
        {"as-owner", ARGS_FLAG, &a.as_owner, NULL, "who comes by it may own and vote (default below five owners)"},
        {"cancel", ARGS_FLAG, &a.cancel, NULL, "take back the key that this island asks for"},
        {"yes", ARGS_FLAG, &a.yes, NULL, "order it: the key is the one that its island asked for"},
        {"old", ARGS_STRING, &a.old_key, "KEY", "change this one alone: with another, nothing is left to do"},
        {"wait", ARGS_U64, &a.wait_s, "SECONDS",
         "how long to wait until the run has decided it (default 30; to join 60, and 600 once the inviter is there)"},
        {"no-start", ARGS_FLAG, &a.no_start, NULL, "only make it"},
        {"params", ARGS_STRING, &a.params, "N", "parameters of the model, as 1e9 or 1B"},
        {"layers", ARGS_U64, &a.plan.layers, "N", "its layers; three make a fragment (default 24)"},
        {"step-time", ARGS_REAL, &a.plan.step_s, "S", "seconds one inner step takes"},
        {"islands", ARGS_U64, &a.plan.islands, "N", "islands (default 2)"},
        {"bandwidth", ARGS_STRING, &a.plan.bandwidth, "RATE", "of every island's line, each way, as 100Mbit"},
        {"half-duplex", ARGS_FLAG, &a.plan.half_duplex, NULL, "both ways share it"},
        {"rtt", ARGS_REAL, &a.plan.rtt_ms, "MS", "round trip between islands (default 50)"},
        {"loss", ARGS_REAL, &a.plan.loss, "PART", "part of what is sent that has to be sent again"},
        {"every", ARGS_U64, &a.plan.interval, "STEPS", "steps between two exchanges (default 100)"},
        {"overlap", ARGS_U64, &a.plan.overlap, "STEPS", "steps that go on meanwhile (default 5)"},
        {"daemon-cores", ARGS_REAL, &a.plan.daemon_cores, "N", "cores a daemon may take (default: its threads here)"},
        {"daemon-memory", ARGS_REAL, &a.plan.daemon_memory, "GIB", "memory it may take (default: this machine's)"},
        {"plot", ARGS_STRING, &a.plan.plot, "FILE", "draw utilisation by bandwidth, as SVG"},
        {"version", ARGS_FLAG, &a.version, NULL, "print the version"},
        {"help", ARGS_FLAG, &a.help, NULL, "print this; behind a command: tell of that one"},
    };
    return parse_and_obey(&a, options, sizeof options / sizeof options[0], argc, argv, verdict);
}

int main(int argc, char **argv)
{
    log_init("dilococtl", LOG_LEVEL_INFO);
    signal(SIGPIPE, SIG_IGN);
    enum verdict verdict = GOOD;
    enum err err = digest_init();
    if (err == ERR_OK)
        err = run(argc, argv, &verdict);
    if (err == ERR_OK)
        return (int)verdict;
    fprintf(stderr, "dilococtl: %s\n", err_text());
    return err == ERR_ARG || err == ERR_CONF ? 2 : err == ERR_CLOSED ? 3 : 1;
}
