/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_draft.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/mixture.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "net/transport/address.h"

/* What is most likely to be changed one day; dilocod --print-config shows the others. */
static const char *const keys[] = {
    "island.joined", /* or, of an island that begins a run, the next one */
    "island.founded",
    "island.name",
    "island.run",
    "island.key",
    "island.state",
    "island.sockets",
    "net.listen",
    "island.owner",
    "net.address",
    "net.inviter", /* where it joined */
    "net.uplink",
    "net.rate_limit",
    "worker.program",
    "worker.allow_other_base", /* where it is allowed */
    "worker.autostart",
    "worker.data",
    "worker.stream",
    "worker.device",
    "worker.devices",
    "worker.ranks",
    "worker.tensor_parallel",
    "worker.threads",
    "storage.ledger_keep",
    NULL,
};

/* Of a witness, which always joins. */
static const char *const witness_keys[] = {
    "island.joined",  "island.name", "island.run",  "island.key",  "island.state", "island.sockets",
    "island.witness", "net.listen",  "net.address", "net.inviter", "net.uplink",   NULL,
};

static const char conf_head[] =
    "# dilocod.conf: the settings of island %s, as dilococtl init made them.\n"
    "#\n"
    "# Change what you like, then stop and start the daemon. dilocod --print-config shows all keys, these and others.\n"
    "# Relative paths are taken from the folder of this file.\n"
    "\n";
static const char conf_name[] = "init"; /* in errors */

static const char run_head[] =
    "# run.ini: a run spec: what all islands of a run have alike. This one is a sample: a small "
    "model of bytes.\n"
    "#\n"
    "# Check it, and see derived values, with:  diloco-worker spec --run FILE\n"
    "\n";
static const char run_of_head[] =
    "# run.ini: a run spec: what all islands of a run have alike. This one begins from a model, as [model] says.\n"
    "#\n"
    "# Check it, and see derived values, with:  diloco-worker spec --run FILE\n"
    "\n";
const char ctl_draft_sample[] = "[run]\nname = my-run\nsteps = 10000\n";

/* ---- the configuration ---- */

static const char *program_of(const struct ctl_draft *draft)
{
    return draft->program != NULL ? draft->program : "diloco-worker";
}

static const char *device_of(const struct ctl_draft *draft)
{
    bool listed = draft->devices != NULL && draft->devices[0] != '\0';
    return draft->device != NULL ? draft->device : listed ? "cuda" : "cpu";
}

static enum err write_trainer(const struct ctl_draft *draft, char **text)
{
    return mem_printf(
        text, "program = %s\nallow_other_base = %s\ndevice = %s\ndevices = %s\nranks = %s\ntensor_parallel = %s\n",
        program_of(draft), draft->other_base ? "yes" : "no", device_of(draft),
        draft->devices != NULL ? draft->devices : "", draft->ranks != NULL ? draft->ranks : "1",
        draft->tensor_parallel != NULL ? draft->tensor_parallel : "1");
}

/* Of a mixture a line for each source: lines are of limited length. */
static enum err write_data(const struct ctl_draft *draft, char **text)
{
    struct mixture mixture;
    TRY(mixture_parse(draft->data != NULL ? draft->data : "", NULL, &mixture));
    enum err err = mixture_text(&mixture, "\ndata = ", text);
    mixture_free(&mixture);
    return err;
}

/* What differs between who founds a run and who joins one. */
static enum err write_run(const struct ctl_draft *draft, char **island, char **net)
{
    *island = *net = NULL;
    if (draft->joined == NULL)
        return mem_printf(island, "founded = %s\n", draft->founded != NULL ? draft->founded : "");
    TRY(mem_printf(island, "joined = %s\n", draft->joined));
    return mem_printf(net, "inviter = %s=%s\n", draft->inviter_name, draft->inviter_address);
}

