/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer that says and writes anything: messages of any bytes on worker.sock, with any descriptor, in any order, and
 * any contents of the memory it shares with the daemon. The daemon's part may not crash or hang, the protocol's core
 * never gets an event that has no place, and a good trainer that comes afterwards is welcomed.
 *
 * The first byte chooses the run, those after it are moves with their operands, mostly one byte each (`moves`, below);
 * what is missing at the end is zero. Moves of a good trainer are among them, so that the others start from anywhere.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "net/transport/wire.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/shares.h"
#include "tests/lib/testlib.h"
#include "tests/lib/trainerstage.h"

enum { MOVES_MAX = 200, PATIENCE_TICKS = 8 };

static const char *folder;
static struct codec *codec;

struct play {
    struct stage stage;
    const uint8_t *at, *end;
};

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stdout, "fuzz_trainer: %s\n", what);
    fflush(stdout);
    abort();
}

/* ---- operands ---- */

static uint8_t byte_of(struct play *play)
{
    return play->at < play->end ? *play->at++ : 0;
}

static void bytes_of(struct play *play, void *out, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((uint8_t *)out)[i] = byte_of(play);
}

/* Small numbers are the likely ones; 255 announces any. */
static uint64_t number_of(struct play *play)
{
    uint64_t number = byte_of(play);
    if (number == 255)
        bytes_of(play, &number, sizeof number);
    return number;
}

/* One that there is, mostly. */
static uint32_t fragment_of(struct play *play)
{
    return (uint32_t)number_of(play);
}

static uint32_t own_fragment_of(struct play *play)
{
    return byte_of(play) % TRAINERRUN_FRAGMENTS;
}

/* ---- the trainer's side ---- */

static void drop_memory(struct stage *stage)
{
    if (stage->shm != NULL)
        munmap(stage->shm, (size_t)lseek(stage->memfd, 0, SEEK_END));
    if (stage->memfd >= 0)
        close(stage->memfd);
    stage->memfd = -1;
    stage->shm = NULL;
}

/* Reads all that the daemon has said; true: a message of that type was there. */
static bool hear(struct stage *stage, enum ipc_type type)
{
    struct ipc_message message;
    bool heard = false;
    int fd;
    for (enum err err = ERR_OK; stage->socket >= 0 && err != ERR_AGAIN;) {
        err = ipc_recv(stage->socket, &message, &fd);
        heard |= err == ERR_OK && message.type == type;
        if (fd >= 0) {
            check(err == ERR_OK && message.type == IPC_WELCOME, "a descriptor that is no memory");
            drop_memory(stage);
            stage->memfd = fd;
            stage->session = message.welcome.session;
            stage->shm = trainerrun_map(fd);
        }
        if (err != ERR_OK && err != ERR_AGAIN) {
            close(stage->socket);
            stage->socket = -1;
        }
    }
    return heard;
}

static void say_with(struct play *play, const void *bytes, size_t count, int fd)
{
    struct stage *stage = &play->stage;
    if (stage->socket < 0)
        return;
    if (count == sizeof(struct ipc_message))
        (void)!ipc_send(stage->socket, bytes, fd);
    else
        (void)!send(stage->socket, bytes, count, MSG_NOSIGNAL);
    if (fd >= 0)
        close(fd);
    stage_turn(stage);
    (void)hear(stage, IPC_TYPES);
}

static void say(struct play *play, const struct ipc_message *message)
{
    say_with(play, message, sizeof *message, -1);
}

