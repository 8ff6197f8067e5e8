/* SPDX-License-Identifier: Apache-2.0 */
/* ipc: messages, passed descriptors, a shared memory that is checked before it is believed, and the words that two
 * sides move: no move but the drawn ones, whoever tries and whoever else is at it. */
#include "tests/lib/testlib.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/ipc.h"

static void messages_and_descriptors_travel(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    struct ipc_message out = {.type = IPC_TAKEN, .fragment = 7};
    struct ipc_message in;
    int fd = 5;
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_AGAIN);
    assert_int_equal(fd, -1);
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    assert_ok(ipc_send(pair[0], &out, pipe_fds[0]));
    assert_ok(ipc_recv(pair[1], &in, &fd));
    assert_int_equal(in.type, IPC_TAKEN);
    assert_int_equal(in.fragment, 7);
    assert_int_equal(write(pipe_fds[1], "x", 1), 1);
    char byte;
    assert_int_equal(read(fd, &byte, 1), 1);
    close(fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    assert_int_equal(send(pair[0], "short", 5, 0), 5);
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_PROTO);
    out.type = 99;
    assert_ok(ipc_send(pair[0], &out, -1));
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_PROTO);
    close(pair[0]);
    assert_int_equal(ipc_recv(pair[1], &in, &fd), ERR_CLOSED);
    assert_int_equal(ipc_send(pair[1], &out, -1), ERR_CLOSED);
    close(pair[1]);
}

static unsigned descriptors_open(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* However many come, none stays open. */
static void more_descriptors_than_one_are_refused_and_closed(void **state)
{
    (void)state;
    enum { MOST = 6 };
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    for (int count = 2; count <= MOST; count++) {
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(MOST * sizeof(int))];
        } control = {.space = {0}};
        struct ipc_message out = {.type = IPC_HELLO}, in;
        struct iovec part = {.iov_base = &out, .iov_len = sizeof out};
        struct msghdr header = {.msg_iov = &part,
                                .msg_iovlen = 1,
                                .msg_control = control.space,
                                .msg_controllen = CMSG_SPACE((size_t)count * sizeof(int))};
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        for (int i = 0; i < count; i++)
            memcpy(CMSG_DATA(rights) + (size_t)i * sizeof(int), &pair[0], sizeof(int));
        unsigned before = descriptors_open();
        assert_int_equal(sendmsg(pair[0], &header, 0), sizeof out);
        int fd = 5;
        assert_fails(ERR_PROTO, "more than one descriptor", ipc_recv(pair[1], &in, &fd));
        assert_int_equal(fd, -1);
        assert_int_equal(descriptors_open(), before);
    }
    close(pair[0]);
    close(pair[1]);
}

static void last_words_are_heard_though_nobody_read_ours(void **state)
{
    (void)state;
    int pair[2], fd;
    struct ipc_message in, out = {.type = IPC_REPORT}, no = {.type = IPC_REFUSED, .text = "why"};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
    assert_ok(ipc_send(pair[0], &out, -1));
    assert_ok(ipc_send(pair[1], &no, -1));
    close(pair[1]);
    assert_ok(ipc_recv(pair[0], &in, &fd));
    assert_int_equal(in.type, IPC_REFUSED);
    assert_string_equal(in.text, "why");
    assert_int_equal(ipc_recv(pair[0], &in, &fd), ERR_CLOSED);
    close(pair[0]);
}

static void long_socket_paths_are_refused(void **state)
{
    (void)state;
    struct sockaddr_un address;
    char path[200];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_fails(ERR_CONF, "choose a shorter folder", ipc_address(path, &address));
    assert_ok(ipc_address("/run/x", &address));
}

