/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_join.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/founding.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/membership/wire_paxos.h"
#include "net/transport/address.h"
#include "net/transport/dial_back.h"
#include "net/transport/join_client.h"
#include "net/transport/invite.h"

enum { PATIENCE_S_MAX = 86400 };

struct task {
    const struct ctl_join *join;
    struct invite invite;
    uint64_t uplink;
    uint8_t owner_choice;
    struct ctl_admission *admission;
};

/* ---- what was asked for ---- */

static enum err read_token(FILE *file, const char *from, char **token)
{
    char line[INVITE_TEXT_BYTES + 64]; /* with blanks around it */
    do {
        if (fgets(line, sizeof line, file) == NULL)
            return err_set(ERR_ARG, "%s: there is no token in it", from);
    } while (line[strspn(line, " \t\r\n")] == '\0');
    enum err err = mem_strdup(line, token);
    memset(line, 0, sizeof line);
    return err;
}

static enum err read_token_file(const char *path, char **token)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return err_set_errno(ERR_ARG, "--token-file %s: cannot open", path);
    enum err err = read_token(file, path, token);
    fclose(file);
    return err;
}

enum err ctl_join_token(char *word, const char *file, char **token)
{
    if (word != NULL && file != NULL)
        return err_set(ERR_ARG, "a token, and --token-file %s: leave one of the two out", file);
    if (word == NULL)
        return read_token_file(file, token);
    if (strcmp(word, "-") != 0) {
        TRY(mem_strdup(word, token));
        memset(word, '*', strlen(word)); /* whoever lists processes sees it here for as long as it takes to join */
        return ERR_OK;
    }
    if (isatty(STDIN_FILENO))
        fputs("Paste the token, and press Enter: ", stderr);
    return read_token(stdin, "standard input", token);
}

static enum err parse_owner(const char *text, uint8_t *request)
{
    static const char *const words[CONFIG_OWNER_CHOICES] = {
        [CONFIG_OWNER_AUTO] = "auto", [CONFIG_OWNER_YES] = "yes", [CONFIG_OWNER_NO] = "no"};
    *request = CONFIG_OWNER_AUTO;
    for (uint8_t i = 0; text != NULL && i < CONFIG_OWNER_CHOICES; i++)
        if (words[i] != NULL && strcmp(words[i], text) == 0) {
            *request = i;
            return ERR_OK;
        }
    return text == NULL ? ERR_OK : err_set(ERR_ARG, "--owner %s: auto, yes or no", text);
}

/* By the same reader as the configuration's. */
static enum err parse_uplink(const char *text, uint64_t *bits)
{
    struct dconf conf;
    char *line;
    TRY(mem_printf(&line, "[island]\nname = x\nrun = x\nkey = x\n[net]\nuplink = %s\n", text != NULL ? text : "1Gbit"));
    enum err err = conf_parse(&dconf_schema, line, "--uplink", &conf);
    mem_free(line);
    TRY(err);
    *bits = conf.uplink;
    conf_deinit(&dconf_schema, &conf);
    return ERR_OK;
}

/* Where the others will reach us: as was said, what `listen` names, or the way by which we reach the inviter. */
static enum err choose_address(const struct task *task, const char *listen, char address[WIRE_ADDRESS_BYTES])
{
    const struct ctl_init *init = &task->join->init;
    struct dconf conf = {.listen = (char *)(uintptr_t)listen,
                         .address = (char *)(uintptr_t)(init->address != NULL ? init->address : "")};
    const char *said = dconf_address(&conf), *colon = strrchr(listen, ':');
    address[0] = '\0';
    if (said[0] != '\0' && !address_good(said))
        return err_set(ERR_ARG, "--address %s: not host:port, as in oslo.example.org:7600", said);
    if (said[0] != '\0')
        memcpy(address, said, strlen(said) + 1);
    else if (colon != NULL)
        here_towards(task->invite.addresses[0], (unsigned)strtoul(colon + 1, NULL, 10), address);
    return ERR_OK;
}

/* ---- what the run answers ---- */

static enum err take_inviter(const struct config *config, const struct invite *invite, uint32_t answered,
                             struct ctl_admission *admission)
{
    const struct config_member *inviter = NULL;
    for (uint32_t i = 0; i < config->members_count; i++)
        if (memcmp(config->members[i].key, invite->inviter, IDENT_KEY_BYTES) == 0)
            inviter = &config->members[i];
    if (inviter == NULL)
        return err_set(ERR_PROTO, "the configuration that came with the answer does not have the inviter");
    snprintf(admission->inviter_name, sizeof admission->inviter_name, "%s", inviter->name);
    snprintf(admission->inviter_address, sizeof admission->inviter_address, "%s", invite->addresses[answered]);
    return ERR_OK;
}

