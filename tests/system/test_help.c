/* SPDX-License-Identifier: Apache-2.0 */
/* What our programs say of themselves: help of all and of one command, the word that was meant, and what makes shells
 * complete their words, which the shells are asked. */
#include "tests/lib/testlib.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"
#include "tests/lib/cli.h"
#include "tests/lib/cluster.h"
#include "tests/lib/proc.h"

static const char *folder;

static void assert_no(const char *part)
{
    if (strstr(cli_out, part) != NULL)
        fail_msg("\"%s\" is in:\n%s", part, cli_out);
}

static void assert_fits(void)
{
    for (const char *line = cli_out; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strcspn(line, "\n") > 80 && strncmp(line, "  dilo", 6) != 0) /* examples are as long as they are */
            fail_msg("wider than 80 columns: %.*s", (int)strcspn(line, "\n"), line);
}

/* ---- help ---- */

static void help_of_all_is_in_groups_and_has_what_is_common(void **state)
{
    (void)state;
    assert_int_equal(RUN("dilococtl", "--help"), 0);
    assert_fits();
    static const char *const there[] = {"\nI want to make an island, and run it\n",
                                        "\nI want to look at it\n",
                                        "\nI want to steer it\n",
                                        "\nI want to say who is in the run, and what\n",
                                        "\nI want to know beforehand\n",
                                        "  join TOKEN ",
                                        "  resume  ",
                                        "  evict NAME ",
                                        "  completion ",
                                        "  --home DIR",
                                        "  --json"};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++)
        assert_prints(there[i]);
    assert_no("--bandwidth"); /* which is of one command */
    char *all = strdup(cli_out);
    assert_int_equal(RUN("dilococtl", "help"), 0);
    assert_string_equal(cli_out, all);
    free(all);
    assert_int_equal(RUN("diloco-worker", "--help"), 0);
    assert_fits();
    assert_prints("  sample --params FILE ");
    assert_no("--temperature");
}

