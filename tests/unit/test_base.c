/* SPDX-License-Identifier: Apache-2.0 */
/* err, mem, bytes, env, digest: the small modules everything else stands on. */
#include "tests/lib/testlib.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/args.h"
#include "common/bytes.h"
#include "common/digest.h"
#include "common/fsio.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/processors.h"
#include "common/program.h"
#include "tests/lib/overhear.h"

static void err_text_says_what_and_where(void **state)
{
    (void)state;
    assert_int_equal(err_set(ERR_CONF, "key %s", "x"), ERR_CONF);
    assert_string_equal(err_text(), "key x");
    assert_int_equal(err_prefix(ERR_CONF, "file:%d", 3), ERR_CONF);
    assert_string_equal(err_text(), "file:3: key x");
    assert_int_equal(err_suffix(ERR_CONF, "mend %s", "it"), ERR_CONF);
    assert_string_equal(err_text(), "file:3: key x; mend it");
    errno = ENOSPC;
    assert_int_equal(err_set_errno(ERR_IO, "write"), ERR_NOSPACE);
    assert_non_null(strstr(err_text(), "No space left"));
    errno = EACCES;
    assert_int_equal(err_set_errno(ERR_IO, "write"), ERR_IO);
}

static void err_long_texts_are_cut_not_overrun(void **state)
{
    (void)state;
    char big[3000];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    err_set(ERR_IO, "%s", big);
    for (int i = 0; i < 10; i++)
        err_prefix(ERR_IO, "%s", big);
    assert_true(strlen(err_text()) < 700);
}

static void mem_refuses_overflow_and_injected_failures(void **state)
{
    (void)state;
    char *p = (char *)1;
    assert_int_equal(mem_new(SIZE_MAX / 2, 4, "too much", &p), ERR_NOMEM);
    assert_null(p);
    mem_fail_after(1);
    char *a = NULL;
    char *b = NULL;
    assert_ok(mem_new(10, 1, "a", &a));
    assert_int_equal(mem_new(10, 1, "b", &b), ERR_NOMEM);
    assert_null(b);
    assert_ok(mem_new(10, 1, "b", &b));
    assert_int_equal((uintptr_t)a % MEM_ALIGN, 0);
    a[9] = 7;
    assert_ok(mem_grow(&a, 10, 20, 1, "a"));
    assert_int_equal(a[9], 7);
    assert_int_equal(a[19], 0);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
}

static void bytes_never_leave_their_memory(void **state)
{
    (void)state;
    uint8_t raw[15];
    struct bytes_writer w = bytes_writer_init(raw, sizeof raw);
    bytes_put_u8(&w, 0x12);
    bytes_put_u16(&w, 0x3456);
    bytes_put_u32(&w, 0x789abcde);
    bytes_put_u64(&w, 0x1122334455667788u);
    assert_false(w.failed);
    assert_int_equal(w.at, 15);
    bytes_put_u8(&w, 1);
    assert_true(w.failed);
    struct bytes_reader r = bytes_reader_init(raw, sizeof raw);
    assert_int_equal(bytes_get_u8(&r), 0x12);
    assert_int_equal(bytes_get_u16(&r), 0x3456);
    assert_int_equal(bytes_get_u32(&r), 0x789abcde);
    assert_true(bytes_get_u64(&r) == 0x1122334455667788u);
    assert_false(r.failed);
    assert_int_equal(bytes_get_u32(&r), 0);
    assert_true(r.failed);
    r = bytes_reader_init(raw, 3);
    assert_null(bytes_get(&r, 4));
    assert_true(r.failed);
    assert_null(bytes_get(&r, 1)); /* once failed, always failed */
}

