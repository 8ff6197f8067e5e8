/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/complains.h"

#include "tests/lib/testlib.h"

#include <string.h>

#include "daemon/control/complaints.h"

const struct complaint *complaint_of(const struct status *status, enum complaint_code code)
{
    for (uint32_t i = 0; i < status->complaints_count; i++)
        if (status->complaints[i].code == code)
            return &status->complaints[i];
    return NULL;
}

void assert_complains(const struct status *status, enum complaint_code code, const char *what)
{
    const struct complaint *complaint = complaint_of(status, code);
    if (complaint == NULL)
        fail_msg("no complaint %s", complaint_name(code));
    if (strstr(complaint->what, what) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", complaint->what, what);
    assert_true(strlen(complaint->remedy) > 10);
}

void assert_silent(const struct status *status, enum complaint_code code)
{
    const struct complaint *complaint = complaint_of(status, code);
    if (complaint != NULL)
        fail_msg("it complains: %s", complaint->what);
}
