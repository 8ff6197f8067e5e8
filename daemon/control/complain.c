/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/complain.h"

#include <assert.h>
#include <stdio.h>

#include "daemon/as_typed.h"

/* Per member at most so many complaints, and so many besides. */
enum { PER_MEMBER = 10, BESIDES = 25 };

size_t complaints_max(const struct status *status)
{
    return (size_t)PER_MEMBER * status->from->view->count + BESIDES;
}

void complain(struct status *status, enum complaint_code code, const struct bitset *about, const char *what,
              const char *remedy)
{
    assert(status->complaints_count < complaints_max(status));
    struct complaint *complaint = &status->complaints[status->complaints_count++];
    *complaint = (struct complaint){.code = code, .of = status->complaints_count - 1};
    if (about != NULL)
        complaint->about = *about;
    snprintf(complaint->what, sizeof complaint->what, "%s", what);
    as_typed_fill(remedy, complaint->remedy, sizeof complaint->remedy);
}

void complain_of(struct status *status, enum complaint_code code, uint32_t member, const char *what, const char *remedy)
{
    struct bitset about = {{0}};
    bitset_add(&about, member);
    complain(status, code, &about, what, remedy);
}
