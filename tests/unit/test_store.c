/* SPDX-License-Identifier: Apache-2.0 */
/* store: a checkpoint is this run's, whole and what its hash says, or it is refused; the exported anchor is the model.
 */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "common/tensorfile.h"
#include "daemon/state/store.h"
#include "tests/lib/outofmem.h"
#include "tests/lib/shares.h"
#include "tests/lib/smallrun.h"

static const char spec_lines[] = "codec = e3m0\nerror_feedback = yes\n";

static struct smallrun run;
static const struct digest nonce_id = {.byte = {1, 2, 3}};

/* A replica full of numbers, and the state that fragment `f` of it is at. */
static struct replica *filled(uint64_t seed)
{
    struct replica *replica = smallrun_replica(&run, 2);
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++)
        smallrun_fill(replica, &run, f, seed);
    return replica;
}

static struct store_fragment state_of(struct replica *replica, uint32_t f, uint64_t version)
{
    struct store_fragment state = {.version = version, .step = 10 * version};
    assert_ok(replica_hash(replica, f, version, state.step, &state.hash));
    return state;
}

static enum err save_of(const struct smallrun *of, const char *folder, struct replica *replica, uint32_t f,
                        const struct store_fragment *state)
{
    const struct store_at at = {folder, &of->spec, &nonce_id, of->plan};
    struct tensorfile_writer *writer;
    TRY(store_write_fragment(&at, replica, f, state, true, &writer));
    return tensorfile_commit(writer);
}

static enum err save(const char *folder, struct replica *replica, uint32_t f, uint64_t version)
{
    struct store_fragment state = state_of(replica, f, version);
    return save_of(&run, folder, replica, f, &state);
}

static enum err load(const char *folder, struct replica *replica, uint32_t f)
{
    struct store_fragment state;
    return store_load_fragment(folder, &run.spec, &nonce_id, run.plan, replica, f, &state);
}

static const char *file_of(const char *folder, uint32_t f)
{
    char name[64];
    snprintf(name, sizeof name, "fragment-%04" PRIu32 ".safetensors", f);
    return testlib_path(folder, name);
}

/* Asserts that it is refused, before anything of the replica is touched. */
static void assert_refused(enum err code, const char *part, const char *folder, const struct runspec *spec,
                           const struct model_plan *plan)
{
    struct store_fragment state;
    struct replica *replica = filled(9);
    struct digest before = smallrun_digest(replica, &run), after;
    assert_fails(code, part, store_load_fragment(folder, spec, &nonce_id, plan, replica, 1, &state));
    after = smallrun_digest(replica, &run);
    assert_true(digest_equal(&before, &after));
    replica_free(replica);
}

static void a_fragment_comes_back_as_it_was(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-back");
    struct replica *replica = filled(1), *blank = smallrun_replica(&run, 2);
    for (uint32_t f = 0; f < SMALLRUN_FRAGMENTS; f++)
        assert_ok(save(folder, replica, f, 5 + f));
    struct digest want = smallrun_digest(replica, &run), got;
    for (uint32_t f = SMALLRUN_FRAGMENTS; f-- > 0;) {
        struct store_fragment loaded, saved = state_of(replica, f, 5 + f);
        assert_ok(store_load_fragment(folder, &run.spec, &nonce_id, run.plan, blank, f, &loaded));
        assert_int_equal(loaded.version, 5 + f);
        assert_int_equal(loaded.step, 10 * (5 + f));
        assert_true(digest_equal(&loaded.hash, &saved.hash));
    }
    got = smallrun_digest(blank, &run);
    assert_true(digest_equal(&want, &got));
    replica_free(replica);
    replica_free(blank);
}

