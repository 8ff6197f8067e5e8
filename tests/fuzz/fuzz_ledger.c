/* SPDX-License-Identifier: Apache-2.0 */
/* A state folder whose ledger holds anything: opened, appended to, opened again, and replayed. Nothing may crash or
 * hang, and every result that was whole before stays.
 *
 * Two segments of a small run lie among the hostile ones. An input is a list of files: a byte for the name, one of
 * flags, two for a length, and that many bytes. Digests are made right unless a record's own begins with LEAVE. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/state/results.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/made.h"
#include "tests/lib/mend.h"
#include "tests/lib/rig.h"

/* docs/FORMATS.md, 7. */
enum {
    VERSION = 5,
    SEGMENT_HEADER = 64,
    RECORD_HEADER = 48,
    RECORD_DIGEST = 16,
    RECORD_MAGIC = 0x31524c44,
    RESULT = 1,
    COMMIT = 2,
    OBJECT_HEADER = 168,
    SIGNATURE_AT = 104,
    ALIGN = 8,
    LEAVE = 0xff,
};
enum { MEMBERS = 3, SELF = 2, VERSIONS = 3, RESULTS = VERSIONS * MEMBERS, FILE_BYTES_MAX = 64 << 10, STEPS = 1000 };

/* Of a file: how its header is, and whether objects are mended, too. */
enum { HEADER_KINDS = 8, HEADER_RAW = 5, HEADER_OTHER_RUN = 6, HEADER_OTHER_VERSION = 7 };
enum { MEND_OBJECTS = 8, OTHER_NONCE = 16 }; /* the latter: with HEADER_OTHER_RUN */

static const char spec_lines[] = "codec = uniform\nerror_feedback = yes\n";
static const char *const names[] = {"ledger-000000000002.log",         "ledger-000000000005.log",
                                    "ledger-000000000009.log",         "ledger-7.log",
                                    "ledger-000000000000.log",         "ledger--3.log",
                                    "ledger-18446744073709551615.log", "ledger-000000000004.log.damaged"};
enum { NAMES = sizeof names / sizeof names[0], FIRST_GOOD = 4, SECOND_GOOD = 8 };

static const char *folder;
static struct digest run_id;
static struct result_copy {
    struct result_id key;
    size_t bytes;
    uint8_t byte[4096];
} good[RESULTS];
static struct ledger_commit made[VERSIONS]; /* of fragment 0, versions 1 and on */

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stdout, "fuzz_ledger: %s (%s)\n", what, err_text());
    fflush(stdout);
    abort();
}

/* ---- what lies there ---- */

/* A run of three rounds of fragment 0, with a checkpoint from before them. */
static void live(void)
{
    struct bitset all = bitset_first(MEMBERS);
    struct rig *rig = rig_new("fuzz-ledger", spec_lines, MEMBERS, SELF, 1);
    folder = rig->conf.folder;
    run_id = rig->spec.digest;
    keep_checkpoint(rig->rounds->keep, 0);
    rig_settle(rig);
    for (size_t v = 0; v < VERSIONS; v++) {
        rig_round(rig, 0, &all);
        for (uint32_t s = 0; s < MEMBERS; s++) {
            struct result_copy *copy = &good[v * MEMBERS + s];
            struct ledger_map map;
            check(rig_find(rig, 0, v + 1, s, &copy->key), "no result");
            check(ledger_map(rig->ledger, &copy->key, &map) == ERR_OK && map.bytes <= sizeof copy->byte, "no object");
            copy->bytes = map.bytes;
            memcpy(copy->byte, map.object, map.bytes);
            ledger_unmap(&map);
        }
        check(ledger_commit_of(rig->ledger, 0, v + 1, &made[v]) == ERR_OK, "no commit");
    }
    rig_close(rig);
}

static void write_file(const char *name, const uint8_t *data, size_t bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "we");
    check(out != NULL && fwrite(data, 1, bytes, out) == bytes && fclose(out) == 0, "cannot write");
}

