/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ckpt_write: checkpoints that are written while training goes on, by the real training loop. How long the disk takes
 * and whether it fails is the tests' to say: fsync() is theirs.
 */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/mem.h"
#include "common/runspec.h"
#include "tests/lib/overhear.h"
#include "tests/lib/proc.h"
#include "worker/ckpt.h"
#include "worker/ckpt_write.h"
#include "worker/train.h"

enum { STEPS = 12, TEXT_BYTES = 4096, LONG_MS = 20000, POLL_MS = 2, KEPT = 100, ANY = 1 << 20 };

/* Of 12 steps. */
#define SMALL(more)                                                                                        \
    "[run]\nname = small\nsteps = 12\n[model]\nwidth = 16\nlayers = 1\nheads = 2\nff = 32\ncontext = 16\n" \
    "[train]\nbatch = 2\n" more

/* ---- the disk ---- */

/* What fsync() does with the file of one step. */
static struct disk {
    uint64_t step;    /* ANY: with every file; 0: all is well */
    int error;        /* fails with that; 0: */
    unsigned calls;   /* it takes until so many steps were begun, */
    int more_ms;      /* and as much longer */
    const char *mark; /* made when it begins */
    atomic_bool open; /* released, whatever was begun */
    /* what was seen: */
    atomic_bool late, apart; /* nothing was begun for a long time; it was not the thread of the test */
    atomic_uint calls_then;  /* begun when it was done */
    atomic_bool deaf;        /* SIGTERM and SIGINT are blocked there */
} disk;

static pid_t own_thread;
static atomic_uint begun; /* steps of training */
static unsigned stop_at;  /* asked to end before this one; 0: never */

static bool asked(void)
{
    unsigned call = atomic_fetch_add(&begun, 1) + 1;
    return stop_at > 0 && call > stop_at;
}

static void on(struct disk how)
{
    disk = how;
    atomic_store(&begun, 0);
    stop_at = 0;
    own_thread = gettid();
}

