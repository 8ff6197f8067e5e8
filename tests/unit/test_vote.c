/* SPDX-License-Identifier: Apache-2.0 */
/* vote: a disk that has forgotten nothing votes at once; one that may have does not, whatever it was that happened to
 * it. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/fsio.h"
#include "common/mem.h"
#include "daemon/membership/vote.h"
#include "tests/lib/outofmem.h"

enum { LEDGER = 4000, CONFIG_BYTES = 700, BOOT_AT = 8, MARK_BODY = 88 };

static const char *folder, *mark;

/* A state folder and a place for the mark, of one machine. */
static void machine(const char *name)
{
    folder = testlib_folder(name);
    mark = testlib_path(folder, "the.mark");
}

static struct vote_conf conf_of(void)
{
    return (struct vote_conf){.folder = folder, .mark = mark};
}

static struct vote *open_vote(uint64_t ledger_at)
{
    struct vote *vote;
    struct vote_conf conf = conf_of();
    assert_ok(vote_open(&conf, ledger_at, &vote));
    assert_int_not_equal(vote_incarnation(vote), 0);
    return vote;
}

static uint8_t config[CONFIG_BYTES];

/* The `number`th vote there is. */
static struct paxos_vote a_vote(uint64_t number)
{
    struct paxos_vote vote = {.epoch = 3,
                              .promised = 100 + number,
                              .accepted = 90 + number,
                              .own = 80 + number,
                              .bytes = config,
                              .bytes_count = sizeof config - (size_t)number};
    memset(config, (int)number, sizeof config);
    vote.digest = digest_of(config, vote.bytes_count);
    return vote;
}

static void assert_last(const struct vote *vote, uint64_t number)
{
    const struct paxos_vote want = a_vote(number), *last = vote_last(vote);
    assert_true(last->epoch == want.epoch && last->promised == want.promised);
    assert_true(last->accepted == want.accepted && last->own == want.own);
    assert_true(digest_equal(&last->digest, &want.digest));
    assert_int_equal(last->bytes_count, want.bytes_count);
    assert_memory_equal(last->bytes, want.bytes, want.bytes_count);
}

static void assert_sure(const struct vote *vote)
{
    assert_int_equal(vote_doubt(vote), VOTE_SURE);
    assert_string_equal(vote_why(vote), "");
}

static void assert_doubt(const struct vote *vote, const char *why)
{
    assert_int_equal(vote_doubt(vote), VOTE_DOUBT);
    assert_non_null(strstr(vote_why(vote), why));
}

static enum err save(struct vote *vote, const struct paxos_vote *last)
{
    struct vote_file file;
    assert_ok(vote_take(vote, last));
    assert_ok(vote_pack(vote, &file));
    enum err err = vote_write(vote, &file);
    vote_file_deinit(&file);
    return err;
}

/* One that has voted twice and is killed. Returns its incarnation. */
static uint64_t live(void)
{
    struct vote *vote = open_vote(0);
    struct paxos_vote last = a_vote(1);
    assert_ok(vote_settle(vote, vote_incarnation(vote), 0));
    assert_ok(save(vote, &last));
    last = a_vote(2);
    assert_ok(save(vote, &last));
    assert_ok(vote_mark(vote, LEDGER));
    uint64_t incarnation = vote_incarnation(vote);
    vote_close(vote);
    return incarnation;
}

static char *read_all(const char *path, size_t *bytes)
{
    char *data;
    assert_ok(fsio_read(path, 1 << 20, &data, bytes));
    return data;
}

static void write_all(const char *path, const char *data, size_t bytes)
{
    assert_ok(fsio_replace(path, data, bytes, 0600));
}

/* ---- what is remembered ---- */