static enum err write_minimum(const struct ctl_draft *draft, char **text)
{
    char *island = NULL, *net = NULL, *trainer = NULL, *data = NULL;
    const char *uplink = draft->uplink != NULL ? draft->uplink : "1Gbit";
    enum err err;
    TRY_OUT(write_trainer(draft, &trainer));
    TRY_OUT(write_data(draft, &data));
    TRY_OUT(write_run(draft, &island, &net));
    TRY_OUT(mem_printf(text,
                       "[island]\nname = %s\nrun = run.ini\nkey = %s\nstate = %s\nsockets = %s\nowner = %s\n%s"
                       "witness = %s\n[net]\nlisten = %s\naddress = %s\nuplink = %s\n%s[worker]\ndata = %s\n%s",
                       draft->name, draft->key, draft->state, draft->sockets,
                       draft->owner != NULL ? draft->owner : "auto", island, draft->witness ? "yes" : "no",
                       draft->listen, draft->address != NULL ? draft->address : "", uplink, net != NULL ? net : "",
                       data, trainer));
out:
    mem_free(island);
    mem_free(net);
    mem_free(trainer);
    mem_free(data);
    return err;
}

/* What was read back has to be what was meant: a comment sign or a line break in a value would change it. */
static enum err check_same(const char *option, const char *meant, const char *read)
{
    if (strcmp(meant, read) == 0)
        return ERR_OK;
    return err_set(ERR_CONF, "--%s: \"%s\" cannot stand in a configuration, where it would read \"%s\"; choose another",
                   option, meant, read);
}

static enum err check_number(const char *option, const char *meant, int64_t read)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, read);
    return meant != NULL ? check_same(option, meant, text) : ERR_OK;
}

/* As the daemon will see it. */
static enum err check_trainer(const struct ctl_draft *draft, const struct dconf *conf)
{
    TRY(check_same("program", program_of(draft), conf->worker_program));
    TRY(check_same("device", device_of(draft), conf->device));
    TRY(check_same("devices", draft->devices != NULL ? draft->devices : "", conf->devices));
    TRY(check_number("ranks", draft->ranks, conf->ranks));
    TRY(check_number("tensor-parallel", draft->tensor_parallel, conf->tensor_parallel));
    TRY(dconf_check_trainer(conf_name, conf));
    return draft->spec != NULL ? dconf_check_grid(conf, draft->spec) : ERR_OK;
}

static enum err check_draft(const struct ctl_draft *draft, const struct dconf *conf)
{
    if (!draft->witness)
        TRY(check_trainer(draft, conf));
    TRY(check_same("name", draft->name, conf->name));
    TRY(check_same("data", draft->data != NULL ? draft->data : "", conf->data));
    TRY(check_same("address", draft->address != NULL ? draft->address : "", conf->address));
    return check_same("listen", draft->listen, conf->listen);
}

static enum err check_words(const struct ctl_draft *draft)
{
    const char *const values[] = {draft->name,    draft->data,   draft->listen,  draft->uplink, draft->address,
                                  draft->program, draft->device, draft->devices, draft->ranks,  draft->tensor_parallel};
    static const char *const options[] = {"name",    "data",   "listen",  "uplink", "address",
                                          "program", "device", "devices", "ranks",  "tensor-parallel"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i] != NULL && strpbrk(values[i], "\r\n") != NULL)
            return err_set(ERR_CONF, "--%s: there is a line break in it, which no configuration can hold", options[i]);
    if (!dconf_name_good(draft->name))
        return err_set(ERR_CONF, "--name %s: an island's name is 1 to %d letters, digits, '-' or '_'", draft->name,
                       DCONF_NAME_MAX);
    if (draft->listen[0] != '\0' && !address_listen_good(draft->listen, 1))
        return err_set(ERR_CONF, "--listen %s: not host:port, as in *:7600 or 127.0.0.1:7600", draft->listen);
    if (draft->address != NULL && !address_good(draft->address))
        return err_set(ERR_CONF, "--address %s: not host:port, as in paris.example.org:7600", draft->address);
    return ERR_OK;
}

