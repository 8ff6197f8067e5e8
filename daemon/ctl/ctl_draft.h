/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_draft: the files of dilococtl init: an island's configuration file from a few answers, and a run spec to begin
 * with.
 *
 * Pure: no file, no clock. Texts are the caller's to mem_free().
 */
#ifndef DAEMON_CTL_CTL_DRAFT_H
#define DAEMON_CTL_CTL_DRAFT_H

#include <stdbool.h>

#include "common/err.h"
#include "common/runspec.h"

struct ctl_draft {
    const char *name, *data; /* data: an absolute path or pattern; NULL: it is a witness */
    bool witness;
    const char *listen;
    const char *uplink;  /* NULL: the default */
    const char *address; /* where the others reach this island; NULL: nobody said */
    const char *owner;   /* auto, yes or no; NULL: the default */
    /* Of the trainer; NULL: the default, and `devices` alone are of cuda. */
    const char *program, *device, *devices, *ranks, *tensor_parallel;
    bool other_base;                   /* its trainer may build upon another frozen base than the run's */
    const struct runspec *spec;        /* whose model and batch its ranks are to share out; NULL: nobody knows it yet */
    const char *key, *state, *sockets; /* relative to the configuration's folder, or absolute */
    const char
        *founded; /* file of the random bytes of the run that this island founds, relative or absolute; or NULL */
    /* Of an island that joins a run; NULL: this one begins a run. */
    const char *joined;                         /* file of its configuration, relative or absolute */
    const char *inviter_name, *inviter_address; /* where it was reached */
};

/* The configuration, with help for the keys that are likely to be changed. The run spec stands beside it, as
 * run.ini. ERR_CONF: a value that will not do, or that no configuration can hold. */
ERR_MUST_CHECK enum err ctl_draft_conf(const struct ctl_draft *draft, char **text);

/* The run spec that conf/run.ini shows. */
ERR_MUST_CHECK enum err ctl_draft_run(char **text);
/* What it says beside the defaults. */
extern const char ctl_draft_sample[];
/* Gives a run spec another length: `*text` is freed and replaced, its other lines stay as they are. ERR_CONF: it has no
 * line with its steps, or they will not do. */
ERR_MUST_CHECK enum err ctl_draft_set_steps(char **text, const char *steps);
/* One that was made for a model. */
ERR_MUST_CHECK enum err ctl_draft_run_of(const struct runspec *spec, char **text);

#endif