/* Neither momentum nor residuals: they are not in the file, and not missed. */
static void a_run_of_averages_keeps_its_anchor_alone(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-average");
    struct smallrun averages = smallrun_new("[outer]\noptimizer = average\n");
    struct replica *replica = smallrun_replica(&averages, 0), *blank = smallrun_replica(&averages, 0);
    struct store_fragment saved = {.version = 3}, loaded;
    struct tensorfile *file;
    smallrun_fill(replica, &averages, 0, 1);
    assert_ok(replica_hash(replica, 0, 3, 0, &saved.hash));
    assert_ok(save_of(&averages, folder, replica, 0, &saved));
    assert_ok(tensorfile_open(file_of(folder, 0), true, &file));
    assert_int_equal(tensorfile_count(file), 1);
    tensorfile_close(file);
    assert_ok(store_load_fragment(folder, &averages.spec, &nonce_id, averages.plan, blank, 0, &loaded));
    assert_memory_equal(replica_anchor(blank, 0), replica_anchor(replica, 0),
                        averages.plan->plan->fragments[0].values_count * sizeof(float));
    replica_free(replica);
    replica_free(blank);
    smallrun_free(&averages);
}

static void what_is_not_there_is_not_found(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-none");
    struct replica *replica = filled(1);
    assert_ok(save(folder, replica, 0, 1));
    assert_ok(save(folder, replica, 2, 1));
    assert_refused(ERR_NOTFOUND, "fragment-0001", folder, &run.spec, run.plan);
    replica_free(replica);
}

static void a_checkpoint_of_another_run_or_model_is_refused(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-other");
    struct smallrun longer = smallrun_new("codec = e3m0\nerror_feedback = yes\ninterval = 31\n");
    struct model_plan *renamed;
    struct ipc_tensor tensors[SMALLRUN_TENSORS];
    struct replica *replica = filled(1);
    memcpy(tensors, smallrun_tensors, sizeof tensors);
    snprintf(tensors[1].name, sizeof tensors[1].name, "layer.0.other");
    assert_ok(model_plan_new(&run.spec, tensors, SMALLRUN_TENSORS, &renamed));
    assert_ok(save(folder, replica, 1, 4));
    assert_refused(ERR_CONF, "belongs to another run or model (run_id differs)", folder, &longer.spec, run.plan);
    assert_refused(ERR_CONF, "belongs to another run or model (plan_id differs)", folder, &run.spec, renamed);
    assert_ok(load(folder, replica, 1));
    model_plan_free(renamed);
    smallrun_free(&longer);
    replica_free(replica);
}

/* Its version is whole, but the results that lead on from it are cut for others. */
static void a_checkpoint_of_other_islands_is_refused(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-islands");
    static const struct digest others = {.byte = {1, 2, 4}};
    struct replica *replica = filled(1);
    struct store_fragment loaded;
    assert_ok(save(folder, replica, 1, 4));
    assert_fails(ERR_CONF, "begun another time",
                 store_load_fragment(folder, &run.spec, &others, run.plan, replica, 1, &loaded));
    assert_ok(load(folder, replica, 1));
    replica_free(replica);
}

/* ---- damage ---- */

static void a_damaged_file_is_refused(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-damage");
    struct replica *replica = filled(1), *other = filled(9);
    char *data;
    size_t bytes;
    assert_ok(save(folder, replica, 1, 4));
    assert_ok(fsio_read(file_of(folder, 1), 1 << 20, &data, &bytes));
    for (size_t at = 0; at < bytes; at += bytes / 37) {
        data[at] ^= 0x04;
        assert_ok(fsio_replace(file_of(folder, 1), data, bytes, 0644));
        assert_fails(ERR_CORRUPT, "fragment-0001", load(folder, other, 1));
        data[at] ^= 0x04;
        assert_ok(fsio_replace(file_of(folder, 1), data, at, 0644)); /* cut off there */
        assert_fails(ERR_CORRUPT, "fragment-0001", load(folder, other, 1));
    }
    assert_ok(fsio_replace(file_of(folder, 1), data, bytes, 0644));
    assert_ok(load(folder, replica, 1));
    /* Without its checksum it could be anybody's, and nothing says that its residuals are right. */
    char *checksum = memmem(data, bytes, "blake2b", 7);
    assert_non_null(checksum);
    checksum[0] = 'x';
    assert_ok(fsio_replace(file_of(folder, 1), data, bytes, 0644));
    assert_fails(ERR_CORRUPT, "fragment-0001", load(folder, other, 1));
    mem_free(data);
    replica_free(replica);
    replica_free(other);
}

