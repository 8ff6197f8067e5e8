/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state/model_plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/rules.h"

static uint64_t values_of(const struct ipc_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < tensor->dims && d < IPC_DIMS_MAX; d++) {
        if (tensor->shape[d] != 0 && count > PLAN_TENSOR_VALUES_MAX / tensor->shape[d])
            return UINT64_MAX; /* plan_new() refuses it */
        count *= tensor->shape[d];
    }
    return count;
}

/* Where another tensor's layer is. */
#define FROZEN_WORD "frozen"

/* No norm or bias is longer; a longer vector is a model laid out flat. */
enum { SENSITIVE_MAX = 65536 };

static enum err make_plan(const struct runspec *spec, struct model_plan *plan)
{
    struct plan_conf conf = rules_plan(spec);
    struct plan_tensor *rows;
    TRY(mem_new(plan->tensors_count, sizeof *rows, "the plan", &rows));
    for (uint32_t i = 0; i < plan->tensors_count; i++)
        rows[i] = (struct plan_tensor){.name = plan->tensors[i].name,
                                       .layer = plan->tensors[i].layer,
                                       .count = values_of(&plan->tensors[i]),
                                       .rows = plan->tensors[i].dims > 1 ? plan->tensors[i].shape[0] : 0,
                                       .sensitive =
                                           plan->tensors[i].dims == 1 && values_of(&plan->tensors[i]) <= SENSITIVE_MAX};
    enum err err = plan_new(rows, plan->tensors_count, &conf, &plan->plan);
    mem_free(rows);
    return err;
}

static void write_shape(FILE *stream, const struct ipc_tensor *tensor)
{
    fprintf(stream, "\t%" PRIu32, tensor->dims);
    for (uint32_t d = 0; d < tensor->dims; d++)
        fprintf(stream, "\t%" PRIu64, tensor->shape[d]);
    fputc('\n', stream);
}

static enum err make_text(struct model_plan *plan)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream == NULL)
        return err_set(ERR_NOMEM, "out of memory for the plan");
    for (uint32_t i = 0; i < plan->tensors_count + plan->frozen_count; i++) {
        const struct ipc_tensor *tensor = &plan->tensors[i];
        if (tensor->frozen)
            fprintf(stream, "%s\t" FROZEN_WORD "\t%s\t%016" PRIx64, tensor->name, tensor->type, tensor->sum);
        else
            fprintf(stream, "%s\t%" PRId32, tensor->name, tensor->layer);
        write_shape(stream, tensor);
    }
    fclose(stream);
    enum err err = mem_strdup(text, &plan->text);
    free(text);
    return err;
}

static void add_frozen(struct model_plan *plan, const struct ipc_tensor *tensor)
{
    struct ipc_tensor *slot = &plan->tensors[plan->tensors_count + plan->frozen_count++];
    *slot = *tensor;
    slot->layer = -1; /* it is part of no fragment, whose layers count */
}

static struct digest id_of(const struct model_plan *plan)
{
    struct digest_state state;
    if (plan->frozen_count == 0)
        return plan->plan->digest;
    digest_begin(&state);
    digest_add(&state, &plan->plan->digest, sizeof plan->plan->digest);
    digest_add(&state, plan->text, strlen(plan->text));
    return digest_end(&state);
}

enum err model_plan_new(const struct runspec *spec, const struct ipc_tensor *tensors, uint32_t tensors_count,
                        struct model_plan **out)
{
    enum err err;
    struct model_plan *plan = NULL;
    *out = NULL;
    TRY_OUT(mem_new(1, sizeof *plan, "the plan", &plan));
    TRY_OUT(mem_new(tensors_count, sizeof *plan->tensors, "the plan", &plan->tensors));
    for (uint32_t i = 0; i < tensors_count; i++)
        if (!tensors[i].frozen)
            plan->tensors[plan->tensors_count++] = tensors[i];
    for (uint32_t i = 0; i < tensors_count; i++)
        if (tensors[i].frozen)
            add_frozen(plan, &tensors[i]);
    TRY_OUT(make_plan(spec, plan));
    TRY_OUT(make_text(plan));
    plan->id = id_of(plan);
out:
    if (err != ERR_OK)
        model_plan_free(plan);
    else
        *out = plan;
    return err;
}