static size_t put_header(uint8_t *out, uint64_t number, uint32_t version)
{
    memset(out, 0, SEGMENT_HEADER);
    memcpy(out, &(uint32_t){0x31534c44}, 4);
    memcpy(out + 4, &version, 4);
    memcpy(out + 8, &number, 8);
    memcpy(out + 16, run_id.byte, DIGEST_BYTES);
    memcpy(out + 48, run_id.byte, 16); /* the nonce, as rig has it */
    return SEGMENT_HEADER;
}

static void mend_record(uint8_t *record, uint32_t kind, size_t bytes)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, record, RECORD_DIGEST);
    digest_add(&state, record + RECORD_HEADER, kind == RESULT && bytes > OBJECT_HEADER ? OBJECT_HEADER : bytes);
    struct digest digest = digest_end(&state);
    memcpy(record + RECORD_DIGEST, digest.byte, DIGEST_BYTES);
}

static size_t put_record(uint8_t *out, uint32_t kind, const uint8_t *body, uint64_t bytes)
{
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    memset(out, 0, RECORD_HEADER + room);
    memcpy(out, (uint32_t[]){RECORD_MAGIC, kind}, 8);
    memcpy(out + 8, &bytes, sizeof bytes);
    memcpy(out + RECORD_HEADER, body, bytes);
    mend_record(out, kind, bytes);
    return RECORD_HEADER + room;
}

static size_t put_commit(uint8_t *out, const struct ledger_commit *commit)
{
    uint8_t body[48 + LEDGER_PARTS_MAX * 44];
    size_t at = 48;
    memcpy(body, (uint32_t[]){commit->fragment, commit->parts_count}, 8);
    memcpy(body + 8, &commit->version, 8);
    memcpy(body + 16, commit->hash.byte, DIGEST_BYTES);
    for (uint32_t i = 0; i < commit->parts_count; i++, at += 44) {
        memcpy(body + at, &commit->parts[i].epoch, 8);
        memcpy(body + at + 8, &commit->parts[i].owner, 4);
        memcpy(body + at + 12, commit->parts[i].digest.byte, DIGEST_BYTES);
    }
    return put_record(out, COMMIT, body, at);
}

/* The results of versions `begin` + 1 to `end`, and what says that they made these. */
static void write_good(uint64_t number, size_t begin, size_t end)
{
    static uint8_t segment[FILE_BYTES_MAX];
    char name[64];
    size_t bytes = put_header(segment, number, VERSION);
    for (size_t v = begin; v < end; v++) {
        for (size_t i = v * MEMBERS; i < (v + 1) * MEMBERS; i++)
            bytes += put_record(segment + bytes, RESULT, good[i].byte, good[i].bytes);
        bytes += put_commit(segment + bytes, &made[v]);
    }
    snprintf(name, sizeof name, "ledger-%012u.log", (unsigned)number);
    write_file(name, segment, bytes);
}

static void clear(bool hostile_only)
{
    DIR *dir = opendir(folder);
    check(dir != NULL, "no folder");
    for (struct dirent *item; (item = readdir(dir)) != NULL;) {
        bool ours = strcmp(item->d_name, "ledger-000000000004.log") == 0 ||
                    strcmp(item->d_name, "ledger-000000000008.log") == 0;
        if (strncmp(item->d_name, "ledger", 6) == 0 && !(hostile_only && ours))
            unlinkat(dirfd(dir), item->d_name, 0);
    }
    closedir(dir);
}

/* ---- the hostile files ---- */

struct hostile {
    bool may_refuse; /* a header that says it is of another run or version */
    bool commits;    /* something that may be a commit: of two of a version the later one stands */
};

