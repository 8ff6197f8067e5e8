/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ground.h"

#include <stdio.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/home.h"

enum { LOOK_MS = 1000, GONE_MS = 5000 };

static void tell_doubt(const struct vote *vote)
{
    log_warn("this disk is in doubt: %s. Until the others know it again, this island trains and contributes, and has "
             "no vote",
             vote_why(vote));
}

/* The mark lies where a boot takes it away, and no copy of the state brings it back. */
enum err ground_open_vote(const struct dconf *conf, const char *public_key, struct ledger *ledger, struct vote **out)
{
    char *mark;
    struct vote_conf vote = {.folder = conf->state_folder};
    TRY(fsio_mkdirs(conf->run_folder, 0755));
    TRY(home_mark(conf->in_home, public_key, conf->run_folder, &mark, &vote.exposed));
    vote.mark = mark;
    enum err err = vote_open(&vote, ledger_at(ledger), out);
    if (err == ERR_OK && vote.exposed)
        log_warn(
            "the mark of this island's votes is in %s, since /dev/shm/diloco-%u cannot be made, is another user's, "
            "or lets others in: a copy of the folder that is put back would not be noticed",
            mark, (unsigned)geteuid());
    mem_free(mark);
    if (err == ERR_OK && vote_doubt(*out) == VOTE_DOUBT)
        tell_doubt(*out);
    if (err == ERR_OK && ledger_passed_over(ledger))
        err = ground_lost(*out, "records in the middle of its ledger are damaged");
    return err;
}

enum err ground_lost(struct vote *vote, const char *why)
{
    bool sure = vote_doubt(vote) == VOTE_SURE;
    TRY(vote_lost(vote, why));
    if (sure)
        tell_doubt(vote);
    return ERR_OK;
}

bool ground_is_gone(struct ground *ground, struct ledger *ledger, uint64_t now_ms)
{
    if (now_ms < ground->look_ms)
        return false;
    ground->look_ms = now_ms + LOOK_MS;
    bool gone = ledger_stats(ledger).lost;
    ground->gone_ms = !gone ? 0 : ground->gone_ms != 0 ? ground->gone_ms : now_ms;
    return gone && now_ms >= ground->gone_ms + GONE_MS;
}

void ground_text(const struct dconf *conf, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes,
             "the state folder %s was removed or replaced, so what is saved is lost: this daemon ends. If the folder "
             "was moved, put it back; then: %s start",
             conf->state_folder, as_typed());
}