void model_plan_free(struct model_plan *plan)
{
    if (plan == NULL)
        return;
    plan_free(plan->plan);
    mem_free(plan->tensors);
    mem_free(plan->text);
    mem_free(plan);
}

static bool same_tensor(const struct ipc_tensor *a, const struct ipc_tensor *b)
{
    bool same = strcmp(a->name, b->name) == 0 && a->layer == b->layer && a->dims == b->dims;
    for (uint32_t d = 0; same && d < a->dims && d < IPC_DIMS_MAX; d++)
        same = a->shape[d] == b->shape[d];
    return same;
}

enum { TENSOR_TEXT_BYTES = 256 };

/* Appends, as much as there is room for. */
__attribute__((format(printf, 2, 3))) static void add(char *text, const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(text);
    va_start(arguments, format);
    vsnprintf(text + used, TENSOR_TEXT_BYTES - used, format, arguments);
    va_end(arguments);
}

static void add_shape(char *text, const struct ipc_tensor *tensor, const char *first)
{
    for (uint32_t d = 0; d < tensor->dims && d < IPC_DIMS_MAX; d++)
        add(text, "%s%" PRIu64, d == 0 ? first : " x ", tensor->shape[d]);
    add(text, ")");
}

/* "name (layer 3, 48 x 32)" of a tensor, or what to say where there is none. */
static const char *describe(const struct model_plan *plan, uint32_t i, const char *none, char *text)
{
    if (i >= plan->tensors_count)
        return none;
    const struct ipc_tensor *tensor = &plan->tensors[i];
    text[0] = '\0';
    add(text, "%.80s (", tensor->name);
    if (tensor->layer < 0)
        add(text, "no layer");
    else
        add(text, "layer %" PRId32, tensor->layer);
    add_shape(text, tensor, ", ");
    return text;
}
/* A name, a layer's number and as many dimensions as there can be fit. */
_Static_assert(80 + 2 + 16 + IPC_DIMS_MAX * (3 + 20) + 2 <= TENSOR_TEXT_BYTES, "a tensor's text is cut");

/* Of a frozen one; `named`: its name is said already. */
static const char *describe_frozen(const struct ipc_tensor *tensor, bool named, char *text)
{
    text[0] = '\0';
    if (tensor == NULL)
        return "none there";
    if (!named)
        add(text, "%.80s, ", tensor->name);
    add(text, "%s (", tensor->type);
    add_shape(text, tensor, "");
    return text;
}

static bool same_form(const struct ipc_tensor *a, const struct ipc_tensor *b)
{
    return same_tensor(a, b) && strcmp(a->type, b->type) == 0;
}

static const struct ipc_tensor *frozen_at(const struct model_plan *plan, uint32_t i)
{
    return i < plan->frozen_count ? &plan->tensors[plan->tensors_count + i] : NULL;
}

bool model_plan_same_but_base(const struct model_plan *run, const struct model_plan *other)
{
    return digest_equal(&run->plan->digest, &other->plan->digest) && !digest_equal(&run->id, &other->id);
}

static void base_difference(const struct model_plan *run, const struct model_plan *other, char *text, size_t text_bytes)
{
    uint32_t i = 0;
    char theirs[TENSOR_TEXT_BYTES], ours[TENSOR_TEXT_BYTES];
    const struct ipc_tensor *a, *b;
    while ((a = frozen_at(other, i)) != NULL && (b = frozen_at(run, i)) != NULL && same_form(a, b) && a->sum == b->sum)
        i++;
    b = frozen_at(run, i);
    bool named = a != NULL && b != NULL && strcmp(a->name, b->name) == 0;
    if (named && same_form(a, b))
        snprintf(text, text_bytes, "%.80s has %s", a->name,
                 a->sum == 0 || b->sum == 0 ? "values that are not known" : "other values");
    else if (a == NULL)
        snprintf(text, text_bytes, "%.80s is missing", b != NULL ? b->name : "nothing");
    else
        snprintf(text, text_bytes, "%.80s is %s, the run has %s", a->name, describe_frozen(a, true, theirs),
                 describe_frozen(b, named, ours));
}

