/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/alike.h"

#include <math.h>

#include "common/mem.h"
#include "daemon/trainer/attachment.h"
#include "net/transport/wire.h"

/* How many reports of one that is ahead of us are kept until we have come there. */
enum { AHEAD = 64 };

struct report {
    uint64_t step; /* 0: none */
    double loss;
};

struct row {
    uint32_t id;
    uint64_t step;                /* of the report last taken in */
    struct report waiting[AHEAD]; /* that we have not come to yet */
    uint32_t next;                /* place of the next one */
    uint32_t count;
    double last; /* loss that last agreed */
};

struct alike {
    struct row *rows;
    uint32_t room;
};

enum err alike_new(struct alike **out)
{
    return mem_new(1, sizeof **out, "the status", out);
}

void alike_free(struct alike *alike)
{
    if (alike == NULL)
        return;
    mem_free(alike->rows);
    mem_free(alike);
}

/* Six digits: what is computed from the same values in the same order agrees in all. */
static bool agree(double a, double b)
{
    const double tolerance = 5e-7;
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static void compare(struct row *row, double ours, double theirs)
{
    if (!agree(ours, theirs)) {
        row->count = 0;
        row->last = 0;
    } else if (!agree(ours, row->last)) { /* one that is said again, or never changes, tells nothing */
        row->count++;
        row->last = ours;
    }
}

static void take(struct row *row, const struct peer_info *peer, uint32_t id)
{
    if (row->id != id || !peer->up || peer->trainer != WIRE_TRAINER_TRAINING)
        *row = (struct row){.id = id}; /* what it trains next is another matter */
    bool says = peer->up && isfinite(peer->loss) && peer->loss != 0;
    if (!says || peer->step == 0 || peer->step == row->step)
        return;
    row->step = peer->step;
    row->waiting[row->next++ % AHEAD] = (struct report){.step = peer->step, .loss = peer->loss};
}

/* The oldest first. */
static void look(struct row *row, const struct trainer *trainer, uint64_t own_step)
{
    for (uint32_t k = 0; k < AHEAD; k++) {
        struct report *report = &row->waiting[(row->next + k) % AHEAD];
        double ours;
        if (report->step == 0 || report->step > own_step)
            continue;
        if (attachment_loss_at(trainer->attachment, report->step, &ours))
            compare(row, ours, report->loss);
        report->step = 0;
    }
}

/* What is not remembered is not compared. */
static bool make_room(struct alike *alike, uint32_t count)
{
    if (count <= alike->room)
        return true;
    struct row *rows;
    if (mem_new(count, sizeof *rows, "the status", &rows) != ERR_OK)
        return false;
    for (uint32_t i = 0; i < alike->room; i++)
        rows[i] = alike->rows[i];
    mem_free(alike->rows);
    alike->rows = rows;
    alike->room = count;
    return true;
}

void alike_note(struct alike *alike, const struct view *view, const struct peers *peers, const struct trainer *trainer)
{
    struct trainer_info info = trainer_info(trainer);
    if (!make_room(alike, view->count))
        return;
    for (uint32_t i = 0; i < view->count; i++) {
        if (!view->members[i].used || i == view->self)
            continue;
        struct peer_info peer = peers_info(peers, i);
        peer.up &= info.training && !info.finishing;
        take(&alike->rows[i], &peer, view->members[i].as.id);
        look(&alike->rows[i], trainer, info.step);
    }
}

uint32_t alike_count(const struct alike *alike, const struct view *view, uint32_t slot)
{
    bool known = slot < alike->room && alike->rows[slot].id == view->members[slot].as.id;
    return known ? alike->rows[slot].count : 0;
}
