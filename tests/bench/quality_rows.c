/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/quality.h"

/* A byte-level model small enough that a run takes minutes on one core. */
const char quality_base[] = "[run]\nname = quality\nsteps = 4020\n"
                            "[model]\nwidth = 64\nlayers = 4\nheads = 4\nff = 176\ncontext = 128\n"
                            "[data]\nformat = bytes\nheld_out = 0.05\n"
                            "[train]\nbatch = 4\nlr = 3e-3\nlr_final = 0.1\nwarmup = 100\n"
                            "[sync]\ninterval = 30\nlayers_per_fragment = 1\noverlap = 1\nmix = 0.5\ncodec = fp32\n"
                            "error_feedback = no\n";

enum { SHORT = 1005, MIDDLE = 2010, LONG = 4020, DOUBLE = 8040 };

#define FEEDBACK "sync.error_feedback=yes", "sync.feedback_limit=0.7"
#define PARALLEL "data-parallel"
#define STREAM "streaming fp32"

/* Two islands at full length; what differs from that is written out. */
#define ROW(name, group, ...)                                          \
    {                                                                  \
        name, group, STREAM, PARALLEL, 2, LONG, {.data = NULL}, false, \
        {                                                              \
            __VA_ARGS__                                                \
        }                                                              \
    }
#define CODEC(name, ...)                                                             \
    {name, "codec", STREAM, PARALLEL, 2, LONG, {.data = NULL}, true, {__VA_ARGS__}}, \
    {                                                                                \
        name " feedback", "codec", STREAM, PARALLEL, 2, LONG, {.data = NULL}, false, \
        {                                                                            \
            __VA_ARGS__, FEEDBACK                                                    \
        }                                                                            \
    }
#define WITH(flag, name, group, ...)                           \
    {                                                          \
        name, group, STREAM, PARALLEL, 2, LONG, {flag}, false, \
        {                                                      \
            __VA_ARGS__                                        \
        }                                                      \
    }
/* Data-parallel and streaming at a length and number of islands of their own. */
#define AT(label, name, islands, steps, flag, ...)                                           \
    {                                                                                        \
        name label, "baseline", STREAM label, PARALLEL label, islands, steps, {flag}, false, \
        {                                                                                    \
            __VA_ARGS__                                                                      \
        }                                                                                    \
    }
#define PAIR(label, islands, steps)                                   \
    AT(label, PARALLEL, islands, steps, .data_parallel = true, NULL), \
        AT(label, STREAM, islands, steps, .data = NULL, NULL),        \
        AT(label, "e3m0", islands, steps, .data = NULL, "sync.codec=e3m0", FEEDBACK)

/* A quarter of the length, against what trainers do. */
#define MOMENTS(name, ...)                                                               \
    {                                                                                    \
        name, "moments", "moments kept", NULL, 2, SHORT, {.forget = __VA_ARGS__}, false, \
        {                                                                                \
            NULL                                                                         \
        }                                                                                \
    }

/* With Muon inside, against Muon. */
#define MUON(name, flag, ...)                                               \
    {                                                                       \
        name, "gap", "muon", "data-parallel, muon", 2, LONG, {flag}, false, \
        {                                                                   \
            "train.optimizer=muon", __VA_ARGS__                             \
        }                                                                   \
    }
/* 0.64 million parameters, for texts that nothing was chosen on. The batch is small, for the time it takes; the
 * learning rates that suit it were looked for on C headers. */
#define THIN(name, flag, ...)                                                                 \
    {                                                                                         \
        name, "thin", NULL, "muon 6e-3, 0.64M", 2, 3000, {flag}, false,                       \
        {                                                                                     \
            "model.width=128", "model.layers=3", "model.ff=352", "train.batch=2", __VA_ARGS__ \
        }                                                                                     \
    }
#define REAL "sync.codec=e3m0", FEEDBACK, "sync.late=wait", "sync.pace=lockstep"
#define CO2 "outer.optimizer=heavyball", "outer.lr=1", "outer.momentum=0.2", "sync.overlap=30", "sync.mix=0"