static void the_first_start_is_fresh(void **state)
{
    (void)state;
    machine("vote-fresh");
    struct vote *vote = open_vote(0);
    assert_int_equal(vote_doubt(vote), VOTE_FRESH);
    assert_string_equal(vote_why(vote), "");
    assert_int_equal(vote_last(vote)->epoch, 0);
    assert_int_equal(vote_last(vote)->promised, 0);
    assert_int_equal(vote_last(vote)->accepted, 0);
    assert_int_equal(vote_last(vote)->bytes_count, 0);
    uint64_t incarnation = vote_incarnation(vote);
    vote_close(vote);
    vote = open_vote(LEDGER); /* killed before it has voted: it is the same, and as fresh */
    assert_int_equal(vote_doubt(vote), VOTE_FRESH);
    assert_string_equal(vote_why(vote), "");
    assert_int_equal(vote_incarnation(vote), incarnation);
    assert_ok(vote_mark(vote, LEDGER));
    vote_close(vote);
    vote = open_vote(LEDGER - 1);
    assert_doubt(vote, "the end of the ledger is missing");
    assert_int_not_equal(vote_incarnation(vote), incarnation);
    incarnation = vote_incarnation(vote);
    assert_ok(vote_mark(vote, LEDGER));
    assert_ok(vote_settle(vote, vote_incarnation(vote), 0));
    assert_sure(vote);
    vote_close(vote);
    vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_int_equal(vote_incarnation(vote), incarnation);
    vote_close(vote);
    vote_close(NULL);
}

static void who_was_killed_votes_at_once(void **state)
{
    (void)state;
    machine("vote-killed");
    uint64_t incarnation = live();
    for (uint64_t more = 0; more < 3; more++) { /* nothing is lost that was told; there may be more */
        struct vote *vote = open_vote(LEDGER + 500 * more);
        assert_sure(vote);
        assert_int_equal(vote_incarnation(vote), incarnation);
        assert_last(vote, 2);
        vote_close(vote);
    }
    struct vote *vote = open_vote(LEDGER);
    struct paxos_vote last = *vote_last(vote); /* its own bytes */
    last.promised = 500;
    assert_ok(save(vote, &last));
    assert_int_equal(vote_last(vote)->promised, 500);
    last = (struct paxos_vote){.epoch = 4, .promised = 1}; /* of which nothing is accepted */
    assert_ok(save(vote, &last));
    vote_close(vote);
    vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_int_equal(vote_last(vote)->epoch, 4);
    assert_int_equal(vote_last(vote)->bytes_count, 0);
    vote_close(vote);
}

/* Another thread writes it meanwhile. */
static void a_vote_that_is_on_its_way_is_not_in_the_mark(void **state)
{
    (void)state;
    struct vote_file file, newer;
    machine("vote-on-its-way");
    live();
    for (int written = 0; written < 2; written++) {
        struct vote *vote = open_vote(LEDGER);
        struct paxos_vote last = a_vote(3);
        assert_ok(vote_take(vote, &last));
        assert_ok(vote_pack(vote, &file));
        last = a_vote(4);
        assert_ok(vote_take(vote, &last));
        assert_ok(vote_pack(vote, &newer));
        assert_last(vote, 4);
        assert_ok(vote_mark(vote, LEDGER));
        if (written) {
            assert_ok(vote_write(vote, &newer)); /* and the other never */
            assert_ok(vote_mark(vote, LEDGER));
        }
        vote_file_deinit(&file);
        vote_file_deinit(&newer);
        vote_close(vote); /* killed */
        vote = open_vote(LEDGER);
        assert_sure(vote);
        assert_last(vote, written ? 4 : 2);
        vote_close(vote);
    }
}

/* ---- what is in doubt ---- */

/* It stays so over restarts until it is settled, in an incarnation of its own. */
static void assert_stays_in_doubt(uint64_t ledger_at, uint64_t incarnation, const char *why)
{
    struct vote *vote = open_vote(ledger_at);
    assert_doubt(vote, why);
    uint64_t first = vote_incarnation(vote);
    assert_int_not_equal(first, incarnation);
    struct paxos_vote last = a_vote(5);
    assert_ok(save(vote, &last)); /* ballots are remembered all the same */
    assert_ok(vote_mark(vote, LEDGER + 9999));
    assert_int_equal(vote_doubt(vote), VOTE_DOUBT);
    vote_close(vote);
    vote = open_vote(LEDGER + 9998); /* it has forgotten something more */
    assert_doubt(vote, "the end of the ledger is missing");
    assert_int_not_equal(vote_incarnation(vote), first);
    first = vote_incarnation(vote);
    assert_ok(vote_mark(vote, LEDGER + 9999));
    vote_close(vote);
    vote = open_vote(LEDGER + 9999); /* nothing more: a configuration may have named it meanwhile */
    assert_doubt(vote, "no configuration has named it");
    assert_int_equal(vote_incarnation(vote), first);
    assert_last(vote, 5);
    assert_ok(vote_settle(vote, vote_incarnation(vote), 0));
    assert_sure(vote);
    incarnation = vote_incarnation(vote);
    vote_close(vote);
    vote = open_vote(LEDGER + 9999);
    assert_sure(vote);
    assert_int_equal(vote_incarnation(vote), incarnation);
    vote_close(vote);
}