void model_plan_difference(const struct model_plan *run, const struct model_plan *other, char *text, size_t text_bytes)
{
    uint32_t i = 0;
    char theirs[TENSOR_TEXT_BYTES], ours[TENSOR_TEXT_BYTES];
    if (model_plan_same_but_base(run, other)) {
        base_difference(run, other, text, text_bytes);
        return;
    }
    while (i < run->tensors_count && i < other->tensors_count && same_tensor(&run->tensors[i], &other->tensors[i]))
        i++;
    snprintf(text, text_bytes, "tensor %" PRIu32 " is %s, the run has %s", i, describe(other, i, "missing", theirs),
             describe(run, i, "none there", ours));
}

/* One line, without its end. */
static enum err parse_line(const char *line, struct ipc_tensor *tensor)
{
    int used = 0;
    memset(tensor, 0, sizeof *tensor);
    if (sscanf(line, "%127[^\t\n]\t" FROZEN_WORD "\t%15[^\t\n]\t%" SCNx64 "\t%" SCNu32 "%n", tensor->name, tensor->type,
               &tensor->sum, &tensor->dims, &used) == 4) {
        tensor->frozen = 1;
        tensor->layer = -1;
    } else {
        memset(tensor, 0, sizeof *tensor);
        if (sscanf(line, "%127[^\t\n]\t%" SCNd32 "\t%" SCNu32 "%n", tensor->name, &tensor->layer, &tensor->dims,
                   &used) != 3 ||
            tensor->layer < -1)
            return err_set(ERR_PROTO, "the plan holds a line that is no tensor");
    }
    if (tensor->dims > IPC_DIMS_MAX)
        return err_set(ERR_PROTO, "the plan holds a line that is no tensor");
    line += used;
    for (uint32_t d = 0; d < tensor->dims; d++) {
        used = 0;
        if (sscanf(line, "\t%" SCNu64 "%n", &tensor->shape[d], &used) != 1)
            return err_set(ERR_PROTO, "the plan holds a tensor without its shape");
        line += used;
    }
    return *line == '\0' ? ERR_OK : err_set(ERR_PROTO, "the plan holds a line that is too long");
}

/* Cuts the text into its lines: scanf() looks for the end of all it is given, each time. */
static enum err parse_lines(char *text, struct ipc_tensor *tensors, uint32_t lines)
{
    for (uint32_t i = 0; i < lines; i++) {
        char *end = strchr(text, '\n');
        *end = '\0';
        TRY(parse_line(text, &tensors[i]));
        text = end + 1;
    }
    return ERR_OK;
}

/* scanf() reads more than what make_text() writes: signs, blanks, zeros in front, numbers that wrap; and the last line
 * may be torn. A plan has one text, so what was read is held against what it is written as. */
static enum err plan_of_text(const struct runspec *spec, const char *text, size_t bytes,
                             const struct ipc_tensor *tensors, uint32_t tensors_count, struct model_plan **out)
{
    enum err err = model_plan_new(spec, tensors, tensors_count, out);
    if (err == ERR_ARG)
        return err_prefix(ERR_PROTO, "the plan's tensors make none");
    if (err != ERR_OK || (strlen((*out)->text) == bytes && memcmp((*out)->text, text, bytes) == 0))
        return err;
    model_plan_free(*out);
    *out = NULL;
    return err_set(ERR_PROTO, "the plan's text is not written as a plan is");
}

enum err model_plan_parse(const struct runspec *spec, const char *text, size_t bytes, struct model_plan **out)
{
    enum err err = ERR_OK;
    struct ipc_tensor *tensors = NULL;
    uint32_t lines = 0;
    char *copy = NULL;
    *out = NULL;
    if (bytes == 0 || bytes > MODEL_PLAN_TEXT_MAX || memchr(text, '\0', bytes) != NULL)
        return err_set(ERR_PROTO, "a plan of %zu bytes", bytes);
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    if (lines == 0 || lines > IPC_TENSORS_MAX)
        return err_set(ERR_PROTO, "a plan of %" PRIu32 " tensors", lines);
    TRY_OUT(mem_new(bytes + 1, 1, "the plan", &copy));
    memcpy(copy, text, bytes);
    TRY_OUT(mem_new(lines, sizeof *tensors, "the plan", &tensors));
    TRY_OUT(parse_lines(copy, tensors, lines));
    err = plan_of_text(spec, text, bytes, tensors, lines, out);
out:
    mem_free(tensors);
    mem_free(copy);
    return err;
}