/* Whole files whose numbers are not what they say they are. */
static void numbers_that_are_not_those_of_the_hash_are_refused(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-hash");
    struct replica *replica = filled(1);
    struct store_fragment state_1 = state_of(replica, 1, 4), wrong = state_1;
    wrong.hash.byte[31] ^= 1;
    assert_ok(save_of(&run, folder, replica, 1, &wrong));
    assert_fails(ERR_CORRUPT, "not those of its hash", load(folder, replica, 1));
    wrong = state_1;
    wrong.version = 5; /* the hash is that of version 4 */
    assert_ok(save_of(&run, folder, replica, 1, &wrong));
    assert_fails(ERR_CORRUPT, "not those of its hash", load(folder, replica, 1));
    /* Another fragment of the same size, under this one's name. */
    assert_ok(save(folder, replica, 2, 4));
    assert_int_equal(rename(file_of(folder, 2), file_of(folder, 1)), 0);
    assert_fails(ERR_CORRUPT, "not those of its hash", load(folder, replica, 1));
    assert_ok(save(folder, replica, 1, 4));
    assert_ok(load(folder, replica, 1));
    replica_free(replica);
}

/* A file with the metadata of ours and some of the tensors, of `count` values each. */
static void write_tensors(const char *path, const char *format, const char *const *names, size_t names_count,
                          uint64_t count, const struct store_fragment *state)
{
    char version[32], hash[DIGEST_HEX_BYTES], run_id[DIGEST_HEX_BYTES], plan_id[DIGEST_HEX_BYTES];
    char nonce_hex[DIGEST_HEX_BYTES];
    struct tensorfile_tensor tensors[4];
    struct tensorfile_writer *writer;
    float *zeros;
    snprintf(version, sizeof version, "%" PRIu64, state->version);
    const struct tensorfile_meta meta[] = {{"format", format},
                                           {"version", version},
                                           {"step", "0"},
                                           {"counted_rows", "0"},
                                           {"hash", digest_hex(&state->hash, hash)},
                                           {"run_id", digest_hex(&run.spec.digest, run_id)},
                                           {"nonce_id", digest_hex(&nonce_id, nonce_hex)},
                                           {"plan_id", digest_hex(&run.plan->id, plan_id)}};
    assert_ok(mem_new((size_t)count, sizeof *zeros, "zeros", &zeros));
    for (size_t i = 0; i < names_count; i++)
        tensors[i] = (struct tensorfile_tensor){.name = names[i], .dims = 1, .shape = {count}};
    assert_ok(tensorfile_create(path, tensors, names_count, meta, 8, &writer));
    for (size_t i = 0; i < names_count; i++)
        assert_ok(tensorfile_write(writer, zeros, (size_t)count));
    assert_ok(tensorfile_commit(writer));
    mem_free(zeros);
}

/* Not "there is none": that would begin the fragment anew without a word. */
static void a_file_without_an_array_that_is_needed_is_refused(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-lacks");
    static const char *const all[] = {"anchor", "momentum", "residual"}, ours[] = "diloco fragment 6";
    struct replica *blank = smallrun_replica(&run, 2);
    struct store_fragment zeros = {.version = 7}, loaded;
    uint64_t count = run.plan->plan->fragments[1].values_count;
    assert_ok(replica_hash(blank, 1, 7, 0, &zeros.hash));
    write_tensors(file_of(folder, 1), ours, all, 1, count, &zeros);
    assert_fails(ERR_CORRUPT, "momentum", load(folder, blank, 1));
    /* Whoever wrote it can still read it; and it is not fetched anew from somebody else without a word. */
    write_tensors(file_of(folder, 1), "diloco fragment 999", all, 2, count, &zeros);
    assert_fails(ERR_CONF, "go on with the release that wrote it", load(folder, blank, 1));
    assert_fails(ERR_CONF, "diloco fragment 999", store_check(folder, &run.spec, &nonce_id));
    write_tensors(file_of(folder, 1), ours, all + 1, 2, count, &zeros);
    assert_fails(ERR_CORRUPT, "anchor", load(folder, blank, 1));
    write_tensors(file_of(folder, 1), ours, all, 2, count - 1, &zeros);
    assert_fails(ERR_CORRUPT, "values", load(folder, blank, 1));
    write_tensors(file_of(folder, 1), ours, all, 2, count, &zeros); /* residuals may be missing */
    assert_ok(store_load_fragment(folder, &run.spec, &nonce_id, run.plan, blank, 1, &loaded));
    assert_int_equal(loaded.version, 7);
    replica_free(blank);
}

