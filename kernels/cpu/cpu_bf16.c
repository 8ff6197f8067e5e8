/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with bf16 operands, added up in float: oneDNN's matmul primitives, each made once for its shape and kept.
 *
 * The first operand is rounded into a room of the device's, row by row as it lies. The second is rounded too, and then
 * packed: put into the order in which the library's loops read it (for AVX512-BF16 and AMX pairs of rows, interleaved),
 * which is a few percent of a product's time and gains more than that. Packed weights are kept by cpu_weights.c; what
 * else is a second operand, the input of the gradient of weights, is packed here each time. Its first operand is
 * transposed, which the library then reads as fast as any other.
 */
#include <dnnl.h>

#include "common/mem.h"
#include "kernels/cpu/cpu.h"

/* Of each kind, for the shapes of one model: what comes beyond it takes the place of what was used longest ago. */
enum { PACKS_MAX = 64, PRODUCTS_MAX = 128 };
/* The rows for which the library is asked how it wants a second operand: they are to lie alike for any number. */
enum { USUAL_ROWS = 1024 };

/* How a second operand (k,n) is packed. */
struct pack {
    uint64_t used; /* when; 0: free */
    bool lying;    /* it comes as (n,k) */
    int64_t k, n;
    dnnl_memory_desc_t packed;
    dnnl_primitive_t primitive;
    dnnl_memory_t from, to;
};

struct product {
    uint64_t used;
    struct cpu_product shape;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, scratch;
    size_t scratch_bytes;
};

struct room {
    void *bytes;
    size_t size;
};

enum { FIRST, PLAIN, PACKED, SCRATCH, ROOMS };

struct cpu_bf16 {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    uint64_t uses;
    struct pack packs[PACKS_MAX];
    struct product products[PRODUCTS_MAX];
    struct room rooms[ROOMS];
};

/* Forwards a refusal of the library's. */
#define DNNL_TRY(call)                  \
    do {                                \
        dnnl_status_t status_ = (call); \
        if (status_ != dnnl_success)    \
            return status_;             \
    } while (0)

bool CPU(bf16_there)(void)
{
    /* Which is also what the library's environment variables let it use. */
    unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(), bf16 = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    return (isa & bf16) == bf16;
}

/* ---- rooms ---- */

static enum err room_for(struct cpu_bf16 *b, int which, size_t bytes)
{
    struct room *room = &b->rooms[which];
    if (bytes <= room->size)
        return ERR_OK;
    mem_free(room->bytes);
    *room = (struct room){0};
    TRY(mem_new(bytes, 1, "operands in bf16", &room->bytes));
    room->size = bytes;
    return ERR_OK;
}

/* As the library rounds them up. */
static size_t packed_bytes(int64_t k, int64_t n)
{
    return (size_t)((k + 31) / 32 * 32) * (size_t)((n + 63) / 64 * 64) * sizeof(cpu_half);
}

/* Operands of up to R rows of C values, or L logits. */
static void room_bytes(int64_t R, int64_t C, int64_t L, size_t bytes[ROOMS])
{
    size_t most = (size_t)(R * C), logits = (size_t)L;
    bytes[FIRST] = (most > logits ? most : logits) * sizeof(cpu_half);
    bytes[PLAIN] = most * sizeof(cpu_half);
    bytes[PACKED] = packed_bytes(R, C);
    bytes[SCRATCH] = 0;
}

size_t CPU(bf16_reserve_bytes)(int64_t R, int64_t C, int64_t L)
{
    size_t bytes[ROOMS], sum = 0;
    room_bytes(R, C, L, bytes);
    for (int i = 0; i < ROOMS; i++)
        sum += bytes[i];
    return sum;
}

enum err CPU(bf16_reserve)(struct cpu_bf16 *b, int64_t R, int64_t C, int64_t L)
{
    size_t bytes[ROOMS];
    room_bytes(R, C, L, bytes);
    for (int i = 0; i < ROOMS; i++)
        TRY(room_for(b, i, bytes[i]));
    return ERR_OK;
}

/* ---- rounding ---- */

