/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach_map: the memory that is shared with the daemon, as it comes along with a WELCOME: checked, mapped, and
 * touched; and where the tensors lie in it. The attachment owns it and its descriptor until diloco_detach().
 */
#ifndef WORKER_LIBDILOCO_ATTACH_MAP_H
#define WORKER_LIBDILOCO_ATTACH_MAP_H

#include <stdint.h>

#include "worker/libdiloco/attach_core.h"

/* `memfd` is taken, whatever happens; negative: none came along. DILOCO_ERROR: it is not what this trainer needs, or
 * there is no memory for it. Every rank calls. */
ERR_MUST_CHECK int attach_map(struct diloco *d, int memfd, uint64_t session);

#endif