/* Whether the configuration is of the token's run, and has our key under the id that it was told. */
static enum err check_config(const struct task *task, const struct ident *ident, uint32_t id,
                             const struct config *config)
{
    const struct config_member *self = config_member(config, id);
    if (memcmp(config->nonce, task->invite.nonce, sizeof config->nonce) != 0)
        return err_set(ERR_PROTO, "the configuration that came with the answer is of another run than the token");
    if (self == NULL || memcmp(self->key, ident->key, sizeof self->key) != 0 ||
        strcmp(self->name, task->join->init.name) != 0)
        return err_set(ERR_PROTO, "the configuration that came with the answer does not have this island");
    if ((self->role == CONFIG_WITNESS) != task->join->witness)
        return err_set(ERR_PROTO, "the configuration that came with the answer has this island as %s",
                       config_role_name(self->role));
    return ERR_OK;
}

static enum err check_spec(const struct task *task, const char *text)
{
    struct runspec spec;
    TRY(runspec_parse(text, "the run spec of the inviter", &spec));
    /* Paths are nobody else's to say, and not under the digest. */
    bool same = digest_equal(&spec.digest, &task->invite.run_id) && spec.init[0] == '\0';
    runspec_deinit(&spec);
    return same ? ERR_OK : err_set(ERR_PROTO, "the run spec that came with the answer is not the token's");
}

static enum err take_config(const struct task *task, const struct ident *ident, const struct wire_joined *joined,
                            uint32_t answered, struct ctl_admission *admission)
{
    struct paxos_message message;
    struct config config = {0};
    enum err err;
    TRY(wire_paxos_unpack(WIRE_DECIDED, joined->configs, joined->configs_bytes, &message));
    TRY_OUT(config_unpack(message.bytes, message.bytes_count, &config));
    TRY_OUT(check_config(task, ident, joined->id, &config));
    TRY_OUT(take_inviter(&config, &task->invite, answered, admission));
out:
    config_deinit(&config);
    wire_paxos_deinit(&message);
    return err;
}

/* On standard error: what is printed may be read by a program. */
static void say_late(void *user, const char *what)
{
    (void)user;
    fprintf(stderr, "Still waiting: %s.\n", what);
}

/* ---- whether others reach it ---- */

/* Who dialled it, and what came of that; of the inviter first. */
static void list_reports(const struct wire_dial_report *reports, uint32_t count, bool in_vain, char *text,
                         size_t text_bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const struct wire_dial_report *report = &reports[i];
        size_t at = strlen(text);
        if (in_vain != dial_in_vain(report->outcome) || report->outcome == WIRE_DIAL_UNTESTED)
            continue;
        const char *name = report->island[0] != '\0' ? report->island : "the inviter";
        snprintf(text + at, text_bytes - at, "%s%s", at > 0 ? in_vain ? "; " : " and " : "", name);
        at = strlen(text);
        if (in_vain)
            snprintf(text + at, text_bytes - at, " dialled it: %s", dial_outcome_text(report->outcome));
        at = strlen(text);
        if (report->outcome == WIRE_DIAL_NO_ANSWER)
            snprintf(text + at, text_bytes - at, " (%.1f s)", (double)report->took_ms / 1000);
    }
}

/* One line. On standard error where something is to be done. */
static void say_dialled(const struct task *task, const char *reached, const char *in_vain)
{
    static const char remedy[] = "let that TCP port in (firewall, port forwarding), or state another way: --listen and "
                                 "--address of join, [net] listen and address in dilocod.conf later";
    const char *goes_on = task->join->witness
                              ? "It joins all the same: it votes, and dials the others itself"
                              : "It joins all the same: it contributes, dials the others itself, and owns shards only "
                                "beside a single other";
    if (in_vain[0] == '\0' && reached[0] == '\0')
        fprintf(stderr,
                "Not tested: whether others reach this island at %s; once it runs, status says if they do not.\n",
                task->admission->address);
    else if (in_vain[0] == '\0')
        printf("Reached at %s by %s.\n", task->admission->address, reached);
    else if (reached[0] != '\0')
        fprintf(stderr,
                "Warning: this island is reached at %s by %s, and not by all: %s. It dials those itself. To be reached "
                "by all: %s.\n",
                task->admission->address, reached, in_vain, remedy);
    else
        fprintf(stderr, "Warning: this island is not reached at %s: %s. %s. To be reached: %s.\n",
                task->admission->address, in_vain, goes_on, remedy);
    fflush(stdout);
}

/* As its daemon does once it is told by heartbeats: of owners that dialled one that reaches it is enough. */
static uint8_t take_dialled(void *user, const struct wire_dial_report *reports, uint32_t reports_count)
{
    const struct task *task = user;
    char reached[2 * WIRE_NAME_BYTES + 16], in_vain[2 * WIRE_NAME_BYTES + 240];
    list_reports(reports, reports_count, false, reached, sizeof reached);
    list_reports(reports, reports_count, true, in_vain, sizeof in_vain);
    if (!task->join->init.json || in_vain[0] != '\0')
        say_dialled(task, reached, in_vain);
    task->admission->reached = reached[0] != '\0' ? CTL_REACHED : in_vain[0] != '\0' ? CTL_UNREACHED : CTL_UNTRIED;
    return task->admission->reached == CTL_UNREACHED ? config_owner_undialled(task->owner_choice) : task->owner_choice;
}

