/* See sessions.h. */
#include "world/load/sessions.h"

#include "world/load/rate_profile.h"

#include "base/arith.h"
#include "base/index_map.h"
#include "base/limits.h"
#include "world/load/trace_reader.h"
#include "serve/slot_heap.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

#define SESSIONS_FIRST 64u /* room to begin with; it doubles */

struct session {
    uint32_t number;
    uint32_t turns_left; /* the one in hand included */
    uint32_t key;        /* in the map */
    int64_t turn_ns;     /* of the next turn, while the user thinks */
    uint64_t said;       /* tokens of the turns before */
    uint32_t answer;     /* tokens of the answer under way */
    struct rng lengths;
};

/* Conversations that go on, by slot. A user who thinks is in the heap, one who waits for an answer in the map. Of a run
 * that is played again all are in the map: nobody knows who thinks. */
struct table {
    void *memory;
    uint32_t capacity;
    struct session *items;
    uint32_t *unused; /* a stack of free slots */
    uint32_t unused_count;
    uint32_t *positions;
    struct slot_heap thinking; /* by time of the next turn, then number */
    struct index_map waiting;  /* by request, or where the run is played again by number */
};

struct sessions {
    const struct load *load;
    uint64_t seed;
    struct rng arrivals;
    struct rng turns;
    uint32_t begun;    /* conversations so far */
    uint32_t to_begin; /* so many at a time: those that may begin now */
    int64_t begin_ns;  /* of the next one; TIME_NEVER: when one has ended */
    int64_t even_ns;   /* the same without the profile of the load */
    uint64_t mean_gap_ns;
    struct table table;
    uint64_t blocks[REQUEST_BLOCKS_MAX];
};

uint64_t sessions_prompt_mean_milli(const struct load *load, uint64_t prompt_milli, uint64_t output_milli,
                                    uint64_t turns_milli)
{
    uint64_t before_milli = turns_milli > 1000 ? (turns_milli - 1000) / 2 : 0;
    uint64_t mean_milli = (uint64_t)load->session_system_tokens * 1000 + prompt_milli +
                          mul_div_floor_u64(before_milli, prompt_milli + output_milli, 1000);
    if (load->session_first.kind == 0)
        return mean_milli;
    /* Every turn's prompt has the first turn's words in it. */
    return mean_milli + length_mean_milli(&load->session_first) - prompt_milli;
}

/* ---- The table --------------------------------------------------------------------------------------------------- */

static void table_lay_out(struct table *table, struct arena *arena)
{
    table->items = arena_take(arena, table->capacity, sizeof *table->items);
    table->unused = arena_take(arena, table->capacity, sizeof *table->unused);
    table->positions = arena_take(arena, table->capacity, sizeof *table->positions);
    slot_heap_make(&table->thinking, arena, table->capacity, table->positions);
    index_map_make(&table->waiting, arena, table->capacity);
}

static void table_make(struct table *table, uint32_t capacity)
{
    *table = (struct table){.capacity = capacity};
    struct arena arena = arena_measure();
    table_lay_out(table, &arena);
    size_t size = (arena.used + 63) / 64 * 64;
    table->memory = memory_aligned(size);
    arena = arena_over(table->memory, size);
    table_lay_out(table, &arena);
    while (table->unused_count < capacity) {
        table->unused[table->unused_count] = capacity - 1 - table->unused_count;
        table->unused_count++;
    }
}

static void think(struct table *table, uint32_t slot)
{
    const struct session *session = &table->items[slot];
    slot_heap_push(&table->thinking, slot, (uint64_t)session->turn_ns, session->number);
}

/* Twice the room; every slot stays what it is. */
static void table_grow(struct table *table)
{
    struct table old = *table;
    table_make(table, 2 * old.capacity);
    memcpy(table->items, old.items, old.capacity * sizeof *old.items);
    table->unused_count -= old.capacity; /* the first slots are at the stack's end, and all taken */
    for (uint32_t slot = 0; slot < old.capacity; slot++) {
        if (slot_heap_holds(&old.thinking, slot))
            think(table, slot);
        else
            index_map_put(&table->waiting, table->items[slot].key, slot);
    }
    free(old.memory);
}

static uint32_t table_take(struct table *table)
{
    if (table->unused_count == 0)
        table_grow(table);
    return table->unused[--table->unused_count];
}

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

static void next_begins(struct sessions *sessions)
{
    if (sessions->load->concurrency > 0) {
        sessions->to_begin--;
        if (sessions->to_begin == 0)
            sessions->begin_ns = TIME_NEVER;
        return;
    }
    int64_t gap_ns = (int64_t)rng_exponential(&sessions->arrivals, sessions->mean_gap_ns);
    sessions->even_ns = time_add(sessions->even_ns, gap_ns);
    sessions->begin_ns = rate_profile_time(&sessions->load->profile, sessions->even_ns);
}

struct sessions *sessions_make(const struct load *load, uint64_t seed)
{
    struct sessions *sessions = memory_zeroed(1, sizeof *sessions);
    sessions->load = load;
    sessions->seed = seed;
    table_make(&sessions->table, SESSIONS_FIRST);
    sessions->arrivals = rng_stream(seed, 0, RNG_ARRIVALS);
    sessions->turns = rng_stream(seed, 1, RNG_ARRIVALS);
    if (load->concurrency > 0) {
        sessions->to_begin = load->concurrency;
        return sessions;
    }
    /* Requests come at the load's rate: conversations at that over the mean number of turns. */
    sessions->mean_gap_ns = min_u64((UINT64_C(1) << 56) - 1,
                                    mul_div_floor_u64(length_mean_milli(&load->session_turns),
                                                      UINT64_C(1000) * (uint64_t)NS_PER_S, load->rate_micro_per_s));
    next_begins(sessions);
    return sessions;
}

