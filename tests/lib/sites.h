/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sites: machines that share nothing but a network: each a network namespace with an address of its own, and a mount
 * namespace in which one folder is its own. Every line is slow (a token bucket at both ends of a veth pair), and all
 * meet at a bridge in the namespace that we are in. A site lives as long as a process that holds it.
 *
 * Needs root, or a kernel that lets users make user namespaces, and `ip` and `tc`. No cmocka here.
 */
#ifndef TESTS_LIB_SITES_H
#define TESTS_LIB_SITES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SITES_MAX = 8 };

/* `count` sites, after wan_enter(). `folder` is there, and empty for each of them; `log`: a file for what goes wrong.
 * False: `why`; what was begun ends with us, as all of them do. */
bool sites_begin(int count, uint64_t rate_bits, const char *folder, const char *log, char *why, size_t why_bytes);

/* The process that holds a site, for proc_start_in(); its address. */
int sites_space(int site);
const char *sites_host(int site);
/* Cuts a site off, without a word to anybody, or mends its line. */
bool sites_cut(int site, bool cut);
void sites_end(void);

#endif
