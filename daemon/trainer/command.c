/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trainer/command.h"

#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "common/program.h"

/* One that is not there yet is left to exec, which says so each time it is tried. One that runs in another folder than
 * we do gets a whole path. Links stay what they are: a Python environment knows itself by the link it is started by. */
static enum err find_program(struct command *command, const struct dconf *conf, const char *word)
{
    char *name, here[PATH_MAX], **out = &command->program;
    bool elsewhere = command->folder != NULL;
    TRY(dconf_program(conf, word, &name));
    enum err err = program_find(name, out);
    command->missing = err == ERR_NOTFOUND;
    command->searched = err == ERR_OK && !command->ours && strchr(word, '/') == NULL;
    if (err == ERR_NOTFOUND)
        err = mem_strdup(name, out);
    mem_free(name);
    if (err == ERR_OK && elsewhere && strchr(*out, '/') != NULL && **out != '/' && getcwd(here, sizeof here) != NULL) {
        char *relative = *out;
        err = mem_printf(out, "%s/%s", here, relative);
        mem_free(relative);
    }
    return err;
}

static enum err add(struct command *command, const char *text)
{
    return mem_strdup(text, &command->arguments[command->arguments_count++]);
}

static enum err add_number(struct command *command, const char *option, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    TRY(add(command, option));
    return add(command, text);
}

static enum err add_pair(struct command *command, const char *option, const char *value)
{
    TRY(add(command, option));
    return add(command, value);
}

static enum err add_ours(struct command *command, const struct dconf *conf)
{
    char folder[512], path[512];
    snprintf(folder, sizeof folder, "%s/worker", conf->state_folder);
    snprintf(path, sizeof path, "%s/worker.sock", conf->run_folder);
    TRY(add_pair(command, "--run", conf->run_path));
    TRY(add_pair(command, "--data", conf->data));
    TRY(add_pair(command, "--out", folder));
    TRY(add_pair(command, "--attach", path));
    TRY(add_pair(command, "--device", conf->device));
    if (conf->devices[0] != '\0')
        TRY(add_pair(command, "--devices", conf->devices));
    else if (conf->ranks > 1)
        TRY(add_number(command, "--ranks", conf->ranks));
    if (conf->tensor_parallel > 1)
        TRY(add_number(command, "--tensor-parallel", conf->tensor_parallel));
    if (conf->stream[0] != '\0')
        TRY(add_pair(command, "--stream", conf->stream));
    TRY(add_number(command, "--threads", conf->threads));
    TRY(add_number(command, "--checkpoint-every", conf->checkpoint_every));
    return add_number(command, "--eval-every", conf->eval_every);
}

static enum err add_all(struct command *command, const struct dconf *conf, const struct words *words)
{
    command->ours = dconf_is_ours(words->word[0]);
    if (!command->ours && dconf_trainer_folder(conf)[0] != '\0')
        command->folder = (char *)(uintptr_t)dconf_trainer_folder(conf);
    TRY(find_program(command, conf, words->word[0]));
    TRY(add(command, command->program));
    if (command->ours)
        TRY(add(command, "train"));
    for (size_t i = 1; i < words->count; i++)
        TRY(add(command, words->word[i]));
    return command->ours ? add_ours(command, conf) : ERR_OK;
}

/* As seen from wherever the trainer runs; one that is not there yet stays as it is. */
static enum err add_socket(struct command *command, const struct dconf *conf)
{
    char folder[PATH_MAX];
    bool found = command->folder != NULL && realpath(conf->run_folder, folder) != NULL;
    return mem_printf(&command->added[0], "DILOCO_SOCKET=%s/worker.sock", found ? folder : conf->run_folder);
}

static bool is_added(const struct command *command, const char *variable)
{
    for (size_t i = 0; i < COMMAND_ADDED_MAX; i++)
        if (command->added[i] != NULL && strncmp(variable, command->added[i], strcspn(command->added[i], "=") + 1) == 0)
            return true;
    return false;
}

/* What a service manager tells the daemon is not the trainer's: that it would be heard as the daemon, whose sockets
 * those are and where its log goes. All else passes, as PATH, CUDA_VISIBLE_DEVICES and a Python environment do. */
static bool is_the_daemons(const char *variable)
{
    static const char *const names[] = {"NOTIFY_SOCKET",    "WATCHDOG_USEC",        "WATCHDOG_PID",
                                        "LISTEN_FDS",       "LISTEN_PID",           "LISTEN_FDNAMES",
                                        "MAINPID",          "INVOCATION_ID",        "JOURNAL_STREAM",
                                        "SYSTEMD_EXEC_PID", "CREDENTIALS_DIRECTORY"};
    size_t length = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == length && strncmp(variable, names[i], length) == 0)
            return true;
    return false;
}

/* What it prints goes into a file: what Python prints is to come at once all the same, and our own lines as the journal
 * takes them, since the daemon dates them. */
static enum err make_environment(struct command *command, const struct dconf *conf)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    TRY(add_socket(command, conf));
    TRY(mem_strdup("DILOCO_LOG=journal", &command->added[1]));
    if (getenv("PYTHONUNBUFFERED") == NULL)
        TRY(mem_strdup("PYTHONUNBUFFERED=1", &command->added[2]));
    TRY(mem_new(count + COMMAND_ADDED_MAX + 1, sizeof *command->environment, "the trainer's environment",
                &command->environment));
    for (size_t i = 0; i < count; i++)
        if (!is_added(command, environ[i]) && !is_the_daemons(environ[i]))
            command->environment[kept++] = environ[i];
    for (size_t i = 0; i < COMMAND_ADDED_MAX && command->added[i] != NULL; i++)
        command->environment[kept++] = command->added[i];
    return ERR_OK;
}

enum err command_make(const struct dconf *conf, struct command *out)
{
    struct words words;
    *out = (struct command){.program = NULL};
    enum err err = words_split(conf->worker_program, &words);
    if (err != ERR_OK)
        return err_prefix(err, "[worker] program");
    err = words.count > 0 ? add_all(out, conf, &words) : err_set(ERR_CONF, "[worker] program names none");
    words_free(&words);
    if (err == ERR_OK)
        err = make_environment(out, conf);
    if (err != ERR_OK)
        command_free(out);
    return err;
}

void command_free(struct command *command)
{
    for (int i = 0; i < command->arguments_count; i++)
        mem_free(command->arguments[i]);
    mem_free(command->program);
    for (size_t i = 0; i < COMMAND_ADDED_MAX; i++)
        mem_free(command->added[i]);
    mem_free(command->environment);
    *command = (struct command){.program = NULL};
}
