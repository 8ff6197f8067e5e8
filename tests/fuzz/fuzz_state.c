/* SPDX-License-Identifier: Apache-2.0 */
/* States that a peer sends in place of ours: objects of any header, values and length come for a fragment under repair,
 * while a contribution is on its way or the anchor is read. One that is not what was announced changes nothing, one
 * that is takes our place whatever its values are, and the next good one is always taken.
 *
 * The first byte chooses what is under way, then come a step, the values that all others say they hold, and objects:
 * what a good one has, with bytes changed and its end cut off. What is missing at the end is zero. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/state/state_object.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/rig.h"

enum { MEMBERS = 3, SELF = 2, F = 1, STEPS = 1000, OBJECTS_MAX = 6, CHANGES_MAX = 6, HEADER_BYTES = 128 };
/* The first byte. */
enum { IN_FLIGHT = 1, READ = 2, MOVED_ON = 4, AVERAGE = 8, STEP_BEYOND = 16 };

static const char *folder;

struct input {
    const uint8_t *at, *end;
};

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stdout, "fuzz_state: %s (%s)\n", what, err_text());
    fflush(stdout);
    abort();
}

static uint8_t byte_of(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

/* Small numbers are the likely ones; 255 announces any. */
static uint64_t number_of(struct input *input)
{
    uint64_t number = byte_of(input);
    if (number < 255)
        return number;
    for (size_t k = 0; k < sizeof number; k++)
        ((uint8_t *)&number)[k] = byte_of(input);
    return number;
}

/* ---- what the others hold ---- */

static float float_of(struct input *input)
{
    float value;
    for (size_t k = 0; k < sizeof value; k++)
        ((uint8_t *)&value)[k] = byte_of(input);
    return value;
}

/* Any values, some at either end; they are never those we have. */
static struct replica *make_twin(const struct rig *rig, struct input *input)
{
    struct replica *twin = rig_twin(rig);
    float *anchor = replica_anchor(twin, F), *momentum = replica_momentum(twin, F);
    size_t count = rig_values(rig, F);
    uint8_t values = byte_of(input) % 16;
    for (size_t i = 0; i < values; i++) {
        anchor[i] = float_of(input);
        if (momentum != NULL)
            momentum[count - 1 - i] = float_of(input);
    }
    if (memcmp(anchor, replica_anchor(rig->replica, F), count * sizeof *anchor) == 0)
        anchor[0] += 1;
    return twin;
}

static void make_object(const struct rig *rig, struct replica *twin, uint64_t step, struct rig_object *out)
{
    struct store_fragment state = {.version = rounds_state(rig->rounds, F)->version, .step = step};
    check(replica_hash(twin, F, state.version, state.step, &state.hash) == ERR_OK, "no hash");
    out->key = (struct wire_key){.kind = WIRE_STATE, .fragment = F, .version = state.version};
    out->bytes = (size_t)state_object_bytes(twin, F);
    state_object_make(twin, rig->plan->plan, F, &state, out->byte);
    struct bitset others = bitset_first(SELF);
    rig_certify(rig, &state.hash, &others, out);
}

/* ---- objects ---- */

/* Every other change is in the header. */
static void change(struct input *input, struct rig_object *object)
{
    uint8_t changes = byte_of(input) % CHANGES_MAX;
    for (uint8_t i = 0; i < changes; i++) {
        uint64_t at = number_of(input);
        uint8_t with = byte_of(input);
        object->byte[i % 2 == 0 ? at % HEADER_BYTES : at % object->bytes] ^= with;
    }
    if (byte_of(input) % 4 == 1)
        object->bytes = number_of(input) % (object->bytes + 1);
    if (byte_of(input) % 4 == 1)
        object->key.version = number_of(input);
}

static bool holds(const struct rig *rig, struct replica *other)
{
    size_t bytes = rig_values(rig, F) * sizeof(float);
    return memcmp(replica_anchor(rig->replica, F), replica_anchor(other, F), bytes) == 0 &&
           (replica_momentum(other, F) == NULL ||
            memcmp(replica_momentum(rig->replica, F), replica_momentum(other, F), bytes) == 0);
}

/* Brings it; true if it was installed. */
static bool bring(struct rig *rig, const struct rig_object *object)
{
    rig_forget(rig);
    rig_bring(rig, 0, object);
    rig_settle(rig);
    check(rig_posted_count(rig, EVENT_JUDGED) == 1, "not judged once");
    check(slots_state(rig->slots, F) == NULL, "its memory is kept");
    check(rounds_state(rig->rounds, F)->step <= STEPS, "a step beyond the run's");
    bool installed = rig_told_count(rig, SYNC_EV_INSTALLED) == 1;
    check(installed != (rig_told_count(rig, SYNC_EV_NOT_AVAILABLE) == 1), "neither installed nor asked for again");
    return installed;
}

/* Brings those that the input makes, until one is taken. */
static bool bring_changed(struct rig *rig, struct input *input, struct replica *twin, const struct rig_object *good)
{
    static struct rig_object object;
    struct replica *before = rig_twin(rig);
    bool installed = false;
    for (int i = 0; i < OBJECTS_MAX && input->at < input->end && !installed; i++) {
        object = *good;
        change(input, &object);
        installed = bring(rig, &object);
        if (!installed)
            check(holds(rig, before), "one that is refused has changed what we hold");
    }
    if (installed)
        check(holds(rig, twin), "what was installed is not what was announced");
    replica_free(before);
    return installed;
}

static void repair(struct rig *rig, struct input *input, uint8_t options)
{
    static struct rig_object good;
    uint64_t step = number_of(input);
    struct replica *twin = make_twin(rig, input);
    make_object(rig, twin, (options & STEP_BEYOND) != 0 ? step : RIG_STATE_STEP, &good);
    rig_diverge(rig, F, twin);
    for (uint32_t i = 0; (options & MOVED_ON) != 0 && i < SELF; i++) { /* what was announced is not known any more */
        rig->said[i][F].at.version++;
        rig_hear(rig, i);
    }
    if (!bring_changed(rig, input, twin, &good)) {
        make_object(rig, twin, RIG_STATE_STEP, &good);
        check(bring(rig, &good), "a good state is refused");
        check(holds(rig, twin), "a good state is not what we hold now");
    }
    struct digest hash = rig_hash(rig, F, rounds_state(rig->rounds, F)->version);
    check(digest_equal(&hash, &rounds_state(rig->rounds, F)->hash), "its hash is another");
    replica_free(twin);
}

/* ---- a target ---- */

static void prepare(void)
{
    if (folder != NULL)
        return;
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    log_set_level(LOG_LEVEL_ERROR);
    check(digest_init() == ERR_OK, "no digests");
    folder = testlib_folder("fuzz-state");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char coarse[] = "codec = uniform\nerror_feedback = yes\n";
    static const char average[] = "codec = uniform\n[outer]\noptimizer = average\n";
    if (bytes == 0)
        return 0;
    prepare();
    testlib_clear(folder);
    uint8_t options = data[0];
    struct input input = {data + 1, data + bytes};
    struct rig_conf conf = {.folder = folder,
                            .sync = (options & AVERAGE) != 0 ? average : coarse,
                            .members = MEMBERS,
                            .self = SELF,
                            .threads = 1};
    struct rig *rig = rig_open(&conf);
    rig_begin(rig);
    if ((options & IN_FLIGHT) != 0)
        rig_contribute(rig, F, 0.02f, 5000);
    if ((options & READ) != 0)
        keep_checkpoint(rig->rounds->keep, F);
    repair(rig, &input, options);
    /* It is given to the trainer, and a round begins from it, whatever its values are. */
    rig_mixed(rig, F);
    rig_train(rig, F, 3, 0.01f);
    rig_snapshot(rig, F, 20, 6000);
    rig_settle(rig);
    rig_close(rig);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    return fuzz_replay("state", LLVMFuzzerTestOneInput, 100);
}
#endif