const struct quality_row quality_rows[] = {
    {PARALLEL, "baseline", NULL, PARALLEL, 2, LONG, {.data_parallel = true}, false, {NULL}},
    ROW(STREAM, "baseline", NULL),
    /* The same twice: in one process, and with real daemons. */
    WITH(.flush = true, "e3m0 to the last step", "baseline", REAL),
    WITH(.field = true, "e3m0 to the last step, daemons", "baseline", REAL),
    ROW("blocking fp32", "baseline", "sync.offsets=zero", "sync.overlap=0", "sync.mix=0"),
    PAIR(", quarter length", 2, SHORT),
    PAIR(", half length", 2, MIDDLE),
    PAIR(", double length", 2, DOUBLE),
    PAIR(", 4 islands", 4, MIDDLE),
    PAIR(", 8 islands", 8, SHORT),
    ROW("streaming tau 5", "overlap", "sync.overlap=5"),
    ROW("streaming tau 10", "overlap", "sync.overlap=10"),

    CODEC("bf16", "sync.codec=bf16"),
    CODEC("int8", "sync.codec=int8"),
    CODEC("e3m0", "sync.codec=e3m0"),
    CODEC("int4", "sync.codec=int4"),
    CODEC("int2", "sync.codec=int2"),
    CODEC("ternary", "sync.codec=ternary"),
    CODEC("uniform 0.7", "sync.codec=uniform", "sync.step=0.7"),
    CODEC("uniform 1.4", "sync.codec=uniform"),
    CODEC("uniform 2", "sync.codec=uniform", "sync.step=2"),
    CODEC("topk 1/64", "sync.codec=topk"),
    CODEC("powersgd 4", "sync.codec=powersgd"),

    ROW("adaptive 1.4", "codec", "sync.codec=adaptive"),
    ROW("adaptive 2, feedback", "codec", "sync.codec=adaptive", "sync.step=2", "sync.error_feedback=yes"),

    ROW("uniform 2, no limit", "feedback", "sync.codec=uniform", "sync.step=2", "sync.error_feedback=yes",
        "sync.feedback_limit=0"),
    ROW("uniform 2, limit 0.5", "feedback", "sync.codec=uniform", "sync.step=2", "sync.error_feedback=yes",
        "sync.feedback_limit=0.5"),
    ROW("topk, no limit, average, decay", "feedback", "sync.codec=topk", "sync.error_feedback=yes",
        "sync.feedback_limit=0", "sync.feedback_decay=0.95", "outer.optimizer=average"),
    ROW("topk, limit 2, average", "feedback", "sync.codec=topk", "sync.error_feedback=yes", "sync.feedback_limit=2",
        "outer.optimizer=average"),
    ROW("topk 1/8", "feedback", "sync.codec=topk", FEEDBACK, "sync.keep=0.125"),
    ROW("powersgd 4, no limit, average", "feedback", "sync.codec=powersgd", "sync.error_feedback=yes",
        "sync.feedback_limit=0", "outer.optimizer=average"),

    /* The interval grows from the middle of the run on, to 747 steps at its end. */
    ROW("qsr", "intervals", "sync.growth=0.0082"),
    ROW("qsr uncorrected", "intervals", "sync.growth=0.0082", "sync.growth_correction=no"),
    ROW("qsr average", "intervals", "sync.growth=0.0082", "outer.optimizer=average"),
    ROW("interval 43", "intervals", "sync.interval=43"), /* as many rounds as qsr */
    ROW("interval 50", "intervals", "sync.interval=50"),
    ROW("interval 100", "intervals", "sync.interval=100"),

    ROW("overlap of a whole interval", "co2", "sync.overlap=30", "sync.mix=0"),
    ROW("co2 without remedies", "co2", CO2),
    ROW("co2 clip", "co2", CO2, "outer.clip=0.01"),
    ROW("co2 penalty", "co2", CO2, "outer.staleness_penalty=yes"),
    ROW("co2 penalty and clip", "co2", CO2, "outer.staleness_penalty=yes", "outer.clip=0.01"),
    ROW("eager", "co2", "sync.overlap=30", "sync.mix=0", "sync.eager=yes"),
    ROW("eager average", "co2", "sync.overlap=30", "sync.mix=0", "sync.eager=yes", "outer.optimizer=average"),
    ROW("overlap of a whole interval, half kept", "co2", "sync.overlap=30"),

    WITH(.own_parts = true, "own part of the text each", "islands", NULL),
    WITH(.drop = 0.1, "10 % dropped", "islands", NULL),
    WITH(.drop = 0.3, "30 % dropped", "islands", NULL),
    WITH(.drop = 0.5, "50 % dropped", "islands", NULL),
    WITH(.slow = 4, "one island four times slower", "islands", NULL),

    /* What a mix does to the moments of the inner optimizer. */
    MOMENTS("moments kept", {0, 0}),
    MOMENTS("moments reset at a mix", {1, 1}),
    MOMENTS("first moment reset at a mix", {1, 0}),
    MOMENTS("first moment halved at a mix", {0.5, 0}),

    /* What closes the gap to data-parallel. */
    MUON("data-parallel, muon", .data_parallel = true, NULL),
    MUON("muon", .data = NULL, NULL),
    MUON("muon, interval 100, uniform 1.4", .data = NULL, "sync.interval=100", "sync.codec=uniform", "outer.lr=0.7"),
    ROW("outer lr 0.7", "gap", "outer.lr=0.7"),
    ROW("average", "gap", "outer.optimizer=average"),
    ROW("average 20 first", "gap", "outer.average=20", "outer.warmup=20"),
    ROW("warm start", "gap", "sync.warm_steps=300", "sync.warm_interval=5", "outer.average=60"),
    ROW("interval 50, uniform 1.4", "gap", "sync.interval=50", "sync.codec=uniform"),
    ROW("interval 100, uniform 1.4", "gap", "sync.interval=100", "sync.codec=uniform"),
    ROW("interval 100, uniform 1.4, warm", "gap", "sync.interval=100", "sync.codec=uniform", "sync.warm_steps=300",
        "sync.warm_interval=10", "outer.average=30"),
    ROW("interval 100, outer lr 0.7", "gap", "sync.interval=100", "outer.lr=0.7"),
    ROW("interval 150, uniform 1.4", "gap", "sync.interval=150", "sync.codec=uniform"),
    ROW("interval 150, uniform 1.4, warm", "gap", "sync.interval=150", "sync.codec=uniform", "sync.warm_steps=150",
        "sync.warm_interval=15", "outer.average=10"),
    ROW("interval 150, uniform 2, warm", "gap", "sync.interval=150", "sync.codec=uniform", "sync.step=2",
        "sync.error_feedback=no", "sync.warm_steps=150", "sync.warm_interval=15", "outer.average=10"),
    ROW("interval 150, outer lr 0.7, uniform 1.4", "gap", "sync.interval=150", "sync.codec=uniform", "outer.lr=0.7"),
    ROW("interval 200, uniform 1.4", "gap", "sync.interval=200", "sync.codec=uniform"),
    ROW("interval 100, outer lr 0.7, uniform 1.4", "gap", "sync.interval=100", "sync.codec=uniform", "outer.lr=0.7"),
    ROW("interval 200, outer lr 0.7, uniform 1.4", "gap", "sync.interval=200", "sync.codec=uniform", "outer.lr=0.7"),
    ROW("interval 500, outer lr 0.7, uniform 1.4", "gap", "sync.interval=500", "sync.codec=uniform", "outer.lr=0.7"),

    /* conf/thin.ini against data-parallel training. */
    THIN("muon, interval 200, uniform 1.7", .data = NULL, "train.lr=6e-3", "train.optimizer=muon", "sync.interval=200",
         "sync.codec=uniform", "sync.step=1.7", "outer.lr=0.7", "outer.momentum=0.6"),
    THIN("muon 6e-3, 0.64M", .data_parallel = true, "train.lr=6e-3", "train.optimizer=muon"),
    THIN("muon 3e-3, 0.64M", .data_parallel = true, "train.lr=3e-3", "train.optimizer=muon"),
    THIN("adamw 7.5e-4, 0.64M", .data_parallel = true, "train.lr=7.5e-4"),
    THIN("adamw 1.5e-3, 0.64M", .data_parallel = true, "train.lr=1.5e-3"),
    THIN("adamw 3e-3, 0.64M", .data_parallel = true, "train.lr=3e-3"),
    THIN("adamw 6e-3, 0.64M", .data_parallel = true, "train.lr=6e-3"),
    THIN("default, 0.64M", .data = NULL, "train.lr=1.5e-3", "sync.codec=uniform"),
};
const size_t quality_rows_count = sizeof quality_rows / sizeof quality_rows[0];
