/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/testlib.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/fsio.h"
#include "common/mem.h"

enum { STRINGS_MAX = 4096 };
static char *strings[STRINGS_MAX];
static size_t strings_count;
static struct {
    char name[32];
    json_t *json;
} documents[16];
static size_t documents_count;

/* Any test runs some of its cases only: TEST_FILTER='a_case*'. */
__attribute__((constructor)) static void filter_cases(void)
{
    const char *filter = getenv("TEST_FILTER");
    if (filter != NULL && filter[0] != '\0')
        cmocka_set_test_filter(filter);
}

static void cleanup(void)
{
    for (size_t i = 0; i < strings_count; i++)
        free(strings[i]);
    for (size_t i = 0; i < documents_count; i++)
        json_decref(documents[i].json);
}

static const char *keep(char *text)
{
    if (strings_count == 0 && documents_count == 0)
        atexit(cleanup);
    assert_true(strings_count < STRINGS_MAX);
    strings[strings_count++] = text;
    return text;
}

void testlib_assert_fails(enum err want, const char *part, enum err got, const char *expression)
{
    if (got != want)
        fail_msg("%s: got %s, expected %s (%s)", expression, err_name(got), err_name(want), err_text());
    if (strstr(err_text(), part) == NULL)
        fail_msg("%s: the error \"%s\" does not say \"%s\"", expression, err_text(), part);
}

const char *testlib_folder(const char *name)
{
    const char *build = getenv("BUILD");
    char *path;
    char *command;
    assert_true(asprintf(&path, "%s/test-data/%s-%d", build != NULL ? build : "build", name, (int)getpid()) > 0);
    assert_true(asprintf(&command, "rm -rf '%s'", path) > 0);
    assert_int_equal(system(command), 0);
    free(command);
    assert_ok(fsio_mkdirs(path, 0755));
    return keep(path);
}

void testlib_clear(const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *item; (item = readdir(dir)) != NULL;)
        unlinkat(dirfd(dir), item->d_name, 0);
    closedir(dir);
}

const char *testlib_path(const char *folder, const char *name)
{
    char *path;
    assert_true(asprintf(&path, "%s/%s", folder, name) > 0);
    return keep(path);
}

const char *testlib_file(const char *folder, const char *name, const char *format, ...)
{
    const char *path = testlib_path(folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    va_list args;
    va_start(args, format);
    vfprintf(file, format, args);
    va_end(args);
    assert_int_equal(fclose(file), 0);
    return path;
}

void testlib_damage(const char *path, off_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

off_t testlib_file_bytes(const char *path)
{
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    return status.st_size;
}

json_t *testlib_cases(const char *name)
{
    char path[256];
    for (size_t i = 0; i < documents_count; i++)
        if (strcmp(documents[i].name, name) == 0)
            return json_object_get(documents[i].json, "cases");
    snprintf(path, sizeof path, "tests/vectors/%s.json", name);
    json_error_t error;
    json_t *document = json_load_file(path, 0, &error);
    if (document == NULL)
        fail_msg("%s: %s", path, error.text);
    if (strings_count == 0 && documents_count == 0)
        atexit(cleanup);
    assert_true(documents_count < sizeof documents / sizeof documents[0]);
    snprintf(documents[documents_count].name, sizeof documents[0].name, "%s", name);
    documents[documents_count++].json = document;
    json_t *cases = json_object_get(document, "cases");
    assert_true(json_array_size(cases) > 0);
    return cases;
}

size_t testlib_hex_floats(const json_t *array, float *out, size_t out_max)
{
    size_t count = json_array_size(array);
    assert_true(count > 0 && count <= out_max);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);
        if (json_is_string(item))
            out[i] = testlib_bits_float((uint32_t)strtoul(json_string_value(item), NULL, 16));
        else
            out[i] = (float)json_number_value(item);
    }
    return count;
}

float testlib_bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t testlib_float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void testlib_fill_normal(struct env_rng *rng, float *out, size_t count, double sigma)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(sigma * env_rng_normal(rng));
}

void testlib_fill_laplace(struct env_rng *rng, float *out, size_t count, double sigma)
{
    for (size_t i = 0; i < count; i++) {
        double u = env_rng_uniform(rng) - 0.5;
        double magnitude = -log(1 - 2 * fabs(u)) / sqrt(2);
        out[i] = (float)(sigma * (u < 0 ? -magnitude : magnitude));
    }
}

double testlib_relative_error(const float *a, const float *b, size_t count)
{
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

unsigned testlib_seeds(unsigned initial)
{
    const char *text = getenv("TEST_SEEDS");
#ifdef __SANITIZE_THREAD__
    initial = initial / 20 + 1;
#elif defined(__SANITIZE_ADDRESS__)
    initial = initial / 4 + 1;
#endif
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : initial;
}

static void trim_end(char *text, size_t bytes)
{
    while (bytes > 0 && text[bytes - 1] == '\n')
        text[--bytes] = '\0';
}

void testlib_assert_manual(const struct conf_schema *schema, const void *conf, const char *path)
{
    char *text = NULL, *printed = NULL;
    size_t bytes, printed_bytes;
    assert_ok(fsio_read(path, 1 << 20, &text, &bytes));
    FILE *stream = open_memstream(&printed, &printed_bytes);
    assert_non_null(stream);
    conf_print(schema, conf, true, stream);
    fclose(stream);
    trim_end(text, bytes);
    trim_end(printed, printed_bytes);
    const char *body = strstr(text, "\n[");
    assert_non_null(body);
    assert_string_equal(body + 1, printed);
    free(printed);
    mem_free(text);
}

/* Memory that there is not is no fault of the program's: tests ask for it. The sanitizers' own names. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* Weak: a test may want more. */
__attribute__((visibility("default"), weak)) const char *__tsan_default_options(void);
__attribute__((weak)) const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

bool testlib_sem_wait(sem_t *sem, int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return sem_timedwait(sem, &until) == 0;
}
