/* SPDX-License-Identifier: Apache-2.0 */
/*
 * homes: islands in folders of their own, made, joined, looked at, killed and stopped by dilococtl as a person does it.
 * For tests and demonstrations; no cmocka here.
 */
#ifndef TESTS_LIB_HOMES_H
#define TESTS_LIB_HOMES_H

#include <jansson.h>
#include <stdbool.h>

/* What the last command printed, its errors behind it. */
extern char homes_out[1 << 18];

/* Where our programs are; before anything else. Copied. */
void homes_init(const char *programs);

/* From now on the island's commands run in the namespaces of this process, where its folder lies. */
void homes_place(const char *home, int space);

/* HOST:PORT on loopback that nobody listens on; valid until the next call. */
const char *homes_somewhere(void);

/* dilococtl --home HOME ...; arguments up to NULL. Exit status as of proc_run(). */
int homes_run(const char *home, const char *const *arguments);
#define HOMES_RUN(home, ...) homes_run(home, (const char *const[]){__VA_ARGS__, NULL})

/* Its answer to `status` or `peers`; NULL: none. The caller decrefs. */
json_t *homes_ask(const char *home, const char *what);
/* Of `status`; -1: no answer. `part`: NULL or "trainer". */
long long homes_number(const char *home, const char *part, const char *key);
/* "anchors" of `status`, and "state" of its trainer: valid until the next call; "": no answer. */
const char *homes_anchors(const char *home);
const char *homes_trainer(const char *home);
/* The role of an island as this one knows it; "": not on the roster, or no answer. Valid until the next call. */
const char *homes_role(const char *home, const char *name);

/* A new token of this island; NULL: none. Valid until the next call. `expires`: NULL: the default. */
const char *homes_invite(const char *home, const char *expires);

/* Whether it holds within so many seconds. */
bool homes_wait_versions(const char *home, long long versions, double seconds);
bool homes_wait_role(const char *home, const char *name, const char *role, double seconds);
/* Until all hold the same versions and anchors; trainers have to stand still. */
bool homes_wait_same(const char *const *homes, int count, double seconds);

/* Sets a key of its configuration that stands at most once there; for a daemon that is not started yet. */
bool homes_configure(const char *home, const char *section, const char *key, const char *value);

/* The processes that run there: the daemon, and who starts it again when it dies; 0: none. */
int homes_daemon(const char *home);
int homes_supervisor(const char *home);
/* Supervisor, daemon and trainer, by SIGKILL; waits until they are gone. */
void homes_kill(const char *home);
/* rm -r of what the daemon keeps. */
void homes_empty_state(const char *home);

#endif