/* The daemon of a copied folder: its disk forgot nothing, and only a configuration that names it gives it its vote. */
static void a_disk_beside_which_another_is_named_is_in_doubt_until_it_is_named(void **state)
{
    (void)state;
    machine("vote-copied");
    uint64_t incarnation = live();
    struct vote *vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_true(vote_disk(vote)->named == incarnation);
    vote_distrust(vote);
    assert_doubt(vote, "names another disk of this island");
    vote_close(vote);
    vote = open_vote(LEDGER);
    assert_doubt(vote, "no configuration has named it");
    assert_int_equal(vote_incarnation(vote), incarnation);
    assert_last(vote, 2);
    assert_ok(vote_settle(vote, incarnation + 1, 5)); /* with all others, by the name of a disk that is gone */
    vote_close(vote);
    vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_true(vote_incarnation(vote) == incarnation && vote_disk(vote)->named == incarnation + 1);
    assert_int_equal(vote_disk(vote)->trusted_epoch, 5);
    vote_close(vote);
}

/* Its mark fits, and a checkpoint in it cannot be read. */
static void a_disk_that_is_known_to_have_lost_something_is_in_doubt(void **state)
{
    (void)state;
    machine("vote-lost");
    uint64_t incarnation = live();
    struct vote *vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_ok(vote_lost(vote, "a checkpoint was damaged"));
    assert_doubt(vote, "a checkpoint was damaged");
    uint64_t lost = vote_incarnation(vote);
    assert_true(lost != incarnation);
    assert_ok(vote_lost(vote, "so was another one"));
    assert_doubt(vote, "a checkpoint was damaged");
    assert_true(vote_incarnation(vote) == lost);
    vote_close(vote);
    vote = open_vote(LEDGER);
    assert_doubt(vote, "no configuration has named it");
    assert_true(vote_incarnation(vote) == lost);
    vote_close(vote);
}

/* A copy of a folder that was not running has a vote that fits the mark. */
static void one_daemon_has_a_mark_at_a_time(void **state)
{
    (void)state;
    machine("vote-twice");
    uint64_t incarnation = live();
    struct vote *first = open_vote(LEDGER), *second = NULL;
    struct vote_conf conf = {.folder = folder, .mark = mark};
    assert_sure(first);
    assert_fails(ERR_CONF, "with this island's key", vote_open(&conf, LEDGER, &second));
    assert_null(second);
    vote_close(first);
    second = open_vote(LEDGER);
    assert_sure(second);
    assert_true(vote_incarnation(second) == incarnation);
    vote_close(second);
}

static void an_older_ledger_is_in_doubt(void **state)
{
    (void)state;
    machine("vote-ledger");
    uint64_t incarnation = live();
    assert_stays_in_doubt(LEDGER - 1, incarnation, "the end of the ledger is missing");
}

static void an_older_folder_is_in_doubt(void **state)
{
    (void)state;
    size_t bytes;
    machine("vote-older");
    uint64_t incarnation = live();
    char *older = read_all(testlib_path(folder, "vote"), &bytes);
    struct vote *vote = open_vote(LEDGER);
    struct paxos_vote last = a_vote(3);
    assert_ok(save(vote, &last));
    vote_close(vote);
    write_all(testlib_path(folder, "vote"), older, bytes);
    mem_free(older);
    vote = open_vote(LEDGER);
    assert_last(vote, 2); /* the third is what is missing */
    vote_close(vote);
    assert_stays_in_doubt(LEDGER, incarnation, "");
}

/* Put back once more after it was known in a new incarnation: its number may have come to be the mark's by then. */
static void an_older_folder_of_another_incarnation_is_in_doubt(void **state)
{
    (void)state;
    size_t bytes;
    machine("vote-again");
    live();
    char *older = read_all(testlib_path(folder, "vote"), &bytes);
    assert_int_equal(unlink(testlib_path(folder, "vote")), 0);
    struct vote *vote = open_vote(LEDGER);
    assert_doubt(vote, "emptied");
    struct paxos_vote last = a_vote(3);
    assert_ok(save(vote, &last));
    assert_ok(vote_settle(vote, vote_incarnation(vote), 0)); /* as many votes as the older one has */
    assert_ok(save(vote, &last));
    vote_close(vote);
    write_all(testlib_path(folder, "vote"), older, bytes);
    mem_free(older);
    vote = open_vote(LEDGER);
    assert_doubt(vote, "its last vote is missing");
    vote_close(vote);
}

