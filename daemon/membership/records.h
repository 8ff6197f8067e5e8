/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records: the view records that this island knows, on disk, with the votes that decided them: those that a restart
 * needs in one file each, older ones many in a file.
 *
 * They are kept as the bytes that were signed, so that they can be passed on, and are the proof of who is a member.
 * Loading checks every one against the one before it. Blocking;
 * any thread, and records_read() beside any other, since each file is replaced at once and packed before it is removed.
 */
#ifndef DAEMON_MEMBERSHIP_RECORDS_H
#define DAEMON_MEMBERSHIP_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "net/config/chain.h"
#include "net/config/record.h"

/* Durable when it returns. One that is there already is replaced. */
ERR_MUST_CHECK enum err records_save(const char *folder, uint64_t epoch, const struct record_entry *entry);
/* The same without a flush: whole after a crash of this program, and whatever there is after one of the machine. */
ERR_MUST_CHECK enum err records_copy(const char *folder, uint64_t epoch, const struct record_entry *entry);
/* ERR_NOTFOUND; ERR_CORRUPT: damaged. After a failure there is nothing to free. */
ERR_MUST_CHECK enum err records_read(const char *folder, uint64_t epoch, struct record_entry *entry);

/* Puts all that are there in files of their own into `chain`, which is empty, from the oldest on, each proved by the
 * one before; a damaged or unproved one, and what comes after it, is left out and logged: others send it again.
 * ERR_NOTFOUND: there is none. ERR_CONF: they are another run's. */
ERR_MUST_CHECK enum err records_load(const char *folder, const uint8_t nonce[RECORD_NONCE_BYTES], bool nonce_known,
                                     struct chain *chain);
/* Removes those before `epoch` that are files of their own. */
void records_forget(const char *folder, uint64_t epoch);
/* Puts those before `before`, which no restart needs, into files of 256 epochs each, a few at a time: records_load()
 * passes them over, and records_read() reads them for who was away for long. Whole after a crash at any instant. */
ERR_MUST_CHECK enum err records_pack(const char *folder, uint64_t before);

#endif