/* The owner's residual goes with the shards that it is of; what else the file holds is as good under any owners. */
static void an_owners_residual_follows_its_shards(void **state)
{
    (void)state;
    enum { F = 1 };
    const char *folder = testlib_folder("store-members");
    const struct plan *plan = run.plan->plan;
    struct replica *before = filled(1), *after = smallrun_replica(&run, 0);
    uint64_t count = plan->fragments[F].values_count, had = replica_owner_shards(before, F), at = 0;
    uint64_t first = had & (0 - had), whole = first | shares_mask(&run.parts, F, 0);
    const uint64_t masks[] = {whole, plan_shards(plan, F) & ~whole};
    assert_true(had != first);
    assert_ok(save(folder, before, F, 4));
    assert_ok(replica_cut(after, F, masks, 2, whole)); /* one of the shards has come to us */
    assert_ok(load(folder, after, F));
    assert_int_equal(replica_owner_shards(after, F), whole);
    for (uint32_t s = 0; s < plan->fragments[F].shards_count; s++) {
        struct plan_shard shard = plan_shard(plan, F, s);
        if ((whole >> s & 1) == 0)
            continue;
        const float *ours = replica_owner_residual(after, F) + at;
        for (uint64_t i = 0; i < shard.end - shard.begin; i++)
            assert_true(ours[i] == ((first >> s & 1) != 0 ? replica_owner_residual(before, F)[i] : 0));
        at += shard.end - shard.begin;
    }
    assert_memory_equal(replica_residual(after, F), replica_residual(before, F), count * sizeof(float));
    assert_memory_equal(replica_anchor(after, F), replica_anchor(before, F), count * sizeof(float));
    replica_free(before);
    replica_free(after);
}

/* At a start it is not known yet whose the shards are now: all is taken over, and the first cut sees to the rest. */
static void before_the_first_cut_an_owners_residual_is_what_was_saved(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-uncut");
    struct replica_conf conf = smallrun_conf(&run);
    struct replica *before = filled(1), *after;
    size_t bytes = replica_values(before, 1, replica_owner_shards(before, 1)) * sizeof(float);
    assert_ok(replica_new(&conf, &after));
    assert_ok(save(folder, before, 1, 4));
    assert_ok(load(folder, after, 1));
    assert_int_equal(replica_owner_shards(after, 1), replica_owner_shards(before, 1));
    assert_memory_equal(replica_owner_residual(after, 1), replica_owner_residual(before, 1), bytes);
    assert_ok(shares_cut(&run.parts, after, 2));
    assert_memory_equal(replica_owner_residual(after, 1), replica_owner_residual(before, 1), bytes);
    assert_ok(shares_cut(&run.parts, after, 1));
    assert_int_equal(replica_owner_shards(after, 1), shares_mask(&run.parts, 1, 1));
    replica_free(before);
    replica_free(after);
}

/* ---- writing that fails ---- */

struct rewrite {
    const char *folder;
    struct replica *old, *new;
    struct store_fragment old_state, new_state;
};

