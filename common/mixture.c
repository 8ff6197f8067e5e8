/* SPDX-License-Identifier: Apache-2.0 */
#include "common/mixture.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/words.h"

_Static_assert((int)MIXTURE_SOURCES_MAX < (int)WORDS_MAX, "one source too many is seen before one word too many");

static const char name_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
static const double WEIGHT_MAX = 1e9;
static const uint64_t STEP_MAX = 1000000000000; /* as [run] steps */

/* Letters before a '=', of a line or of a word; 0: it names no source. */
static size_t name_length(const char *text)
{
    size_t length = strspn(text, name_letters);
    return text[length] == '=' ? length : 0;
}

/* ---- reading ---- */

/* A decimal number and no other word of strtod(): no sign, no hexadecimal, no "inf". */
static bool read_weight(const char *text, char **end, double *weight)
{
    size_t digits = strspn(text, "0123456789.");
    *weight = strtod(text, end);
    return digits > 0 && *end != text && text[1] != 'x' && text[1] != 'X' && *weight <= WEIGHT_MAX;
}

static bool read_step(const char *text, char **end, uint64_t *step)
{
    *step = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 13)
        return false;
    *step = strtoull(text, end, 10);
    return *step <= STEP_MAX;
}

/* "0.7", or "0.7@0,0.5@10000". */
static enum err read_points(const char *text, struct mixture_source *source)
{
    char *at = (char *)text;
    for (;;) {
        struct mixture_point *point = &source->points[source->points_count];
        if (source->points_count == MIXTURE_POINTS_MAX)
            return err_set(ERR_CONF, "source %s: more than %d weights", source->name, MIXTURE_POINTS_MAX);
        if (!read_weight(at, &at, &point->weight))
            return err_set(ERR_CONF,
                           "source %s: weight \"%s\" is not a number from 0 to 1e9, as in 0.7, nor a row of them with "
                           "steps of the run, as in 0.7@0,0.5@10000",
                           source->name, text);
        source->points_count++;
        if (*at == '\0' && source->points_count == 1)
            return ERR_OK;
        if (*at != '@' || !read_step(at + 1, &at, &point->step) || (*at != ',' && *at != '\0'))
            return err_set(ERR_CONF,
                           "source %s: weights \"%s\": each needs a step of the run up to 1e12, as in 0.7@0,0.5@10000",
                           source->name, text);
        if (source->points_count > 1 && point->step <= point[-1].step)
            return err_set(ERR_CONF, "source %s: weights \"%s\": steps have to ascend", source->name, text);
        if (*at++ == '\0')
            return ERR_OK;
    }
}

static enum err set_path(struct mixture_source *source, const char *path, const char *folder)
{
    bool rooted = folder == NULL || folder[0] == '\0' || strcmp(folder, ".") == 0 || path[0] == '/' || path[0] == '\0';
    return rooted ? mem_strdup(path, &source->path) : mem_printf(&source->path, "%s/%s", folder, path);
}

/* "web=/srv/web-*.bin:0.7" */
static enum err read_source(char *word, const char *folder, struct mixture *mixture)
{
    struct mixture_source *source = &mixture->sources[mixture->count];
    size_t length = name_length(word);
    if (length == 0)
        return err_set(ERR_CONF,
                       "\"%s\" is no source of a mixture, as NAME=FILE:WEIGHT is; put quotes around a path with blanks",
                       word);
    if (length > MIXTURE_NAME_MAX)
        return err_set(ERR_CONF, "\"%s\": a source's name has at most %d letters", word, MIXTURE_NAME_MAX);
    word[length] = '\0';
    char *path = word + length + 1, *colon = strrchr(path, ':');
    if (colon == NULL || colon == path)
        return err_set(ERR_CONF,
                       "source %s: \"%s\" is not FILE:WEIGHT, as in /srv/web-*.bin:0.7 (a file whose name begins with "
                       "\"%s=\" is written ./%s=...)",
                       word, path, word, word);
    for (size_t i = 0; i < mixture->count; i++)
        if (strcmp(mixture->sources[i].name, word) == 0)
            return err_set(ERR_CONF, "source %s: there are two of this name; give each its own", word);
    *colon = '\0';
    mixture->count++;
    TRY(mem_strdup(word, &source->name));
    TRY(set_path(source, path, folder));
    return read_points(colon + 1, source);
}

