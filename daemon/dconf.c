/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/dconf.h"

#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/deal.h"
#include "common/devices.h"
#include "common/grid.h"
#include "common/ipc.h"
#include "common/mem.h"
#include "common/mixture.h"
#include "common/words.h"
#include "net/transport/address.h"
#include "net/config/config.h"
#include "net/transport/wire.h"

static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};

static const char *const owner_choices[] = {
    [CONFIG_OWNER_AUTO] = "auto", [CONFIG_OWNER_YES] = "yes", [CONFIG_OWNER_NO] = "no", NULL};

#define AT(field) offsetof(struct dconf, field)

static const struct conf_key keys[] = {
    {"island", "name", CONF_STRING, AT(name), NULL, 0, 0, NULL, NULL,
     "name of this island, 1 to 63 letters, digits, '-' or '_'; unique in the run."},
    {"island", "run", CONF_PATH, AT(run_path), NULL, 0, 0, NULL, NULL,
     "path of the run spec; the same file on every island."},
    {"island", "key", CONF_PATH, AT(key_path), NULL, 0, 0, NULL, NULL,
     "path of the secret key; make one with: dilococtl keygen FILE."},
    {"island", "state", CONF_PATH, AT(state_folder), "/var/lib/diloco", 0, 0, NULL, NULL,
     "Folder for ledger, checkpoints and anchors. Needs about 26 bytes per parameter, with error feedback 36: "
     "dilococtl plan says how much."},
    {"island", "sockets", CONF_PATH, AT(run_folder), "/run/diloco", 0, 0, NULL, NULL,
     "Folder for the two Unix sockets: control.sock for dilococtl, worker.sock for trainers."},
    {"island", "joined", CONF_PATH, AT(joined), "", 0, 0, NULL, NULL,
     "File with the run's configuration by which this island joined: where the state folder has no configuration, it "
     "begins from that one, and asks the others for later ones. dilococtl join writes it."},
    {"island", "founded", CONF_PATH, AT(founded), "", 0, 0, NULL, NULL,
     "File with the random bytes drawn when this island founded its run: by it the run is another one than any that "
     "it founded before, and still the same if the state folder is lost. dilococtl init writes it, reset draws "
     "another. Empty: the daemon draws it, and keeps it in the state folder."},
    {"island", "owner", CONF_ENUM, AT(owner), "auto", 0, 0, owner_choices, NULL,
     "Whether this island is to own shards, which it averages and votes with. auto: as the run decides; no: it only "
     "contributes, and comes and goes without notice."},
    {"island", "witness", CONF_BOOL, AT(witness), "no", 0, 0, NULL, NULL,
     "Whether this is the run's witness: it votes, so that a run of two islands outlives the loss of one, and has no "
     "trainer, no parameters and no shards. A run has at most one; [worker] means nothing to it."},
    {"island", "log", CONF_ENUM, AT(log_level), "info", 0, 0, log_levels, NULL, "How much to log."},

    {"net", "listen", CONF_STRING, AT(listen), "*:7600", 0, 0, NULL, NULL,
     "host:port to listen on; * is every interface. Empty: only dial out; nobody can then join by this island."},
    {"net", "address", CONF_STRING, AT(address), "", 0, 0, NULL, NULL,
     "host:port where the other islands reach this one; they are told of it, also when it changes. Empty: what "
     "`listen` says, where that names a host."},
    {"net", "inviter", CONF_STRING, AT(inviter), "", 0, 0, NULL, NULL,
     "Where the island that invited this one was reached, as NAME=HOST:PORT. It is dialled there as long as it says no "
     "address of its own. dilococtl join writes it."},
    {"net", "reach", CONF_STRING, AT(reach), "", 0, 0, NULL, NULL,
     "Where this island reaches others in place of the address that they say, as NAME=HOST:PORT with blanks between: "
     "as on a network that they share, or through a tunnel."},
    {"net", "uplink", CONF_RATE, AT(uplink), "1Gbit", 1e3, 1e13, NULL, "bit/s",
     "Speed of this island's uplink. Shards are shared out in proportion; the others are told of it. Where less than a "
     "quarter of it gets through for ten minutes, they are told of twice what did, and where it is a sixteenth, status "
     "says so."},
    {"net", "rate_limit", CONF_RATE, AT(rate_limit), "0", 0, 0, NULL, "bit/s",
     "Most that bulk data may send; 0: no limit. Control messages always go."},
    {"net", "congestion", CONF_STRING, AT(congestion), "bbr", 0, 0, NULL, NULL,
     "TCP's congestion control on bulk connections, by the kernel's name. bbr does not take every loss for a queue; "
     "where the kernel lacks it or does not let us have it, the system's own is used, and status says what to change "
     "if that matters. Empty: the system's own."},
    {"net", "window", CONF_BYTES, AT(window), "16MiB", 65536, 1073741824, NULL, "B",
     "Bulk bytes a peer may have under way to us; at least bandwidth times round trip. Bounds memory."},
    {"net", "away", CONF_DURATION, AT(away_ms), "3s", 250, 600e3, NULL, "ms",
     "How long another island may be silent until this one takes it to be lost. Where a majority does, the run goes on "
     "without it, and it comes back by itself."},
    {"net", "compress_auto", CONF_BOOL, AT(compress_auto), "yes", 0, 0, NULL, NULL,
     "Whether zstd behind the codec is left out where that makes transfers on this link shorter, as measured. no: "
     "always as the run spec says."},
    {"net", "io_threads", CONF_INT, AT(io_threads), "2", 1, 16, NULL, "threads", "Threads that encrypt and send."},

    {"worker", "program", CONF_STRING, AT(worker_program), "diloco-worker", 0, 0, NULL, NULL,
     "Trainer to start and watch over; a name is looked for beside dilocod, then in the daemon's PATH, which in a "
     "service is another one than in a shell: write the whole path of a Python environment's python. One of your own "
     "may have arguments: words, with quotes around what holds blanks, and no shell. A name with a slash is looked "
     "for in `folder`, then where dilocod was started. It finds the daemon by DILOCO_SOCKET in its environment, which "
     "is the daemon's without what a service manager says to that, and what it prints goes into the log. Empty: none "
     "is started, any program may attach through libdiloco. diloco-gateway --listen *:7601: ranks on other machines "
     "attach, over TCP, and none runs here."},
    {"worker", "folder", CONF_PATH, AT(worker_folder), "", 0, 0, NULL, NULL,
     "Where a program of your own runs, so that paths in its arguments are taken from there. Empty: the folder of this "
     "file."},
    {"worker", "group", CONF_STRING, AT(worker_group), "", 0, 0, NULL, NULL,
     "Group whose members may attach a trainer, besides root and the daemon's user, who has to be in it: worker.sock "
     "is theirs then, with mode 0660. Empty: no others."},
    {"worker", "autostart", CONF_BOOL, AT(autostart), "yes", 0, 0, NULL, NULL,
     "Whether training starts with the daemon. no: it waits for dilococtl resume."},
    {"worker", "allow_other_base", CONF_BOOL, AT(allow_other_base), "no", 0, 0, NULL, NULL,
     "Whether a trainer may build upon another frozen base than the run's, as a quantised copy of the model below a "
     "LoRA; what it trains has to be the same. The base of another island is the run's then: this one waits for it. "
     "Status says how the two differ."},
    {"worker", "stop", CONF_DURATION, AT(stop_ms), "15s", 1000, 600e3, NULL, "ms",
     "How long a trainer that is asked to end may take to save; then it is killed. With more than 45s the unit needs a "
     "longer TimeoutStopSec."},
    {"worker", "hang", CONF_DURATION, AT(hang_ms), "30min", 0, 86400e3, NULL, "ms",
     "How long a trainer that was started here may take for one step; then it is taken to hang, killed and started "
     "again. Waiting for other islands does not count. 0: for ever."},
    {"worker", "data", CONF_MIXTURE, AT(data), "", 0, 0, NULL, NULL,
     "Corpus of this island: a file, or a glob pattern of files; or a mixture of sources, NAME=FILE:WEIGHT each, "
     "parted by blanks or in a data line each, as in web=/srv/web-*.bin:0.7 code=/srv/code.bin:0.3. A weight may "
     "change with the steps of the run, linearly between those given: 0.7@0,0.5@10000. This and what follows is for "
     "diloco-worker; a program of your own needs none of it."},
    {"worker", "stream", CONF_STRING, AT(stream), "", 0, 0, NULL, NULL,
     "Which of N disjoint parts of the data to draw, as I/N from 0/N; empty: what the run deals to this island, for a "
     "corpus that all share. 0/1 for a corpus of its own."},
    {"worker", "units", CONF_INT, AT(units), "0", 0, DEAL_UNITS_MAX, NULL, "windows",
     "How many windows, or samples, of a corpus that all islands share the trainer draws in a step, for the run to "
     "deal to it. 0: a batch of the run spec, times accumulate."},
    {"worker", "device", CONF_STRING, AT(device), "cpu", 0, 0, NULL, NULL,
     "Where to train: cpu; cuda, an NVIDIA GPU, which a service has to be let at (dilocod-gpu.conf says how); auto, "
     "which is cuda where its library, a driver and a GPU are there, else cpu, and the log says why."},
    {"worker", "devices", CONF_STRING, AT(devices), "", 0, 0, NULL, NULL,
     "With several GPUs: which of them, as in 0-3,6. The trainer is a process on each then, which share out the batch "
     "of the run spec; the island stays one. With device = cuda, or auto, which is the same then."},
    {"worker", "ranks", CONF_INT, AT(ranks), "1", 1, 64, NULL, NULL,
     "Processes that share out each batch where devices says nothing; the run spec's batch must be a multiple of it."},
    {"worker", "tensor_parallel", CONF_INT, AT(tensor_parallel), "1", 1, 64, NULL, NULL,
     "How many of these processes share each layer, for models that are too large for one device. The number of "
     "processes must be a multiple of it; so many of them together count as one where the batch is shared out."},
    {"worker", "threads", CONF_INT, AT(threads), "0", 0, 1024, NULL, "threads",
     "CPU threads of the trainer, of each of its processes; 0: as many as the model's size is worth, up to all, shared "
     "among them. Several trainers on one machine share its cores best where each has some of its own. Threads that "
     "wait sleep, unless OMP_WAIT_POLICY in the daemon's environment says otherwise: active is for a machine that does "
     "nothing else."},
    {"worker", "checkpoint_every", CONF_INT, AT(checkpoint_every), "200", 0, 1e9, NULL, "steps",
     "Steps between the trainer's checkpoints; 0: only at the end."},
    {"worker", "eval_every", CONF_INT, AT(eval_every), "0", 0, 1e9, NULL, "steps",
     "Steps between evaluations on held-out data; 0: only at the end."},

    {"storage", "checkpoint", CONF_DURATION, AT(checkpoint_ms), "10min", 1000, 86400e3, NULL, "ms",
     "Age at which the daemon's checkpoint of a fragment is written anew; a restart replays the ledger from there. It "
     "is written earlier when the results since then have as many bytes, or are of 32 versions. Writing takes at most "
     "a 25th of the time, but where the ledger would outgrow ledger_keep and all checkpoints together."},
    {"storage", "ledger_keep", CONF_BYTES, AT(ledger_keep), "1GiB", 1048576, 1e15, NULL, "B",
     "Results kept at most beyond what a restart needs, or as many bytes as all checkpoints together, if that is more, "
     "so that islands that were away, or join, catch up from them."},
    {"storage", "ledger_versions", CONF_INT, AT(ledger_versions), "0", 0, 1e6, NULL, "versions",
     "And of how many versions of a fragment at most; 0: 2 to 1024, those whose results are together no larger than "
     "the state: who fetches that goes on from it by the results that have come since."},
    {"storage", "ledger_segment", CONF_BYTES, AT(ledger_segment), "64MiB", 65536, 1e12, NULL, "B",
     "Size of one ledger file; old ones are removed whole."},
    {"storage", "jobs", CONF_INT, AT(job_threads), "0", 0, 64, NULL, "threads",
     "Threads that encode, average and apply; 0: a quarter of the processors this machine lets the daemon use, 2 to 8. "
     "The result does not depend on their number."},
    {"storage", "nice", CONF_INT, AT(job_nice), "5", 0, 19, NULL, NULL,
     "How far these threads stand back where processors are short, as nice(1) has it: a trainer on the same processors "
     "then loses less, and rounds take longer."},
};