void CPU(bf16_round)(cpu_half *to, const float *from, int64_t rows, int64_t columns, int64_t ld)
{
    enum { AT_ONCE = 1 << 14 };
    if (ld == columns) { /* however many rows there are, to all threads alike */
        int64_t count = rows * columns;
#pragma omp parallel for schedule(static)
        for (int64_t begin = 0; begin < count; begin += AT_ONCE) {
            int64_t end = begin + AT_ONCE < count ? begin + AT_ONCE : count;
            for (int64_t i = begin; i < end; i++)
                to[i] = cpu_half_of(from[i]);
        }
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < columns; i++)
            to[r * columns + i] = cpu_half_of(from[r * ld + i]);
}

/* ---- what the library is asked ---- */

static dnnl_status_t matrix_desc(dnnl_memory_desc_t *out, dnnl_data_type_t type, int64_t rows, int64_t columns,
                                 int64_t row, int64_t column)
{
    const dnnl_dims_t dims = {rows, columns}, strides = {row, column};
    return dnnl_memory_desc_init_by_strides(out, 2, dims, type, strides);
}

/* A product (M,K) (K,N); `b` as the caller wants it, or any. The caller destroys *out. */
static dnnl_status_t describe(const struct cpu_bf16 *bf16, const struct cpu_product *s, const dnnl_memory_desc_t *b,
                              dnnl_primitive_desc_t *out)
{
    dnnl_memory_desc_t a, c;
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post;
    *out = NULL;
    DNNL_TRY(matrix_desc(&a, dnnl_bf16, s->M, s->K, s->transposed ? 1 : s->K, s->transposed ? s->M : 1));
    DNNL_TRY(matrix_desc(&c, dnnl_f32, s->M, s->N, s->ld, 1));
    DNNL_TRY(dnnl_matmul_desc_init(&matmul, &a, b, NULL, &c));
    DNNL_TRY(dnnl_primitive_attr_create(&attr));
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && s->add) {
        status = dnnl_post_ops_create(&post);
        if (status == dnnl_success) {
            status = dnnl_post_ops_append_sum(post, 1);
            if (status == dnnl_success)
                status = dnnl_primitive_attr_set_post_ops(attr, post);
            dnnl_post_ops_destroy(post);
        }
    }
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &matmul, attr, bf16->engine, NULL);
    dnnl_primitive_attr_destroy(attr);
    return status;
}

static dnnl_status_t ask_packing(const struct cpu_bf16 *b, int64_t k, int64_t n, dnnl_memory_desc_t *out)
{
    const dnnl_dims_t dims = {k, n};
    const struct cpu_product usual = {.M = USUAL_ROWS, .N = n, .K = k, .ld = n};
    dnnl_memory_desc_t any;
    dnnl_primitive_desc_t product;
    DNNL_TRY(dnnl_memory_desc_init_by_tag(&any, 2, dims, dnnl_bf16, dnnl_format_tag_any));
    DNNL_TRY(describe(b, &usual, &any, &product));
    *out = *dnnl_primitive_desc_query_md(product, dnnl_query_weights_md, 0);
    return dnnl_primitive_desc_destroy(product);
}

/* ---- packing ---- */

static void drop_pack(struct pack *pack)
{
    dnnl_primitive_destroy(pack->primitive);
    dnnl_memory_destroy(pack->from);
    dnnl_memory_destroy(pack->to);
    *pack = (struct pack){0};
}

static dnnl_status_t make_pack(const struct cpu_bf16 *b, struct pack *pack)
{
    dnnl_memory_desc_t plain;
    dnnl_primitive_desc_t reorder;
    DNNL_TRY(ask_packing(b, pack->k, pack->n, &pack->packed));
    DNNL_TRY(matrix_desc(&plain, dnnl_bf16, pack->k, pack->n, pack->lying ? 1 : pack->n, pack->lying ? pack->k : 1));
    DNNL_TRY(dnnl_reorder_primitive_desc_create(&reorder, &plain, b->engine, &pack->packed, b->engine, NULL));
    dnnl_status_t status = dnnl_primitive_create(&pack->primitive, reorder);
    dnnl_primitive_desc_destroy(reorder);
    DNNL_TRY(status);
    DNNL_TRY(dnnl_memory_create(&pack->from, &plain, b->engine, DNNL_MEMORY_NONE));
    return dnnl_memory_create(&pack->to, &pack->packed, b->engine, DNNL_MEMORY_NONE);
}

