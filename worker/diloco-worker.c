/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diloco-worker: the trainer's command line.
 *
 * Exit status: 0 done (also: interrupted and saved), 1 failed, 2 wrong usage, configuration or data, or something named
 * there that is not to be found: a file, a device.
 */
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/args.h"
#include "common/commands.h"
#include "common/complete.h"
#include "common/devices.h"
#include "common/digest.h"
#include "common/grid.h"
#include "common/log.h"
#include "common/origin.h"
#include "common/processors.h"
#include "worker/ckpt.h"
#include "worker/launch.h"
#include "worker/sample.h"
#include "worker/train.h"

static sigset_t stop_signals;
static bool stopped;

/* SIGINT and SIGTERM stay blocked and are asked for. A handler would run on whatever thread they hit, and some of
 * oneDNN's kernels use the stack pointer as a number meanwhile: its frame would be written over the heap. */
static void block_stop_signals(void)
{
    sigemptyset(&stop_signals);
    sigaddset(&stop_signals, SIGINT);
    sigaddset(&stop_signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop_signals, NULL);
}

static bool interrupted(void)
{
    static const struct timespec at_once;
    stopped = stopped || sigtimedwait(&stop_signals, NULL, &at_once) > 0;
    return stopped;
}

/* Threads that wait for each other are to sleep, unless the environment says what they shall do. By themselves they go
 * round and round first, and where several programs share the cores that is the time which the others' threads wait
 * for: trainers then crawl, at a tenth or a hundredth of their speed. OpenMP's runtime reads the environment before
 * main() begins, so that this takes another beginning; without one (there may be no /proc) all goes on as it is. */
static void wait_asleep(char **argv)
{
    static const char *const said_by[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};
    char program[PATH_MAX];
    for (size_t i = 0; i < sizeof said_by / sizeof said_by[0]; i++)
        if (getenv(said_by[i]) != NULL)
            return;
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes <= 0 || setenv(said_by[0], "passive", 1) != 0)
        return;
    program[bytes] = '\0';
    execv(program, argv);
}

static const uint64_t NOT_SAID = UINT64_MAX; /* of --ranks */

struct arguments {
    const char *run, *data, *out, *params, *from, *attach, *stream, *device, *devices, *recompute, *rounding, *prompt,
        *tokenizer;
    struct args_list set;
    uint64_t threads, ranks, tensor_parallel, checkpoint_every, eval_every, eval_batches, tokens, seed;
    double temperature, top_p;
    bool help, version, verbose, check;
    struct args_list rest, given;
    const struct args_option *options; /* that there are */
    size_t options_count;
};

static enum err parse_stream(const char *text, struct train_options *options)
{
    unsigned stream, count;
    int end = 0;
    if (text == NULL)
        return ERR_OK;
    if (sscanf(text, "%u/%u%n", &stream, &count, &end) != 2 || text[end] != '\0' || count == 0 || stream >= count)
        return err_set(ERR_ARG, "--stream %s: expected I/N with I from 0 to N - 1", text);
    options->stream_published = true;
    options->stream = stream;
    options->streams_count = count;
    return ERR_OK;
}

static enum err parse_rounding(const char *name, bool *stochastic)
{
    *stochastic = strcmp(name, "stochastic") == 0;
    if (!*stochastic && strcmp(name, "nearest") != 0)
        return err_set(ERR_ARG, "--rounding %s: expected nearest or stochastic", name);
    return ERR_OK;
}

static enum err load_spec(const struct arguments *a, struct runspec *spec)
{
    struct conf_override overrides[ARGS_LIST_MAX];
    for (size_t i = 0; i < a->set.count; i++)
        overrides[i].text = a->set.item[i];
    if (a->run != NULL)
        return runspec_load(a->run, overrides, a->set.count, spec);
    if (a->params != NULL && a->set.count == 0)
        return ckpt_read_spec(a->params, spec);
    return err_set(ERR_ARG, "--run FILE is missing: the run spec says what to train");
}

static const char default_spec[] = "[run]\nname = my-run\nsteps = 10000\n";

