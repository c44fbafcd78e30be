/* See trace_log.h. */
#include "run/trace_log.h"

#include "base/arith.h"
#include "host/input.h"
#include "host/memory.h"
#include "base/check.h"
#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

void trace_log_add(struct trace_log *log, int64_t now_ns, const struct trace_record *record)
{
    if (log->count == log->capacity) {
        log->capacity = max_u64(1024, 2 * log->capacity);
        log->items = memory_resized(log->items, log->capacity * sizeof *log->items);
    }
    log->items[log->count++] = (struct stamped_record){now_ns, *record};
}

void trace_log_free(struct trace_log *log)
{
    free(log->items);
    *log = (struct trace_log){0};
}

uint64_t trace_log_hash(const struct trace_log *log)
{
    uint64_t hash = 0;
    for (uint64_t i = 0; i < log->count; i++)
        hash = trace_hash_fold(hash, log->items[i].at_ns, &log->items[i].record);
    return hash;
}

/* ---- Columns ----------------------------------------------------------------------------------------------------- */

enum column { COLUMN_TIME, COLUMN_KIND, COLUMN_NODE, COLUMN_REQUEST, COLUMN_A, COLUMN_B, COLUMN_COUNT };

/* Trace kinds are below this; one that is not is not ours. */
#define KINDS_MAX 256u

/* What the next record most likely resembles: the operands of the last one of its kind, the request of the last one of
 * its node. Packing and unpacking walk through the same states. */
struct model {
    int64_t at_ns;
    uint32_t request[NODES_MAX];
    uint64_t a[KINDS_MAX];
    uint64_t b[KINDS_MAX];
};

static uint64_t zigzag(uint64_t difference)
{
    return (difference << 1) ^ (0 - (difference >> 63));
}

static uint64_t unzigzag(uint64_t coded)
{
    return (coded >> 1) ^ (0 - (coded & 1));
}

static bool fits(const struct trace_record *record)
{
    return record->kind < KINDS_MAX && record->node < NODES_MAX;
}

struct bytes {
    unsigned char *data;
    size_t size;
    size_t room;
};

static void put_number(struct bytes *bytes, uint64_t value)
{
    if (bytes->size + 10 > bytes->room) {
        bytes->room = 2 * bytes->room + 256;
        bytes->data = memory_resized(bytes->data, bytes->room);
    }
    for (; value >= 0x80; value >>= 7)
        bytes->data[bytes->size++] = (unsigned char)(value | 0x80);
    bytes->data[bytes->size++] = (unsigned char)value;
}

static void put_columns(struct bytes *columns, const struct trace_log *log)
{
    struct model *model = memory_zeroed(1, sizeof *model);
    for (uint64_t i = 0; i < log->count; i++) {
        const struct trace_record *record = &log->items[i].record;
        CHECK(fits(record));
        uint32_t *request = &model->request[record->node];
        put_number(&columns[COLUMN_TIME], zigzag((uint64_t)log->items[i].at_ns - (uint64_t)model->at_ns));
        put_number(&columns[COLUMN_KIND], record->kind);
        put_number(&columns[COLUMN_NODE], record->node);
        put_number(&columns[COLUMN_REQUEST], zigzag((uint64_t)(int64_t)(int32_t)(record->request - *request)));
        put_number(&columns[COLUMN_A], zigzag(record->a - model->a[record->kind]));
        put_number(&columns[COLUMN_B], zigzag(record->b - model->b[record->kind]));
        model->at_ns = log->items[i].at_ns;
        *request = record->request;
        model->a[record->kind] = record->a;
        model->b[record->kind] = record->b;
    }
    free(model);
}

/* A reader of one column. */
struct reading {
    const unsigned char *at;
    const unsigned char *end;
    bool bad;
};

static uint64_t get_number(struct reading *reading)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && reading->at < reading->end; shift += 7) {
        unsigned char byte = *reading->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    reading->bad = true;
    return 0;
}