static dnnl_status_t find_pack(struct cpu_bf16 *b, bool lying, int64_t k, int64_t n, struct pack **out)
{
    struct pack *oldest = b->packs;
    for (struct pack *p = b->packs; p < b->packs + PACKS_MAX; p++) {
        *out = p;
        if (p->used != 0 && p->lying == lying && p->k == k && p->n == n) {
            p->used = ++b->uses;
            return dnnl_success;
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    drop_pack(oldest);
    *oldest = (struct pack){.lying = lying, .k = k, .n = n};
    *out = oldest;
    dnnl_status_t status = make_pack(b, oldest);
    if (status != dnnl_success)
        drop_pack(oldest);
    else
        oldest->used = ++b->uses;
    return status;
}

static dnnl_status_t do_pack(struct cpu_bf16 *b, const struct pack *pack, void *to, const cpu_half *from)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, pack->from}, {DNNL_ARG_TO, pack->to}};
    DNNL_TRY(dnnl_memory_set_data_handle(pack->from, (void *)(uintptr_t)from));
    DNNL_TRY(dnnl_memory_set_data_handle(pack->to, to));
    return dnnl_primitive_execute(pack->primitive, b->stream, 2, args);
}

/* ---- products ---- */

static void drop_product(struct product *p)
{
    dnnl_primitive_destroy(p->primitive);
    dnnl_memory_destroy(p->a);
    dnnl_memory_destroy(p->b);
    dnnl_memory_destroy(p->c);
    dnnl_memory_destroy(p->scratch);
    *p = (struct product){0};
}

static dnnl_status_t make_product(const struct cpu_bf16 *b, struct product *p)
{
    static const int which[] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md, dnnl_query_scratchpad_md};
    dnnl_memory_t *const memory[] = {&p->a, &p->b, &p->c, &p->scratch};
    dnnl_memory_desc_t packed;
    dnnl_primitive_desc_t desc;
    DNNL_TRY(ask_packing(b, p->shape.K, p->shape.N, &packed));
    DNNL_TRY(describe(b, &p->shape, &packed, &desc));
    dnnl_status_t status = dnnl_primitive_create(&p->primitive, desc);
    for (size_t i = 0; status == dnnl_success && i < sizeof which / sizeof which[0]; i++)
        status =
            dnnl_memory_create(memory[i], dnnl_primitive_desc_query_md(desc, which[i], 0), b->engine, DNNL_MEMORY_NONE);
    p->scratch_bytes = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
    dnnl_primitive_desc_destroy(desc);
    return status;
}

static bool same_shape(const struct cpu_product *a, const struct cpu_product *b)
{
    return a->M == b->M && a->N == b->N && a->K == b->K && a->ld == b->ld && a->transposed == b->transposed &&
           a->add == b->add;
}

static dnnl_status_t find_product(struct cpu_bf16 *b, const struct cpu_product *shape, struct product **out)
{
    struct product *oldest = b->products;
    for (struct product *p = b->products; p < b->products + PRODUCTS_MAX; p++) {
        *out = p;
        if (p->used != 0 && same_shape(&p->shape, shape)) {
            p->used = ++b->uses;
            return dnnl_success;
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    drop_product(oldest);
    *oldest = (struct product){.shape = *shape};
    *out = oldest;
    dnnl_status_t status = make_product(b, oldest);
    if (status != dnnl_success)
        drop_product(oldest);
    else
        oldest->used = ++b->uses;
    return status;
}

static dnnl_status_t do_product(struct cpu_bf16 *b, const struct product *p, const cpu_half *x, const void *packed,
                                float *out)
{
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, p->a}, {DNNL_ARG_WEIGHTS, p->b}, {DNNL_ARG_DST, p->c}, {DNNL_ARG_SCRATCHPAD, p->scratch}};
    DNNL_TRY(dnnl_memory_set_data_handle(p->a, (void *)(uintptr_t)x));
    DNNL_TRY(dnnl_memory_set_data_handle(p->b, (void *)(uintptr_t)packed));
    DNNL_TRY(dnnl_memory_set_data_handle(p->c, out));
    DNNL_TRY(dnnl_memory_set_data_handle(p->scratch, b->rooms[SCRATCH].bytes));
    return dnnl_primitive_execute(p->primitive, b->stream, sizeof args / sizeof args[0], args);
}

