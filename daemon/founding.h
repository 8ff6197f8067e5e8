/* SPDX-License-Identifier: Apache-2.0 */
/*
 * founding: the configuration with which an island begins: of a run that it founds, the first one, whose only member it
 * is, with the random bytes of that run; of a run that it joined, the one by which it joined.
 *
 * The run's nonce is made of the random bytes: an island that founds another run, with the same name, key and run spec,
 * founds another one, and what it signed in the run before proves nothing there. Blocking; any thread.
 */
#ifndef DAEMON_FOUNDING_H
#define DAEMON_FOUNDING_H

#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "net/config/config.h"
#include "net/config/config_proof.h"
#include "net/transport/ident.h"

enum { FOUNDING_BYTES = 16 };

/* Draws it, and puts it into the file: 32 hexadecimal digits and a line's end. */
ERR_MUST_CHECK enum err founding_draw(const char *path);
/* ERR_CONF: there is no such file, or something else in it, with the remedy. */
ERR_MUST_CHECK enum err founding_read(const char *path, uint8_t out[FOUNDING_BYTES]);

/* Windows that this island's trainer draws in a step from the data that all share: `[worker] units`, or a batch of the
 * run spec; 0: it has data of its own (`[worker] stream`). */
uint32_t founding_units(const struct dconf *conf, const struct runspec *spec);

/* Configuration 0 of the run that this island founds: this island is its only owner and voter. The random bytes come
 * from the file that `[island] founded` names, else from the state folder, where they are drawn now if they are
 * missing. ERR_CONF: the island is to be a witness; other errors as of founding_read(). config_deinit() it; on failure
 * it is empty. */
ERR_MUST_CHECK enum err founding_config(const struct dconf *conf, const struct ident *ident, const struct runspec *spec,
                                        struct config *config);

/* Reads the file with the configuration by which an island joined its run: the payload of the DECIDED that dilococtl
 * join received. Both the configuration and its packed form with votes: config_deinit() and config_entry_free() them.
 * ERR_NOTFOUND: there is no such file; ERR_PROTO and others: it is damaged. On failure both are empty. */
ERR_MUST_CHECK enum err founding_read_joined(const char *path, struct config *config, struct config_entry *entry);

#endif