static void rng_is_the_same_everywhere_and_fair(void **state)
{
    (void)state;
    struct env_rng rng = env_rng_init(1, 0);
    /* Pinned: initial parameters of every island come from these. */
    struct digest digest;
    double values[1000];
    for (int i = 0; i < 1000; i++)
        values[i] = env_rng_normal(&rng);
    digest = digest_of(values, sizeof values);
    char hex[DIGEST_HEX_BYTES];
    assert_string_equal(digest_hex(&digest, hex), "382bc28c4d82d2fdbb369d7189af6076d0c343332b47693a6c5b5ca2e479719a");
    double sum = 0, square = 0, fourth = 0;
    enum { N = 400000 };
    for (int i = 0; i < N; i++) {
        double x = env_rng_normal(&rng);
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
    }
    assert_true(fabs(sum / N) < 0.01);
    assert_true(fabs(square / N - 1) < 0.01);
    assert_true(fabs(fourth / N - 3) < 0.1);
    unsigned counts[7] = {0};
    for (int i = 0; i < 70000; i++)
        counts[env_rng_below(&rng, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(counts[i], 9600, 10400);
}

/* Two daemons of one cluster start in the same millisecond, with the same addresses where the system does not shuffle
 * them; what names them must differ all the same. */
static void random_names_differ_between_processes_that_start_alike(void **state)
{
    (void)state;
    enum { CHILDREN = 16 };
    uint64_t drawn[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            uint64_t value = env_random_u64();
            _exit(write(ends[1], &value, sizeof value) == (ssize_t)sizeof value ? 0 : 1);
        }
        assert_int_equal(read(ends[0], &drawn[i], sizeof drawn[i]), sizeof drawn[i]);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(ends[0]);
        close(ends[1]);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(drawn[i], drawn[j]);
    }
}

static struct digest word_then(const char *word, const void *data, size_t bytes, const uint64_t *length)
{
    char domain[16] = {0};
    struct digest_state s;
    strcpy(domain, word);
    digest_begin(&s);
    digest_add(&s, domain, sizeof domain);
    digest_add(&s, data, bytes);
    if (length != NULL)
        digest_add(&s, length, sizeof *length);
    return digest_end(&s);
}

/* As docs/FORMATS.md has it; in one go, in pieces of any size, and leaf by leaf in any order. */
static void a_digest_tree_is_the_same_however_it_is_made(void **state)
{
    (void)state;
    enum { LEAF = DIGEST_LEAF_BYTES, MOST = 19 * LEAF + 1, LEAVES = 20 };
    static const size_t sizes[] = {0,        1,        LEAF - 1, LEAF,     LEAF + 1,  2 * LEAF, 3 * LEAF,
                                   4 * LEAF, 7 * LEAF, 8 * LEAF, 9 * LEAF, 12 * LEAF, MOST - 1, MOST};
    static uint8_t data[MOST];
    for (size_t i = 0; i < MOST; i++)
        data[i] = (uint8_t)(i * 31 + i / LEAF);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        uint64_t bytes = sizes[k];
        struct digest leaves[LEAVES];
        size_t count = digest_tree_leaves(bytes);
        assert_int_equal(count, (bytes + LEAF - 1) / LEAF);
        for (size_t i = count; i-- > 0;) {
            size_t left = bytes - i * LEAF;
            leaves[i] = digest_tree_leaf(data, bytes, i);
            struct digest want = word_then("diloco leaf 1", data + i * LEAF, left < LEAF ? left : LEAF, NULL);
            assert_true(digest_equal(&leaves[i], &want));
        }
        struct digest whole = digest_tree(data, bytes), root = digest_tree_root(leaves, count, bytes);
        struct digest want = word_then("diloco tree 1", leaves, count * sizeof *leaves, &bytes);
        assert_true(digest_equal(&whole, &want) && digest_equal(&root, &want));
        memset(leaves, 0, sizeof leaves);
        digest_tree_whole(data, bytes / LEAF, leaves);
        for (size_t i = 0; i < count; i++) {
            want = i < bytes / LEAF ? digest_tree_leaf(data, bytes, i) : (struct digest){{0}};
            assert_true(digest_equal(&leaves[i], &want));
        }
        for (size_t step = 1; step <= MOST; step = 5 * step + 1) {
            struct digest_tree_state s;
            digest_tree_begin(&s);
            for (size_t at = 0; at < bytes; at += step)
                digest_tree_add(&s, data + at, bytes - at < step ? bytes - at : step);
            struct digest got = digest_tree_end(&s);
            assert_true(digest_equal(&got, &whole));
        }
    }
}