/* Weights are linear between points: their sum is 0 nowhere if it is at no point. */
enum err mixture_check(const struct mixture *mixture)
{
    for (size_t i = 0; i < mixture->count; i++)
        for (size_t p = 0; p < mixture->sources[i].points_count; p++) {
            uint64_t step = mixture->sources[i].points[p].step;
            double sum = 0;
            for (size_t j = 0; j < mixture->count; j++)
                sum += mixture_weight(&mixture->sources[j], step);
            if (sum <= 0)
                return err_set(ERR_CONF,
                               "all sources have weight 0 at step %" PRIu64 " of the run; give one of them more", step);
        }
    return ERR_OK;
}

static enum err read_all(const struct words *words, const char *folder, struct mixture *mixture)
{
    if (words->count > MIXTURE_SOURCES_MAX)
        return err_set(ERR_CONF, "%zu sources; a mixture has at most %d", words->count, MIXTURE_SOURCES_MAX);
    TRY(mem_new(words->count, sizeof *mixture->sources, "the sources of the data", &mixture->sources));
    for (size_t i = 0; i < words->count; i++)
        TRY(read_source(words->word[i], folder, mixture));
    return ERR_OK;
}

static enum err take_path(const char *text, const char *folder, struct mixture *mixture)
{
    TRY(mem_new(1, sizeof *mixture->sources, "the source of the data", &mixture->sources));
    struct mixture_source *source = mixture->sources;
    mixture->count = 1;
    source->points[0].weight = 1;
    source->points_count = 1;
    TRY(mem_strdup("", &source->name));
    return set_path(source, text, folder);
}

bool mixture_is(const char *text)
{
    return name_length(text + strspn(text, " \t")) > 0;
}

enum err mixture_parse(const char *text, const char *folder, struct mixture *mixture)
{
    enum err err;
    struct words words = {.count = 0};
    *mixture = (struct mixture){.count = 0};
    if (!mixture_is(text)) {
        err = take_path(text, folder, mixture);
    } else {
        err = words_split(text, &words);
        if (err == ERR_OK)
            err = read_all(&words, folder, mixture);
    }
    words_free(&words);
    if (err != ERR_OK)
        mixture_free(mixture);
    return err;
}

void mixture_free(struct mixture *mixture)
{
    for (size_t i = 0; i < mixture->count; i++) {
        mem_free(mixture->sources[i].name);
        mem_free(mixture->sources[i].path);
    }
    mem_free(mixture->sources);
    *mixture = (struct mixture){.count = 0};
}

/* ---- writing ---- */

static void print_path(const char *path, FILE *out)
{
    for (; *path != '\0'; path++) {
        if (strchr(" \t\n'\"\\", *path) != NULL)
            fputc('\\', out);
        fputc(*path, out);
    }
}

/* Shortest text that reads back to the same number. */
static void print_weight(double weight, FILE *out)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, weight);
        if (strtod(text, NULL) == weight)
            break;
    }
    fputs(text, out);
}

static void print_source(const struct mixture_source *source, FILE *out)
{
    fprintf(out, "%s=", source->name);
    print_path(source->path, out);
    for (size_t p = 0; p < source->points_count; p++) {
        fputc(p == 0 ? ':' : ',', out);
        print_weight(source->points[p].weight, out);
        if (source->points_count > 1 || source->points[p].step > 0)
            fprintf(out, "@%" PRIu64, source->points[p].step);
    }
}

enum err mixture_text(const struct mixture *mixture, const char *between, char **text)
{
    char *stream_text = NULL;
    size_t bytes = 0;
    *text = NULL;
    FILE *stream = open_memstream(&stream_text, &bytes);
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for the line of the data");
    for (size_t i = 0; i < mixture->count; i++) {
        if (mixture->sources[i].name[0] == '\0')
            fputs(mixture->sources[i].path, stream); /* the only one */
        else
            print_source(&mixture->sources[i], stream);
        if (i + 1 < mixture->count)
            fputs(between, stream);
    }
    bool whole = ferror(stream) == 0;
    whole = fclose(stream) == 0 && whole;
    enum err err = whole ? mem_strdup(stream_text, text) : err_set(ERR_NOMEM, "out of memory for the line of the data");
    free(stream_text);
    return err;
}

double mixture_weight(const struct mixture_source *source, uint64_t step)
{
    const struct mixture_point *point = source->points;
    size_t next = 0;
    while (next < source->points_count && point[next].step <= step)
        next++;
    if (next == 0)
        return point[0].weight;
    if (next == source->points_count)
        return point[next - 1].weight;
    const struct mixture_point *a = &point[next - 1], *b = &point[next];
    double part = (double)(step - a->step) / (double)(b->step - a->step);
    return a->weight + (b->weight - a->weight) * part;
}