const struct conf_schema dconf_schema = {
    .keys = keys,
    .keys_count = sizeof keys / sizeof keys[0],
    .struct_bytes = sizeof(struct dconf),
    .gone_section = "peer",
    .gone_remedy = "a configuration lists no other islands any more: take these sections out; the island that founds "
                   "the run makes a token for each other one (dilococtl invite), which joins by it (dilococtl join "
                   "TOKEN); to dial one at another address than it says, set [net] reach",
};

bool dconf_name_good(const char *name)
{
    return config_name_good(name);
}

const char *dconf_address(const struct dconf *conf)
{
    static const char *const everywhere[] = {"*:", "0.0.0.0:", "[::]:"};
    if (conf->address[0] != '\0')
        return conf->address;
    for (size_t i = 0; i < sizeof everywhere / sizeof everywhere[0]; i++)
        if (strncmp(conf->listen, everywhere[i], strlen(everywhere[i])) == 0)
            return "";
    return address_good(conf->listen) ? conf->listen : "";
}

enum config_owner_choice dconf_owner_choice(const struct dconf *conf)
{
    uint8_t choice = (uint8_t)conf->owner;
    return conf->listen[0] == '\0' ? config_owner_undialled(choice) : choice;
}

bool dconf_is_ours(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash != NULL ? slash + 1 : program, "diloco-worker") == 0;
}