static bool get_columns(struct reading *columns, uint64_t count, struct trace_log *log)
{
    struct model *model = memory_zeroed(1, sizeof *model);
    bool good = true;
    for (uint64_t i = 0; i < count && good; i++) {
        struct trace_record record;
        model->at_ns = (int64_t)((uint64_t)model->at_ns + unzigzag(get_number(&columns[COLUMN_TIME])));
        record.kind = (uint16_t)min_u64(KINDS_MAX, get_number(&columns[COLUMN_KIND]));
        record.node = (uint16_t)min_u64(NODES_MAX, get_number(&columns[COLUMN_NODE]));
        good = fits(&record);
        if (!good)
            break;
        uint32_t *request = &model->request[record.node];
        *request += (uint32_t)unzigzag(get_number(&columns[COLUMN_REQUEST]));
        model->a[record.kind] += unzigzag(get_number(&columns[COLUMN_A]));
        model->b[record.kind] += unzigzag(get_number(&columns[COLUMN_B]));
        record.request = *request;
        record.a = model->a[record.kind];
        record.b = model->b[record.kind];
        trace_log_add(log, model->at_ns, &record);
        for (unsigned c = 0; c < COLUMN_COUNT; c++)
            good = good && !columns[c].bad;
    }
    for (unsigned c = 0; c < COLUMN_COUNT; c++)
        good = good && columns[c].at == columns[c].end;
    free(model);
    return good;
}

/* ---- Bytes ------------------------------------------------------------------------------------------------------- */

/* In front of the compressed columns: magic, the number of records and the length of each column, in eight bytes each,
 * lowest first. */
static const unsigned char magic[8] = {'t', 'a', 'n', 'd', 'e', 'm', 't', '1'};
#define PACK_LEVEL 6 /* of zstd */
#define HEAD_BYTES (sizeof magic + 8 * (1 + COLUMN_COUNT))

static void store_u64(unsigned char *at, uint64_t value)
{
    for (unsigned i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t load_u64(const unsigned char *at)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

unsigned char *trace_log_pack(const struct trace_log *log, size_t *size, struct user_error *error)
{
    struct bytes columns[COLUMN_COUNT];
    memset(columns, 0, sizeof columns);
    put_columns(columns, log);
    size_t body = 0;
    for (unsigned c = 0; c < COLUMN_COUNT; c++)
        body += columns[c].size;
    size_t room = body + body / 8 + 65536;
    unsigned char *bytes = memory_get(HEAD_BYTES + room);
    memcpy(bytes, magic, sizeof magic);
    store_u64(bytes + sizeof magic, log->count);
    for (unsigned c = 0; c < COLUMN_COUNT; c++)
        store_u64(bytes + sizeof magic + 8 * (1 + c), columns[c].size);
    size_t used = 0;
    struct input_part parts[COLUMN_COUNT];
    for (unsigned c = 0; c < COLUMN_COUNT; c++)
        parts[c] = (struct input_part){.bytes = columns[c].data, .size = columns[c].size};
    bool good = body == 0 || input_pack(parts, COLUMN_COUNT, PACK_LEVEL, bytes + HEAD_BYTES, room, &used);
    for (unsigned c = 0; c < COLUMN_COUNT; c++)
        free(columns[c].data);
    *size = HEAD_BYTES + used;
    if (good)
        return bytes;
    user_error_set(error, NULL, 0, NULL, "a trace of %llu records cannot be compressed",
                   (unsigned long long)log->count);
    free(bytes);
    return NULL;
}

bool trace_log_unpack(struct trace_log *log, const unsigned char *bytes, size_t size)
{
    *log = (struct trace_log){0};
    if (size < HEAD_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return false;
    uint64_t count = load_u64(bytes + sizeof magic);
    uint64_t lengths[COLUMN_COUNT];
    uint64_t body = 0;
    bool good = count <= TRACE_LOG_RECORDS_MAX;
    for (unsigned c = 0; c < COLUMN_COUNT; c++) {
        lengths[c] = load_u64(bytes + sizeof magic + 8 * (1 + c));
        /* A number takes one to ten bytes. */
        good = good && lengths[c] >= count && lengths[c] <= 10 * count;
        body += good ? lengths[c] : 0;
    }
    if (!good || count == 0)
        return good && size == HEAD_BYTES;
    unsigned char *unpacked = input_unpack(bytes + HEAD_BYTES, size - HEAD_BYTES, body);
    if (unpacked == NULL)
        return false;
    struct reading columns[COLUMN_COUNT];
    const unsigned char *at = unpacked;
    for (unsigned c = 0; c < COLUMN_COUNT; c++) {
        columns[c] = (struct reading){.at = at, .end = at + lengths[c]};
        at += lengths[c];
    }
    good = get_columns(columns, count, log);
    free(unpacked);
    if (!good)
        trace_log_free(log);
    return good;
}