/* A key that says nothing here is left out. */
static bool is_idle(const struct ctl_draft *draft, const char *key)
{
    bool joins = draft->joined != NULL;
    return strcmp(key, joins ? "island.founded" : "island.joined") == 0 ||
           (!joins && strcmp(key, "net.inviter") == 0) ||
           (!draft->other_base && strcmp(key, "worker.allow_other_base") == 0);
}

static void choose_keys(const struct ctl_draft *draft, const char **chosen)
{
    size_t count = 0;
    for (size_t i = 0; keys[i] != NULL; i++)
        if (!is_idle(draft, keys[i]))
            chosen[count++] = keys[i];
    chosen[count] = NULL;
}

enum err ctl_draft_conf(const struct ctl_draft *draft, char **text)
{
    struct dconf conf;
    char *minimum = NULL, *whole = NULL;
    size_t bytes;
    TRY(check_words(draft));
    TRY(write_minimum(draft, &minimum));
    enum err err = conf_parse(&dconf_schema, minimum, conf_name, &conf);
    mem_free(minimum);
    TRY(err);
    TRY_OUT(check_draft(draft, &conf));
    const char *own_keys[sizeof keys / sizeof keys[0]];
    choose_keys(draft, own_keys);
    FILE *stream = open_memstream(&whole, &bytes);
    if (stream == NULL) {
        err = err_set(ERR_NOMEM, "out of memory for a configuration");
        goto out;
    }
    fprintf(stream, conf_head, draft->name);
    conf_print_some(&dconf_schema, &conf, draft->witness ? witness_keys : own_keys, stream);
    err = fclose(stream) == 0 ? mem_strdup(whole, text) : err_set(ERR_NOMEM, "out of memory for a configuration");
    free(whole);
out:
    conf_deinit(&dconf_schema, &conf);
    return err;
}

/* ---- the run spec ---- */

static enum err print_run(const char *head, const struct runspec *spec, char **text)
{
    char *whole = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&whole, &bytes);
    if (stream != NULL) {
        fputs(head, stream);
        conf_print(&runspec_schema, spec, true, stream);
    }
    enum err err = stream != NULL && fclose(stream) == 0 ? mem_strdup(whole, text)
                                                         : err_set(ERR_NOMEM, "out of memory for a run spec");
    free(whole);
    return err;
}

enum err ctl_draft_run(char **text)
{
    struct runspec spec;
    TRY(runspec_parse(ctl_draft_sample, "the sample", &spec));
    enum err err = print_run(run_head, &spec, text);
    runspec_deinit(&spec);
    return err;
}

enum err ctl_draft_run_of(const struct runspec *spec, char **text)
{
    return print_run(run_of_head, spec, text);
}

/* The value of [run] steps, on its own line; NULL: there is none. */
static const char *steps_value(const char *text)
{
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += line[0] == '\n';
        const char *at = line + strspn(line, " ");
        if (strncmp(at, "steps", 5) != 0)
            continue;
        at += 5 + strspn(at + 5, " ");
        if (*at == '=')
            return at + 1 + strspn(at + 1, " ");
    }
    return NULL;
}

enum err ctl_draft_set_steps(char **text, const char *steps)
{
    struct runspec spec;
    char *whole;
    const char *value = steps_value(*text);
    if (value == NULL)
        return err_set(ERR_CONF, "--steps %s: the run spec has no line \"steps = N\" to change", steps);
    TRY(mem_printf(&whole, "%.*s%s%s", (int)(value - *text), *text, steps, value + strcspn(value, "\n")));
    enum err err = runspec_parse(whole, "--steps", &spec);
    if (err != ERR_OK) {
        mem_free(whole);
        return err;
    }
    runspec_deinit(&spec);
    mem_free(*text);
    *text = whole;
    return ERR_OK;
}
