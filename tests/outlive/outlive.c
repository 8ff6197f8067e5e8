/* SPDX-License-Identifier: Apache-2.0 */
/*
 * outlive: a run outlives an island: three islands on this machine, by the commands of README; one is killed for good
 * while the run goes on, and comes back with its state folder emptied. With --namespaces each has an address, a network
 * and a folder that no other sees, as three machines would, and the one that is lost is cut off first, so that nobody
 * tells the others.
 *
 * Shows each command, looks at what the others do meanwhile, and writes a summary. Exit status 1 if the run does not go
 * on, or the islands do not end with the same anchors, bit for bit; 77 where namespaces are wanted and refused.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/args.h"
#include "common/env.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/homes.h"
#include "tests/lib/proc.h"
#include "tests/lib/sites.h"
#include "tests/lib/wan.h"

/* Sockets have short paths. */
#define PLACE "/tmp/diloco-outlive-XXXXXX"
enum { ISLANDS = 3, PATIENCE_S = 90, SKIPPED = 77 };
enum { LINE_BITS = 100000000 }; /* a second, of each site */

static const char run_spec[] =
    "[run]\nname = outlive\nsteps = 1000000\n[model]\nvocab = 256\nwidth = 32\nlayers = 2\nheads = 2\ncontext = 32\n"
    "[train]\nbatch = 2\nwarmup = 20\n[sync]\ninterval = 20\nlayers_per_fragment = 1\noverlap = 2\n";

struct island {
    const char *name;
    char home[64], listen[32];
    long long lost_trained, lost_counted; /* of its first life */
};

struct outlive {
    const char *programs, *data, *out;
    bool namespaces, brief;
    char place[64], run[96], log[96];
    struct island island[ISLANDS];
    long long versions_before, versions_after;
    double resume_s, join_s;
    bool identical;
};

static struct outlive outlive = {.island = {{.name = "paris"}, {.name = "oslo"}, {.name = "rome"}}};

static double observed_s(void)
{
    return outlive.brief ? 5 : 10;
}

static void end_all(void)
{
    char command[320];
    for (int i = 0; i < ISLANDS; i++)
        if (outlive.island[i].home[0] != '\0')
            HOMES_RUN(outlive.island[i].home, "stop");
    sites_end();
    snprintf(command, sizeof command, "rm -rf %s %s %s", outlive.place, outlive.run, outlive.log);
    if (outlive.place[0] != '\0' && system(command) != 0)
        fprintf(stderr, "%s stays\n", outlive.place);
}

/* What failed, with what the command said and the logs. */
static enum err broken(const char *what)
{
    printf("%s\n", homes_out);
    for (int i = 0; i < ISLANDS; i++)
        if (HOMES_RUN(outlive.island[i].home, "logs") == 0) {
            size_t length = strlen(homes_out);
            printf("---- %s ----\n%s", outlive.island[i].name, homes_out + (length > 3000 ? length - 3000 : 0));
        }
    return err_set(ERR_STATE, "%s", what);
}

static void show(const char *what)
{
    printf("%s\n", what);
    fflush(stdout);
}

static double now_s(void)
{
    return (double)env_mono_ms() / 1000;
}

static long long total(const char *key)
{
    long long sum = 0;
    for (int i = 0; i < ISLANDS; i++)
        sum += homes_number(outlive.island[i].home, "trainer", key);
    return sum;
}

/* ---- the three ---- */

static enum err make_first(void)
{
    struct island *island = &outlive.island[0];
    show("dilococtl --home paris init --name paris --data TEXT --run RUN");
    if (HOMES_RUN(island->home, "init", "--name", island->name, "--data", outlive.data, "--run", outlive.run,
                  "--listen", island->listen) != 0)
        return broken("the first island cannot be made");
    return homes_wait_versions(island->home, 3, PATIENCE_S) ? ERR_OK : broken("the first island does not train");
}