/* However the bytes are spread over arrays, and whichever leaves one asks for. */
static void leaves_across_arrays_are_those_of_the_whole(void **state)
{
    (void)state;
    enum { LEAF = DIGEST_LEAF_BYTES, BYTES = 11 * LEAF + 77, LEAVES = 12 };
    static const size_t cuts[][2] = {{0, 0},
                                     {0, BYTES},
                                     {BYTES, BYTES},
                                     {LEAF, 3 * LEAF},
                                     {1, 2},
                                     {LEAF - 1, LEAF + 1},
                                     {5 * LEAF + 9, 5 * LEAF + 9},
                                     {4 * LEAF, BYTES - 5},
                                     {LEAF + 7, 10 * LEAF + 3}};
    static uint8_t data[BYTES];
    for (size_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 37 + i / LEAF);
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        const struct digest_span spans[] = {
            {data, cuts[k][0]}, {data + cuts[k][0], cuts[k][1] - cuts[k][0]}, {data + cuts[k][1], BYTES - cuts[k][1]}};
        for (size_t first = 0; first < LEAVES; first++)
            for (size_t count = 1; first + count <= LEAVES; count++) {
                struct digest got[LEAVES];
                digest_tree_spans(spans, 3, first, count, got);
                for (size_t i = 0; i < count; i++) {
                    struct digest want = digest_tree_leaf(data, BYTES, first + i);
                    assert_true(digest_equal(&got[i], &want));
                }
            }
    }
}

static void a_digest_tree_covers_order_length_and_level(void **state)
{
    (void)state;
    enum { LEAF = DIGEST_LEAF_BYTES };
    static uint8_t data[2 * LEAF], turned[2 * LEAF];
    memset(data, 1, LEAF);
    memset(turned + LEAF, 1, LEAF);
    struct digest whole = digest_tree(data, sizeof data), other = digest_tree(turned, sizeof turned);
    assert_false(digest_equal(&whole, &other));
    struct digest leaves[2] = {digest_tree_leaf(data, sizeof data, 0), digest_tree_leaf(data, sizeof data, 1)};
    struct digest swapped[2] = {leaves[1], leaves[0]};
    struct digest root = digest_tree_root(leaves, 2, sizeof data), back = digest_tree_root(swapped, 2, sizeof data);
    assert_true(digest_equal(&root, &whole));
    assert_false(digest_equal(&root, &back));
    root = digest_tree_root(leaves, 2, sizeof data - 1);
    assert_false(digest_equal(&root, &whole));
    /* What a root is made of is no data of the same digest. */
    struct digest leaf = digest_tree_leaf(leaves, sizeof leaves, 0), plain = digest_of(leaves, sizeof leaves);
    assert_false(digest_equal(&leaf, &whole) || digest_equal(&plain, &whole) || digest_equal(&leaf, &plain));
}

static void put_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void processors_are_as_many_as_control_groups_let_us_take(void **state)
{
    (void)state;
    const char *root = testlib_folder("cgroup");
    char inner[300];
    snprintf(inner, sizeof inner, "%s/a/b", root);
    assert_ok(fsio_mkdirs(inner, 0755));
    assert_true(processors_quota(root, "/") == 0 && processors_quota(root, "/a/b") == 0); /* nobody says anything */
    put_file(testlib_path(root, "a/b/cpu.max"), "max 100000\n");
    assert_true(processors_quota(root, "/a/b") == 0);
    put_file(testlib_path(root, "a/cpu.max"), "250000 100000\n");
    assert_float_equal(processors_quota(root, "/a/b"), 2.5, 1e-9); /* what holds above holds below */
    put_file(testlib_path(root, "a/b/cpu.max"), "150000 100000\n");
    assert_float_equal(processors_quota(root, "/a/b"), 1.5, 1e-9);
    assert_float_equal(processors_quota(root, "/a"), 2.5, 1e-9);
    put_file(testlib_path(root, "cpu.max"), "50000 100000\n");
    assert_float_equal(processors_quota(root, "/a/b"), 0.5, 1e-9);
    put_file(testlib_path(root, "cpu.max"), "what is this\n");
    assert_float_equal(processors_quota(root, "/a/b"), 1.5, 1e-9);
    cpu_set_t may;
    assert_int_equal(sched_getaffinity(0, sizeof may, &may), 0);
    assert_true(processors_here() >= 1 && processors_here() <= (unsigned)CPU_COUNT(&may));
    int here = (int)processors_here();
    assert_int_equal(processors_jobs(1), 1);
    assert_int_equal(processors_jobs(64), 64);
    assert_int_equal(processors_jobs(0), here < 12 ? 2 : here >= 32 ? 8 : here / 4);
}

