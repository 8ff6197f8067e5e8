/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctl_print: a daemon's answers for people, with the marks of ctl_text. The JSON form is for scripts; this one may
 * change.
 */
#ifndef DAEMON_CTL_CTL_PRINT_H
#define DAEMON_CTL_CTL_PRINT_H

#include <jansson.h>
#include <stdio.h>

#include "daemon/ctl/ctl_text.h"

void ctl_print_status(const json_t *status, const struct ctl_text_look *look, FILE *file);
/* What its trainer does, in a word, or whom it waits for. */
void ctl_print_state(const json_t *status, FILE *file);
/* What its trainer runs on, as far as that says so: a line of it. */
void ctl_print_machine(const json_t *status, const struct ctl_text_look *look, FILE *file);
void ctl_print_peers(const json_t *answer, const struct ctl_text_look *look, FILE *file);
/* The members' keys, uplinks and addresses, for comparing islands. */
void ctl_print_members(const json_t *answer, const struct ctl_text_look *look, FILE *file);
void ctl_print_fragments(const json_t *answer, const struct ctl_text_look *look, FILE *file);

/* A status in a line for a monitor, and one more for each event after the first. */
void ctl_print_check(const json_t *status, const struct ctl_text_look *look, FILE *file);

#endif