static void the_dealing_comes_whole_or_not_at_all(void **state)
{
    (void)state;
    struct ipc_shm *shm = aligned_alloc(4096, 4096);
    struct deal put = deal_of(7, 20), got = deal_of(1, 2);
    memset(shm, 0, sizeof *shm);
    ipc_deal_get(shm, &got); /* nothing was put yet */
    assert_true(got.id == 1 && got.horizon == 2);
    put.count = 1;
    put.cuts[0] = (struct deal_cut){.start = {5, 50}, .units = 4, .before = 1, .own = 3};
    ipc_deal_put(shm, &put);
    ipc_deal_get(shm, &got);
    assert_memory_equal(&put, &got, sizeof got);
    put.counted = 9;
    ipc_deal_put(shm, &put);
    atomic_fetch_add(&shm->deal.turn, 1); /* the daemon was killed while it wrote */
    ipc_deal_get(shm, &got);
    assert_int_equal(got.counted, 0);
    ipc_deal_put(shm, &put);
    ipc_deal_get(shm, &got);
    assert_int_equal(got.counted, 9);
    put.count = DEAL_LISTS + 1;
    ipc_deal_put(shm, &put);
    ipc_deal_get(shm, &got);
    assert_int_equal(got.count, 1);
    free(shm);
}

static void a_wrong_shared_memory_is_refused(void **state)
{
    (void)state;
    enum { BYTES = 65536 };
    char *memory = aligned_alloc(4096, BYTES);
    memset(memory, 0, BYTES);
    struct ipc_shm *shm = (struct ipc_shm *)(void *)memory;
    *shm = (struct ipc_shm){.magic = IPC_MAGIC,
                            .version = IPC_VERSION,
                            .fragments_count = 1,
                            .tensors_count = 1,
                            .bytes = BYTES,
                            .fragments_offset = 1024,
                            .places_offset = 8192};
    struct ipc_fragment *fragment = ipc_fragment(shm, 0);
    fragment->values_count = 256;
    fragment->area_offset[0] = 16384;
    fragment->area_offset[1] = 32768;
    ipc_places(shm)[0] = (struct ipc_place){.fragment = 0, .offset = 6, .count = 250};
    assert_ok(ipc_shm_check(shm, BYTES));
    assert_ptr_equal(ipc_base(shm, fragment), memory + 16384);
    assert_ptr_equal(ipc_area(shm, fragment), memory + 32768);
    assert_int_equal(ipc_shm_check(shm, BYTES - 1), ERR_PROTO);
#define REFUSED_WITH(field, value)                              \
    do {                                                        \
        uint64_t saved = (field);                               \
        (field) = (value);                                      \
        assert_int_equal(ipc_shm_check(shm, BYTES), ERR_PROTO); \
        (field) = (__typeof__(field))saved;                     \
    } while (0)
    REFUSED_WITH(shm->magic, 1);
    REFUSED_WITH(shm->version, IPC_VERSION + 1);
    REFUSED_WITH(shm->fragments_count, 100000);
    REFUSED_WITH(shm->tensors_count, 100000);
    REFUSED_WITH(shm->fragments_offset, 65536 + 64);
    REFUSED_WITH(fragment->base, 2);
    REFUSED_WITH(fragment->values_count, 9000);
    REFUSED_WITH(fragment->values_count, UINT64_MAX / 4);
    REFUSED_WITH(fragment->area_offset[1], 65536 - 64);
    REFUSED_WITH(fragment->area_offset[0], 16385);
    REFUSED_WITH(ipc_places(shm)[0].fragment, 1);
    REFUSED_WITH(ipc_places(shm)[0].count, 251);
    REFUSED_WITH(ipc_places(shm)[0].offset, UINT64_MAX);
    assert_ok(ipc_shm_check(shm, BYTES));
    atomic_store(&fragment->word, IPC_WORDS);
    assert_int_equal(ipc_shm_check(shm, BYTES), ERR_PROTO);
    free(memory);
}

/* ---- words ---- */