/* A descriptor to send along; -1: none. */
static int any_descriptor(struct play *play)
{
    struct stage *stage = &play->stage;
    uint8_t kind = byte_of(play) % 8;
    if (kind == 1)
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    if (kind == 2)
        return dup(STDIN_FILENO);
    if (kind < 5)
        return stage->memfd >= 0 ? fcntl(stage->memfd, F_DUPFD_CLOEXEC, 0) : -1;
    if (kind == 5)
        return -1;
    /* One of its own that looks like ours: as large, with all that it knows in it, sealed or not. */
    int fd = memfd_create("stranger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    off_t bytes = stage->shm != NULL ? (off_t)stage->shm->bytes : (off_t)number_of(play);
    if (stage->shm == NULL || ftruncate(fd, lseek(stage->memfd, 0, SEEK_END)) != 0 ||
        pwrite(fd, stage->shm, (size_t)lseek(stage->memfd, 0, SEEK_END), 0) < 0)
        (void)!ftruncate(fd, bytes & 0xfffff);
    if (kind == 7)
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    return fd;
}

/* ---- moves ---- */

static void move_connect(struct play *play)
{
    if (play->stage.socket < 0)
        stage_connect(&play->stage);
    stage_turn(&play->stage);
}

static void move_hang_up(struct play *play)
{
    bool keep = byte_of(play) % 2;
    if (play->stage.socket >= 0)
        close(play->stage.socket);
    play->stage.socket = -1;
    if (!keep)
        drop_memory(&play->stage);
    stage_turn(&play->stage);
}

/* Any message. */
static void move_message(struct play *play)
{
    struct ipc_message message = {.type = byte_of(play) % (IPC_TYPES + 1), .fragment = fragment_of(play)};
    uint8_t count = byte_of(play), offset = byte_of(play);
    for (size_t i = offset; i < (size_t)offset + count && i < sizeof message.text; i++)
        message.text[i] = (char)byte_of(play);
    say_with(play, &message, sizeof message, any_descriptor(play));
}

/* Any bytes. */
static void move_bytes(struct play *play)
{
    uint8_t bytes[2 * sizeof(struct ipc_message)] = {0};
    uint64_t count = number_of(play);
    bytes_of(play, bytes, 16);
    say_with(play, bytes, (size_t)(count % sizeof bytes), -1);
}

static void move_hello(struct play *play)
{
    struct ipc_message message = {.type = IPC_HELLO};
    uint8_t session = byte_of(play) % 4;
    message.hello = (struct ipc_hello){.version = IPC_VERSION,
                                       .session = session == 0   ? 0
                                                  : session == 1 ? number_of(play)
                                                                 : play->stage.session,
                                       .step = number_of(play),
                                       .tokens = number_of(play),
                                       .kept = byte_of(play)};
    memset(message.hello.trainer, 'x', sizeof message.hello.trainer);
    say_with(play, &message, sizeof message, any_descriptor(play));
}

/* The run's tensors, or one of them changed. */
static void move_tensors(struct play *play)
{
    uint8_t changed = byte_of(play), count = byte_of(play) % 16, offset = byte_of(play);
    for (uint32_t i = 0; i < TRAINERRUN_TENSORS; i++) {
        struct ipc_message message = {.type = IPC_TENSOR, .tensor = trainerrun_tensors[i]};
        if (i + 1 == changed)
            bytes_of(play, (uint8_t *)&message.tensor + offset % (sizeof message.tensor - count), count);
        say(play, &message);
    }
    say(play, &(struct ipc_message){.type = IPC_REGISTERED});
}

static void move_say(struct play *play)
{
    uint8_t type = byte_of(play);
    say(play, &(struct ipc_message){.type = type % IPC_WELCOME, .fragment = fragment_of(play)});
}

static void move_report(struct play *play)
{
    struct ipc_message message = {.type = IPC_REPORT};
    message.report.step = number_of(play);
    message.report.tokens = number_of(play);
    bytes_of(play, &message.report.loss, sizeof(double));
    bytes_of(play, &message.report.tokens_per_s, sizeof(double));
    say(play, &message);
}

/* A good trainer from the door to its first step, as far as the daemon lets it. */
static void move_train(struct play *play)
{
    struct stage *stage = &play->stage;
    stage->peers_heard = true;
    move_connect(play);
    move_hello(play);
    move_tensors(play);
    stage_tick(stage, 1);
    (void)hear(stage, IPC_TYPES);
    say(play, &(struct ipc_message){.type = IPC_INITIAL});
    for (int i = 0; i < 2; i++)
        stage_tick(stage, 1);
    (void)hear(stage, IPC_TYPES);
}

/* ---- moves in the shared memory ---- */

/* What the memory says of places may have been written over; the daemon goes by its own copy, and so do we. */
static size_t table_of(void)
{
    return (sizeof(struct ipc_shm) + IPC_ALIGN - 1) / IPC_ALIGN * IPC_ALIGN;
}

static struct ipc_fragment *fragment_at(struct play *play, uint32_t f)
{
    return (struct ipc_fragment *)(void *)((char *)play->stage.shm + table_of()) + f;
}

static void move_word(struct play *play)
{
    uint32_t f = own_fragment_of(play), word = fragment_of(play);
    if (play->stage.shm != NULL)
        atomic_store(&fragment_at(play, f)->word, word);
}

static void poke(struct play *play, size_t place, size_t room)
{
    size_t offset = number_of(play) % room;
    uint8_t count = byte_of(play) % 9;
    for (size_t i = offset; i < offset + count && i < room; i++)
        ((uint8_t *)play->stage.shm)[place + i] = byte_of(play);
}

static void move_poke_head(struct play *play)
{
    if (play->stage.shm != NULL)
        poke(play, 0, sizeof(struct ipc_shm));
}

static void move_poke_fragment(struct play *play)
{
    uint32_t f = own_fragment_of(play);
    if (play->stage.shm != NULL)
        poke(play, table_of() + f * sizeof(struct ipc_fragment), sizeof(struct ipc_fragment));
}

static void move_poke_anywhere(struct play *play)
{
    if (play->stage.shm != NULL)
        poke(play, 0, (size_t)lseek(play->stage.memfd, 0, SEEK_END));
}

static void move_snapshot(struct play *play)
{
    uint32_t f = own_fragment_of(play);
    uint64_t step = number_of(play), tokens = number_of(play);
    if (play->stage.shm == NULL)
        return;
    struct ipc_fragment *fragment = fragment_at(play, f);
    if (ipc_move(fragment, IPC_TRAINER, IPC_FREE, IPC_COPYING)) {
        fragment->snapshot_step = step;
        fragment->snapshot_tokens = tokens;
        (void)!ipc_move(fragment, IPC_TRAINER, IPC_COPYING, IPC_SNAPSHOT);
    }
    say(play, &(struct ipc_message){.type = IPC_TAKEN, .fragment = f});
}

static void move_mix(struct play *play)
{
    uint32_t f = own_fragment_of(play);
    if (play->stage.shm == NULL)
        return;
    struct ipc_fragment *fragment = fragment_at(play, f);
    if (ipc_move(fragment, IPC_TRAINER, IPC_ANCHOR, IPC_MIXING)) {
        fragment->base ^= 1;
        fragment->base_version = fragment->anchor_version;
        (void)!ipc_move(fragment, IPC_TRAINER, IPC_MIXING, IPC_FREE);
    }
    say(play, &(struct ipc_message){.type = IPC_MIXED, .fragment = f});
}

/* ---- the daemon's side ---- */

static void move_tick(struct play *play)
{
    static const uint64_t ms[] = {1, 100, 3100, 31000, 61000};
    stage_tick(&play->stage, ms[byte_of(play) % 5]);
    (void)hear(&play->stage, IPC_TYPES);
}

static void move_peer(struct play *play)
{
    struct stage *stage = &play->stage;
    static struct wire_heartbeat beat;
    uint32_t member = 1 + byte_of(play) % 2, f = own_fragment_of(play);
    uint64_t version = byte_of(play) % 8;
    if (stage->run.view.count <= member)
        return;
    beat = (struct wire_heartbeat){.fragments_count = 1, .taking_part = true};
    beat.fragments[0] = (struct wire_fragment){
        .fragment = f, .at.version = version, .at.hash = trainerrun_hash(f, version), .at.hash_known = true};
    if (!sync_up(stage->run.sync, member))
        stage_step(stage, &(struct sync_event){.type = SYNC_EV_PEER_UP, .member = member});
    stage_step(stage, &(struct sync_event){.type = SYNC_EV_HEARTBEAT, .member = member, .beat = &beat});
}

/* The results of the next version are there, and count us in these shards. */
static void move_results(struct play *play)
{
    uint32_t f = own_fragment_of(play);
    struct bitset shards = bitset_of_word(byte_of(play) % 8);
    if (sync_known(play->stage.run.sync, f) && sync_own(play->stage.run.sync, f).version < 100)
        stage_results(&play->stage, f, &shards);
}

static void move_hold(struct play *play)
{
    static const unsigned of_jobs = 1u << EVENT_START | 1u << EVENT_STARTED | 1u << EVENT_FILL | 1u << EVENT_PUBLISHED;
    uint8_t which = byte_of(play);
    stage_answer(&play->stage);
    play->stage.held = which == 0 ? 0 : which == 1 ? of_jobs | 1u << EVENT_ENCODED : 1u << EVENT_ENCODED;
}

static void move_command(struct play *play)
{
    struct stage *stage = &play->stage;
    struct trainer_leaving leaving;
    bool killed;
    switch (byte_of(play) % 6) {
    case 0: (void)!trainer_leave(stage->trainer, &leaving); break;
    case 1: (void)!trainer_leave_now(stage->trainer, &killed); break;
    case 2: (void)!trainer_join(stage->trainer, stage->now_ms); break;
    case 3: trainer_run_step(stage->trainer, number_of(play)); break;
    case 4: stage->end.end = byte_of(play) % 3; break;
    case 5: stage->go_step = number_of(play) % (TRAINERRUN_STEPS + 1); break;
    }
    stage_turn(stage);
}

static void move_restart(struct play *play)
{
    stage_restart(&play->stage);
}

typedef void move(struct play *play);
static move *const moves[] = {
    move_connect,  move_hang_up, move_message, move_bytes,   move_hello,     move_tensors,       move_say,
    move_report,   move_train,   move_word,    move_tick,    move_poke_head, move_poke_fragment, move_poke_anywhere,
    move_snapshot, move_mix,     move_peer,    move_results, move_hold,      move_command,       move_restart};
enum { MOVES = sizeof moves / sizeof moves[0] };

/* ---- what follows from each ---- */

/* What a job does with a snapshot that was handed out and is still pinned: its numbers and values are the trainer's. */
static void encode(struct stage *stage, uint32_t f)
{
    static uint8_t frame[1 << 16];
    struct replica_snapshot *snapshot = &stage->snapshot[f];
    size_t frame_bytes;
    for (uint32_t s = 0; s < stage->run.view.count; s++) {
        uint64_t shards = shares_mask(&stage->run.parts, f, s);
        if (shards == 0 || replica_frame_bytes_max(stage->run.replica, f, shards) > sizeof frame)
            continue;
        (void)!replica_encode(stage->run.replica, f, shards, snapshot->base, snapshot->theta,
                              snapshot->tokens - snapshot->counted_tokens[s], codec, frame, &frame_bytes);
    }
}

static void follow(struct play *play)
{
    struct stage *stage = &play->stage;
    unsigned held = stage->held;
    for (size_t i = 0; i < stage->waiting_count; i++)
        if (stage->waiting[i].type == EVENT_ENCODED)
            encode(stage, stage->waiting[i].fragment);
    if (stage->waiting_count >= STAGE_HELD_MAX / 2) {
        stage_answer(stage);
        stage->held = held;
    }
    struct trainer_info info = trainer_info(stage->trainer);
    check(!isinf(info.loss) && isfinite(info.lr),
          "an infinite loss, or a rate that is no number, in what status prints");
    check(isfinite(info.flops_per_s) && isfinite(info.mfu) && isfinite(info.machine.flops_per_token) &&
              isfinite(info.machine.peak_flops) && info.machine.memory_bytes <= INT64_MAX &&
              info.machine.memory_total_bytes <= INT64_MAX,
          "of its machine, what JSON has no number for");
    check(memchr(info.machine.device, '\0', sizeof info.machine.device) != NULL, "a device's name without an end");
    (void)trainer_phase_name(trainer_phase(stage->trainer));
    stage_forget(stage);
}

/* Whoever comes after it is welcomed. */
static void finish(struct play *play)
{
    struct stage *stage = &play->stage;
    bool welcome = false;
    if (stage->socket >= 0)
        close(stage->socket);
    stage->socket = -1;
    drop_memory(stage);
    stage_answer(stage);
    stage->end = (struct run_end_found){.end = RUN_GOES_ON};
    stage_tick(stage, 5000);
    stage_forget(stage);
    stage->peers_heard = true;
    play->at = play->end;
    move_connect(play);
    move_hello(play);
    move_tensors(play);
    stage_forget(stage);
    check(stage->socket >= 0, "a good trainer is turned away");
    for (int i = 0; i < PATIENCE_TICKS && !welcome; i++) {
        stage_tick(stage, 1000);
        welcome = hear(stage, IPC_WELCOME) || stage->shm != NULL;
    }
    check(welcome && stage->socket >= 0, "a good trainer is not welcomed");
    drop_memory(stage);
}

static void prepare(void)
{
    if (folder != NULL)
        return;
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    log_set_level(LOG_LEVEL_ERROR);
    check(codec_new(0, &codec) == ERR_OK, "no codec");
    folder = testlib_folder("fuzz-trainer");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const lines[] = {"", "growth = 0.0175\n", "overlap = 6\n", "late = wait\n"};
    static struct play play;
    if (bytes == 0)
        return 0;
    prepare();
    testlib_clear(folder);
    play = (struct play){.at = data + 1, .end = data + bytes};
    stage_open_in(&play.stage, folder, data[0] % 4 == 0 ? 1 : TRAINERRUN_ISLANDS, lines[data[0] / 4 % 4], "");
    for (int i = 0; i < MOVES_MAX && play.at < play.end; i++) {
        moves[byte_of(&play) % MOVES](&play);
        follow(&play);
    }
    finish(&play);
    stage_close(&play.stage);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    return fuzz_replay("trainer", LLVMFuzzerTestOneInput, 12);
}
#endif
