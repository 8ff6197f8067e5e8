/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dconf: the daemon's configuration file (dilocod.conf). It does not list the run's members: the run's configurations
 * do.
 *
 * One table of keys (dconf_schema) defines everything; conf/dilocod.conf is the manual. Read once at start.
 */
#ifndef DAEMON_DCONF_H
#define DAEMON_DCONF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/conf.h"
#include "common/err.h"
#include "common/runspec.h"
#include "daemon/home.h"
#include "daemon/supervisor.h"
#include "net/transport/ident.h"
#include "net/config/view.h"
#include "net/transport/wire.h"

enum { DCONF_FOLDER_BYTES = 1024 };
struct dconf {
    char *name, *run_path, *state_folder, *run_folder, *key_path, *listen, *address, *inviter, *reach, *congestion;
    char *joined, *founded;
    uint64_t uplink;
    uint64_t rate_limit, window, away_ms;
    bool compress_auto;
    int64_t io_threads, job_threads, job_nice, ledger_versions; /* job_threads: as processors_jobs() has it */

    char *worker_program, *worker_folder, *worker_group, *data, *stream, *device, *devices;
    bool autostart, allow_other_base;
    uint64_t stop_ms, hang_ms;
    int64_t units, ranks, tensor_parallel, threads, checkpoint_every, eval_every;

    uint64_t checkpoint_ms, ledger_keep, ledger_segment;
    int log_level;
    int owner; /* enum config_owner_choice */
    bool witness;
    bool in_home;                    /* dconf_load_home(): of an island in a folder */
    bool until_over;                 /* it ends with its run; dilocod fills it in */
    struct supervised supervised;    /* what started this daemon; dilocod fills it in */
    char folder[DCONF_FOLDER_BYTES]; /* where the file lies, absolute; "": not known */
};

extern const struct conf_schema dconf_schema;

/* An island's name: 1 to DCONF_NAME_MAX letters, digits, '-' or '_'. */
enum { DCONF_NAME_MAX = WIRE_NAME_BYTES - 1 };
bool dconf_name_good(const char *name);

/* Whether this island is to own shards (enum config_owner_choice): `owner` of the file; without `listen` nobody can
 * dial it, which it says instead. */
enum config_owner_choice dconf_owner_choice(const struct dconf *conf);
/* Where it says that others reach this island: [net] address, or `listen` where that names a host and a port; "": it
 * does not say. Borrowed. */
const char *dconf_address(const struct dconf *conf);

/* Reads and checks; ERR_CONF names file, line, key and remedy. Free with conf_deinit(&dconf_schema, ...). */
ERR_MUST_CHECK enum err dconf_load(const char *path, const struct conf_override *overrides, size_t overrides_count,
                                   struct dconf *conf);

/* The same for the island of `home`: what the file does not say of key, run spec, state and sockets is as
 * daemon/home.h has it of a folder; of the service as of dconf_load(). `path`: NULL: the home's own. */
ERR_MUST_CHECK enum err dconf_load_home(const struct home *home, const char *path,
                                        const struct conf_override *overrides, size_t overrides_count,
                                        struct dconf *conf);
/* As conf_print() with help, with the defaults of that home. */
void dconf_print(const struct home *home, const struct dconf *conf, FILE *file);

/* Whether a program is diloco-worker, in whatever folder: the trainer that takes all else of [worker]. */
bool dconf_is_ours(const char *program);
/* Whether a line as [worker] program starts that one; an empty line starts none. ERR_CONF: a quote is left open. */
ERR_MUST_CHECK enum err dconf_starts_ours(const char *line, bool *ours);

/* Where a trainer of one's own runs: as [worker] folder says, or where the file lies; "": not known. Borrowed. */
const char *dconf_trainer_folder(const struct dconf *conf);
/* A program that [worker] names, as program_find() takes it: one with a slash is in the folder of the file, or
 * else meant from where we run.
 * mem_free() `*out`. */
ERR_MUST_CHECK enum err dconf_program(const struct dconf *conf, const char *name, char **out);

/* What dconf_load() asks of device, devices, ranks and tensor_parallel where our trainer is the program. `path` stands
 * before it in an error. ERR_CONF. */
ERR_MUST_CHECK enum err dconf_check_trainer(const char *path, const struct dconf *conf);
/* Whether our trainer, which is to start by itself, has ranks that can share out the run's model and batch; of any
 * other nothing is known. ERR_CONF. */
ERR_MUST_CHECK enum err dconf_check_grid(const struct dconf *conf, const struct runspec *spec);

/* The ways to others that it knows: those of [net] reach, then that to the inviter. mem_free() the array. ERR_CONF:
 * names the key and the text that is no way. */
ERR_MUST_CHECK enum err dconf_ways(const struct dconf *conf, struct view_way **out, size_t *out_count);

#endif
