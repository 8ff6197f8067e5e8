/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/lib/proc.h"

enum { ANSWER_BYTES = 16384 };
#define OWN "build/python/bin/python3" /* make check-python makes it */

json_t *bench_python(const char *script, const char *log, const char **why)
{
    static char answer[ANSWER_BYTES], reason[200];
    const char *python = getenv("PYTHON");
    python = python != NULL && python[0] != '\0' ? python : OWN;
    const char *look[] = {"/usr/bin/env", python, "-c", "import torch, os; print(len(os.sched_getaffinity(0)))", NULL};
    *why = reason;
    if (proc_run(look, log, answer, sizeof answer) != 0) {
        *why =
            "PyTorch is not in build/python; make check-python installs it, or PYTHON=... names a Python that has it";
        return NULL;
    }
    if (atoi(answer) < 2) {
        *why = "it takes two cores";
        return NULL;
    }
    const char *argv[] = {"/usr/bin/env", python, script, NULL};
    int status = proc_run(argv, log, answer, sizeof answer);
    json_t *figures = status == 0 ? json_loads(answer, 0, NULL) : NULL;
    if (figures == NULL)
        snprintf(reason, sizeof reason, "%s failed; see %s", script, log);
    return figures;
}