static void an_emptied_folder_is_in_doubt(void **state)
{
    (void)state;
    machine("vote-emptied");
    uint64_t incarnation = live();
    assert_int_equal(unlink(testlib_path(folder, "vote")), 0);
    struct vote *vote = open_vote(0);
    assert_doubt(vote, "emptied");
    assert_int_equal(vote_last(vote)->promised, 0);
    vote_close(vote);
    assert_stays_in_doubt(LEDGER, incarnation, "");
}

static void without_its_mark_a_disk_is_in_doubt(void **state)
{
    (void)state;
    machine("vote-boot");
    uint64_t incarnation = live();
    assert_int_equal(unlink(mark), 0); /* as the machine's start leaves nothing of it */
    assert_stays_in_doubt(LEDGER, incarnation, "started again");
}

/* Where the place of the mark outlives a boot, the id in it tells. */
static void a_mark_of_another_boot_is_none(void **state)
{
    (void)state;
    size_t bytes;
    machine("vote-other-boot");
    uint64_t incarnation = live();
    char *data = read_all(mark, &bytes);
    assert_int_equal(bytes, MARK_BODY + DIGEST_BYTES);
    data[BOOT_AT] = data[BOOT_AT] == '0' ? '1' : '0';
    struct digest digest = digest_of(data, MARK_BODY);
    memcpy(data + MARK_BODY, digest.byte, DIGEST_BYTES);
    write_all(mark, data, bytes);
    mem_free(data);
    assert_stays_in_doubt(LEDGER, incarnation, "started again");
    /* Of a folder that was never used here it says nothing. */
    machine("vote-other-boot-fresh");
    live();
    data = read_all(mark, &bytes);
    data[BOOT_AT + 35] ^= 1;
    digest = digest_of(data, MARK_BODY);
    memcpy(data + MARK_BODY, digest.byte, DIGEST_BYTES);
    write_all(mark, data, bytes);
    mem_free(data);
    assert_int_equal(unlink(testlib_path(folder, "vote")), 0);
    struct vote *vote = open_vote(0);
    assert_int_equal(vote_doubt(vote), VOTE_FRESH);
    vote_close(vote);
}

static void a_damaged_mark_is_none(void **state)
{
    (void)state;
    size_t bytes;
    machine("vote-mark");
    live();
    char *good = read_all(mark, &bytes), *vote_file;
    size_t vote_bytes;
    vote_file = read_all(testlib_path(folder, "vote"), &vote_bytes);
    for (size_t i = 0; i <= bytes; i++) {
        write_all(testlib_path(folder, "vote"), vote_file, vote_bytes);
        if (i < bytes)
            good[i] ^= 4;
        write_all(mark, good, i < bytes ? bytes : bytes - 1);
        if (i < bytes)
            good[i] ^= 4;
        struct vote *vote = open_vote(LEDGER);
        assert_doubt(vote, "started again");
        vote_close(vote);
    }
    write_all(testlib_path(folder, "vote"), vote_file, vote_bytes);
    write_all(mark, good, bytes);
    struct vote *vote = open_vote(LEDGER);
    assert_sure(vote);
    vote_close(vote);
    mem_free(good);
    mem_free(vote_file);
}

/* ---- what cannot be read or written ---- */

/* What was promised is not known then, and no guess is good enough; the remedy is to say so. */
static void a_damaged_vote_is_refused_and_left(void **state)
{
    (void)state;
    size_t bytes;
    struct vote *vote;
    machine("vote-damaged");
    live();
    struct vote_conf conf = conf_of();
    const char *path = testlib_path(folder, "vote");
    char *good = read_all(path, &bytes);
    for (size_t i = 0; i < bytes; i += i < 140 ? 1 : 37) {
        good[i] ^= 0x20;
        write_all(path, good, bytes);
        good[i] ^= 0x20;
        assert_fails(ERR_CORRUPT, "move it away", vote_open(&conf, LEDGER, &vote));
        assert_null(vote);
    }
    for (size_t left = 0; left < bytes; left += left < 140 ? 1 : 37) {
        write_all(path, good, left);
        assert_fails(ERR_CORRUPT, "move it away", vote_open(&conf, LEDGER, &vote));
    }
    /* A right digest over a length that is not. */
    good[88] ^= 1;
    struct digest digest = digest_of(good, bytes - DIGEST_BYTES);
    memcpy(good + bytes - DIGEST_BYTES, digest.byte, DIGEST_BYTES);
    write_all(path, good, bytes);
    assert_fails(ERR_CORRUPT, "move it away", vote_open(&conf, LEDGER, &vote));
    mem_free(good);
    /* The remedy. */
    assert_int_equal(unlink(path), 0);
    vote = open_vote(LEDGER);
    assert_doubt(vote, "emptied");
    vote_close(vote);
}