static enum err join(struct island *island, const struct island *inviter)
{
    printf("dilococtl --home %s invite\ndilococtl --home %s join TOKEN --name %s --data TEXT\n", inviter->name,
           island->name, island->name);
    fflush(stdout);
    const char *token = homes_invite(inviter->home, NULL);
    if (token == NULL)
        return broken("no invitation");
    double begin_s = now_s();
    if (HOMES_RUN(island->home, "join", token, "--name", island->name, "--data", outlive.data, "--listen",
                  island->listen) != 0)
        return broken("an island cannot join");
    while (homes_number(island->home, "trainer", "tokens_counted") <= 0) {
        if (now_s() > begin_s + PATIENCE_S)
            return broken("no contribution of who joined is counted");
        proc_sleep_ms(50);
    }
    if (now_s() - begin_s > outlive.join_s)
        outlive.join_s = now_s() - begin_s;
    return homes_wait_role(inviter->home, island->name, "owner", PATIENCE_S) ? ERR_OK
                                                                             : broken("who joined owns nothing");
}

/* ---- the loss ---- */

/* From the loss to the first version that a configuration without the lost island has made. */
static enum err watch_loss(const struct island *lost)
{
    const char *home = outlive.island[0].home;
    double begin_s = now_s();
    if (!homes_wait_role(home, lost->name, "away", PATIENCE_S))
        return broken("the others do not notice the loss");
    long long held = homes_number(home, NULL, "versions");
    if (!homes_wait_versions(home, held + 1, PATIENCE_S))
        return broken("versions do not go on after the loss");
    outlive.resume_s = now_s() - begin_s;
    while (now_s() < begin_s + observed_s())
        proc_sleep_ms(50);
    outlive.versions_after = homes_number(home, NULL, "versions");
    return ERR_OK;
}

static enum err lose(struct island *lost)
{
    const char *home = outlive.island[0].home;
    if (!homes_wait_versions(home, homes_number(home, NULL, "versions") + (outlive.brief ? 15 : 60), PATIENCE_S))
        return broken("three islands make no versions");
    printf("%skill -9 of %s's daemon and trainer, for good\n", outlive.namespaces ? "its line is cut; " : "",
           lost->name);
    fflush(stdout);
    /* It goes on meanwhile: asked the other way round, more would be counted than was trained. */
    lost->lost_counted = homes_number(lost->home, "trainer", "tokens_counted");
    lost->lost_trained = homes_number(lost->home, "trainer", "tokens");
    outlive.versions_before = homes_number(home, NULL, "versions");
    if (outlive.namespaces && !sites_cut((int)(lost - outlive.island), true))
        return broken("a line cannot be cut");
    homes_kill(lost->home);
    TRY(watch_loss(lost));
    printf("versions: %lld before, %lld after %.0f s; they went on after %.1f s\n", outlive.versions_before,
           outlive.versions_after, observed_s(), outlive.resume_s);
    return ERR_OK;
}

static enum err come_back(const struct island *lost)
{
    printf("rm -r %s/state; dilococtl --home %s start\n", lost->name, lost->name);
    fflush(stdout);
    if (outlive.namespaces && !sites_cut((int)(lost - outlive.island), false))
        return broken("a line cannot be mended");
    homes_empty_state(lost->home);
    if (HOMES_RUN(lost->home, "start") != 0)
        return broken("it does not start with an empty state folder");
    if (!homes_wait_role(outlive.island[0].home, lost->name, "owner", PATIENCE_S))
        return broken("it does not come back");
    long long versions = homes_number(outlive.island[0].home, NULL, "versions");
    return homes_wait_versions(lost->home, versions + 6, PATIENCE_S) ? ERR_OK : broken("versions do not go on with it");
}

/* ---- the end ---- */

/* Trainers have their last contributions counted; then all hold the same. */
static enum err compare(void)
{
    const char *homes[ISLANDS];
    for (int i = 0; i < ISLANDS; i++) {
        homes[i] = outlive.island[i].home;
        if (HOMES_RUN(homes[i], "pause", "--no-wait") != 0)
            return broken("a trainer does not leave");
    }
    show("dilococtl pause, on all three");
    for (int i = 0; i < ISLANDS; i++)
        for (double begin_s = now_s(); strcmp(homes_trainer(homes[i]), "stopped") != 0; proc_sleep_ms(50))
            if (now_s() > begin_s + PATIENCE_S)
                return broken("a trainer's last contributions are not counted");
    outlive.identical = homes_wait_same(homes, ISLANDS, PATIENCE_S);
    return ERR_OK;
}