static uint32_t patience_ms(uint32_t said_s)
{
    return (said_s < PATIENCE_S_MAX ? said_s : PATIENCE_S_MAX) * 1000;
}

static enum err redeem(void *user, const struct ident *ident, const char *listen, struct ctl_admission *admission)
{
    struct task *task = user;
    struct wire_joined joined;
    uint32_t answered = 0;
    TRY(choose_address(task, listen, admission->address));
    uint8_t request = listen[0] == '\0' ? config_owner_undialled(task->owner_choice) : task->owner_choice;
    struct join_client_conf conf = {.invite = &task->invite,
                                    .ident = ident,
                                    .name = task->join->init.name,
                                    .address = admission->address,
                                    .listen = listen,
                                    .uplink = task->uplink,
                                    .owner_choice = request,
                                    .witness = task->join->witness,
                                    .timeout_ms = patience_ms(task->join->patience_s),
                                    .decide_ms = patience_ms(task->join->decide_s),
                                    .late = say_late,
                                    .dialled = take_dialled,
                                    .user = task,
                                    .answered = &answered};
    task->admission = admission;
    if (!task->join->init.json) {
        printf("Asking %s to be let in...\n", task->invite.addresses[0]);
        fflush(stdout);
    }
    enum err err = admit_ask(&conf, &joined);
    admission->asked = err == ERR_OK || err == ERR_CLOSED; /* refused, or never asked: nobody knows the key */
    if (err == ERR_CONF)
        return err_suffix(err, "choose another with --listen, as --listen '*:PORT'");
    TRY(err);
    err = check_spec(task, joined.run_spec);
    if (err == ERR_OK)
        err = take_config(task, ident, &joined, answered, admission);
    if (err == ERR_OK) {
        admission->run_text = joined.run_spec;
        admission->config = joined.configs;
        admission->config_bytes = joined.configs_bytes;
        joined = (struct wire_joined){0};
    }
    wire_joined_deinit(&joined);
    return err;
}

/* ---- all of it ---- */

/* It has neither a trainer nor shards. */
static enum err check_witness(struct ctl_join *join)
{
    const struct ctl_init *init = &join->init;
    const char *const values[] = {init->program, init->device, init->devices, init->ranks, init->tensor_parallel};
    static const char *const options[] = {"program", "device", "devices", "ranks", "tensor-parallel"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        if (values[i] != NULL)
            return err_set(ERR_ARG, "--witness, and --%s: a witness has no trainer; leave one of the two out",
                           options[i]);
    if (init->other_base)
        return err_set(ERR_ARG,
                       "--witness, and --allow-other-base: a witness has no trainer; leave one of the two out");
    if (join->init.data != NULL)
        return err_set(ERR_ARG, "--witness, and --data: a witness trains on nothing; leave one of the two out");
    if (join->owner != NULL && strcmp(join->owner, "no") != 0)
        return err_set(ERR_ARG, "--witness, and --owner %s: a witness owns nothing; leave one of the two out",
                       join->owner);
    if (join->init.name == NULL)
        join->init.name = "witness";
    join->owner = "no";
    join->init.witness = true;
    return ERR_OK;
}

/* Whether the island that is here joined the run of this token, by this name. */
static bool is_in(const struct home *home, const struct ctl_join *join, const struct invite *invite)
{
    struct dconf conf;
    struct config config;
    struct config_entry entry;
    if (access(home->conf, F_OK) != 0 || dconf_load_home(home, NULL, NULL, 0, &conf) != ERR_OK)
        return false;
    bool in = conf.joined[0] != '\0' && join->init.name != NULL && strcmp(conf.name, join->init.name) == 0 &&
              founding_read_joined(conf.joined, &config, &entry) == ERR_OK;
    conf_deinit(&dconf_schema, &conf);
    if (!in)
        return false;
    in = memcmp(config.nonce, invite->nonce, sizeof config.nonce) == 0;
    config_deinit(&config);
    config_entry_free(&entry);
    return in;
}

static enum err say_in(const struct ctl_join *join)
{
    if (join->init.json)
        printf("{\"island\":\"%s\",\"already\":true}\n", join->init.name);
    else
        printf("Island %s is in this run already, and was left as it is.\n", join->init.name);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

enum err ctl_join(const struct home *home, struct ctl_join *join)
{
    struct task task = {.join = join};
    if (join->witness)
        TRY(check_witness(join));
    if (join->init.name != NULL && !wire_name_good(join->init.name))
        return err_set(ERR_ARG, "--name %s: an island's name is 1 to %d letters, digits, '-' or '_'", join->init.name,
                       WIRE_NAME_BYTES - 1);
    TRY(parse_owner(join->owner, &task.owner_choice));
    TRY(invite_parse(join->token, &task.invite));
    join->already = is_in(home, join, &task.invite);
    if (join->already)
        return say_in(join);
    TRY(parse_uplink(join->init.uplink, &task.uplink));
    join->init.owner = join->owner;
    join->init.redeem = redeem;
    join->init.user_data = &task;
    return ctl_init(home, &join->init);
}