/* The old checkpoint, whole; or the new one if it was only its place in the folder that could not be flushed. */
static void assert_one_stands(const struct rewrite *rewrite, bool may_be_new)
{
    char new[300];
    struct replica *replica = smallrun_replica(&run, 2);
    struct store_fragment loaded;
    assert_ok(store_load_fragment(rewrite->folder, &run.spec, &nonce_id, run.plan, replica, 1, &loaded));
    assert_true(digest_equal(&loaded.hash, &rewrite->old_state.hash) ||
                (may_be_new && digest_equal(&loaded.hash, &rewrite->new_state.hash)));
    replica_free(replica);
    snprintf(new, sizeof new, "%s.new", file_of(rewrite->folder, 1));
    assert_int_equal(access(new, F_OK), -1);
}

static enum err save_new(const struct rewrite *rewrite)
{
    return save_of(&run, rewrite->folder, rewrite->new, 1, &rewrite->new_state);
}

static enum err save_again(void *user)
{
    const struct rewrite *rewrite = user;
    enum err err = save_new(rewrite);
    mem_fail_after(-1);
    if (err != ERR_OK)
        assert_one_stands(rewrite, true);
    return err;
}

static void a_checkpoint_that_cannot_be_written_leaves_the_one_before(void **state)
{
    (void)state;
    struct rewrite rewrite = {.folder = testlib_folder("store-fails"), .old = filled(1), .new = filled(2)};
    struct store_fragment loaded;
    rewrite.old_state = state_of(rewrite.old, 1, 4);
    rewrite.new_state = state_of(rewrite.new, 1, 5);
    assert_ok(save(rewrite.folder, rewrite.old, 1, 4));
    /* No file may be longer: as on a disk that is full. */
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    enum err err = save_new(&rewrite);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_fails(ERR_IO, "fragment-0001", err);
    assert_one_stands(&rewrite, false);
    assert_fails(ERR_IO, "no-such-folder", save(testlib_path(rewrite.folder, "no-such-folder"), rewrite.new, 1, 5));
    print_message("%zu allocations failed in turn\n", outofmem_walk(save_again, &rewrite));
    assert_ok(store_load_fragment(rewrite.folder, &run.spec, &nonce_id, run.plan, rewrite.old, 1, &loaded));
    assert_int_equal(loaded.version, 5);
    replica_free(rewrite.old);
    replica_free(rewrite.new);
}

/* ---- the plan ---- */

static void the_plan_comes_back_or_is_called_damaged(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-plan"), *path = testlib_path(folder, "plan.txt");
    struct model_plan *plan;
    char *text;
    size_t bytes;
    assert_fails(ERR_NOTFOUND, "plan.txt", store_load_plan(folder, &run.spec, &plan));
    assert_null(plan);
    assert_ok(store_save_plan(folder, &run.spec, run.plan));
    assert_ok(store_load_plan(folder, &run.spec, &plan));
    assert_true(digest_equal(&plan->id, &run.plan->id));
    model_plan_free(plan);
    assert_ok(fsio_read(path, 1 << 20, &text, &bytes));
    for (size_t at = 0; at < bytes; at++) { /* in its head, and where it would be a plan all the same */
        text[at] ^= 1;
        assert_ok(fsio_replace(path, text, bytes, 0644));
        assert_fails(ERR_CORRUPT, "plan.txt", store_load_plan(folder, &run.spec, &plan));
        assert_null(plan);
        text[at] ^= 1;
        assert_ok(fsio_replace(path, text, at, 0644));
        assert_fails(ERR_CORRUPT, "plan.txt", store_load_plan(folder, &run.spec, &plan));
    }
    mem_free(text);
    assert_fails(ERR_IO, "no-such-folder",
                 store_save_plan(testlib_path(folder, "no-such-folder"), &run.spec, run.plan));
}

/* ---- what others left ---- */