static void without_a_place_for_the_mark_nothing_is_told(void **state)
{
    (void)state;
    machine("vote-no-place");
    const char *good = mark;
    mark = testlib_path(folder, "nowhere/the.mark");
    struct vote *vote = open_vote(0);
    assert_fails(ERR_IO, "cannot create", vote_settle(vote, vote_incarnation(vote), 0));
    assert_int_equal(vote_doubt(vote), VOTE_FRESH); /* the doubt is not over */
    assert_ok(fsio_mkdirs(testlib_path(folder, "nowhere"), 0700));
    assert_ok(vote_settle(vote, vote_incarnation(vote), 0)); /* tried again */
    assert_sure(vote);
    assert_ok(vote_mark(vote, LEDGER));
    vote_close(vote);
    /* It was sure when it was opened, and nothing more can be written. */
    struct rlimit before, none;
    vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    enum err err = vote_mark(vote, LEDGER + 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_fails(ERR_IO, "cannot write", err);
    vote_close(vote);
    mark = good;
}

static void a_vote_that_cannot_be_saved_is_not_given(void **state)
{
    (void)state;
    machine("vote-no-folder");
    const char *below = testlib_path(folder, "state");
    assert_ok(fsio_mkdirs(below, 0700));
    folder = below;
    live();
    struct vote *vote = open_vote(LEDGER);
    assert_sure(vote);
    assert_int_equal(unlink(testlib_path(folder, "vote")), 0);
    assert_int_equal(rmdir(folder), 0);
    struct paxos_vote last = a_vote(3);
    assert_int_equal(save(vote, &last), ERR_IO);
    vote_close(vote);
    assert_ok(fsio_mkdirs(below, 0700));
    vote = open_vote(LEDGER);
    assert_doubt(vote, "emptied");
    vote_close(vote);
}

static enum err open_once(void *user)
{
    struct vote *vote;
    struct vote_conf conf = conf_of();
    (void)user;
    enum err err = vote_open(&conf, LEDGER, &vote);
    assert_true(err == ERR_OK || vote == NULL);
    vote_close(vote);
    return err;
}

static void without_memory_nothing_is_opened(void **state)
{
    (void)state;
    machine("vote-memory");
    live();
    print_message("%zu allocations failed in turn\n", outofmem_walk(open_once, NULL));
    struct vote *vote = open_vote(LEDGER);
    assert_sure(vote);
    vote_close(vote);
}

int main(void)
{
    assert_ok(digest_init());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_start_is_fresh),
        cmocka_unit_test(who_was_killed_votes_at_once),
        cmocka_unit_test(a_vote_that_is_on_its_way_is_not_in_the_mark),
        cmocka_unit_test(a_disk_beside_which_another_is_named_is_in_doubt_until_it_is_named),
        cmocka_unit_test(a_disk_that_is_known_to_have_lost_something_is_in_doubt),
        cmocka_unit_test(one_daemon_has_a_mark_at_a_time),
        cmocka_unit_test(an_older_ledger_is_in_doubt),
        cmocka_unit_test(an_older_folder_is_in_doubt),
        cmocka_unit_test(an_older_folder_of_another_incarnation_is_in_doubt),
        cmocka_unit_test(an_emptied_folder_is_in_doubt),
        cmocka_unit_test(without_its_mark_a_disk_is_in_doubt),
        cmocka_unit_test(a_mark_of_another_boot_is_none),
        cmocka_unit_test(a_damaged_mark_is_none),
        cmocka_unit_test(a_damaged_vote_is_refused_and_left),
        cmocka_unit_test(without_a_place_for_the_mark_nothing_is_told),
        cmocka_unit_test(a_vote_that_cannot_be_saved_is_not_given),
        cmocka_unit_test(without_memory_nothing_is_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
