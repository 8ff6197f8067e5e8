/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/toll.h"

#include <stdio.h>
#include <string.h>

#include "common/env.h"
#include "tests/lib/rogue.h"
#include "tests/lib/testlib.h"

enum { LOOKS_A_SECOND = 4, LINE_BYTES = 2000 };

/* ---- what logs say ---- */

static void note_named(struct toll *toll, uint32_t by, const char *words)
{
    if (toll->told != NULL && strstr(words, toll->told) == NULL)
        return;
    if (toll->named_by == 0) {
        toll->named_s = env_mono_s() - toll->since_s;
        snprintf(toll->named, sizeof toll->named, "%s", words);
    }
    toll->named_by |= 1u << by;
}

/* A complaint about the rogue: not that it comes, goes, or is not heard. */
static bool names_it(const struct toll *toll, const char *line)
{
    char name[40];
    snprintf(name, sizeof name, "island %s", toll->cluster->island[toll->rogue].name);
    const char *at = strstr(line, name);
    return at != NULL && (at[strlen(name)] == ' ' || at[strlen(name)] == ':' || at[strlen(name)] == ',') &&
           (strstr(line, " warning: ") != NULL || strstr(line, " error: ") != NULL) &&
           strstr(line, "has not been heard") == NULL && strstr(line, "is lost") == NULL;
}

static void line_in(struct toll *toll, uint32_t i, const char *line)
{
    char lost[40];
    toll->lines[i] += strstr(line, " debug: ") == NULL;
    for (uint32_t k = 0; k < toll->rogue; k++) {
        snprintf(lost, sizeof lost, "island %s is lost", toll->cluster->island[k].name);
        toll->put_out[k] = toll->put_out[k] || strstr(line, lost) != NULL;
    }
    if (names_it(toll, line)) {
        const char *words = strstr(line, ": "); /* behind time, program and level */
        note_named(toll, i, words != NULL ? words + 2 : line);
    }
}

/* What has come since the last time, but for a line that is not whole. */
static void read_log(struct toll *toll, uint32_t i)
{
    char line[LINE_BYTES];
    FILE *file = fopen(toll->cluster->island[i].log, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, toll->read_bytes[i], SEEK_SET), 0);
    while (fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(line);
        if (line[length - 1] != '\n' && length + 1 < sizeof line)
            break;
        toll->read_bytes[i] = ftell(file);
        line[length - (line[length - 1] == '\n')] = '\0';
        line_in(toll, i, line);
    }
    (void)fclose(file);
}

/* ---- what status says ---- */

static void read_status(struct toll *toll, uint32_t i)
{
    json_t *status = cluster_ask(toll->cluster, i, "status"), *item;
    size_t k;
    char name[40];
    snprintf(name, sizeof name, "island %s", toll->cluster->island[toll->rogue].name);
    json_array_foreach (json_object_get(status, "degraded"), k, item) {
        const char *code = json_string_value(json_object_get(item, "code"));
        const char *what = json_string_value(json_object_get(item, "what"));
        bool blames = code != NULL &&
                      (strcmp(code, "fault") == 0 || strcmp(code, "outlier") == 0 || strcmp(code, "turned-away") == 0 ||
                       strcmp(code, "claims-much") == 0 || strcmp(code, "refused") == 0);
        if (blames && strstr(what, name) != NULL)
            note_named(toll, i, what);
    }
    json_decref(status);
}

void toll_look(struct toll *toll)
{
    double now_s = env_mono_s();
    if (now_s < toll->looked_s + 1.0 / LOOKS_A_SECOND)
        return;
    toll->looked_s = now_s;
    for (uint32_t i = 0; i < toll->rogue; i++) {
        if (toll->cluster->island[i].pid == 0)
            continue; /* the test has ended it */
        int ended = cluster_wait_end(toll->cluster, i, 0);
        if (ended >= 0) {
            cluster_print_logs(toll->cluster);
            fail_msg("island %s ended with %d", toll->cluster->island[i].name, ended);
        }
        read_status(toll, i);
        read_log(toll, i);
    }
}

void toll_begin(struct toll *toll, struct cluster *cluster)
{
    *toll = (struct toll){.cluster = cluster, .rogue = cluster->count - 1};
    for (uint32_t i = 0; i < toll->rogue; i++) {
        read_log(toll, i);
        toll->memory_kib[i] = rogue_memory_kib(cluster, i);
    }
    memset(toll->lines, 0, sizeof toll->lines);
    memset(toll->put_out, 0, sizeof toll->put_out);
    toll->named_by = 0;
    toll->since_s = env_mono_s();
    toll->versions = cluster_status_number(cluster, toll->rogue - 1, "versions");
    toll->epoch = cluster_status_number(cluster, toll->rogue - 1, "epoch");
}

/* ---- sums ---- */

double toll_rate(const struct toll *toll)
{
    long long versions = cluster_status_number(toll->cluster, toll->rogue - 1, "versions");
    return (double)(versions - toll->versions) / (env_mono_s() - toll->since_s);
}

long long toll_epochs(const struct toll *toll)
{
    return cluster_status_number(toll->cluster, toll->rogue - 1, "epoch") - toll->epoch;
}

static long most(const long *numbers, uint32_t count)
{
    long most = 0;
    for (uint32_t i = 0; i < count; i++)
        most = numbers[i] > most ? numbers[i] : most;
    return most;
}

long toll_memory_kib(const struct toll *toll)
{
    long more[CLUSTER_MAX];
    for (uint32_t i = 0; i < toll->rogue; i++)
        more[i] = rogue_memory_kib(toll->cluster, i) - toll->memory_kib[i];
    return most(more, toll->rogue);
}

long toll_lines(const struct toll *toll)
{
    return most(toll->lines, toll->rogue);
}

uint32_t toll_put_out(const struct toll *toll)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < toll->rogue; i++)
        count += toll->put_out[i];
    return count;
}
