/* A state folder whose ledger holds anything: opened, appended to, opened again, and replayed. Nothing may crash or
 * hang, and every result that was whole before stays.
 *
 * Two segments of a small run lie among the hostile ones. An input is a list of files: a byte for the name, one of
 * flags, two for a length, and that many bytes. Digests are made right unless a record's unused word says otherwise. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/state/results.h"
#include "tests/lib/fuzz.h"
#include "tests/lib/mend.h"
#include "tests/lib/rig.h"

/* docs/FORMATS.md, 7. */
enum {
    LEDGER_VERSION = 2,
    SEGMENT_HEADER = 64,
    RECORD_HEADER = 64,
    RECORD_DIGEST = 32,
    RECORD_MAGIC = 0x31524c44,
    ALIGN = 8
};
enum { MEMBERS = 3, SELF = 2, VERSIONS = 3, RESULTS = VERSIONS * MEMBERS, FILE_BYTES_MAX = 64 << 10, STEPS = 1000 };

/* Of a file: how its header is, and whether objects are mended, too. */
enum { HEADER_KINDS = 8, HEADER_RAW = 5, HEADER_OTHER_RUN = 6, HEADER_OTHER_VERSION = 7 };
enum { MEND_OBJECTS = 8, OTHER_ISLANDS = 16 }; /* the latter: with HEADER_OTHER_RUN */

static const char spec_lines[] = "codec = uniform\nerror_feedback = yes\n";
static const char *const names[] = {"ledger-000000000002.log",         "ledger-000000000005.log",
                                    "ledger-000000000009.log",         "ledger-7.log",
                                    "ledger-000000000000.log",         "ledger--3.log",
                                    "ledger-18446744073709551615.log", "ledger-000000000004.log.damaged"};
enum { NAMES = sizeof names / sizeof names[0], FIRST_GOOD = 4, SECOND_GOOD = 8 };

static const char *folder;
static struct digest run_id;
static struct result_copy {
    uint64_t version;
    uint32_t shard;
    size_t bytes;
    uint8_t byte[4096];
} good[RESULTS];

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
    rounds_checkpoint(rig->rounds, 0);
    rig_settle(rig);
    for (size_t v = 0; v < VERSIONS; v++) {
        rig_round(rig, 0, &all);
        for (uint32_t s = 0; s < MEMBERS; s++) {
            struct result_copy *copy = &good[v * MEMBERS + s];
            struct ledger_map map;
            check(ledger_map(rig->ledger, 0, v + 1, s, &map) == ERR_OK && map.bytes <= sizeof copy->byte, "no result");
            *copy = (struct result_copy){.version = v + 1, .shard = s, .bytes = map.bytes};
            memcpy(copy->byte, map.object, map.bytes);
            ledger_unmap(&map);
        }
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
    return SEGMENT_HEADER;
}

static void mend_record(uint8_t *record, size_t bytes)
{
    struct digest_state state;
    digest_begin(&state);
    digest_add(&state, record, RECORD_DIGEST);
    digest_add(&state, record + RECORD_HEADER, bytes);
    struct digest digest = digest_end(&state);
    memcpy(record + RECORD_DIGEST, digest.byte, DIGEST_BYTES);
}

static size_t put_record(uint8_t *out, const struct result_copy *copy)
{
    size_t bytes = (copy->bytes + ALIGN - 1) / ALIGN * ALIGN;
    memset(out, 0, RECORD_HEADER + bytes);
    memcpy(out, (uint32_t[]){RECORD_MAGIC, copy->shard, 0, 0}, 16);
    memcpy(out + 16, (uint64_t[]){copy->version, copy->bytes}, 16);
    memcpy(out + RECORD_HEADER, copy->byte, copy->bytes);
    mend_record(out, copy->bytes);
    return RECORD_HEADER + bytes;
}

static void write_good(uint64_t number, size_t begin, size_t end)
{
    static uint8_t segment[FILE_BYTES_MAX];
    char name[64];
    size_t bytes = put_header(segment, number, LEDGER_VERSION);
    for (size_t i = begin; i < end; i++)
        bytes += put_record(segment + bytes, &good[i]);
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
    bool may_refuse;      /* a header that says it is of another run or version */
    bool claims[RESULTS]; /* a record with the key of a good one: the first of the two stands */
};

