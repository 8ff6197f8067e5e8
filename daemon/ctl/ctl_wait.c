/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_wait.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "daemon/ctl/ctl_client.h"

enum { LOOK_MS = 100, REASONS_BYTES = 600 };

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static const json_t *complaint(const json_t *status, const char *code)
{
    size_t index;
    json_t *item;
    json_array_foreach (json_object_get(status, "degraded"), index, item)
        if (strcmp(ctl_text(item, "code"), code) == 0)
            return item;
    return NULL;
}

/* What may keep a trainer from its end: as the daemon says it. */
static const char *const reasons[] = {"waiting", "no-majority"};
enum { REASONS = sizeof reasons / sizeof reasons[0] };

/* Each once. */
static void print_reasons(const json_t *status, bool said[REASONS])
{
    for (size_t i = 0; i < REASONS; i++) {
        const json_t *item = said[i] ? NULL : complaint(status, reasons[i]);
        if (item == NULL)
            continue;
        printf("%s\n-> %s\n", ctl_text(item, "what"), ctl_text(item, "remedy"));
        said[i] = true;
    }
}

static enum err too_long(const json_t *status)
{
    const json_t *trainer = json_object_get(status, "trainer");
    char text[REASONS_BYTES] = "";
    for (size_t i = 0; i < REASONS; i++) {
        const json_t *item = complaint(status, reasons[i]);
        if (item != NULL)
            snprintf(text + strlen(text), sizeof text - strlen(text), "; %s", ctl_text(item, "what"));
    }
    return err_set(ERR_AGAIN, "the trainer is %s, at step %lld%s", ctl_text(trainer, "state"),
                   (long long)ctl_integer(trainer, "step"), text);
}

static bool is_wanted(const struct ctl_wait *wait, const char *state)
{
    for (size_t i = 0; wait->wanted[i] != NULL; i++)
        if (strcmp(wait->wanted[i], state) == 0)
            return true;
    return false;
}

/* One look. `last`: the state that was said last. */
static enum err look(const struct ctl_wait *wait, char last[64], bool said[REASONS], bool *there)
{
    json_t *status;
    TRY(ctl_ask(wait->socket, "status", &status));
    const json_t *trainer = json_object_get(status, "trainer");
    const char *state = ctl_text(trainer, "state");
    *there = is_wanted(wait, state);
    if (!wait->json) {
        if (!*there)
            print_reasons(status, said);
        if (strcmp(state, last) != 0)
            printf("trainer: %s, step %lld\n", state, (long long)ctl_integer(trainer, "step"));
        fflush(stdout);
    }
    snprintf(last, 64, "%s", state);
    enum err err = ERR_OK;
    if (!*there && (strcmp(state, "restarting") == 0 || strcmp(state, "ended") == 0))
        err = err_set(ERR_STATE, "%s", ctl_text(complaint(status, state), "what"));
    else if (!*there && wait->end_ms > 0 && env_mono_ms() >= wait->end_ms)
        err = too_long(status);
    json_decref(status);
    return err;
}

enum err ctl_wait_trainer(const struct ctl_wait *wait)
{
    char last[64] = "";
    bool said[REASONS] = {false}, there = false;
    while (!there) {
        TRY(look(wait, last, said, &there));
        if (!there)
            pause_ms(LOOK_MS);
    }
    return ERR_OK;
}

/* ---- a saved anchor ---- */

enum err ctl_wait_saved(const char *socket, char saved[CTL_WAIT_PATH_BYTES])
{
    for (;;) {
        json_t *status;
        TRY(ctl_ask(socket, "status", &status));
        bool failed = strcmp(ctl_text(status, "saving"), "failed") == 0;
        bool done = strcmp(ctl_text(status, "saving"), "done") == 0;
        snprintf(saved, CTL_WAIT_PATH_BYTES, "%s", ctl_text(status, "saved"));
        json_decref(status);
        if (failed)
            return err_set(ERR_IO, "saving %s", saved);
        if (done)
            return ERR_OK;
        pause_ms(LOOK_MS);
    }
}