/* Makes every record's digest right that claims to be whole and does not ask to be left. */
static void mend_segment(uint8_t *data, size_t bytes, bool objects)
{
    for (size_t at = 0; at + RECORD_HEADER <= bytes;) {
        uint32_t word[2];
        uint64_t body_bytes;
        memcpy(word, data + at, sizeof word);
        memcpy(&body_bytes, data + at + 8, sizeof body_bytes);
        bool ours = word[0] == RECORD_MAGIC && data[at + RECORD_DIGEST] != LEAVE;
        if (!ours || body_bytes > bytes - at - RECORD_HEADER) {
            /* The head of one that claims more than there is can be right, too. */
            if (ours && bytes - at - RECORD_HEADER >= OBJECT_HEADER)
                mend_record(data + at, RESULT, OBJECT_HEADER);
            at += ALIGN;
            continue;
        }
        if (objects && word[1] == RESULT)
            mend_object(data + at + RECORD_HEADER, body_bytes);
        mend_record(data + at, word[1], body_bytes);
        at += RECORD_HEADER + (body_bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static void write_hostile(struct hostile *hostile, uint8_t name, uint8_t flags, const uint8_t *data, size_t bytes)
{
    static uint8_t file[SEGMENT_HEADER + FILE_BYTES_MAX];
    unsigned header = flags % HEADER_KINDS;
    uint64_t number = 0;
    size_t at = 0;
    (void)!sscanf(names[name % NAMES], "ledger-%lu", &number);
    if (header != HEADER_RAW)
        at = put_header(file, number, header == HEADER_OTHER_VERSION ? VERSION + 1 : VERSION);
    file[(flags & OTHER_NONCE) != 0 ? 48 : 16] ^= header == HEADER_OTHER_RUN && at > 0;
    memcpy(file + at, data, bytes);
    if (at + bytes > SEGMENT_HEADER)
        mend_segment(file + SEGMENT_HEADER, at + bytes - SEGMENT_HEADER, (flags & MEND_OBJECTS) != 0);
    const uint32_t commit[2] = {RECORD_MAGIC, COMMIT};
    hostile->commits |= memmem(file, at + bytes, commit, sizeof commit) != NULL;
    hostile->may_refuse |= header >= HEADER_RAW;
    write_file(names[name % NAMES], file, at + bytes);
}

static struct hostile lay_out(const uint8_t *data, size_t bytes)
{
    struct hostile hostile = {0};
    clear(false);
    write_good(FIRST_GOOD, 0, 1);
    write_good(SECOND_GOOD, 1, VERSIONS);
    while (bytes >= 4) {
        size_t length = data[2] | (size_t)data[3] << 8;
        length = length < bytes - 4 ? length : bytes - 4;
        write_hostile(&hostile, data[0], data[1], data + 4, length);
        data += 4 + length;
        bytes -= 4 + length;
    }
    return hostile;
}

/* ---- what has to hold ---- */

static bool open_ledger(struct ledger **out)
{
    struct ledger_conf conf = {
        .folder = folder, .run_id = run_id, .nonce = run_id.byte, .segment_bytes = 4096, .keep_bytes = 0};
    return ledger_open(&conf, out) == ERR_OK;
}

/* A result cannot be changed under its name, but for its signature, which another file may bring first. */
static bool same_result(const struct ledger_map *map, const struct result_copy *copy)
{
    return map->bytes == copy->bytes && memcmp(map->object, copy->byte, SIGNATURE_AT) == 0 &&
           memcmp(map->object + OBJECT_HEADER, copy->byte + OBJECT_HEADER, copy->bytes - OBJECT_HEADER) == 0;
}

static void check_good(struct ledger *ledger, const struct hostile *hostile)
{
    for (size_t i = 0; i < RESULTS; i++) {
        struct ledger_map map;
        struct result result;
        check(ledger_map(ledger, &good[i].key, &map) == ERR_OK, "a result is gone");
        check(same_result(&map, &good[i]), "a result has changed");
        ledger_unmap(&map);
        check(result_open(ledger, &good[i].key, &result) == ERR_OK, "a result cannot be opened");
        result_close(&result);
    }
    for (size_t v = 0; v < VERSIONS; v++) {
        struct ledger_commit commit;
        check(ledger_commit_of(ledger, 0, v + 1, &commit) == ERR_OK, "a commit is gone");
        check(hostile->commits || memcmp(&commit, &made[v], sizeof commit) == 0, "a commit has changed");
    }
}

static void check_appended(struct ledger *ledger, const struct hostile *hostile, const struct result_id *key,
                           const struct ledger_commit *commit)
{
    struct ledger_commit got;
    check_good(ledger, hostile);
    check(ledger_has(ledger, key), "what was appended is gone");
    check(ledger_commit_of(ledger, 1, 77, &got) == ERR_OK && memcmp(&got, commit, sizeof got) == 0,
          "a commit that was appended is gone");
}

/* Looks at all that is there as the daemon would; then writes, and finds it again. */
static void use(struct ledger *ledger, const struct hostile *hostile)
{
    static uint8_t object[400];
    struct result_id key = made_result(1, 77, 0, 1, object, sizeof object);
    struct ledger_commit commit = {
        .fragment = 1, .version = 77, .parts_count = 1, .parts = {{.fragment = 1, .version = 77}}};
    const struct ledger_reach reach[RIG_FRAGMENTS] = {{0}};
    check_good(ledger, hostile);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        for (uint64_t v = 0; v < VERSIONS + 2; v++) {
            struct result_id keys[LEDGER_RESULTS_MAX];
            size_t count = ledger_list(ledger, f, v, keys, LEDGER_RESULTS_MAX);
            for (size_t i = 0; i < count; i++) {
                struct result result;
                if (result_open(ledger, &keys[i], &result) != ERR_OK)
                    continue;
                (void)!result_counts(&result.meta, rig_id(SELF), NULL);
                result_close(&result);
            }
        }
    uint64_t records = ledger_stats(ledger).records + !ledger_has(ledger, &key);
    check(ledger_append(ledger, &key, object, sizeof object) == ERR_OK, "cannot append");
    check(ledger_append_commit(ledger, &commit, true) == ERR_OK, "cannot append a commit");
    check(ledger_stats(ledger).records == records, "an append does not count one");
    ledger_prune(ledger, reach, RIG_FRAGMENTS, 0);
    check_appended(ledger, hostile, &key, &commit);
    ledger_close(ledger);
    check(open_ledger(&ledger), "cannot be opened again");
    check_appended(ledger, hostile, &key, &commit);
    ledger_close(ledger);
}

static void replay(const struct hostile *hostile)
{
    struct rig_conf conf = {.folder = folder, .sync = spec_lines, .members = MEMBERS, .self = SELF, .threads = 1};
    struct rig *rig = rig_open(&conf);
    const struct store_fragment *state = rounds_state(rig->rounds, 0);
    struct digest hash = rig_hash(rig, 0, state->version);
    check(hostile->commits || state->version >= VERSIONS, "good results were not replayed");
    check(digest_equal(&hash, &state->hash), "the hash is not that of what was replayed");
    check(state->step <= STEPS, "a step beyond the run's");
    rig_close(rig);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ledger *ledger;
    if (bytes == 0 || bytes > FILE_BYTES_MAX)
        return 0;
    if (folder == NULL) {
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        log_set_level(LOG_LEVEL_ERROR);
        check(digest_init() == ERR_OK, "no digests");
        live();
    }
    struct hostile hostile = lay_out(data + 1, bytes - 1);
    if (open_ledger(&ledger)) {
        use(ledger, &hostile);
        if ((data[0] & 1) != 0)
            replay(&hostile);
    } else {
        check(hostile.may_refuse, "refused, and no file says it is another's");
    }
    clear(true);
    check(open_ledger(&ledger), "the good ones alone cannot be opened");
    check_good(ledger, &(struct hostile){0});
    ledger_close(ledger);
    return 0;
}

#ifndef LIBFUZZER
int main(void)
{
    return fuzz_replay("ledger", LLVMFuzzerTestOneInput, 100);
}
#endif