/* ---- for linear layers and kept weights ---- */

static void refused(struct kern_dev *dev, const char *what, int64_t k, int64_t n, dnnl_status_t status)
{
    if (status != dnnl_success)
        cpu_fault(dev, ERR_STATE, "oneDNN: %s of (%lld,%lld) in bf16 failed with status %d; use precision = fp32", what,
                  (long long)k, (long long)n, (int)status);
}

size_t CPU(bf16_packed_bytes)(int64_t k, int64_t n)
{
    return packed_bytes(k, n);
}

void CPU(bf16_pack)(struct kern_dev *dev, void *to, const cpu_half *from, bool lying, int64_t k, int64_t n)
{
    struct pack *pack;
    dnnl_status_t status = find_pack(dev->bf16, lying, k, n, &pack);
    if (status == dnnl_success && dnnl_memory_desc_get_size(&pack->packed) > packed_bytes(k, n))
        status = dnnl_unimplemented; /* it would be another layout than those that we have made room for */
    if (status == dnnl_success)
        status = do_pack(dev->bf16, pack, to, from);
    refused(dev, "packing", k, n, status);
}

const cpu_half *CPU(bf16_first)(struct kern_dev *dev, const float *x, int64_t rows, int64_t columns, int64_t ld)
{
    struct room *room = &dev->bf16->rooms[FIRST];
    if (room_for(dev->bf16, FIRST, (size_t)(rows * columns) * sizeof(cpu_half)) != ERR_OK) {
        cpu_fault(dev, ERR_NOMEM, "%s", err_text());
        return NULL;
    }
    CPU(bf16_round)(room->bytes, x, rows, columns, ld);
    return room->bytes;
}

const void *CPU(bf16_second)(struct kern_dev *dev, const float *x, bool lying, int64_t k, int64_t n)
{
    struct cpu_bf16 *b = dev->bf16;
    if (room_for(b, PLAIN, (size_t)(k * n) * sizeof(cpu_half)) != ERR_OK ||
        room_for(b, PACKED, packed_bytes(k, n)) != ERR_OK) {
        cpu_fault(dev, ERR_NOMEM, "%s", err_text());
        return NULL;
    }
    CPU(bf16_round)(b->rooms[PLAIN].bytes, x, 1, k * n, k * n);
    CPU(bf16_pack)(dev, b->rooms[PACKED].bytes, b->rooms[PLAIN].bytes, lying, k, n);
    return b->rooms[PACKED].bytes;
}

void CPU(bf16_product)(struct kern_dev *dev, float *out, const cpu_half *x, const void *packed,
                       const struct cpu_product *shape)
{
    struct product *product;
    if (dev->fault != ERR_OK)
        return;
    dnnl_status_t status = find_product(dev->bf16, shape, &product);
    if (status == dnnl_success && room_for(dev->bf16, SCRATCH, product->scratch_bytes) != ERR_OK)
        status = dnnl_out_of_memory;
    if (status == dnnl_success)
        status = do_product(dev->bf16, product, x, packed, out);
    refused(dev, "a product", shape->K, shape->N, status);
}

/* ---- the device's ---- */

void CPU(bf16_close)(struct cpu_bf16 *b)
{
    if (b == NULL)
        return;
    for (int i = 0; i < PACKS_MAX; i++)
        drop_pack(&b->packs[i]);
    for (int i = 0; i < PRODUCTS_MAX; i++)
        drop_product(&b->products[i]);
    for (int i = 0; i < ROOMS; i++)
        mem_free(b->rooms[i].bytes);
    dnnl_stream_destroy(b->stream);
    dnnl_engine_destroy(b->engine);
    mem_free(b);
}

enum err CPU(bf16_open)(struct cpu_bf16 **out)
{
    struct cpu_bf16 *b;
    *out = NULL;
    TRY(mem_new(1, sizeof *b, "products in bf16", &b));
    if (dnnl_engine_create(&b->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags) != dnnl_success) {
        CPU(bf16_close)(b);
        return err_set(ERR_STATE, "oneDNN opens no engine on this CPU; use precision = fp32");
    }
    *out = b;
    return ERR_OK;
}