static enum err write_summary(void)
{
    const struct island *lost = &outlive.island[ISLANDS - 1];
    json_t *json =
        json_pack("{s:b, s:I, s:I, s:f, s:f, s:b, s:I, s:I}", "namespaces", (int)outlive.namespaces, "versions_before",
                  (json_int_t)outlive.versions_before, "versions_after", (json_int_t)outlive.versions_after, "resume_s",
                  outlive.resume_s, "join_s", outlive.join_s, "anchors_identical", (int)outlive.identical,
                  "tokens_trained", (json_int_t)(total("tokens") + lost->lost_trained), "tokens_counted",
                  (json_int_t)(total("tokens_counted") + lost->lost_counted));
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(3) | JSON_PRESERVE_ORDER);
    json_decref(json);
    if (text == NULL)
        return err_set(ERR_NOMEM, "no memory for the summary");
    char path[300];
    snprintf(path, sizeof path, "%s/summary.json", outlive.out);
    enum err err = fsio_mkdirs(outlive.out, 0755);
    if (err == ERR_OK)
        err = fsio_replace(path, text, strlen(text), 0644);
    printf("%s\n%s\n", text, path);
    free(text);
    return err;
}

static enum err set_up(void)
{
    char why[300];
    char *data = realpath(outlive.data, NULL);
    if (data == NULL)
        return err_set_errno(ERR_ARG, "--data %s", outlive.data);
    outlive.data = data; /* for the life of the process */
    if (mkdtemp(outlive.place) == NULL)
        return err_set_errno(ERR_IO, "cannot make a folder in /tmp");
    atexit(end_all);
    /* Beside the folder, which every site has one of. */
    snprintf(outlive.run, sizeof outlive.run, "%.60s.ini", outlive.place);
    snprintf(outlive.log, sizeof outlive.log, "%.60s.log", outlive.place);
    if (outlive.namespaces && !sites_begin(ISLANDS, LINE_BITS, outlive.place, outlive.log, why, sizeof why))
        return err_set(ERR_STATE, "%s", why);
    for (int i = 0; i < ISLANDS; i++) {
        struct island *island = &outlive.island[i];
        snprintf(island->home, sizeof island->home, "%.40s/%s", outlive.place, island->name);
        if (outlive.namespaces) {
            homes_place(island->home, sites_space(i));
            snprintf(island->listen, sizeof island->listen, "%s:7600", sites_host(i));
        } else {
            snprintf(island->listen, sizeof island->listen, "127.0.0.1:%u", proc_free_port());
        }
    }
    return fsio_replace(outlive.run, run_spec, strlen(run_spec), 0644);
}

static enum err run(void)
{
    struct island *islands = outlive.island;
    homes_init(outlive.programs);
    TRY(set_up());
    TRY(make_first());
    TRY(join(&islands[1], &islands[0]));
    TRY(join(&islands[2], &islands[0]));
    TRY(lose(&islands[2]));
    TRY(come_back(&islands[2]));
    TRY(compare());
    TRY(write_summary());
    if (outlive.versions_after <= outlive.versions_before)
        return err_set(ERR_STATE, "versions did not go on");
    return outlive.identical ? ERR_OK : broken("the islands' anchors differ");
}

int main(int argc, char **argv)
{
    const struct args_option options[] = {
        {"programs", ARGS_STRING, &outlive.programs, "DIR", "where our programs are"},
        {"data", ARGS_STRING, &outlive.data, "FILE", "text to train on"},
        {"out", ARGS_STRING, &outlive.out, "DIR", "for summary.json"},
        {"namespaces", ARGS_FLAG, &outlive.namespaces, NULL, "each island in network and mount namespaces of its own"},
        {"brief", ARGS_FLAG, &outlive.brief, NULL, "look on for a shorter time"},
    };
    char why[300];
    snprintf(outlive.place, sizeof outlive.place, PLACE);
    outlive.programs = "build/gcc";
    outlive.out = "build/outlive";
    outlive.data = "tests/demo/shakespeare.txt";
    enum err err = args_parse(argc, argv, options, sizeof options / sizeof options[0], NULL);
    if (err == ERR_OK && outlive.namespaces && !wan_enter(why, sizeof why)) {
        printf("skip: namespaces are refused here: %s\n", why);
        return SKIPPED;
    }
    if (err == ERR_OK)
        err = run();
    if (err != ERR_OK)
        fprintf(stderr, "outlive: %s\n", err_text());
    return err == ERR_OK ? 0 : 1;
}