/* The arrows of the picture in ipc.h, once more. */
static const struct move {
    enum ipc_side side;
    enum ipc_word from, to;
} drawn[] = {
    {IPC_TRAINER, IPC_FREE, IPC_COPYING},  {IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT},
    {IPC_TRAINER, IPC_ANCHOR, IPC_MIXING}, {IPC_TRAINER, IPC_MIXING, IPC_FREE},
    {IPC_DAEMON, IPC_FREE, IPC_FILLING},   {IPC_DAEMON, IPC_SNAPSHOT, IPC_FILLING},
    {IPC_DAEMON, IPC_SNAPSHOT, IPC_FREE},  {IPC_DAEMON, IPC_FILLING, IPC_ANCHOR},
    {IPC_DAEMON, IPC_FILLING, IPC_FREE},   {IPC_DAEMON, IPC_ANCHOR, IPC_FILLING},
};

static bool is_drawn(unsigned side, unsigned from, unsigned to)
{
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++)
        if (drawn[i].side == side && drawn[i].from == from && drawn[i].to == to)
            return true;
    return false;
}

/* Over all words and one beyond, as the memory may hold, and a caller ask for, anything. */
static void a_side_moves_a_word_along_its_own_arrows_and_no_others(void **state)
{
    (void)state;
    struct ipc_fragment fragment = {0};
    unsigned moved = 0;
    for (unsigned side = 0; side <= IPC_SIDES; side++)
        for (unsigned from = 0; from <= IPC_WORDS; from++)
            for (unsigned to = 0; to <= IPC_WORDS; to++)
                for (unsigned word = 0; word <= IPC_WORDS; word++) {
                    atomic_store(&fragment.word, word);
                    bool may = is_drawn(side, from, to) && word == from;
                    if (ipc_move(&fragment, side, from, to) != may)
                        fail_msg("side %u, %s to %s, at %s: %s", side, ipc_word_name(from), ipc_word_name(to),
                                 ipc_word_name(word), may ? "did not move" : "moved");
                    assert_int_equal(ipc_word(&fragment), may ? to : word);
                    moved += may;
                }
    assert_int_equal(moved, sizeof drawn / sizeof drawn[0]);
    assert_string_equal(ipc_word_name(IPC_MIXING), "MIXING");
    assert_string_equal(ipc_word_name(IPC_WORDS), "unknown");
}

/* One word, and what its owner may touch without asking. */
struct raced {
    struct ipc_fragment fragment;
    uint64_t owned; /* times somebody owned the word; written by its owner alone */
    pthread_barrier_t start;
    _Atomic int content; /* racers that have seen enough of a race */
};

struct racer {
    struct raced *raced;
    enum ipc_side side;
    uint64_t moved[IPC_WORDS][IPC_WORDS];
    uint64_t owned;
    unsigned faults; /* cmocka's asserts belong to its own thread */
};

enum { RACE_TRIES = 1000000, RACE_YIELD_EVERY = 64, RACE_MOVES_MIN = 100, RACE_SEED = 1, RACE_MS_MAX = 30000 };

/* The words that only this side moves on. */
static bool owns(enum ipc_side side, unsigned word)
{
    return side == IPC_TRAINER ? word == IPC_COPYING || word == IPC_MIXING
                               : word == IPC_SNAPSHOT || word == IPC_FILLING;
}

/* Whether this side has moved the word to everywhere it can, often. */
static bool seen_enough(const struct racer *racer)
{
    bool enough = true;
    for (unsigned to = 0; to < IPC_WORDS; to++) {
        uint64_t came = 0;
        bool can = false;
        for (unsigned from = 0; from < IPC_WORDS; from++) {
            came += racer->moved[from][to];
            can |= is_drawn(racer->side, from, to);
        }
        enough &= !can || came > RACE_MOVES_MIN;
    }
    return enough;
}

/* Both go on until both have seen enough, whatever else the machine does: alone there is no race. */
static bool race_goes_on(struct racer *racer, int tries, bool *content, uint64_t until_ms)
{
    if (!*content && tries >= RACE_TRIES && seen_enough(racer)) {
        *content = true;
        racer->raced->content++;
    }
    return racer->raced->content < IPC_SIDES && env_mono_ms() < until_ms;
}

