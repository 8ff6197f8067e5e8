/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/undialled.h"

#include "common/log.h"

/* FORETOLD: until owners that dial in vain have said so. VOICES: so many have to agree, where there are so many. */
enum { FORETOLD_MS = UNDIALLED_MS + 5000, VOICES = 2 };

void undialled_begin(struct undialled *undialled, const struct dconf *conf, const struct view *view)
{
    if (view->self == VIEW_NOBODY || conf->listen[0] == '\0')
        return;
    uint8_t choice = view->members[view->self].as.owner_choice;
    undialled->is = undialled->foretold = choice == CONFIG_OWNER_DIALS || choice == CONFIG_OWNER_NO_DIALS;
}

static bool is_foretold(struct undialled *undialled, const struct undialled_said *said, uint64_t now_ms)
{
    if (undialled->foretold && said->owners > 0 && undialled->owners_ms == 0)
        undialled->owners_ms = now_ms;
    bool is_known = said->through || (undialled->owners_ms != 0 && now_ms >= undialled->owners_ms + FORETOLD_MS);
    undialled->foretold = undialled->foretold && !is_known;
    return undialled->foretold;
}

bool undialled_look(struct undialled *undialled, const struct undialled_said *said, uint64_t now_ms)
{
    if (is_foretold(undialled, said, now_ms) || said->owners == 0)
        return false;
    uint32_t need = said->islands < VOICES ? said->islands : VOICES;
    bool is = said->in_vain == said->owners && (undialled->is || said->voices >= need);
    if (is == undialled->is)
        return false;
    undialled->is = is;
    if (is)
        log_warn(
            "not reachable from %s: this island contributes, and owns shards only beside a single other; let its port "
            "through ([net] listen), or say where it is reached ([net] address)",
            said->who);
    else
        log_info("reachable again from %s: this island may own shards", said->who);
    return true;
}
