/* SPDX-License-Identifier: Apache-2.0 */
/*
 * numbers_file: the highest numbers of an order and of a word that this island has signed, on disk, so that none is
 * used twice: whoever heard the first could repeat it in place of the second.
 *
 * A disk that may have forgotten some is another disk: it has a new incarnation (daemon/membership/vote.h). Only the
 * loop's thread; a save blocks for a flush.
 */
#ifndef DAEMON_MEMBERSHIP_NUMBERS_FILE_H
#define DAEMON_MEMBERSHIP_NUMBERS_FILE_H

#include "common/err.h"
#include "net/membership/membership_io.h"

/* What the folder of the state has, and whether this disk may have lost some. A damaged file counts as one that is
 * missing, and is said. ERR_IO, ERR_NOMEM. */
ERR_MUST_CHECK enum err numbers_file_open(const char *folder, const struct voting_disk *disk, struct said_numbers *out);
/* Durable when it returns. ERR_IO, ERR_NOSPACE, ERR_NOMEM: the file is as it was. */
ERR_MUST_CHECK enum err numbers_file_save(const char *folder, uint64_t incarnation, const struct said_numbers *numbers);

#endif