/* Tries any move in any order, drawn or not; what it owns must stay as it is until it moves it itself. */
static void *race(void *user)
{
    struct racer *racer = user;
    struct ipc_fragment *fragment = &racer->raced->fragment;
    struct env_rng rng = env_rng_init(RACE_SEED, (uint64_t)racer->side);
    uint64_t until_ms = env_mono_ms() + RACE_MS_MAX;
    bool content = false;
    pthread_barrier_wait(&racer->raced->start);
    for (int i = 0; i % RACE_YIELD_EVERY != 0 || race_goes_on(racer, i, &content, until_ms); i++) {
        if (i % RACE_YIELD_EVERY == 0)
            sched_yield(); /* one core is enough */
        unsigned word = ipc_word(fragment);
        unsigned from = env_rng_below(&rng, 4) > 0 ? word : (unsigned)env_rng_below(&rng, IPC_WORDS);
        unsigned to = (unsigned)env_rng_below(&rng, IPC_WORDS);
        bool mine = owns(racer->side, word);
        if (mine) {
            racer->raced->owned++; /* no atomic: the word is what keeps the other side away */
            racer->owned++;
        }
        bool moved = ipc_move(fragment, racer->side, from, to);
        racer->moved[from][to] += moved;
        racer->faults += moved && !is_drawn(racer->side, from, to);
        racer->faults += mine && moved != (word == from && is_drawn(racer->side, from, to));
        racer->faults += mine && !moved && ipc_word(fragment) != word;
    }
    return NULL;
}

/* Every move that was made began where another had ended: no word was left twice, and none was reached by nobody. */
static void two_sides_at_one_word_never_leave_the_picture(void **state)
{
    (void)state;
    struct raced raced = {0};
    struct racer racers[IPC_SIDES];
    pthread_t threads[IPC_SIDES];
    assert_int_equal(pthread_barrier_init(&raced.start, NULL, IPC_SIDES), 0);
    for (int side = 0; side < IPC_SIDES; side++) {
        racers[side] = (struct racer){.raced = &raced, .side = side};
        assert_int_equal(pthread_create(&threads[side], NULL, race, &racers[side]), 0);
    }
    for (int side = 0; side < IPC_SIDES; side++)
        pthread_join(threads[side], NULL);
    pthread_barrier_destroy(&raced.start);
    uint64_t came[IPC_WORDS] = {[IPC_FREE] = 1}, went[IPC_WORDS] = {0};
    went[ipc_word(&raced.fragment)] = 1;
    for (int side = 0; side < IPC_SIDES; side++)
        for (int from = 0; from < IPC_WORDS; from++)
            for (int to = 0; to < IPC_WORDS; to++) {
                came[to] += racers[side].moved[from][to];
                went[from] += racers[side].moved[from][to];
            }
    for (int word = 0; word < IPC_WORDS; word++) {
        assert_int_equal(came[word], went[word]);
        assert_true(came[word] > RACE_MOVES_MIN); /* there was a race */
    }
    assert_int_equal(racers[IPC_TRAINER].faults + racers[IPC_DAEMON].faults, 0);
    assert_int_equal(raced.owned, racers[IPC_TRAINER].owned + racers[IPC_DAEMON].owned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_and_descriptors_travel),
        cmocka_unit_test(more_descriptors_than_one_are_refused_and_closed),
        cmocka_unit_test(long_socket_paths_are_refused),
        cmocka_unit_test(last_words_are_heard_though_nobody_read_ours),
        cmocka_unit_test(the_dealing_comes_whole_or_not_at_all),
        cmocka_unit_test(a_wrong_shared_memory_is_refused),
        cmocka_unit_test(a_side_moves_a_word_along_its_own_arrows_and_no_others),
        cmocka_unit_test(two_sides_at_one_word_never_leave_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
