/* Rows of a trace that wait for the ends of others: turns of a session, steps of an agent. See trace_format.h. */
#include "world/load/trace_format.h"

#include "base/arith.h"

#include <stdlib.h>
#include <string.h>

/* Names are known by a hash: two of a file that have the same one would be taken for one, a chance of 2^-40 for a
 * million of them. Where names are found they are in a table of open addressing that doubles. */
struct name {
    uint64_t hash; /* 0: an empty place */
    uint32_t row;  /* that has the name, or, of a session, its newest row */
};

struct names {
    struct name *places;
    size_t count;
    size_t capacity; /* a power of two */
};

struct edge {
    uint32_t before;
    uint32_t after;
};

struct trace_links {
    struct names rows;
    struct names sessions;
    struct edge *edges; /* in the order of `after` */
    size_t edge_count;
    size_t edge_capacity;
    int64_t *delay_ns; /* by row */
    uint32_t delay_count;
};

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0;
    for (; *text != '\0'; text++)
        hash = trace_block_hash(hash, (unsigned char)*text);
    return hash == 0 ? 1 : hash;
}

static void *grown(void *pointer, size_t count, size_t size)
{
    void *more = realloc(pointer, count * size);
    CHECK(more != NULL);
    return more;
}

static struct name *place_of(const struct names *names, uint64_t hash)
{
    size_t at = (size_t)hash & (names->capacity - 1);
    while (names->places[at].hash != 0 && names->places[at].hash != hash)
        at = (at + 1) & (names->capacity - 1);
    return &names->places[at];
}

/* The place of a name, new or not. */
static struct name *name_place(struct names *names, uint64_t hash)
{
    if (2 * (names->count + 1) > names->capacity) {
        struct names old = *names;
        names->capacity = old.capacity == 0 ? 64 : 2 * old.capacity;
        names->places = calloc(names->capacity, sizeof *names->places);
        CHECK(names->places != NULL);
        for (size_t i = 0; i < old.capacity; i++)
            if (old.places[i].hash != 0)
                *place_of(names, old.places[i].hash) = old.places[i];
        free(old.places);
    }
    return place_of(names, hash);
}

static const struct name *name_find(const struct names *names, uint64_t hash)
{
    if (names->capacity == 0)
        return NULL;
    const struct name *place = place_of(names, hash);
    return place->hash == 0 ? NULL : place;
}

static struct trace_links *links_of(struct trace_reading *reading)
{
    if (reading->links == NULL) {
        reading->links = calloc(1, sizeof *reading->links);
        CHECK(reading->links != NULL);
    }
    return reading->links;
}

static uint32_t row_read_last(const struct trace_reading *reading)
{
    return reading->trace->count - 1;
}

static void add_edge(struct trace_reading *reading, uint32_t before)
{
    struct trace_links *links = links_of(reading);
    if (links->edge_count == links->edge_capacity) {
        links->edge_capacity = links->edge_capacity == 0 ? 256 : 2 * links->edge_capacity;
        links->edges = grown(links->edges, links->edge_capacity, sizeof *links->edges);
    }
    links->edges[links->edge_count++] = (struct edge){.before = before, .after = row_read_last(reading)};
    /* Without a time of its own the row sorts behind those it waits for. */
    int64_t *arrival_ns = &reading->trace->arrival_ns[row_read_last(reading)];
    *arrival_ns = max_i64(*arrival_ns, reading->trace->arrival_ns[before]);
}

bool trace_link_name(struct trace_reading *reading, const char *name)
{
    struct trace_links *links = links_of(reading);
    uint64_t hash = hash_of(name);
    struct name *place = name_place(&links->rows, hash);
    if (place->hash != 0)
        return trace_wrong(reading, "request_id", "'%.60s' is the name of an earlier line", name);
    *place = (struct name){.hash = hash, .row = row_read_last(reading)};
    links->rows.count++;
    return true;
}

bool trace_link_session(struct trace_reading *reading, const char *session, bool follows)
{
    struct trace_links *links = links_of(reading);
    uint64_t hash = hash_of(session);
    struct name *place = name_place(&links->sessions, hash);
    if (follows && place->hash == 0)
        return trace_wrong(reading, "delay",
                           "no earlier line is of session '%.60s', so that there is no answer to count from", session);
    if (follows)
        add_edge(reading, place->row);
    links->sessions.count += place->hash == 0;
    *place = (struct name){.hash = hash, .row = row_read_last(reading)};
    return true;
}

bool trace_link_wait(struct trace_reading *reading, const char *name)
{
    const struct name *place = name_find(&links_of(reading)->rows, hash_of(name));
    if (place == NULL || place->row == row_read_last(reading))
        return trace_wrong(reading, "wait_for", "no earlier line has the request_id '%.60s'", name);
    add_edge(reading, place->row);
    return true;
}

void trace_link_delay(struct trace_reading *reading, int64_t delay_ns)
{
    struct trace_links *links = links_of(reading);
    uint32_t row = row_read_last(reading);
    if (row >= links->delay_count) {
        uint32_t count = max_u32(1024, 2 * (row + 1));
        links->delay_ns = grown(links->delay_ns, count, sizeof *links->delay_ns);
        memset(&links->delay_ns[links->delay_count], 0, (count - links->delay_count) * sizeof *links->delay_ns);
        links->delay_count = count;
    }
    links->delay_ns[row] = delay_ns;
}

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    CHECK(memory != NULL);
    return memory;
}

bool trace_links_finish(struct trace_reading *reading, const uint32_t *order)
{
    struct trace_links *links = reading->links;
    struct trace_file *trace = reading->trace;
    if (links == NULL || links->edge_count == 0)
        return true;
    uint32_t *now = zeroed(trace->count, sizeof *now); /* where the row that was read as the i-th is */
    for (uint32_t i = 0; i < trace->count; i++)
        now[order == NULL ? i : order[i]] = i;
    trace->waits = zeroed(trace->count, sizeof *trace->waits);
    trace->delay_ns = zeroed(trace->count, sizeof *trace->delay_ns);
    trace->follower_first = zeroed((size_t)trace->count + 1, sizeof *trace->follower_first);
    trace->followers = zeroed(links->edge_count, sizeof *trace->followers);
    for (uint32_t i = 0; i < trace->count && i < links->delay_count; i++)
        trace->delay_ns[now[i]] = links->delay_ns[i];
    for (size_t e = 0; e < links->edge_count; e++)
        trace->follower_first[now[links->edges[e].before] + 1]++;
    for (uint32_t i = 0; i < trace->count; i++)
        trace->follower_first[i + 1] += trace->follower_first[i];
    uint32_t *next = zeroed(trace->count, sizeof *next);
    for (size_t e = 0; e < links->edge_count; e++) {
        uint32_t before = now[links->edges[e].before];
        uint32_t after = now[links->edges[e].after];
        trace->followers[trace->follower_first[before] + next[before]++] = after;
        trace->waits[after]++;
    }
    free(next);
    free(now);
    return true;
}

void trace_links_free(struct trace_reading *reading)
{
    if (reading->links == NULL)
        return;
    free(reading->links->rows.places);
    free(reading->links->sessions.places);
    free(reading->links->edges);
    free(reading->links->delay_ns);
    free(reading->links);
    reading->links = NULL;
}