/* Makes every record's digest right that claims to be whole and does not ask to be left. */
static void mend_segment(uint8_t *data, size_t bytes, bool objects)
{
    for (size_t at = 0; at + RECORD_HEADER <= bytes;) {
        uint32_t word[4];
        uint64_t object_bytes;
        memcpy(word, data + at, sizeof word);
        memcpy(&object_bytes, data + at + 24, sizeof object_bytes);
        if (word[0] != RECORD_MAGIC || word[3] != 0 || object_bytes > bytes - at - RECORD_HEADER) {
            at += ALIGN;
            continue;
        }
        if (objects)
            mend_object(data + at + RECORD_HEADER, object_bytes);
        mend_record(data + at, object_bytes);
        at += RECORD_HEADER + (object_bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

static void note_claims(struct hostile *hostile, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < RESULTS; i++) {
        uint32_t key[3] = {RECORD_MAGIC, good[i].shard, 0};
        hostile->claims[i] |= memmem(data, bytes, key, sizeof key) != NULL;
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
        at = put_header(file, number, header == HEADER_OTHER_VERSION ? LEDGER_VERSION + 1 : LEDGER_VERSION);
    file[(flags & OTHER_ISLANDS) != 0 ? 48 : 16] ^= header == HEADER_OTHER_RUN && at > 0;
    memcpy(file + at, data, bytes);
    if (at + bytes > SEGMENT_HEADER)
        mend_segment(file + SEGMENT_HEADER, at + bytes - SEGMENT_HEADER, (flags & MEND_OBJECTS) != 0);
    note_claims(hostile, file, at + bytes);
    hostile->may_refuse |= header >= HEADER_RAW;
    write_file(names[name % NAMES], file, at + bytes);
}

static struct hostile lay_out(const uint8_t *data, size_t bytes)
{
    struct hostile hostile = {0};
    clear(false);
    write_good(FIRST_GOOD, 0, MEMBERS);
    write_good(SECOND_GOOD, MEMBERS, RESULTS);
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
    struct ledger_conf conf = {.folder = folder, .run_id = run_id, .segment_bytes = 4096, .keep_bytes = 0};
    return ledger_open(&conf, out) == ERR_OK;
}

static void check_good(struct ledger *ledger, const struct hostile *hostile)
{
    for (size_t i = 0; i < RESULTS; i++) {
        struct ledger_map map;
        struct result result;
        check(ledger_map(ledger, 0, good[i].version, good[i].shard, &map) == ERR_OK, "a result is gone");
        check(hostile->claims[i] || (map.bytes == good[i].bytes && memcmp(map.object, good[i].byte, map.bytes) == 0),
              "a result has changed");
        ledger_unmap(&map);
        if (result_open(ledger, 0, good[i].version, good[i].shard, &result) == ERR_OK)
            result_close(&result);
        else
            check(hostile->claims[i], "a result cannot be opened");
    }
}

/* Looks at all that is there as the daemon would; then writes, and finds it again. */
static void use(struct ledger *ledger, const struct hostile *hostile)
{
    static const uint8_t object[100] = "a result";
    const uint64_t versions[RIG_FRAGMENTS] = {0, 0};
    struct bitset shards = bitset_first(MEMBERS);
    check_good(ledger, hostile);
    for (uint32_t f = 0; f < RIG_FRAGMENTS; f++)
        for (uint64_t v = 0; v < VERSIONS + 2; v++) {
            struct bitset held = results_held(ledger, f, v, MEMBERS);
            held = results_counting(ledger, f, v, &held, SELF);
            held = results_counting(ledger, f, v, &shards, SELF);
        }
    uint64_t records = ledger_stats(ledger).records + !ledger_has(ledger, 1, 77, 1);
    check(ledger_append(ledger, 1, 77, 1, object, sizeof object, true) == ERR_OK, "cannot append");
    check(ledger_stats(ledger).records == records, "an append does not count one");
    ledger_prune(ledger, versions, RIG_FRAGMENTS);
    check_good(ledger, hostile);
    check(ledger_has(ledger, 1, 77, 1), "what was appended is gone");
    ledger_close(ledger);
    check(open_ledger(&ledger), "cannot be opened again");
    check_good(ledger, hostile);
    check(ledger_has(ledger, 1, 77, 1), "what was appended is gone after a restart");
    ledger_close(ledger);
}

static void replay(const struct hostile *hostile)
{
    bool any = false;
    struct rig_conf conf = {.folder = folder, .sync = spec_lines, .members = MEMBERS, .self = SELF, .threads = 1};
    struct rig *rig = rig_open(&conf);
    const struct store_fragment *state = rounds_state(rig->rounds, 0);
    struct digest hash = rig_hash(rig, 0, state->version);
    for (size_t i = 0; i < RESULTS; i++)
        any |= hostile->claims[i];
    check(any || state->version >= VERSIONS, "good results were not replayed");
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