static enum err spec_from(const struct arguments *a, struct runspec *spec)
{
    struct conf_override overrides[ARGS_LIST_MAX];
    struct origin_base base = {.file = a->run,
                               .text = default_spec,
                               .name = "the default",
                               .overrides = overrides,
                               .overrides_count = a->set.count};
    if (a->params != NULL)
        return err_set(ERR_ARG, "--from, and --params: a run begins from one model; leave one of the two out");
    for (size_t i = 0; i < a->set.count; i++)
        overrides[i].text = a->set.item[i];
    return origin_spec(a->from, &base, true, spec);
}
_Static_assert((int)ARGS_LIST_MAX == (int)ORIGIN_OVERRIDES_MAX, "all that a command line takes");

static enum err default_with(const struct arguments *a, struct runspec *spec)
{
    struct conf_override overrides[ARGS_LIST_MAX];
    for (size_t i = 0; i < a->set.count; i++)
        overrides[i].text = a->set.item[i];
    return runspec_parse_with(default_spec, "the default", overrides, a->set.count, spec);
}

/* Without a file: one to begin with, every key at its default. */
static enum err print_spec(const struct arguments *a)
{
    struct runspec spec;
    if (a->from != NULL)
        TRY(spec_from(a, &spec));
    else if (a->run == NULL && a->params == NULL)
        TRY(default_with(a, &spec));
    else
        TRY(load_spec(a, &spec));
    conf_print(&runspec_schema, &spec, true, stdout);
    runspec_deinit(&spec);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* ---- several ranks ---- */

_Static_assert((int)DEVICES_MAX == (int)GROUP_RANKS_MAX, "as many devices as ranks");

static enum err check_grid(const struct arguments *a, const struct runspec *spec, int count)
{
    const struct grid grid = {.ranks = count,
                              .tensor_parallel =
                                  a->tensor_parallel <= INT64_MAX ? (int64_t)a->tensor_parallel : INT64_MAX,
                              .ranks_name = "--ranks or --devices",
                              .tensor_parallel_name = "--tensor-parallel"};
    return grid_check(&grid, spec);
}

/* As many as --devices names, or --ranks says; `*count` 1 without them. */
static enum err find_ranks(const struct arguments *a, const struct runspec *spec, int number[GROUP_RANKS_MAX],
                           int *count)
{
    *count = 1;
    if (a->ranks == 0)
        return err_set(ERR_ARG, "--ranks 0: at least 1");
    if (a->devices != NULL) {
        TRY(devices_parse("--devices", a->devices, number, count));
        if (strcmp(a->device, "cpu") == 0)
            return err_set(ERR_ARG, "--devices %s names GPUs; add --device cuda, or say --ranks", a->devices);
        if (a->ranks != NOT_SAID && a->ranks != (uint64_t)*count)
            return err_set(ERR_ARG, "--ranks %" PRIu64 ", but --devices %s are %d", a->ranks, a->devices, *count);
    } else if (a->ranks != NOT_SAID) { /* all on one device */
        if (a->ranks > GROUP_RANKS_MAX)
            return err_set(ERR_ARG, "--ranks %" PRIu64 ": at most %d", a->ranks, GROUP_RANKS_MAX);
        *count = (int)a->ranks;
    }
    return check_grid(a, spec, *count);
}

/* Whoever names devices means GPUs: without one there is nothing to fall back on. */
static const char *device_of(const struct arguments *a)
{
    return a->devices != NULL && strcmp(a->device, "auto") == 0 ? "cuda" : a->device;
}

/* How many CPU threads a rank takes where nobody says it, of its share of all: each operation wakes them, so one that
 * has little to multiply is slower by more of them. Steps of two layers on two cores of a virtual machine, three runs
 * each, with one thread and with two: 0.11 and 2.3 to 2.6 ms with 4 thousand multiplications in a matrix of a layer
 * (tokens x width x width), 2.7 and 5.0 to 6.2 ms with a million, 4.0 to 5.4 and 6.0 to 7.4 ms with two, 8.1 to 11.2
 * and 9.4 to 10.7 ms with four, 16 and 12 to 15 ms with eight. */
static int threads_worth(const struct runspec *spec, int ranks)
{
    static const int64_t of_each = 1 << 21;
    unsigned processors = processors_here(), share = processors > (unsigned)ranks ? processors / (unsigned)ranks : 1;
    int64_t many = spec->batch * spec->context * spec->width / ranks * spec->width / of_each;
    return many < 1 ? 1 : many < (int64_t)share ? (int)many : (int)share;
}

static enum err train_rank(void *user, const struct launch_rank *rank)
{
    struct train_options options = *(const struct train_options *)user;
    options.rank = rank;
    if (rank->rank > 0)
        log_set_level(LOG_LEVEL_ERROR); /* rank 0 says it for all */
    return train_run(&options);
}

static enum err train_on(const struct arguments *a, struct train_options *options)
{
    int number[GROUP_RANKS_MAX] = {0}, count;
    TRY(find_ranks(a, options->spec, number, &count));
    if (a->check)
        return train_check(options, number[0]);
    options->tensor_parallel = (int)a->tensor_parallel;
    if (options->threads == 0)
        options->threads = threads_worth(options->spec, count);
    struct launch_conf conf = {.ranks = count, .device = options->device, .number = number};
    if (count == 1 && a->devices == NULL)
        return train_run(options);
    return launch_run(&conf, train_rank, options);
}

static enum err train(const struct arguments *a)
{
    struct runspec spec;
    if (a->data == NULL || a->out == NULL)
        return err_set(ERR_ARG, "train needs --run, --data and --out; --help shows the usage");
    struct train_options options = {.spec = &spec,
                                    .data_path = a->data,
                                    .folder = a->out,
                                    .device = device_of(a),
                                    .threads = (int)a->threads,
                                    .socket_path = a->attach,
                                    .checkpoint_every = a->checkpoint_every,
                                    .eval_every = a->eval_every,
                                    .eval_batches = a->eval_batches,
                                    .interrupted = interrupted};
    TRY(parse_stream(a->stream, &options));
    TRY(model_recompute_find(a->recompute, &options.recompute));
    TRY(parse_rounding(a->rounding, &options.stochastic_rounding));
    TRY(load_spec(a, &spec));
    block_stop_signals();
    enum err err = train_on(a, &options);
    runspec_deinit(&spec);
    return err;
}

static enum err eval(const struct arguments *a)
{
    struct runspec spec;
    double loss;
    if (a->data == NULL)
        return err_set(ERR_ARG, "eval needs --data; --help shows the usage");
    TRY(load_spec(a, &spec));
    struct eval_options options = {.spec = &spec,
                                   .params_path = a->params,
                                   .data_path = a->data,
                                   .device = a->device,
                                   .threads = (int)a->threads,
                                   .batches = a->eval_batches > 0 ? a->eval_batches : 1};
    enum err err = train_eval(&options, &loss);
    if (err == ERR_OK)
        printf("%.6f\n", loss);
    runspec_deinit(&spec);
    return err;
}

static enum err sample(const struct arguments *a)
{
    struct runspec spec;
    if (a->params == NULL)
        return err_set(ERR_ARG, "sample needs --params; --help shows the usage");
    TRY(load_spec(a, &spec));
    struct sample_options options = {.spec = &spec,
                                     .params_path = a->params,
                                     .tokenizer_path = a->tokenizer,
                                     .prompt = a->prompt,
                                     .tokens = a->tokens,
                                     .temperature = a->temperature,
                                     .top_p = a->top_p,
                                     .seed = a->seed,
                                     .device = a->device,
                                     .threads = (int)a->threads};
    enum err err = sample_run(&options, stdout);
    runspec_deinit(&spec);
    return err;
}

/* ---- the command line ---- */

static enum err tell_help(const struct arguments *a);
static enum err tell_completion(const struct arguments *a);

/* What a command does not take it refuses: whoever types it means something by it. */
static const struct command {
    const char *name;
    enum err (*run)(const struct arguments *a);
    const char *takes; /* options, with a blank between two, and at both ends */
    const char *usage, *help;
} commands[] = {
    {"train", train,
     " run data out attach stream set device devices ranks tensor-parallel threads recompute rounding checkpoint-every "
     "eval-every eval-batches check verbose ",
     "train --run FILE --data FILE --out FOLDER",
     "train by a run spec, alone or attached to an island's daemon; goes on from FOLDER's last checkpoint"},
    {"eval", eval, " run data params set device threads eval-batches verbose ", "eval --data FILE",
     "print the held-out loss of a checkpoint, an anchor, or (without --params) the initial parameters"},
    {"sample", sample, " run params set device threads tokenizer prompt tokens temperature top-p seed verbose ",
     "sample --params FILE", "print text from a checkpoint or an anchor"},
    {"spec", print_spec, " run params from set verbose ", "spec",
     "print the run spec in force (--run, --params), or one to begin with, with its documentation"},
    {"help", tell_help, " ", "help COMMAND", "tell of one command, as COMMAND --help does"},
    {"completion", tell_completion, " ", "completion bash|zsh|fish",
     "print what makes that shell complete this program's words"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const struct commands_example examples[] = {
    {"train", "diloco-worker train --run conf/demo.ini --data book.txt --out out\n"
              "diloco-worker train --run run.ini --data 'text/*.txt' --out out --device cuda --devices 0-3\n"},
    {"eval", "diloco-worker eval --params out/worker-000001500.safetensors --data book.txt\n"},
    {"sample", "diloco-worker sample --params anchor.safetensors --prompt 'The ' --temperature 0.5\n"},
    {"spec", "diloco-worker spec >run.ini\n"
             "diloco-worker spec --run run.ini --set sync.codec=int8\n"},
    {"help", "diloco-worker help train\n"},
    {"completion", "source <(diloco-worker completion bash)\n"},
};

/* What is said of all that stands in the tables. */
static enum err tell(const struct arguments *a,
                     enum err (*how)(const struct commands *commands, const char *word, FILE *file), const char *word)
{
    struct commands_row rows[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        rows[i] = (struct commands_row){commands[i].name, commands[i].usage, commands[i].help, commands[i].takes};
    const struct commands all = {.program = "diloco-worker",
                                 .about =
                                     "Trains a language model, alone or on an island, and looks at what came of it.",
                                 .rows = rows,
                                 .rows_count = COMMANDS,
                                 .examples = examples,
                                 .examples_count = sizeof examples / sizeof examples[0],
                                 .options = a->options,
                                 .options_count = a->options_count,
                                 .common = " run set verbose version help ",
                                 .set = &runspec_schema};
    return how(&all, word, stdout);
}

static enum err tell_help(const struct arguments *a)
{
    return tell(a, commands_help, a->rest.count > 1 ? a->rest.item[1] : NULL);
}

static enum err tell_completion(const struct arguments *a)
{
    return tell(a, complete_print, a->rest.count > 1 ? a->rest.item[1] : NULL);
}

static enum err refuse_option(const struct command *command, const char *option)
{
    char others[100] = "";
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands_named(commands[i].takes, option))
            snprintf(others + strlen(others), sizeof others - strlen(others), "%s%s", others[0] != '\0' ? ", " : "",
                     commands[i].name);
    return err_set(ERR_ARG, "--%s is for %s, and not for %s; leave it out", option, others, command->name);
}

static enum err run_command(const struct arguments *a, const char **name)
{
    const struct command *command = NULL;
    if (a->rest.count == 0)
        return err_set(ERR_ARG, "give one of train, eval, sample, spec; --help shows the usage");
    *name = a->rest.item[0];
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, *name) == 0)
            command = &commands[i];
    if (command == NULL)
        return tell(a, commands_help, *name); /* which refuses it */
    size_t words_max = command->run == tell_help || command->run == tell_completion ? 2 : 1;
    if (a->rest.count > words_max)
        return err_set(ERR_ARG, "\"%s\" was not expected; usage: diloco-worker %s", a->rest.item[words_max],
                       command->usage);
    for (size_t i = 0; i < a->given.count; i++)
        if (!commands_named(command->takes, a->given.item[i]))
            return refuse_option(command, a->given.item[i]);
    if (a->verbose)
        log_set_level(LOG_LEVEL_DEBUG);
    return command->run(a);
}

static enum err run(int argc, char **argv, const char **command)
{
    struct arguments a = {.device = "cpu",
                          .recompute = "none",
                          .ranks = NOT_SAID,
                          .tensor_parallel = 1,
                          .rounding = "nearest",
                          .prompt = "",
                          .eval_batches = 16,
                          .checkpoint_every = 100,
                          .tokens = 400,
                          .seed = 1,
                          .temperature = 0.8,
                          .top_p = 0.95};
    const struct args_option options[] = {
        {"run", ARGS_STRING, &a.run, "FILE", "run spec (where --params is given, default the one in there)"},
        {"data", ARGS_STRING, &a.data, "FILE",
         "corpus: a file, a quoted glob pattern, or a mixture: \"web=FILE:0.7 code=FILE:0.3\""},
        {"out", ARGS_STRING, &a.out, "FOLDER", "where checkpoints and train.jsonl go"},
        {"params", ARGS_STRING, &a.params, "FILE",
         "a checkpoint or an anchor (.safetensors), or a published model's folder"},
        {"from", ARGS_STRING, &a.from, "MODEL",
         "the model that the run is to begin from: a published one's folder, a checkpoint or an anchor"},
        {"attach", ARGS_STRING, &a.attach, "SOCKET", "the island's daemon; without it, train alone"},
        {"stream", ARGS_STRING, &a.stream, "I/N", "which of N disjoint data streams (default: what the run deals)"},
        {"set", ARGS_LIST, &a.set, "S.KEY=VALUE", "change a run spec value; may be given several times"},
        {"device", ARGS_STRING, &a.device, "cpu|cuda|auto", "auto: cuda where it is to be had (default cpu)"},
        {"devices", ARGS_STRING, &a.devices, "LIST", "a rank on each of these GPUs, as in 0-3,6; with --device cuda"},
        {"ranks", ARGS_U64, &a.ranks, "N", "processes that share out the work (default 1)"},
        {"tensor-parallel", ARGS_U64, &a.tensor_parallel, "N",
         "so many ranks share each layer; the others each batch (default 1)"},
        {"threads", ARGS_U64, &a.threads, "N",
         "CPU threads, of each rank (default: as many as its work is worth, up to all, shared among ranks)"},
        {"recompute", ARGS_STRING, &a.recompute, "none|norms|layer",
         "what is made again instead of kept, to save memory (default none)"},
        {"rounding", ARGS_STRING, &a.rounding, "nearest|stochastic",
         "of the bf16 copy of the weights that products read on a GPU (default nearest)"},
        {"checkpoint-every", ARGS_U64, &a.checkpoint_every, "STEPS", "0 saves at the end only (default 100)"},
        {"eval-every", ARGS_U64, &a.eval_every, "STEPS", "held-out loss on the way (default 0: at the end)"},
        {"eval-batches", ARGS_U64, &a.eval_batches, "N", "batches of an evaluation (default 16)"},
        {"tokenizer", ARGS_STRING, &a.tokenizer, "FILE",
         "a tokenizer.json, for text instead of numbers (default: the one beside --params; none: numbers)"},
        {"prompt", ARGS_STRING, &a.prompt, "TEXT", "what to continue"},
        {"tokens", ARGS_U64, &a.tokens, "N", "how many to generate (default 400)"},
        {"temperature", ARGS_REAL, &a.temperature, "X", "0 takes the likeliest (default 0.8)"},
        {"top-p", ARGS_REAL, &a.top_p, "X", "nucleus (default 0.95)"},
        {"seed", ARGS_U64, &a.seed, "N", "random seed (default 1)"},
        {"check", ARGS_FLAG, &a.check, NULL, "only look whether it could start: at the data and for the device"},
        {"verbose", ARGS_FLAG, &a.verbose, NULL, "log more"},
        {"version", ARGS_FLAG, &a.version, NULL, "print the version"},
        {"help", ARGS_FLAG, &a.help, NULL, "print this; behind a command: tell of that one"},
    };
    a.options = options;
    a.options_count = sizeof options / sizeof options[0];
    TRY(args_parse_given(argc, argv, options, a.options_count, &a.rest, &a.given));
    if (a.version)
        puts("diloco-worker " DILOCO_VERSION);
    else if (a.help)
        return tell(&a, commands_help, a.rest.count > 0 ? a.rest.item[0] : NULL);
    if (a.version)
        return ERR_OK;
    return run_command(&a, command);
}

int main(int argc, char **argv)
{
    const char *command = "diloco-worker";
    wait_asleep(argv);
    log_init("diloco-worker", LOG_LEVEL_INFO);
    signal(SIGPIPE, SIG_IGN);
    enum err err = digest_init();
    if (err == ERR_OK)
        err = run(argc, argv, &command);
    if (err == ERR_OK)
        return 0;
    log_error("%s", err_text());
    return err == ERR_ARG || err == ERR_CONF || err == ERR_NOTFOUND ? 2 : 1;
}