static void digest_is_blake2b_256(void **state)
{
    (void)state;
    struct digest d = digest_of("abc", 3);
    char hex[DIGEST_HEX_BYTES];
    assert_string_equal(digest_hex(&d, hex), "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
    struct digest_state s;
    digest_begin(&s);
    digest_add(&s, "a", 1);
    digest_add(&s, "bc", 2);
    struct digest again = digest_end(&s);
    assert_true(digest_equal(&d, &again));
    assert_true(digest_tag(&d) == 0x723942633c81ddbdu);
}

/* What is said on standard error when JOURNAL_STREAM has this value. */
static const char *line_with(const char *stream)
{
    overhear_begin();
    if (stream == NULL)
        unsetenv("JOURNAL_STREAM");
    else
        setenv("JOURNAL_STREAM", stream, 1);
    log_init("test", LOG_LEVEL_INFO);
    log_warn("all is %s", "well");
    return overhear_end();
}

/* The journal has a time of its own; what goes anywhere else is read weeks later, too. A variable that a program
 * inherited from its terminal does not make a journal of a file. */
static void a_line_has_its_date_unless_the_journal_reads_it(void **state)
{
    (void)state;
    int year, month, day, hour, minute, second, ms, end = 0;
    struct stat status;
    char stream[64];
    for (int k = 0; k < 2; k++) {
        const char *line = line_with(k == 0 ? NULL : "1:1");
        sscanf(line, "%4d-%2d-%2d %2d:%2d:%2d.%3d test warning: all is well\n%n", &year, &month, &day, &hour, &minute,
               &second, &ms, &end);
        assert_int_equal(end, strlen(line));
        assert_in_range(year, 2020, 9999);
        assert_in_range(month, 1, 12);
        assert_in_range(day, 1, 31);
    }
    overhear_begin();
    assert_int_equal(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof stream, "%ju:%ju", (uintmax_t)status.st_dev, (uintmax_t)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    log_init("test", LOG_LEVEL_INFO);
    log_warn("all is well");
    assert_string_equal(overhear_end(), "<4>all is well\n");
    unsetenv("JOURNAL_STREAM");
    log_init("test", LOG_LEVEL_INFO);
}

static void log_limit_lets_one_through(void **state)
{
    (void)state;
    struct log_limit limit = {0};
    assert_true(log_limit_pass(&limit, 5, 100));
    assert_false(log_limit_pass(&limit, 50, 100));
    assert_false(log_limit_pass(&limit, 104, 100));
    assert_int_equal(limit.suppressed, 2);
    assert_true(log_limit_pass(&limit, 105, 100));
}

static void assert_found(const char *name, const char *want)
{
    char *path;
    assert_ok(program_find(name, &path));
    assert_string_equal(path, want);
    mem_free(path);
}

static void a_program_is_found_beside_this_one_and_in_path(void **state)
{
    (void)state;
    char *path, self[512], search[600], before[4096];
    const char *folder = testlib_folder("program");
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(bytes > 0);
    self[bytes] = '\0';
    assert_found(strrchr(self, '/') + 1, self);
    const char *tool = testlib_file(folder, "diloco-tool", "%s", "#!/bin/sh\n");
    char *at = strdup(tool);
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    snprintf(search, sizeof search, "/nowhere:%s", folder);
    setenv("PATH", search, 1);
    assert_fails(ERR_NOTFOUND, "diloco-tool", program_find("diloco-tool", &path)); /* a file, and no program */
    assert_fails(ERR_NOTFOUND, "no program there", program_find(at, &path));
    assert_int_equal(chmod(at, 0755), 0);
    assert_found("diloco-tool", at);
    assert_found(at, at);
    assert_fails(ERR_NOTFOUND, "program", program_find("program", &path));
    assert_fails(ERR_NOTFOUND, "no program there", program_find(folder, &path)); /* a folder */
    setenv("PATH", before, 1);
    free(at);
}

/* Between fork() and exec() there is no formatting: parts that are there already go out as one line. */
static void a_child_says_in_one_line_what_failed(void **state)
{
    (void)state;
    char longer[4096];
    overhear_begin();
    child_say("cannot start it: ", ENOENT, "; name another");
    assert_string_equal(overhear_end(), "cannot start it: No such file or directory; name another\n");
    overhear_begin();
    child_say("", 1 << 20, "");
    assert_string_equal(overhear_end(), "unknown error\n");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    overhear_begin();
    child_say(longer, EACCES, longer);
    const char *line = overhear_end();
    assert_int_equal(strlen(line), 1024);
    assert_int_equal(line[1023], '\n');
    assert_int_equal(line[1022], 'x');
}

static void a_program_is_run_to_its_end_and_heard(void **state)
{
    (void)state;
    char said[16];
    int status = -1;
    static const char *const speaks[] = {"sh", "-c", "echo out; echo err >&2; exit 3", NULL};
    assert_ok(program_run(speaks, said, sizeof said, true, &status));
    assert_int_equal(status, 3);
    assert_string_equal(said, "out\nerr\n");
    assert_ok(program_run(speaks, said, sizeof said, false, &status));
    assert_string_equal(said, "out\n");
    static const char *const chatters[] = {"sh", "-c", "seq 100000; kill -TERM $$", NULL};
    assert_ok(program_run(chatters, said, sizeof said, false, &status));
    assert_int_equal(status, 128 + SIGTERM);
    assert_string_equal(said, "1\n2\n3\n4\n5\n6\n7\n8");
    static const char *const nobody[] = {"no-such-program", NULL};
    assert_fails(ERR_NOTFOUND, "no-such-program", program_run(nobody, NULL, 0, false, &status));
}

static void an_option_of_one_letter_has_one_dash(void **state)
{
    (void)state;
    bool follow = false, long_one = false;
    struct args_list rest = {0};
    const struct args_option options[] = {{"f", ARGS_FLAG, &follow, NULL, "follow"},
                                          {"long", ARGS_FLAG, &long_one, NULL, "long"}};
    char *argv[] = {"program", "-x", "-", "-f", "-ff", NULL};
    assert_ok(args_parse(5, argv, options, 2, &rest));
    assert_true(follow && !long_one);
    assert_int_equal(rest.count, 3);
    assert_string_equal(rest.item[0], "-x");
    assert_string_equal(rest.item[2], "-ff");
    follow = false;
    char *after[] = {"program", "--long", "--", "-f", NULL};
    assert_ok(args_parse(4, after, options, 2, &rest));
    assert_true(long_one && !follow);
}

static void an_option_that_is_not_there_brings_the_one_that_was_meant(void **state)
{
    (void)state;
    bool flag = false;
    const struct args_option options[] = {{"f", ARGS_FLAG, &flag, NULL, "f"},
                                          {"interval", ARGS_FLAG, &flag, NULL, "i"},
                                          {"follow", ARGS_FLAG, &flag, NULL, "f"}};
    char *slip[] = {"program", "--folow=3", NULL}, *strange[] = {"program", "--qqqqq", NULL};
    assert_fails(ERR_ARG, "unknown option --folow=3; did you mean --follow?", args_parse(2, slip, options, 3, NULL));
    assert_fails(ERR_ARG, "unknown option --qqqqq; --help lists them", args_parse(2, strange, options, 3, NULL));
}

static void help_fits_eighty_columns(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    args_help_row("--left SIDE", "one two three four five six seven eight nine ten eleven twelve", stream);
    args_help_row("--a-left-side-that-is-too-long-for-its-column", "below", stream);
    fclose(stream);
    assert_string_equal(text, "  --left SIDE                one two three four five six seven eight nine ten\n"
                              "                             eleven twelve\n"
                              "  --a-left-side-that-is-too-long-for-its-column\n"
                              "                             below\n");
    free(text);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_text_says_what_and_where),
        cmocka_unit_test(err_long_texts_are_cut_not_overrun),
        cmocka_unit_test(mem_refuses_overflow_and_injected_failures),
        cmocka_unit_test(bytes_never_leave_their_memory),
        cmocka_unit_test(rng_is_the_same_everywhere_and_fair),
        cmocka_unit_test(random_names_differ_between_processes_that_start_alike),
        cmocka_unit_test(digest_is_blake2b_256),
        cmocka_unit_test(a_digest_tree_is_the_same_however_it_is_made),
        cmocka_unit_test(leaves_across_arrays_are_those_of_the_whole),
        cmocka_unit_test(a_digest_tree_covers_order_length_and_level),
        cmocka_unit_test(processors_are_as_many_as_control_groups_let_us_take),
        cmocka_unit_test(a_line_has_its_date_unless_the_journal_reads_it),
        cmocka_unit_test(log_limit_lets_one_through),
        cmocka_unit_test(a_program_is_found_beside_this_one_and_in_path),
        cmocka_unit_test(a_program_is_run_to_its_end_and_heard),
        cmocka_unit_test(a_child_says_in_one_line_what_failed),
        cmocka_unit_test(an_option_of_one_letter_has_one_dash),
        cmocka_unit_test(an_option_that_is_not_there_brings_the_one_that_was_meant),
        cmocka_unit_test(help_fits_eighty_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