void sessions_free(struct sessions *sessions)
{
    if (sessions == NULL)
        return;
    free(sessions->table.memory);
    free(sessions);
}

int64_t sessions_next_ns(const struct sessions *sessions)
{
    const struct slot_heap_entry *first = slot_heap_top(&sessions->table.thinking);
    return first == NULL ? sessions->begin_ns : min_i64((int64_t)first->key, sessions->begin_ns);
}

static uint32_t begin(struct sessions *sessions)
{
    uint32_t slot = table_take(&sessions->table);
    uint32_t number = sessions->begun++;
    sessions->table.items[slot] = (struct session){
        .number = number,
        .turns_left = length_draw(&sessions->load->session_turns, &sessions->turns),
        .lengths = rng_stream(sessions->seed, number, RNG_PROMPT_LENGTH),
    };
    next_begins(sessions);
    return slot;
}

/* Names of the blocks of the first `tokens` tokens. */
static void name_blocks(struct sessions *sessions, const struct session *session, uint32_t tokens,
                        struct request_spec *spec)
{
    uint32_t size = sessions->load->session_block_tokens;
    uint32_t count = ceil_div_u32(tokens, size);
    uint64_t own = trace_block_hash(trace_block_hash(0, sessions->seed), (uint64_t)session->number + 1);
    uint64_t before = 0;
    CHECK(count <= REQUEST_BLOCKS_MAX);
    for (uint32_t b = 0; b < count; b++) {
        bool shared = (uint64_t)(b + 1) * size <= sessions->load->session_system_tokens;
        uint32_t filled = min_u32(size, tokens - b * size);
        uint64_t content = shared ? b : trace_block_hash(own, (uint64_t)b * size + filled);
        before = trace_block_hash(before, content);
        sessions->blocks[b] = before;
    }
    spec->block_count = count;
    spec->block_tokens = size;
    spec->blocks = sessions->blocks;
}

/* The user says what the next turn adds. */
static void speak(struct sessions *sessions, struct session *session, struct request_spec *spec)
{
    const struct load *load = sessions->load;
    bool first = session->said == 0 && load->session_first.kind != 0;
    session->said += length_draw(first ? &load->session_first : &load->prompt, &session->lengths);
    session->answer = length_draw(&load->output, &session->lengths);
    spec->prompt_tokens = (uint32_t)(load->session_system_tokens + session->said);
    spec->output_tokens = session->answer;
    name_blocks(sessions, session, spec->prompt_tokens, spec);
}

void sessions_take(struct sessions *sessions, uint32_t id, struct request_spec *spec)
{
    struct table *table = &sessions->table;
    const struct slot_heap_entry *first = slot_heap_top(&table->thinking);
    uint32_t slot;
    if (first == NULL || sessions->begin_ns <= (int64_t)first->key) {
        slot = begin(sessions);
    } else {
        slot = first->slot;
        slot_heap_remove(&table->thinking, slot);
    }
    table->items[slot].key = id;
    index_map_put(&table->waiting, id, slot);
    speak(sessions, &table->items[slot], spec);
}

/* The time that the user thinks after the answer to a turn that is not the last. */
static uint64_t answer(const struct load *load, struct session *session)
{
    session->said += session->answer;
    session->turns_left--;
    return rng_exponential(&session->lengths, (uint64_t)load->session_think_ns);
}

void sessions_answered(struct sessions *sessions, uint32_t id, int64_t now_ns)
{
    struct table *table = &sessions->table;
    uint32_t slot = index_map_get(&table->waiting, id);
    CHECK(slot != INDEX_NONE);
    index_map_remove(&table->waiting, id);
    struct session *session = &table->items[slot];
    if (session->turns_left == 1) {
        table->unused[table->unused_count++] = slot;
        if (sessions->load->concurrency > 0 && sessions->to_begin++ == 0)
            sessions->begin_ns = now_ns;
        return;
    }
    session->turn_ns = time_add(now_ns, (int64_t)answer(sessions->load, session));
    think(table, slot);
}

uint32_t sessions_number(const struct sessions *sessions, uint32_t id)
{
    uint32_t slot = index_map_get(&sessions->table.waiting, id);
    CHECK(slot != INDEX_NONE);
    return sessions->table.items[slot].number;
}

bool sessions_take_again(struct sessions *sessions, uint32_t number, struct request_spec *spec)
{
    struct table *table = &sessions->table;
    uint32_t slot = index_map_get(&table->waiting, number);
    if (slot == INDEX_NONE) {
        if (number != sessions->begun)
            return false;
        slot = begin(sessions);
        table->items[slot].key = number;
        index_map_put(&table->waiting, number, slot);
    } else {
        answer(sessions->load, &table->items[slot]);
    }
    speak(sessions, &table->items[slot], spec);
    if (table->items[slot].turns_left == 1) {
        index_map_remove(&table->waiting, number);
        table->unused[table->unused_count++] = slot;
    }
    return true;
}