static void the_plan_of_another_run_makes_room_with_what_its_trainer_saved(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-aside");
    struct smallrun longer = smallrun_new("codec = e3m0\nerror_feedback = yes\ninterval = 31\n");
    struct model_plan *plan;
    for (int k = 1; k <= 2; k++) {
        char kept[64];
        assert_int_equal(mkdir(testlib_path(folder, "worker"), 0755), 0);
        testlib_file(testlib_path(folder, "worker"), "worker-7.safetensors", "%d", k);
        assert_ok(store_save_plan(folder, &longer.spec, longer.plan));
        assert_fails(ERR_CONF, "another run", store_load_plan(folder, &run.spec, &plan));
        assert_null(plan);
        assert_ok(store_put_aside(folder, true));
        assert_fails(ERR_NOTFOUND, "plan.txt", store_load_plan(folder, &run.spec, &plan));
        snprintf(kept, sizeof kept, "worker.%d/worker-7.safetensors", k);
        assert_int_equal(access(testlib_path(folder, kept), F_OK), 0);
        assert_int_equal(access(testlib_path(folder, "worker"), F_OK), -1);
    }
    assert_ok(store_save_plan(folder, &longer.spec, longer.plan)); /* no trainer had saved anything */
    assert_ok(store_put_aside(folder, true));
    testlib_file(folder, "plan.txt", "nonsense\n");
    assert_int_equal(mkdir(testlib_path(folder, "worker"), 0755), 0);
    assert_ok(store_put_aside(folder, false));
    assert_int_equal(access(testlib_path(folder, "plan.txt.damaged"), F_OK), 0);
    assert_int_equal(access(testlib_path(folder, "worker"), F_OK), 0); /* our own */
    smallrun_free(&longer);
}

/* Initial tensors are nobody's work; a version is. */
static void others_are_in_the_way_with_a_version_and_not_with_initial_tensors(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-check");
    static const struct digest others = {.byte = {1, 2, 4}};
    struct smallrun longer = smallrun_new("codec = e3m0\nerror_feedback = yes\ninterval = 31\n");
    struct replica *replica = filled(1);
    assert_ok(store_check(folder, &run.spec, &nonce_id));
    assert_ok(save(folder, replica, 0, 0));
    assert_ok(save(folder, replica, 1, 0));
    assert_ok(store_check(folder, &run.spec, &nonce_id));
    assert_ok(store_check(folder, &longer.spec, &nonce_id));
    assert_ok(store_check(folder, &run.spec, &others));
    assert_refused(ERR_NOTFOUND, "only initial tensors", folder, &longer.spec, run.plan);
    assert_ok(save(folder, replica, 2, 1));
    assert_ok(store_check(folder, &run.spec, &nonce_id));
    assert_fails(ERR_CONF, "another run", store_check(folder, &longer.spec, &nonce_id));
    assert_fails(ERR_CONF, "begun another time", store_check(folder, &run.spec, &others));
    testlib_file(folder, "fragment-0002.safetensors", "nonsense\n"); /* is told, and mended, when it is loaded */
    assert_ok(store_check(folder, &longer.spec, &nonce_id));
    assert_fails(ERR_IO, "no-such-folder", store_check(testlib_path(folder, "no-such-folder"), &run.spec, &nonce_id));
    replica_free(replica);
    smallrun_free(&longer);
}

/* ---- the exported anchor ---- */

/* The last fragment first. */
static enum err export_all(const char *folder, struct replica *replica, const struct store_fragment *states)
{
    struct store_export *export;
    enum err err = ERR_OK;
    TRY(store_export_begin(folder, &run.spec, run.plan, &export));
    for (uint32_t f = SMALLRUN_FRAGMENTS; err == ERR_OK && f-- > 0;)
        err = store_export_fragment(export, replica, f, &states[f]);
    if (err == ERR_OK)
        err = store_export_end(export);
    store_export_free(export);
    return err;
}

