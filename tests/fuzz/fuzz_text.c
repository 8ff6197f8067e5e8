/* SPDX-License-Identifier: Apache-2.0 */
/* Text: configurations, run specs, and plans from peers. The first byte chooses. */
#include <stdlib.h>
#include <string.h>

#include "common/digest.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "daemon/dconf.h"
#include "daemon/state/model_plan.h"
#include "tests/lib/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    char *text = malloc(bytes);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    if (data[0] % 3 == 0) {
        struct runspec spec;
        if (runspec_parse(text, "text", &spec) == ERR_OK)
            runspec_deinit(&spec);
    } else if (data[0] % 3 == 1) {
        struct dconf conf;
        if (conf_parse(&dconf_schema, text, "text", &conf) == ERR_OK)
            conf_deinit(&dconf_schema, &conf);
    } else {
        struct runspec spec = {.pattern = data[0] % 2, .layers_per_fragment = 3, .fragments = 2};
        struct model_plan *plan;
        if (model_plan_parse(&spec, text, bytes - 1, &plan) == ERR_OK)
            model_plan_free(plan);
    }
    free(text);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    if (digest_init() != ERR_OK)
        return 1;
    return fuzz_replay("text", LLVMFuzzerTestOneInput, 10000);
}
#endif
