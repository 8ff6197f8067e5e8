/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/ctl/ctl_members.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/env.h"
#include "common/mem.h"
#include "daemon/as_typed.h"
#include "daemon/ctl/ctl_client.h"
#include "daemon/ctl/ctl_wait.h"
#include "daemon/dconf.h"

enum { LOOK_MS = 100, ID_DIGITS = 12, DAY_S = 86400, NAMES_S = 1 };

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static enum err print_json(const json_t *answer)
{
    json_dumpf(answer, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* ---- invitations ---- */

/* "90s", "15min" or "15m", "24h", "7d". */
static enum err parse_time(const char *text, uint64_t *seconds)
{
    static const struct {
        const char *unit;
        uint64_t seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", DAY_S}};
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (end > text && strcmp(end, units[i].unit) == 0 && value > 0 && value <= 1e6) {
            *seconds = (uint64_t)(value * (double)units[i].seconds);
            return ERR_OK;
        }
    return err_set(ERR_ARG, "--expires %s: a time as 90s, 15min, 24h or 7d", text);
}

static enum err print_invitation(const json_t *answer)
{
    size_t index;
    json_t *address;
    time_t expires = (time_t)ctl_integer(answer, "expires");
    const char *island = ctl_text(answer, "island");
    struct tm when;
    char text[64] = "";
    if (json_is_true(json_object_get(answer, "member"))) {
        printf("Island %s is in this run already, and needs no token; if it has lost its key: %s revoke %s\n", island,
               as_typed(), island);
        return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
    }
    if (localtime_r(&expires, &when) != NULL)
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", &when);
    if (island[0] != '\0')
        printf("Island %s may join this run by this token", island);
    else
        printf("Whoever has this token may join this run");
    printf(", once, until %s. On the other machine:\n\n"
           "    dilococtl join %s --name %s --data FILE\n\n(as a witness, which only "
           "votes: --witness instead of --data FILE). It knocks at",
           text, ctl_text(answer, "token"), island[0] != '\0' ? island : "NAME");
    json_array_foreach (json_object_get(answer, "addresses"), index, address)
        printf("%s %s", index > 0 ? "," : "", json_string_value(address));
    printf(" (another: --address HOST:PORT).\nTo take it back: %s invite --revoke %.*s\n", as_typed(), ID_DIGITS,
           ctl_text(answer, "id"));
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* The invitation is good all the same; not for a program that reads what is printed. */
static void warn_of_minority(const struct ctl_members *ctl)
{
    json_t *status, *item;
    size_t index;
    if (ctl_ask(ctl->socket, "status", &status) != ERR_OK)
        return;
    json_array_foreach (json_object_get(status, "degraded"), index, item)
        if (strcmp(ctl_text(item, "code"), "no-majority") == 0)
            fprintf(stderr, "Warning: %s; whoever joins is let in only when a majority is back.\n",
                    ctl_text(item, "what"));
    json_decref(status);
}

enum err ctl_members_invite(const struct ctl_members *ctl)
{
    json_t *answer;
    char *request;
    uint64_t seconds = DAY_S;
    if (ctl->expires != NULL)
        TRY(parse_time(ctl->expires, &seconds));
    const char *note = ctl->note != NULL ? ctl->note : "";
    if (strpbrk(note, "\r\n") != NULL || (ctl->address != NULL && strpbrk(ctl->address, " \r\n") != NULL))
        return err_set(ERR_ARG, "a note has one line, and an address no blanks");
    if (ctl->island != NULL && !dconf_name_good(ctl->island))
        return err_set(ERR_ARG, "--for %s: an island's name is 1 to %d letters, digits, '-' or '_'", ctl->island,
                       DCONF_NAME_MAX);
    TRY(mem_printf(&request, "invite %" PRIu64 " %s %s %s %s", seconds, ctl->address != NULL ? ctl->address : "-",
                   ctl->island != NULL ? ctl->island : "-", ctl->as != NULL ? ctl->as : "auto", note));
    enum err err = ctl_ask(ctl->socket, request, &answer);
    mem_free(request);
    TRY(err);
    err = ctl->json ? print_json(answer) : print_invitation(answer);
    json_decref(answer);
    if (err == ERR_OK)
        warn_of_minority(ctl);
    return err;
}

static void print_row(const json_t *row)
{
    json_int_t left = ctl_integer(row, "seconds_left");
    char text[32];
    if (left >= 2 * DAY_S)
        snprintf(text, sizeof text, "%lld d", (long long)(left / DAY_S));
    else if (left >= 7200)
        snprintf(text, sizeof text, "%lld h", (long long)(left / 3600));
    else
        snprintf(text, sizeof text, "%lld min", (long long)((left + 59) / 60));
    const char *island = ctl_text(row, "island"), *note = ctl_text(row, "note");
    printf("%-*.*s  %-8s  %-8s  %s%s%s\n", ID_DIGITS, ID_DIGITS, ctl_text(row, "id"), text,
           json_is_true(json_object_get(row, "redeemed")) ? "used" : "open", island,
           island[0] != '\0' && note[0] != '\0' ? ", " : "", note);
}

enum err ctl_members_list(const struct ctl_members *ctl)
{
    json_t *answer, *row;
    size_t index;
    enum err err = ERR_OK;
    TRY(ctl_ask(ctl->socket, "invites", &answer));
    const json_t *list = json_object_get(answer, "invites");
    if (ctl->json) {
        err = print_json(answer);
    } else if (json_array_size(list) == 0) {
        puts("no invitation of this island is open");
    } else {
        printf("%-*s  %-8s  %-8s  %s\n", ID_DIGITS, "id", "left", "state", "note");
        json_array_foreach (list, index, row)
            print_row(row);
    }
    json_decref(answer);
    return err;
}

/* Sends it and says what the daemon answers; the answer is the caller's. */
static enum err order(const struct ctl_members *ctl, const char *word, const char *what, json_t **answer)
{
    char *request;
    TRY(mem_printf(&request, "%s%s%s", word, what[0] != '\0' ? " " : "", what));
    enum err err = ctl_ask(ctl->socket, request, answer);
    mem_free(request);
    TRY(err);
    if (!ctl->json)
        printf("%s\n", ctl_text(*answer, "ok"));
    else if (ctl->no_wait)
        return print_json(*answer);
    fflush(stdout);
    return ERR_OK;
}

enum err ctl_members_uninvite(const struct ctl_members *ctl, const char *id)
{
    json_t *answer;
    TRY(order(ctl, "uninvite", id, &answer));
    enum err err = ctl->json ? print_json(answer) : ERR_OK;
    json_decref(answer);
    return err;
}

enum err ctl_members_names(const struct ctl_members *ctl)
{
    json_t *peers, *row;
    size_t index;
    TRY(ctl_ask_within(ctl->socket, "peers", NAMES_S, &peers));
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (!json_is_true(json_object_get(row, "self")))
            printf("%s\n", ctl_text(row, "name"));
    json_decref(peers);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

/* ---- waiting for a configuration ---- */

static const json_t *row_of(const json_t *peers, const char *name)
{
    size_t index;
    json_t *row;
    json_array_foreach (json_object_get(peers, "peers"), index, row)
        if (name != NULL ? strcmp(ctl_text(row, "name"), name) == 0 : json_is_true(json_object_get(row, "self")))
            return row;
    return NULL;
}

/* What a configuration says when an order of a word is carried out. */
struct outcome {
    const char *word;
    const char *role; /* that the member has then; NULL: `flag` tells */
    const char *flag; /* of its row; NULL: with no role either, it is off the roster */
    bool set;         /* what that is */
    const char *done;
};
static const struct outcome outcomes[] = {
    {"leave", "draining", NULL, false, "this island owns nothing now, and nobody waits for it"},
    {"evict", "away", NULL, false, "takes no part"},
    {"revoke", NULL, NULL, false, "is off the roster"},
    {"owner", NULL, "contributor", false, "may own shards and vote"},
    {"contributor", NULL, "contributor", true, "owns no shards, and votes no more than it has to"},
    {"grant", NULL, "operator", true, "may give orders"},
    {"ungrant", NULL, "operator", false, "gives no more orders"},
    {"founder", NULL, "founder", true, "is the one that grants"},
    {"rekey", NULL, NULL, false, "has its new key"},
};

static const struct outcome *outcome_of(const char *word)
{
    const struct outcome *outcome = outcomes;
    while (strcmp(outcome->word, word) != 0)
        outcome++;
    return outcome;
}

/* What is waited for. */
struct waited {
    const char *name; /* of the member; NULL: this island */
    const char *key;  /* that it has then; NULL: another outcome */
    const struct outcome *outcome;
};

/* Whether the configuration of `peers` says it. */
static bool says(const json_t *peers, const struct waited *waited, json_int_t before)
{
    const char *name = waited->name;
    const struct outcome *outcome = waited->outcome;
    const json_t *row = row_of(peers, name);
    if (waited->key != NULL)
        return row != NULL && strcmp(ctl_text(row, "public_key"), waited->key) == 0;
    if (outcome->flag != NULL)
        return row != NULL && json_is_true(json_object_get(row, outcome->flag)) == outcome->set;
    if (outcome->role == NULL)
        return row == NULL;
    bool changed = ctl_integer(peers, "epoch") > before || name == NULL;
    return row != NULL && changed &&
           (strcmp(ctl_text(row, "role"), outcome->role) == 0 || strcmp(ctl_text(row, "role"), "away") == 0);
}

static uint32_t voters_heard(const json_t *peers, uint32_t *voters)
{
    uint32_t up = 0;
    size_t index;
    json_t *row;
    *voters = 0;
    json_array_foreach (json_object_get(peers, "peers"), index, row) {
        if (!json_is_true(json_object_get(row, "voter")))
            continue;
        ++*voters;
        up += json_is_true(json_object_get(row, "up"));
    }
    return up;
}

/* `stands`: whatever happens; else until a majority is not heard any more. */
static enum err too_long(const struct ctl_members *ctl, const json_t *peers, bool stands)
{
    uint32_t voters, up = voters_heard(peers, &voters), needed = voters / 2 + 1;
    long long epoch = (long long)ctl_integer(peers, "epoch");
    if (up >= needed)
        return err_set(
            ERR_AGAIN,
            "not decided after %" PRIu32 " s, though %" PRIu32 " of the %" PRIu32
            " islands that vote are heard here (epoch %lld); it stays asked%s, and %s status shows what it waits "
            "for",
            ctl->patience_s, up, voters, epoch, stands ? "" : " for ten minutes, or until no majority is heard here",
            as_typed());
    if (!stands)
        return err_set(ERR_AGAIN,
                       "not decided, and asked no more: it takes %" PRIu32 " of the %" PRIu32
                       " islands that vote, and %" PRIu32
                       " of them are heard here (epoch %lld); ask again when they are back, or at an island that hears "
                       "them",
                       needed, voters, up, epoch);
    return err_set(ERR_AGAIN,
                   "not decided after %" PRIu32 " s: it takes %" PRIu32 " of the %" PRIu32
                   " islands that vote, and %" PRIu32
                   " of them are heard here (epoch %lld); it stays asked, and %s peers shows when it is decided",
                   ctl->patience_s, needed, voters, up, epoch, as_typed());
}

static enum err not_approved(const struct ctl_members *ctl)
{
    return err_set(ERR_AGAIN,
                   "not approved after %" PRIu32
                   " s; it stays asked for seven days, and %s orders shows how many agree",
                   ctl->patience_s, as_typed());
}

static uint64_t end_of(const struct ctl_members *ctl)
{
    return env_mono_ms() + ctl->patience_s * UINT64_C(1000);
}

/* Whether the configuration of `peers` says what the order about the run asks for. */
static bool run_is(const json_t *peers, const char *word, const char *what)
{
    if (strcmp(word, "set") == 0)
        return ctl_integer(peers, "steps") == strtoll(what + strcspn(what, "0123456789"), NULL, 10);
    return json_is_true(json_object_get(peers, "paused")) == (strcmp(word, "pause") == 0);
}

static enum err print_run_decided(const struct ctl_members *ctl, const json_t *peers, const char *word)
{
    long long epoch = (long long)ctl_integer(peers, "epoch"), steps = (long long)ctl_integer(peers, "steps");
    char done[80];
    if (strcmp(word, "set") == 0)
        snprintf(done, sizeof done, "the run has %lld steps", steps);
    else
        snprintf(done, sizeof done, "the run %s", strcmp(word, "pause") == 0 ? "is paused" : "goes on");
    if (ctl->json)
        printf("{\"ok\":\"%s\",\"epoch\":%lld}\n", done, epoch);
    else
        printf("decided: %s, in epoch %lld\n", done, epoch);
    return fflush(stdout) == 0 ? ERR_OK : err_set_errno(ERR_IO, "cannot write");
}

static enum err wait_for_run(const struct ctl_members *ctl, const char *word, const char *what)
{
    uint64_t end_ms = end_of(ctl);
    for (;;) {
        json_t *peers;
        TRY(ctl_ask(ctl->socket, "peers", &peers));
        bool there = run_is(peers, word, what);
        enum err err = there                    ? print_run_decided(ctl, peers, word)
                       : env_mono_ms() > end_ms ? too_long(ctl, peers, false)
                                                : ERR_OK;
        json_decref(peers);
        if (there || err != ERR_OK)
            return err;
        pause_ms(LOOK_MS);
    }
}

/* Says in which epoch. */
static enum err wait_for(const struct ctl_members *ctl, uint64_t end_ms, const json_t *asked,
                         const struct waited *waited)
{
    const char *name = waited->name;
    const struct outcome *outcome = waited->outcome;
    json_int_t before = ctl_integer(asked, "epoch");
    if (ctl->no_wait)
        return ERR_OK;
    for (;;) {
        json_t *peers;
        enum err err = ctl_ask(ctl->socket, "peers", &peers);
        TRY(err);
        bool there = says(peers, waited, before);
        if (there && ctl->json)
            printf("{\"ok\":\"%s\",\"epoch\":%lld}\n", outcome->done, (long long)ctl_integer(peers, "epoch"));
        else if (there)
            printf("decided: %s%s%s, in epoch %lld\n", name != NULL ? name : "", name != NULL ? " " : "", outcome->done,
                   (long long)ctl_integer(peers, "epoch"));
        else if (env_mono_ms() > end_ms)
            err = json_is_true(json_object_get(asked, "takes_approval")) ? not_approved(ctl)
                                                                         : too_long(ctl, peers, name == NULL);
        json_decref(peers);
        if (there || err != ERR_OK)
            return fflush(stdout) == 0 || err != ERR_OK ? err : err_set_errno(ERR_IO, "cannot write");
        pause_ms(LOOK_MS);
    }
}

/* A trainer that waits for a majority may wait for days. */
static enum err wait_for_trainer(const struct ctl_members *ctl, uint64_t end_ms)
{
    static const char *const wanted[] = {"stopped", "none", "finished", "ended", NULL};
    struct ctl_wait wait = {.socket = ctl->socket, .wanted = wanted, .end_ms = end_ms, .json = ctl->json};
    enum err err = ctl_wait_trainer(&wait);
    if (err != ERR_AGAIN)
        return err;
    err = err_prefix(err, "not done after %" PRIu32 " s", ctl->patience_s);
    return err_suffix(err,
                      "it stays asked, and %s status shows how it goes on; %s leave --now gives "
                      "up what is not counted yet",
                      as_typed(), as_typed());
}

enum err ctl_members_leave(const struct ctl_members *ctl)
{
    json_t *answer;
    TRY(order(ctl, "leave", ctl->now ? "now" : "", &answer));
    uint64_t end_ms = end_of(ctl);
    enum err err = ctl->no_wait ? ERR_OK : wait_for_trainer(ctl, end_ms);
    if (err == ERR_OK)
        err = wait_for(ctl, end_ms, answer, &(struct waited){.outcome = outcome_of("leave")});
    if (err == ERR_OK && !ctl->json && !ctl->no_wait)
        printf("%s stop ends its daemon; %s resume brings it back into the run\n", as_typed(), as_typed());
    json_decref(answer);
    return err;
}

enum err ctl_members_order(const struct ctl_members *ctl, const char *word, const char *name)
{
    json_t *answer;
    TRY(order(ctl, word, name, &answer));
    enum err err = wait_for(ctl, end_of(ctl), answer, &(struct waited){.name = name, .outcome = outcome_of(word)});
    json_decref(answer);
    return err;
}

enum err ctl_members_rekey(const struct ctl_members *ctl, const char *name, const char *key)
{
    json_t *answer;
    char *what;
    TRY(mem_printf(&what, "%s %s", name, key));
    enum err err = order(ctl, "rekey", what, &answer);
    mem_free(what);
    TRY(err);
    err =
        wait_for(ctl, end_of(ctl), answer, &(struct waited){.name = name, .key = key, .outcome = outcome_of("rekey")});
    json_decref(answer);
    return err;
}

enum err ctl_members_order_run(const struct ctl_members *ctl, const char *word, const char *what)
{
    json_t *answer;
    TRY(order(ctl, word, what, &answer));
    json_decref(answer);
    return ctl->no_wait ? ERR_OK : wait_for_run(ctl, word, what);
}

/* ---- orders that wait ---- */

static void print_order(const json_t *row)
{
    printf("%-6lld  %-16s  %-30s  %.0f s", (long long)ctl_integer(row, "number"), ctl_text(row, "by"),
           ctl_text(row, "text"), (double)ctl_integer(row, "for_ms") / 1000);
    if (json_object_get(row, "needed") != NULL)
        printf("; %lld of %lld voters agree", (long long)ctl_integer(row, "approvals"),
               (long long)ctl_integer(row, "needed"));
    if (json_is_true(json_object_get(row, "agreed")))
        printf(", this island too");
    else if (json_object_get(row, "needed") != NULL)
        printf(": %s approve %lld %s", as_typed(), (long long)ctl_integer(row, "number"), ctl_text(row, "by"));
    putchar('\n');
}

static void print_asked(const json_t *row)
{
    const char *name = ctl_text(row, "island");
    printf("%s asks for the key %s: %s rekey %s\n", name, ctl_text(row, "next_key"), as_typed(), name);
}

enum err ctl_members_orders(const struct ctl_members *ctl)
{
    json_t *answer, *row;
    size_t index;
    enum err err = ERR_OK;
    TRY(ctl_ask(ctl->socket, "orders", &answer));
    const json_t *list = json_object_get(answer, "orders");
    if (ctl->json) {
        err = print_json(answer);
    } else if (json_array_size(list) == 0) {
        puts("no order waits");
    } else {
        printf("%-6s  %-16s  %-30s  %s\n", "number", "of", "order", "since");
        json_array_foreach (list, index, row)
            print_order(row);
    }
    json_array_foreach (ctl->json ? NULL : json_object_get(answer, "rekeys"), index, row)
        print_asked(row);
    json_decref(answer);
    return err;
}

enum err ctl_members_about_order(const struct ctl_members *ctl, const char *word, const char *number,
                                 const char *island)
{
    json_t *answer;
    char *what;
    TRY(mem_printf(&what, "%s%s%s", number, island != NULL ? " " : "", island != NULL ? island : ""));
    enum err err = order(ctl, word, what, &answer);
    mem_free(what);
    TRY(err);
    err = ctl->json && !ctl->no_wait ? print_json(answer) : ERR_OK;
    json_decref(answer);
    return err;
}
