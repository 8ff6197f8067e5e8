/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda_choices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"

/* An identity, or ten numbers and the algorithm in hexadecimal digits; with the line's end and a zero. */
enum { LINE_BYTES = 512, CHOICES_MAX = 4096 };

struct choice {
    int64_t key[CUDA_CHOICE_KEYS];
    unsigned char algorithm[CUDA_CHOICE_BYTES];
};

struct cuda_choices {
    char *path, *identity; /* of a file that is not read yet; path NULL: there is none, or it is read */
    FILE *file;            /* to add to; NULL: none is kept */
    struct choice *choice;
    size_t count, room;
};

/* ---- lines ---- */

static void write_line(FILE *file, const struct choice *choice)
{
    for (int i = 0; i < CUDA_CHOICE_KEYS; i++)
        fprintf(file, "%" PRId64 " ", choice->key[i]);
    for (int i = 0; i < CUDA_CHOICE_BYTES; i++)
        fprintf(file, "%02x", choice->algorithm[i]);
    fputc('\n', file);
    fflush(file);
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* Whether the whole line is one choice, with its end. */
static bool read_line(const char *line, struct choice *choice)
{
    for (int i = 0; i < CUDA_CHOICE_KEYS; i++) {
        int end = 0;
        if (sscanf(line, "%" SCNd64 "%n", &choice->key[i], &end) != 1 || line[end] != ' ')
            return false;
        line += end + 1;
    }
    for (int i = 0; i < CUDA_CHOICE_BYTES; i++, line += 2) {
        int high = digit(line[0]), low = high >= 0 ? digit(line[1]) : -1;
        if (low < 0)
            return false;
        choice->algorithm[i] = (unsigned char)(high << 4 | low);
    }
    return strcmp(line, "\n") == 0; /* no line is taken that may be cut off */
}

/* ---- in memory ---- */

static struct choice *find(struct cuda_choices *choices, const int64_t key[CUDA_CHOICE_KEYS])
{
    for (size_t i = 0; i < choices->count; i++)
        if (memcmp(choices->choice[i].key, key, sizeof choices->choice[i].key) == 0)
            return &choices->choice[i];
    return NULL;
}

/* The newest for a key holds. */
static bool put(struct cuda_choices *choices, const struct choice *choice)
{
    struct choice *at = find(choices, choice->key);
    if (at == NULL && choices->count == choices->room) {
        size_t room = 2 * choices->room + 16;
        if (room > CHOICES_MAX || mem_grow(&choices->choice, choices->count, room, sizeof *choices->choice,
                                           "choices of algorithms") != ERR_OK)
            return false;
        choices->room = room;
    }
    if (at == NULL)
        at = &choices->choice[choices->count++];
    *at = *choice;
    return true;
}

/* Whether the file holds for `identity`; its choices are taken then. */
static bool read_all(struct cuda_choices *choices, const char *path, const char *identity)
{
    char line[LINE_BYTES];
    struct choice choice;
    size_t length = strlen(identity);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool ours = fgets(line, sizeof line, file) != NULL && strncmp(line, identity, length) == 0 &&
                strcmp(line + length, "\n") == 0;
    while (ours && fgets(line, sizeof line, file) != NULL)
        if (read_line(line, &choice))
            (void)put(choices, &choice);
    fclose(file);
    return ours;
}

/* ---- what others call ---- */

static void load(struct cuda_choices *choices)
{
    if (choices->path == NULL)
        return;
    bool ours = read_all(choices, choices->path, choices->identity);
    choices->file = fopen(choices->path, ours ? "ae" : "we");
    if (choices->file != NULL) {
        /* What comes after a line that was cut off is a line of its own. */
        fprintf(choices->file, "%s\n", ours ? "" : choices->identity);
        fflush(choices->file);
    }
    mem_free(choices->path);
    choices->path = NULL;
}

enum err cuda_choices_open(const char *path, const char *identity, struct cuda_choices **out)
{
    enum err err;
    struct cuda_choices *choices = NULL;
    TRY_OUT(mem_new(1, sizeof *choices, "choices of algorithms", &choices));
    TRY_OUT(mem_printf(&choices->identity, "%s", identity));
    if (path != NULL)
        TRY_OUT(mem_printf(&choices->path, "%s", path));
out:
    if (err != ERR_OK) {
        cuda_choices_close(choices);
        choices = NULL;
    }
    *out = choices;
    return err;
}

void cuda_choices_close(struct cuda_choices *choices)
{
    if (choices == NULL)
        return;
    if (choices->file != NULL)
        fclose(choices->file);
    mem_free(choices->path);
    mem_free(choices->identity);
    mem_free(choices->choice);
    mem_free(choices);
}

bool cuda_choices_find(struct cuda_choices *choices, const int64_t key[CUDA_CHOICE_KEYS], unsigned char *algorithm)
{
    load(choices);
    const struct choice *choice = find(choices, key);
    if (choice == NULL)
        return false;
    memcpy(algorithm, choice->algorithm, sizeof choice->algorithm);
    return true;
}

void cuda_choices_add(struct cuda_choices *choices, const int64_t key[CUDA_CHOICE_KEYS], const unsigned char *algorithm)
{
    struct choice choice;
    load(choices);
    memcpy(choice.key, key, sizeof choice.key);
    memcpy(choice.algorithm, algorithm, sizeof choice.algorithm);
    if (put(choices, &choice) && choices->file != NULL)
        write_line(choices->file, &choice);
}