static void help_of_one_command_is_about_that_one(void **state)
{
    (void)state;
    static const char *const commands[][4] = {
        {"dilococtl", "watch", "--interval MS", "--params"},
        {"dilococtl", "plan", "--bandwidth RATE", "--home"},
        {"dilococtl", "join", "--device cpu|cuda|auto", "--expires"},
        {"dilococtl", "invite", "--expires TIME", "--device"},
        {"diloco-worker", "train", "--recompute none|norms|layer", "--prompt"},
        {"diloco-worker", "sample", "--prompt TEXT", "--recompute"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char usage[64];
        snprintf(usage, sizeof usage, "usage: %s %s", commands[i][0], commands[i][1]);
        assert_int_equal(RUN(commands[i][0], commands[i][1], "--help"), 0);
        assert_fits();
        assert_prints(usage);
        assert_prints(commands[i][2]);
        assert_prints("\nexamples\n  ");
        assert_no(commands[i][3]);
        char *first = strdup(cli_out);
        assert_int_equal(RUN(commands[i][0], "help", commands[i][1]), 0);
        assert_string_equal(cli_out, first);
        free(first);
    }
}

/* Whether each option in the examples below is one of those that the help above them lists. */
static void assert_examples_use_its_options(void)
{
    char *examples = strstr(cli_out, "\nexamples\n"), option[40], listed[48];
    assert_non_null(examples);
    *examples++ = '\0';
    for (const char *at = examples; (at = strstr(at, " -")) != NULL; at++) {
        size_t bytes = strcspn(at + 1, " \n=");
        if (at[1 + bytes] == '\0' || bytes < 3 || strncmp(at + 1, "--", 2) != 0)
            continue;
        snprintf(option, sizeof option, "%.*s", (int)bytes, at + 1);
        snprintf(listed, sizeof listed, "\n  %s ", option);
        if (strstr(cli_out, listed) == NULL)
            fail_msg("%s is in an example, and the command does not take it: %s", option, examples);
    }
}

/* A command that is in no table of the help would be shown below the others, without an example. */
static void every_command_has_a_group_and_an_example(void **state)
{
    (void)state;
    char list[2000];
    assert_int_equal(RUN("dilococtl", "completion", "bash"), 0);
    const char *begin = strstr(cli_out, "'') words='");
    assert_non_null(begin);
    begin += strlen("'') words='");
    snprintf(list, sizeof list, "%.*s", (int)strcspn(begin, "'"), begin);
    int count = 0;
    for (char *name = strtok(list, " "); name != NULL; name = strtok(NULL, " "), count++) {
        assert_int_equal(RUN("dilococtl", name, "--help"), 0);
        assert_prints("\nexamples\n");
        assert_examples_use_its_options();
    }
    assert_true(count > 15);
    assert_int_equal(RUN("dilococtl", "--help"), 0);
    const char *more = strstr(cli_out, "\nmore\n");
    assert_non_null(more);
    assert_int_equal(strncmp(more, "\nmore\n  help ", 13), 0);
}

/* ---- what was meant ---- */

static void wrong_words_get_one_line_and_the_right_one(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        {"dilococtl", "stauts", NULL, "did you mean status?"},
        {"dilococtl", "frag", NULL, "did you mean fragments?"},
        {"dilococtl", "status", "--jsn", "did you mean --json?"},
        {"dilococtl", "help", "plna", "did you mean plan?"},
        {"dilococtl", "frobnicate", NULL, "no command \"frobnicate\"; --help lists them"},
        {"dilococtl", "completion", "tcsh", "completion bash, zsh or fish"},
        {"diloco-worker", "trian", NULL, "did you mean train?"},
        {"diloco-worker", "train", "--devise=cpu", "did you mean --device?"},
        {"diloco-worker", "spec", "--set=sync.codek=int8", "did you mean [sync] codec?"},
        {"diloco-worker", "spec", "--set=snyc.codec=int8", "did you mean [sync]?"},
        {"dilocod", "--chek-config", NULL, "did you mean --check-config?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *arguments[] = {rows[i][1], rows[i][2], NULL};
        if (strcmp(rows[i][1], "spec") == 0)
            assert_int_equal(RUN(rows[i][0], "spec", "--run", "conf/demo.ini", rows[i][2]), 2);
        else
            assert_int_equal(cli_run(rows[i][0], arguments), 2);
        assert_says(rows[i][3]);
        assert_string_equal(cli_out, "");
    }
}

/* ---- completion ---- */

/* What a shell's script prints, with the programs of this build in PATH. */
static bool shell(const char *name, const char *script)
{
    char said[64];
    const char *const where[] = {"/bin/sh", "-c", "command -v \"$0\"", name, NULL};
    if (proc_run(where, NULL, said, sizeof said) != 0) {
        print_message("skip: no %s on this machine\n", name);
        return false;
    }
    const char *const argv[] = {"/usr/bin/env", name, "-c", script, NULL};
    assert_int_equal(proc_run(argv, NULL, cli_out, sizeof cli_out), 0);
    return true;
}

/* The words so far, the last of which is completed, as bash cuts them; and what is to come of it. */
static const char *typed[][3] = {
    {NULL, "b", "a"}, /* of island a, whose daemon is asked: no other name, and no option */
    {NULL, " ", "answers"},
    {"dilococtl stat", "status", "start"},
    {"dilococtl --home x wa", "watch", "--home"},
    {"dilococtl --home=x wa", "watch", "status"},
    {"dilococtl watch --int", "--interval", "--params"},
    {"dilococtl watch --", "--interval", "--params"},
    {"dilococtl init --device c", "cuda", "auto"},
    {"dilococtl init --device=c", "cpu", "auto"},
    {"dilococtl join x --ow", "--owner", "--expires"},
    {"dilococtl completion ", "fish", "--home"},
    {"dilococtl help inv", "invite", "init"},
    {"dilococtl keygen conf/dilocod.c", "conf/dilocod.conf", "status"},
    {"diloco-worker sa", "sample", "train"},
    {"diloco-worker train --run conf/demo", "conf/demo.ini", "conf/run.ini"},
    {"diloco-worker train --set sync.co", "sync.codec", "sync.mix"},
    {"diloco-worker spec --set sync.codec=int", "int8", "e3m0"},
    {"diloco-worker train --recompute n", "norms", "layer"},
};
enum { TYPED = sizeof typed / sizeof typed[0], ASKED = 2 };

/* A daemon that knows another island, and a folder where none answers. Words are completed by the programs in PATH. */
static struct cluster *begin_asked(void)
{
    static char lines[ASKED][400];
    struct cluster_options options = {.run = "[run]\nname = help\nsteps = 100\n", .data = "sleep=20"};
    struct cluster *cluster = cluster_new("help-asked", 2, &options);
    cluster_start(cluster, 0);
    cluster_wait(cluster, 0, cluster_peers_up, 1, "an answer");
    snprintf(lines[0], sizeof lines[0], "dilococtl --socket %s evict ", cluster->island[0].control);
    snprintf(lines[1], sizeof lines[1], "dilococtl revoke --socket=%s/none.sock ", cluster->folder);
    for (int i = 0; i < ASKED; i++)
        typed[i][0] = lines[i];
    return cluster;
}

static void assert_completes(const char *what, const char *line, const char *want, const char *never)
{
    char padded[8192];
    snprintf(padded, sizeof padded, " %.8000s ", cli_out);
    for (char *c = padded; *c != '\0'; c++)
        *c = *c == '\n' || *c == '\t' ? ' ' : *c;
    if (strstr(padded, want) == NULL || strstr(padded, never) != NULL)
        fail_msg("%s completes \"%s\" to:%s", what, line, padded);
}

static void bash_completes(void **state)
{
    (void)state;
    struct cluster *cluster = begin_asked();
    for (size_t i = 0; i < TYPED; i++) {
        char words[300] = "", script[1200];
        const char *line = typed[i][0];
        for (const char *c = line; *c != '\0'; c++) { /* as COMP_WORDBREAKS says */
            size_t at = strlen(words);
            snprintf(words + at, sizeof words - at,
                     *c == '='   ? "' '%c%s"
                     : *c == ' ' ? "' '"
                                 : "%c",
                     *c, c[1] != '\0' && c[1] != ' ' ? "' '" : "");
        }
        bool worker = strncmp(line, "diloco-worker", 13) == 0;
        snprintf(script, sizeof script,
                 "source <(%s completion bash) && COMP_WORDS=('%s') && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && %s; "
                 "echo \"${COMPREPLY[@]}\"",
                 cli_program(worker ? "diloco-worker" : "dilococtl"), words, worker ? "_diloco_worker" : "_dilococtl");
        if (!shell("bash", script)) {
            cluster_free(cluster);
            skip();
        }
        assert_completes("bash", line, typed[i][1], typed[i][2]);
    }
    cluster_free(cluster);
}

static void fish_completes(void **state)
{
    (void)state;
    struct cluster *cluster = begin_asked();
    for (size_t i = 0; i < TYPED; i++) {
        char script[1200];
        bool worker = strncmp(typed[i][0], "diloco-worker", 13) == 0;
        snprintf(script, sizeof script, "%s completion fish | source; complete -C '%s'",
                 cli_program(worker ? "diloco-worker" : "dilococtl"), typed[i][0]);
        if (!shell("fish", script)) {
            cluster_free(cluster);
            skip();
        }
        assert_completes("fish", typed[i][0], typed[i][1], typed[i][2]);
    }
    cluster_free(cluster);
}

/* On a terminal of its own, since zsh completes nowhere else: what compadd is given is printed. */
static void zsh_completes(void **state)
{
    (void)state;
    static const char program[] =
        "zmodload zsh/zpty; zpty -b z %s; zpty -w z 'PS1=; unsetopt zle_bracketed_paste 2>/dev/null; "
        "autoload -Uz compinit; compinit -u -d %s/zcompdump; source <(%s completion zsh); "
        "compadd() { [[ \"$*\" == *-[ODA]* ]] && { builtin compadd \"$@\"; return }; local -a hits; "
        "builtin compadd -O hits \"$@\"; print -r -- \"<<${hits[*]}>>\" >>%s; builtin compadd \"$@\" }; "
        "bindkey \"^I\" complete-word; print -r READ\\Y'; "
        "zpty -r z line '*READY*'; zpty -w -n z '%s'$'\\t'; repeat 100; do [[ -s %s ]] && "
        "break; sleep .1; done; sleep .2; zpty -d z; cat %s 2>/dev/null; true";
    struct cluster *cluster = begin_asked();
    for (size_t i = 0; i < TYPED; i++) {
        char script[3000], name[32];
        bool worker = strncmp(typed[i][0], "diloco-worker", 13) == 0;
        snprintf(name, sizeof name, "zsh-%zu", i);
        const char *out = testlib_path(folder, name);
        snprintf(script, sizeof script, program, "'zsh -f -i'", folder,
                 cli_program(worker ? "diloco-worker" : "dilococtl"), out, typed[i][0], out, out);
        if (!shell("zsh", script)) {
            cluster_free(cluster);
            skip();
        }
        assert_completes("zsh", typed[i][0], strncmp(typed[i][1], "conf/", 5) == 0 ? typed[i][1] + 5 : typed[i][1],
                         typed[i][2]);
    }
    cluster_free(cluster);
}

int main(void)
{
    folder = testlib_folder("help");
    cli_init(folder);
    char *path, *programs = realpath(cli_program("dilococtl"), NULL);
    assert_non_null(programs);
    *strrchr(programs, '/') = '\0';
    assert_ok(mem_printf(&path, "%s:%s", programs, getenv("PATH")));
    setenv("PATH", path, 1);
    mem_free(path);
    free(programs);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_of_all_is_in_groups_and_has_what_is_common),
        cmocka_unit_test(help_of_one_command_is_about_that_one),
        cmocka_unit_test(every_command_has_a_group_and_an_example),
        cmocka_unit_test(wrong_words_get_one_line_and_the_right_one),
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(fish_completes),
        cmocka_unit_test(zsh_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
