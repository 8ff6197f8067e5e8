/* SPDX-License-Identifier: Apache-2.0 */
/*
 * founding: how an island comes into its run: the first configuration of one that it founds, whose only member it is,
 * with what is drawn at random for it; or the configuration by which it joined one.
 *
 * The run's nonce is made of what was drawn: an island that founds another run, with the same name, key and run spec,
 * founds another one, and what it signed in the run before proves nothing there. Blocking; any thread.
 */
#ifndef DAEMON_FOUNDING_H
#define DAEMON_FOUNDING_H

#include <stdint.h>

#include "common/err.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "net/config/config.h"
#include "net/transport/ident.h"

enum { FOUNDING_BYTES = 16 };

/* Draws it, and puts it into the file: 32 hexadecimal digits and a line's end. */
ERR_MUST_CHECK enum err founding_draw(const char *path);
/* ERR_CONF: there is no such file, or something else in it, with the remedy. */
ERR_MUST_CHECK enum err founding_read(const char *path, uint8_t out[FOUNDING_BYTES]);

/* Configuration 0 of the run that this island founds: its owner and voter is this island, with what it says of itself.
 * Where the configuration names no file of what was drawn, that lies in the state folder, and is drawn here. ERR_CONF:
 * it is to be a witness; as of founding_read(). config_deinit() it; on failure it is empty. */
ERR_MUST_CHECK enum err founding_config(const struct dconf *conf, const struct ident *ident, const struct runspec *spec,
                                        struct config *config);

/* The file with the configuration by which an island joined its run: a DECIDED, as dilococtl join was told it. The
 * configuration, and as it was decided: config_deinit() and config_entry_free() them. ERR_NOTFOUND: there is no such
 * file; ERR_PROTO and others: damaged. On failure both are empty. */
ERR_MUST_CHECK enum err founding_read_joined(const char *path, struct config *config, struct config_entry *entry);

#endif