/* It trains on nothing, whatever the default program is. */
static enum err make_witness(const char *path, struct dconf *conf)
{
    if (conf->data[0] != '\0')
        return err_set(ERR_CONF,
                       "%s: [worker] data: a witness trains on nothing; take it out, or [island] witness = yes", path);
    if (conf->owner == CONFIG_OWNER_YES)
        return err_set(ERR_CONF, "%s: [island] owner: a witness owns nothing; take it out, or witness = yes", path);
    mem_free(conf->worker_program);
    conf->worker_program = NULL;
    return mem_strdup("", &conf->worker_program);
}

/* Of our trainer: it says itself, when it starts, if there is none of that kind. */
static enum err check_device(const char *path, const struct dconf *conf)
{
    static const char *const devices[] = {"cpu", "cuda", "auto"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
        if (strcmp(conf->device, devices[i]) == 0)
            return ERR_OK;
    return err_set(ERR_CONF, "%s: [worker] device: \"%s\" is none; there are: cpu, cuda, auto", path, conf->device);
}

/* `*count`: how many processes it has. */
static enum err count_ranks(const struct dconf *conf, int *count)
{
    int number[DEVICES_MAX];
    *count = (int)conf->ranks;
    return conf->devices[0] != '\0' ? devices_parse("[worker] devices:", conf->devices, number, count) : ERR_OK;
}

static enum err check_ranks(const char *path, const struct dconf *conf)
{
    int count;
    bool listed = conf->devices[0] != '\0';
    if (count_ranks(conf, &count) != ERR_OK)
        return err_prefix(ERR_CONF, "%s", path);
    if (listed && strcmp(conf->device, "cpu") == 0)
        return err_set(ERR_CONF, "%s: [worker] devices: %s names GPUs, but device is cpu; say device = cuda, or ranks",
                       path, conf->devices);
    if (listed && conf->ranks != 1 && conf->ranks != count)
        return err_set(ERR_CONF, "%s: [worker] ranks: %" PRId64 ", but devices %s makes %d; leave one of the two out",
                       path, conf->ranks, conf->devices, count);
    if (count % conf->tensor_parallel == 0)
        return ERR_OK;
    return err_set(ERR_CONF,
                   "%s: [worker] tensor_parallel: %" PRId64 " processes cannot share each layer where %s makes %d in "
                   "all; that has to be a multiple of it",
                   path, conf->tensor_parallel, listed ? "devices" : "ranks", count);
}

enum err dconf_check_trainer(const char *path, const struct dconf *conf)
{
    TRY(check_device(path, conf));
    return check_ranks(path, conf);
}

enum err dconf_starts_ours(const char *line, bool *ours)
{
    struct words words;
    *ours = false;
    TRY(words_split(line, &words));
    *ours = words.count > 0 && dconf_is_ours(words.word[0]);
    words_free(&words);
    return ERR_OK;
}

enum err dconf_check_grid(const struct dconf *conf, const struct runspec *spec)
{
    bool ours;
    int count;
    TRY(dconf_starts_ours(conf->worker_program, &ours));
    if (!ours || !conf->autostart)
        return ERR_OK;
    TRY(count_ranks(conf, &count));
    const struct grid grid = {.ranks = count,
                              .tensor_parallel = conf->tensor_parallel,
                              .ranks_name = "ranks or devices",
                              .tensor_parallel_name = "tensor_parallel"};
    enum err err = grid_check(&grid, spec);
    return err == ERR_OK ? ERR_OK : err_prefix(err, "[worker] %s", conf->devices[0] != '\0' ? "devices" : "ranks");
}

/* For another program than ours the line may mean anything. */
static enum err check_data(const char *path, const struct dconf *conf)
{
    struct mixture mixture;
    enum err err = mixture_parse(conf->data, NULL, &mixture);
    if (err == ERR_OK) {
        err = mixture_check(&mixture);
        mixture_free(&mixture);
    }
    return err == ERR_OK ? ERR_OK : err_prefix(err, "%s: [worker] data", path);
}

static enum err check_program(const char *path, const struct dconf *conf)
{
    bool ours;
    enum err err = dconf_starts_ours(conf->worker_program, &ours);
    if (err != ERR_OK)
        return err_prefix(err, "%s: [worker] program", path);
    if (conf->autostart && conf->data[0] == '\0' && ours)
        return err_set(ERR_CONF, "%s: [worker] data: missing; give the path of the corpus, or autostart = no", path);
    if (!ours)
        return ERR_OK;
    TRY(check_data(path, conf));
    return dconf_check_trainer(path, conf);
}

/* What is this island's own, beyond what the table of keys can say. */
static enum err check_self(const char *path, const struct dconf *conf)
{
    struct sockaddr_un address;
    char *control;
    if (!dconf_name_good(conf->name))
        return err_set(ERR_CONF, "%s: the name \"%s\" must be 1 to %d letters, digits, '-' or '_'", path, conf->name,
                       DCONF_NAME_MAX);
    if (conf->listen[0] != '\0' && !address_listen_good(conf->listen, 0))
        return err_set(ERR_CONF, "%s: [net] listen: \"%s\" is not host:port, as in *:7600", path, conf->listen);
    if (conf->address[0] != '\0' && !address_good(conf->address))
        return err_set(ERR_CONF, "%s: [net] address: \"%s\" is not host:port, as in oslo.example.org:7600", path,
                       conf->address);
    if (conf->listen[0] == '\0' && conf->owner == CONFIG_OWNER_YES)
        return err_set(
            ERR_CONF,
            "%s: [island] owner = yes, and [net] listen is empty: an island that nobody can dial owns nothing "
            "beside two others; let it listen, or leave owner = auto",
            path);
    TRY(mem_printf(&control, "%s/control.sock", conf->run_folder));
    enum err err = ipc_address(control, &address);
    mem_free(control);
    if (err != ERR_OK)
        return err_prefix(err, "%s: [island] sockets", path);
    return check_program(path, conf);
}

/* ---- ways to others ---- */

/* NAME=HOST:PORT, of so many bytes. */
static enum err parse_way(const char *text, size_t bytes, bool first, struct view_way *way)
{
    const char *equals = memchr(text, '=', bytes);
    size_t name_bytes = equals != NULL ? (size_t)(equals - text) : 0;
    size_t address_bytes = equals != NULL ? bytes - name_bytes - 1 : 0;
    *way = (struct view_way){.first = first};
    if (name_bytes < sizeof way->name && address_bytes < sizeof way->address) {
        memcpy(way->name, text, name_bytes);
        memcpy(way->address, text + name_bytes + (equals != NULL), address_bytes);
    }
    if (dconf_name_good(way->name) && address_good(way->address))
        return ERR_OK;
    return err_set(ERR_CONF, "[net] %s: \"%.*s\" is not NAME=HOST:PORT, as in oslo=oslo.example.org:7600",
                   first ? "reach" : "inviter", (int)(bytes < 100 ? bytes : 100), text);
}

static enum err add_ways(const char *text, bool first, struct view_way **ways, size_t *count)
{
    static const char blanks[] = " \t";
    for (text += strspn(text, blanks); *text != '\0'; text += strspn(text, blanks)) {
        size_t bytes = strcspn(text, blanks);
        TRY(mem_grow(ways, *count, *count + 1, sizeof **ways, "ways to others"));
        TRY(parse_way(text, bytes, first, &(*ways)[(*count)++]));
        text += bytes;
    }
    return ERR_OK;
}

enum err dconf_ways(const struct dconf *conf, struct view_way **out, size_t *out_count)
{
    *out = NULL;
    *out_count = 0;
    enum err err = add_ways(conf->reach, true, out, out_count);
    if (err == ERR_OK)
        err = add_ways(conf->inviter, false, out, out_count);
    if (err != ERR_OK)
        mem_free(*out);
    return err;
}

static enum err check(const char *path, const struct dconf *conf)
{
    struct view_way *ways;
    size_t count;
    TRY(check_self(path, conf));
    enum err err = dconf_ways(conf, &ways, &count);
    if (err != ERR_OK)
        return err_prefix(err, "%s", path);
    mem_free(ways);
    return ERR_OK;
}

static void find_folder(const char *path, struct dconf *conf)
{
    char copy[PATH_MAX], whole[PATH_MAX];
    conf->folder[0] = '\0';
    snprintf(copy, sizeof copy, "%s", path);
    if (realpath(dirname(copy), whole) != NULL && strlen(whole) < sizeof conf->folder)
        memcpy(conf->folder, whole, strlen(whole) + 1);
}

const char *dconf_trainer_folder(const struct dconf *conf)
{
    return conf->worker_folder[0] != '\0' ? conf->worker_folder : conf->folder;
}

enum err dconf_program(const struct dconf *conf, const char *name, char **out)
{
    const char *folder = dconf_trainer_folder(conf);
    bool from_folder = name[0] != '/' && strchr(name, '/') != NULL && folder[0] != '\0';
    if (!from_folder)
        return mem_strdup(name, out);
    TRY(mem_printf(out, "%s/%s", folder, name));
    if (access(*out, F_OK) == 0)
        return ERR_OK;
    mem_free(*out);
    return mem_strdup(name, out);
}

static enum err load(const struct conf_schema *schema, const char *path, const struct conf_override *overrides,
                     size_t overrides_count, struct dconf *conf)
{
    TRY(conf_load(schema, path, overrides, overrides_count, conf));
    find_folder(path, conf);
    enum err err = conf->witness ? make_witness(path, conf) : ERR_OK;
    if (err == ERR_OK)
        err = check(path, conf);
    if (err != ERR_OK)
        conf_deinit(&dconf_schema, conf);
    return err;
}

enum err dconf_load(const char *path, const struct conf_override *overrides, size_t overrides_count, struct dconf *conf)
{
    return load(&dconf_schema, path, overrides, overrides_count, conf);
}

/* ---- an island in a folder ---- */

enum { KEYS_COUNT = sizeof keys / sizeof keys[0] };

/* The keys, with what a folder has of its own for defaults; these are borrowed from `home`. */
static struct conf_schema schema_in(const struct home *home, struct conf_key in_home[KEYS_COUNT])
{
    const struct {
        const char *name, *path;
    } own[] = {{"run", home->run}, {"key", home->key}, {"state", home->state}, {"sockets", home->sockets}};
    struct conf_schema schema = dconf_schema;
    memcpy(in_home, keys, sizeof keys);
    schema.keys = in_home;
    for (size_t i = 0; home->folder != NULL && i < KEYS_COUNT; i++)
        for (size_t k = 0; k < sizeof own / sizeof own[0]; k++)
            if (strcmp(keys[i].section, "island") == 0 && strcmp(keys[i].name, own[k].name) == 0)
                in_home[i].initial = own[k].path;
    return schema;
}

enum err dconf_load_home(const struct home *home, const char *path, const struct conf_override *overrides,
                         size_t overrides_count, struct dconf *conf)
{
    struct conf_key in_home[KEYS_COUNT];
    struct conf_schema schema = schema_in(home, in_home);
    TRY(load(&schema, path != NULL ? path : home->conf, overrides, overrides_count, conf));
    conf->in_home = home->folder != NULL;
    return ERR_OK;
}

void dconf_print(const struct home *home, const struct dconf *conf, FILE *file)
{
    struct conf_key in_home[KEYS_COUNT];
    struct conf_schema schema = schema_in(home, in_home);
    conf_print(&schema, conf, true, file);
}