static void the_exported_anchor_is_the_model_under_its_own_names(void **state)
{
    (void)state;
    const char *folder = testlib_folder("store-export");
    static const struct store_fragment states[] = {
        {.version = 12, .step = 300}, {.version = 0, .step = 310}, {.version = 9, .step = 305}};
    struct replica *replica = filled(3);
    struct tensorfile *file;
    struct runspec spec;
    assert_ok(export_all(folder, replica, states));
    assert_ok(tensorfile_open(testlib_path(folder, "anchor.safetensors"), true, &file));
    assert_string_equal(tensorfile_meta(file, "format"), "diloco anchor 1");
    assert_string_equal(tensorfile_meta(file, "versions"), "12,0,9");
    assert_string_equal(tensorfile_meta(file, "step"), "310");
    assert_ok(runspec_parse(tensorfile_meta(file, "run_spec"), "exported", &spec));
    assert_true(digest_equal(&spec.digest, &run.spec.digest));
    runspec_deinit(&spec);
    assert_int_equal(tensorfile_count(file), SMALLRUN_TENSORS);
    for (uint32_t i = 0; i < SMALLRUN_TENSORS; i++) {
        const struct plan_tensor *tensor = &run.plan->plan->tensors[i];
        struct tensorfile_tensor there = tensorfile_at(file, i);
        const float *values;
        assert_string_equal(there.name, smallrun_tensors[i].name);
        assert_int_equal(there.dims, smallrun_tensors[i].dims);
        for (uint32_t d = 0; d < there.dims; d++)
            assert_int_equal(there.shape[d], smallrun_tensors[i].shape[d]);
        assert_ok(tensorfile_values(file, there.name, tensor->count, &values));
        assert_memory_equal(values, replica_anchor(replica, tensor->fragment) + tensor->offset,
                            tensor->count * sizeof(float));
    }
    tensorfile_close(file);
    replica_free(replica);
}

/* ---- out of memory ---- */

struct full {
    const char *folder;
    struct replica *replica;
};

static enum err load_all(void *user)
{
    struct full *full = user;
    struct model_plan *plan;
    TRY(store_load_plan(full->folder, &run.spec, &plan));
    model_plan_free(plan);
    return load(full->folder, full->replica, 1);
}

static enum err save_all(void *user)
{
    struct full *full = user;
    static const struct store_fragment states[SMALLRUN_FRAGMENTS] = {{.version = 1}};
    TRY(store_save_plan(full->folder, &run.spec, run.plan));
    return export_all(full->folder, full->replica, states);
}

static void without_memory_nothing_is_half_done(void **state)
{
    (void)state;
    struct full full = {.folder = testlib_folder("store-memory"), .replica = filled(1)};
    assert_ok(save(full.folder, full.replica, 1, 1));
    size_t failed = outofmem_walk(save_all, &full);
    failed += outofmem_walk(load_all, &full);
    print_message("%zu allocations failed in turn\n", failed);
    replica_free(full.replica);
}

int main(void)
{
    assert_ok(digest_init());
    run = smallrun_new(spec_lines);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fragment_comes_back_as_it_was),
        cmocka_unit_test(a_run_of_averages_keeps_its_anchor_alone),
        cmocka_unit_test(what_is_not_there_is_not_found),
        cmocka_unit_test(a_checkpoint_of_another_run_or_model_is_refused),
        cmocka_unit_test(a_checkpoint_of_other_islands_is_refused),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(numbers_that_are_not_those_of_the_hash_are_refused),
        cmocka_unit_test(a_file_without_an_array_that_is_needed_is_refused),
        cmocka_unit_test(an_owners_residual_follows_its_shards),
        cmocka_unit_test(before_the_first_cut_an_owners_residual_is_what_was_saved),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_leaves_the_one_before),
        cmocka_unit_test(the_plan_comes_back_or_is_called_damaged),
        cmocka_unit_test(the_plan_of_another_run_makes_room_with_what_its_trainer_saved),
        cmocka_unit_test(others_are_in_the_way_with_a_version_and_not_with_initial_tensors),
        cmocka_unit_test(the_exported_anchor_is_the_model_under_its_own_names),
        cmocka_unit_test(without_memory_nothing_is_half_done),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    smallrun_free(&run);
    return failed;
}