static bool is_the_one(int fd)
{
    char link[64], path[512] = "", name[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(name, sizeof name, "/worker-%09u.safetensors.new", (unsigned)disk.step);
    if (disk.step == ANY)
        snprintf(name, sizeof name, ".safetensors.new");
    return disk.step > 0 && readlink(link, path, sizeof path - 1) > 0 && strstr(path, name) != NULL;
}

static void take_time(void)
{
    for (int ms = 0; atomic_load(&begun) < disk.calls && !atomic_load(&disk.open); ms += POLL_MS) {
        if (ms >= LONG_MS) {
            atomic_store(&disk.late, true);
            return;
        }
        proc_sleep_ms(POLL_MS);
    }
    proc_sleep_ms(disk.more_ms);
}

int fsync(int fd)
{
    sigset_t blocked;
    if (!is_the_one(fd))
        return (int)syscall(SYS_fsync, fd);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    atomic_store(&disk.deaf, sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1);
    atomic_store(&disk.apart, gettid() != own_thread);
    if (disk.mark != NULL)
        fclose(fopen(disk.mark, "we"));
    take_time();
    atomic_store(&disk.calls_then, atomic_load(&begun));
    if (disk.error == 0)
        return (int)syscall(SYS_fsync, fd);
    errno = disk.error;
    return -1;
}

/* ---- training ---- */

static const char *corpus;
static struct runspec spec;

static struct train_options options_for(const char *folder, uint64_t every)
{
    return (struct train_options){.spec = &spec,
                                  .data_path = corpus,
                                  .folder = folder,
                                  .device = "cpu",
                                  .threads = 1,
                                  .checkpoint_every = every,
                                  .interrupted = asked};
}

static enum err train(const char *folder, uint64_t every)
{
    struct train_options options = options_for(folder, every);
    return train_run(&options);
}

static const char *file_of(const char *folder, uint64_t step, const char *ending)
{
    char name[64];
    snprintf(name, sizeof name, "worker-%09u.safetensors%s", (unsigned)step, ending);
    return testlib_path(folder, name);
}

static bool is_there(const char *folder, uint64_t step, const char *ending)
{
    return access(file_of(folder, step, ending), F_OK) == 0;
}

static void assert_same_file(const char *left, const char *right)
{
    char *a = NULL, *b = NULL;
    off_t bytes = testlib_file_bytes(left);
    FILE *one = fopen(left, "re"), *other = fopen(right, "re");
    assert_non_null(one);
    assert_non_null(other);
    assert_int_equal(bytes, testlib_file_bytes(right));
    a = malloc((size_t)bytes);
    b = malloc((size_t)bytes);
    assert_int_equal(fread(a, 1, (size_t)bytes, one), bytes);
    assert_int_equal(fread(b, 1, (size_t)bytes, other), bytes);
    assert_memory_equal(a, b, (size_t)bytes);
    free(a);
    free(b);
    fclose(one);
    fclose(other);
}

/* What a run leaves that wrote nothing beside itself: stopped after step `stop`, where it saves, and gone on with. */
static const char *reference(uint64_t stop)
{
    const char *folder = testlib_folder("reference");
    on((struct disk){0});
    stop_at = (unsigned)stop;
    assert_ok(train(folder, 0));
    on((struct disk){0});
    assert_ok(train(folder, 0));
    assert_true(is_there(folder, stop, "") && is_there(folder, STEPS, ""));
    return folder;
}

/* Three more steps are begun before the file of step 6 is on the disk, and it holds what step 6 left. */
static void steps_are_made_while_one_is_written(void **state)
{
    (void)state;
    const char *want = reference(6), *folder = testlib_folder("beside");
    on((struct disk){.step = 6, .calls = 9});
    assert_ok(train(folder, 6));
    assert_false(atomic_load(&disk.late));
    assert_true(atomic_load(&disk.apart) && atomic_load(&disk.deaf));
    assert_true(atomic_load(&disk.calls_then) >= 9);
    assert_same_file(file_of(folder, 6, ""), file_of(want, 6, ""));
    assert_same_file(file_of(folder, STEPS, ""), file_of(want, STEPS, ""));
}

/* The next one, and the last one at the run's end: which is on the disk when train_run() returns. */
static void the_next_one_waits(void **state)
{
    (void)state;
    const char *folder = testlib_folder("next");
    on((struct disk){.step = 2, .calls = 4, .more_ms = 1000});
    overhear_begin();
    assert_ok(train(folder, 2));
    overhear_assert_once(overhear_end(), "checkpoint at step 4: the one before is still being written; waiting");
    assert_int_equal(atomic_load(&disk.calls_then), 4);
    assert_true(is_there(folder, 10, "") && is_there(folder, STEPS, "") && !is_there(folder, 8, ""));
    folder = testlib_folder("end");
    on((struct disk){.step = 10, .calls = 12, .more_ms = 500});
    overhear_begin();
    assert_ok(train(folder, 5));
    overhear_assert_once(overhear_end(), "checkpoint at step 12: the one before is still being written; waiting");
    assert_true(atomic_load(&disk.apart));
    assert_true(is_there(folder, 10, "") && is_there(folder, STEPS, ""));
    on((struct disk){.step = STEPS});
    assert_ok(train(testlib_folder("last"), 0));
    assert_false(atomic_load(&disk.apart)); /* nothing goes on meanwhile */
}

/* In another process: the disk never comes back. */
static int be_held(const char *folder, const char *mark)
{
    on((struct disk){.step = 8, .calls = UINT32_MAX, .mark = mark});
    return train(folder, 4) == ERR_OK ? 0 : 1;
}

static void killed_while_it_is_written_the_one_before_stands(void **state)
{
    (void)state;
    char self[512] = "";
    const char *want = reference(4), *folder = testlib_folder("killed"), *mark = testlib_path(folder, "mark");
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const argv[] = {self, folder, mark, NULL};
    int pid = proc_start(argv, testlib_path(folder, "log"));
    assert_true(pid > 0);
    for (int ms = 0; access(mark, F_OK) != 0 && ms < LONG_MS; ms += POLL_MS)
        proc_sleep_ms(POLL_MS);
    assert_int_equal(access(mark, F_OK), 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(proc_wait(pid, 10), 128 + SIGKILL);
    assert_true(is_there(folder, 4, "") && is_there(folder, 8, ".new") && !is_there(folder, 8, ""));
    assert_same_file(file_of(folder, 4, ""), file_of(want, 4, ""));
    on((struct disk){0});
    overhear_begin();
    assert_ok(train(folder, 0));
    overhear_assert_once(overhear_end(), "resuming after step 4");
    assert_same_file(file_of(folder, STEPS, ""), file_of(want, STEPS, ""));
    assert_false(is_there(folder, 8, ".new"));
}

static void what_fails_is_told_and_training_goes_on(void **state)
{
    (void)state;
    const char *want = reference(6), *folder = testlib_folder("fails");
    on((struct disk){.step = 8, .error = EIO});
    overhear_begin();
    assert_ok(train(folder, 4));
    const char *logged = overhear_end();
    overhear_assert_once(logged, "checkpoint at step 8 failed: ");
    overhear_assert_once(logged, "cannot flush: Input/output error; the disk fails");
    assert_true(atomic_load(&disk.apart));
    assert_true(is_there(folder, 4, "") && !is_there(folder, 8, "") && !is_there(folder, 8, ".new"));
    assert_same_file(file_of(folder, STEPS, ""), file_of(want, STEPS, ""));
    /* With the last one the command fails, and what was saved before is untouched. */
    folder = testlib_folder("fails at last");
    on((struct disk){.step = STEPS, .error = ENOSPC});
    assert_fails(ERR_NOSPACE, "cannot flush", train(folder, 4));
    assert_true(is_there(folder, 4, "") && is_there(folder, 8, "") && !is_there(folder, STEPS, ""));
}

/* Training that has come to nothing does not leave before it is written what was good. */
static void a_failure_waits_for_the_disk(void **state)
{
    (void)state;
    struct runspec wild;
    const char *folder = testlib_folder("wild");
    assert_ok(runspec_parse(SMALL("lr = 1000\nweight_decay = 10\n"), "the wild run", &wild));
    struct train_options options = options_for(folder, 8);
    options.spec = &wild;
    wild.steps = 100;
    on((struct disk){.step = 8, .calls = 9, .more_ms = 500});
    assert_fails(ERR_NONFINITE, "training has diverged", train_run(&options));
    assert_true(atomic_load(&disk.apart) && is_there(folder, 8, ""));
    runspec_deinit(&wild);
}

/* ---- several ranks ---- */

/* Longer than a rank waits for one that says nothing. */
static enum err train_rank(void *user, const struct launch_rank *rank)
{
    struct train_options options = options_for(user, 4);
    on((struct disk){.step = 4, .calls = 8, .more_ms = 5000});
    own_thread = gettid();
    options.rank = rank;
    TRY(train_run(&options));
    if (rank->rank == 0 && (atomic_load(&disk.calls_then) != 8 || !atomic_load(&disk.apart)))
        return err_set(ERR_STATE, "%u steps were begun when step 4 was on the disk", atomic_load(&disk.calls_then));
    return ERR_OK;
}

static void ranks_wait_for_a_slow_disk(void **state)
{
    (void)state;
    const struct launch_conf conf = {.ranks = 2, .device = "cpu", .patience_s = 2.5};
    const char *folder = testlib_folder("ranks");
    assert_ok(launch_run(&conf, train_rank, (void *)folder));
    assert_true(is_there(folder, 8, "") && is_there(folder, STEPS, ""));
}

/* ---- the writer alone ---- */

struct round_context {
    const struct kern *kern;
    struct kern_dev *dev;
    struct model *model;
    struct inner *inner;
    struct ckpt_writer *writer;
    const char *folder;
};

static void open_desk(struct round_context *d, const char *name)
{
    struct model_conf conf = {.batch = spec.batch, .train = true};
    d->folder = testlib_folder(name);
    assert_ok(kern_find("cpu", &d->kern));
    assert_ok(d->kern->open(&(struct kern_place){.threads = 1}, &d->dev));
    assert_ok(model_new(&spec, d->kern, d->dev, &conf, &d->model));
    assert_ok(model_init(d->model, 1));
    assert_ok(inner_new(d->model, &spec, &d->inner));
    assert_ok(ckpt_writer_new(d->folder, &spec, d->model, d->inner, &d->writer));
}

static void close_desk(struct round_context *d)
{
    ckpt_writer_free(d->writer);
    inner_free(d->inner);
    model_free(d->model);
    d->kern->close(d->dev);
}

static struct ckpt_state state_at(uint64_t step)
{
    struct ckpt_state state = {.step = step, .position = 3 * step, .tokens = 5 * step, .kept_count = KEPT};
    assert_ok(mem_new(KEPT, sizeof *state.kept, "what is kept", &state.kept));
    for (int i = 0; i < KEPT; i++)
        state.kept[i] = (float)i;
    return state;
}

static void fill(struct round_context *d, float value)
{
    for (int64_t i = 0; i < d->model->own_count; i++)
        d->model->w[i] = d->inner->m[i] = d->inner->v[i] = value;
}

static void assert_holds(struct round_context *d, uint64_t step, float value)
{
    struct ckpt_state read = {0};
    fill(d, -1);
    assert_ok(ckpt_load(d->folder, &spec, d->model, d->inner, &read));
    assert_true(read.step == step && read.position == 3 * step && read.tokens == 5 * step);
    assert_true(read.kept_count == KEPT && read.kept[KEPT - 1] == KEPT - 1);
    for (int i = 0; i < d->model->tensors_count; i++) {
        const struct model_tensor *tensor = &d->model->tensors[i];
        for (int64_t k = tensor->offset; k < tensor->offset + tensor->count; k++)
            assert_true(d->model->w[k] == value && d->inner->m[k] == value && d->inner->v[k] == value);
    }
    mem_free(read.kept);
}

/* What training does to the arrays meanwhile is not in the file; what it keeps has changed hands. */
static void the_file_holds_what_was_there(void **state)
{
    (void)state;
    struct round_context d;
    open_desk(&d, "desk");
    on((struct disk){.step = ANY, .calls = 1});
    for (int turn = 0; turn < 3; turn++) { /* in the same memory */
        struct ckpt_state saved = state_at((uint64_t)turn + 1);
        atomic_store(&disk.open, false);
        fill(&d, (float)turn);
        assert_ok(ckpt_save(d.writer, &saved));
        assert_true(saved.kept == NULL && saved.kept_count == 0);
        assert_false(is_there(d.folder, saved.step, ""));
        fill(&d, 77);
        atomic_store(&disk.open, true);
        while (!is_there(d.folder, saved.step, ""))
            proc_sleep_ms(POLL_MS);
        ckpt_look(d.writer); /* or the next one waits */
        assert_holds(&d, saved.step, (float)turn);
    }
    close_desk(&d);
}

/* Then the caller's thread writes, each time; that is said once. */
static void without_memory_for_a_copy_values_are_written_at_once(void **state)
{
    (void)state;
    struct round_context d;
    open_desk(&d, "little");
    overhear_begin();
    on((struct disk){.step = ANY});
    for (uint64_t step = 1; step <= 2; step++) {
        struct ckpt_state saved = state_at(step);
        atomic_store(&disk.apart, false);
        fill(&d, (float)step);
        mem_fail_after(step == 1 ? 0 : -1);
        enum err err = ckpt_save(d.writer, &saved);
        mem_fail_after(-1);
        assert_ok(err);
        fill(&d, -1); /* the values are in the file: only its end is left to the thread */
        for (int ms = 0; !is_there(d.folder, step, "") && ms < LONG_MS; ms += POLL_MS)
            proc_sleep_ms(POLL_MS);
        assert_true(atomic_load(&disk.apart));
        assert_holds(&d, step, (float)step);
    }
    overhear_assert_once(overhear_end(), "of memory for a copy of what a checkpoint holds: training waits");
    close_desk(&d);
}

/* Wherever memory ends, on either thread: the new one is whole, or the old one stands and something was said. */
static void it_survives_without_memory(void **state)
{
    (void)state;
    struct round_context d;
    bool failed = true;
    on((struct disk){0});
    for (long n = 0; n == 0 || failed; n++) {
        struct ckpt_state old = state_at(1), new = state_at(2);
        assert_true(n < 1000);
        open_desk(&d, "walk");
        fill(&d, 1);
        assert_ok(ckpt_save_now(d.writer, &old));
        fill(&d, 2);
        overhear_begin();
        mem_fail_after(n + 1); /* not the copy: that was tried above */
        enum err err = ckpt_save(d.writer, &new);
        ckpt_writer_free(d.writer);
        mem_fail_after(-1);
        d.writer = NULL;
        failed = strstr(overhear_end(), "checkpoint at step 2 failed: out of memory") != NULL || err != ERR_OK;
        assert_true(err == ERR_OK || err == ERR_NOMEM);
        uint64_t newest = is_there(d.folder, 2, "") ? 2 : 1; /* it may have failed after the file got its name */
        assert_true(failed || newest == 2);
        assert_holds(&d, newest, (float)newest);
        assert_false(is_there(d.folder, 2, ".new"));
        close_desk(&d);
        testlib_clear(d.folder);
    }
}

static void prepare(void)
{
    static char text[TEXT_BYTES];
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = (char)('a' + i * i % 23);
    corpus = testlib_file(testlib_folder("ckpt_write"), "corpus", "%s", text);
    assert_ok(runspec_parse(SMALL(""), "the small run", &spec));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_wait_for_a_slow_disk),
        cmocka_unit_test(steps_are_made_while_one_is_written),
        cmocka_unit_test(the_next_one_waits),
        cmocka_unit_test(killed_while_it_is_written_the_one_before_stands),
        cmocka_unit_test(what_fails_is_told_and_training_goes_on),
        cmocka_unit_test(a_failure_waits_for_the_disk),
        cmocka_unit_test(the_file_holds_what_was_there),
        cmocka_unit_test(without_memory_for_a_copy_values_are_written_at_once),
        cmocka_unit_test(it_survives_without_memory),
    };
    if (digest_init() != ERR_OK)
        return 1;
    prepare();
    if (argc == 3)
        return be_held(argv[1], argv[2]);
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    runspec_deinit(&spec);
    return failures != 0;
}
