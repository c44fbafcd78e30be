/* See recording.h. */
#define _POSIX_C_SOURCE 200809L
#include "real/runtime/recording.h"

#include "base/arith.h"
#include "real/control/frame.h"
#include "real/runtime/recording_words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = "tandemE2";

/* Bytes of one event and all its calls; a launch of thousands of sequences with their page lists stays below. */
#define ENTRY_BYTES_MAX (256u << 20)

struct recording {
    struct runtime runtime;
    struct runtime *inner; /* NULL: replaying */
    struct node *node;
    struct recording_listener listener; /* of a replay */
    FILE *file;
    bool broken;          /* a write to the file failed */
    unsigned char *calls; /* of the event in hand */
    size_t used;
    size_t room;
    size_t *starts; /* of the calls in them */
    size_t start_count;
    size_t start_room;
    uint32_t line_count; /* of a replay: what was done last */
    struct divergence_line lines[DIVERGENCE_BEFORE_MAX];
};

/* ---- Calls as bytes ---------------------------------------------------------------------------------------------- */

static void append(struct recording *recording, const void *bytes, size_t length)
{
    if (recording->used + length > recording->room) {
        size_t room = recording->room == 0 ? 65536 : recording->room;
        while (room < recording->used + length)
            room *= 2;
        recording->calls = realloc(recording->calls, room);
        CHECK(recording->calls != NULL);
        recording->room = room;
    }
    if (length > 0)
        memcpy(recording->calls + recording->used, bytes, length);
    recording->used += length;
}

static void append_integer(struct recording *recording, uint64_t value)
{
    unsigned char bytes[8];
    struct frame_writer writer = {.bytes = bytes, .size = sizeof bytes};
    write_u64(&writer, value);
    append(recording, bytes, sizeof bytes);
}

static void append_integers(struct recording *recording, enum call call, const uint64_t *values, size_t count)
{
    append_integer(recording, call);
    for (size_t i = 0; i < count; i++)
        append_integer(recording, values[i]);
}
#define APPEND(recording, call, ...)                                                                                   \
    append_integers(recording, call, (const uint64_t[]){__VA_ARGS__},                                                  \
                    sizeof(const uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))

static void append_pages(struct recording *recording, const uint32_t *pages, uint32_t count)
{
    append_integer(recording, count);
    for (uint32_t i = 0; i < count; i++)
        append_integer(recording, pages[i]);
}

/* ---- Operations -------------------------------------------------------------------------------------------------- */

/* Each operation begins with it. */
static struct recording *of(struct runtime *rt)
{
    struct recording *recording = (struct recording *)(void *)rt;
    if (recording->start_count == recording->start_room) {
        recording->start_room = recording->start_room == 0 ? 64 : recording->start_room * 2;
        recording->starts = realloc(recording->starts, recording->start_room * sizeof *recording->starts);
        CHECK(recording->starts != NULL);
    }
    recording->starts[recording->start_count++] = recording->used;
    return recording;
}

static void op_timer_set(struct runtime *rt, uint32_t slot, int64_t at_ns)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_TIMER, slot, (uint64_t)at_ns);
    if (recording->inner != NULL)
        rt_timer_set(recording->inner, slot, at_ns);
}

static void op_launch(struct runtime *rt, const struct step_launch *launch)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_LAUNCH, launch->ticket, launch->repeat_max, launch->group_count, launch->change_count);
    for (uint32_t g = 0; g < launch->group_count; g++) {
        const struct step_group *group = &launch->groups[g];
        APPEND(recording, CALL_LAUNCH, group->decode_sequences, group->prefill_sequences, group->decode_context,
               group->prefill_tokens, group->prefill_context, group->prefill_pairs);
    }
    for (uint32_t i = 0; i < launch->change_count; i++) {
        const struct step_change *change = &launch->changes[i];
        APPEND(recording, CALL_LAUNCH, change->kind, change->group, change->sequence, change->request, change->start,
               change->tokens, change->page_first, change->token_seed);
        append_pages(recording, change->pages, change->page_count);
    }
    if (recording->inner != NULL)
        rt_launch(recording->inner, launch);
    else if (recording->listener.launch != NULL)
        recording->listener.launch(recording->listener.self, rt->now_ns, launch);
}

static void op_launch_end(struct runtime *rt, uint32_t ticket)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_LAUNCH_END, ticket);
    if (recording->inner != NULL)
        rt_launch_end(recording->inner, ticket);
}

static void op_write_post(struct runtime *rt, const struct paged_write *write)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_WRITE, write->ticket, write->gate, write->destination, write->immediate, write->request,
           write->epoch, write->unit_first, write->unit_count, write->source_group, write->destination_group,
           write->tail_writes, write->tail_bytes, write->tail_source_slot, write->tail_destination_slot);
    const struct transfer_plan *plan = write->plan;
    if (write->unit_count > 0) {
        append_pages(recording, write->source_pages, write->source_page_count);
        append_pages(recording, write->destination_pages, write->destination_page_count);
    }
    for (uint32_t i = 0; i < plan->pair_count; i++)
        APPEND(recording, CALL_WRITE, plan->pairs[i].source_rank, plan->pairs[i].destination_rank,
               plan->pairs[i].source_offset, plan->pairs[i].destination_offset, plan->pairs[i].run_bytes);
    if (recording->inner != NULL)
        rt_write_post(recording->inner, write);
}

static void op_write_stop(struct runtime *rt, uint32_t ticket)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_WRITE_STOP, ticket);
    if (recording->inner != NULL)
        rt_write_stop(recording->inner, ticket);
}

static void op_immediate_expect(struct runtime *rt, uint32_t immediate, uint64_t count)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_EXPECT, immediate, count);
    if (recording->inner != NULL)
        rt_immediate_expect(recording->inner, immediate, count);
    else if (recording->listener.expect != NULL)
        recording->listener.expect(recording->listener.self, rt->now_ns, immediate, count);
}

static void op_send(struct runtime *rt, uint32_t node, const void *bytes, size_t length)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_SEND, node, length);
    append(recording, bytes, length);
    if (recording->inner != NULL)
        rt_send(recording->inner, node, bytes, length);
    else if (recording->listener.send != NULL)
        recording->listener.send(recording->listener.self, rt->now_ns, node);
}

static void op_trace(struct runtime *rt, const struct trace_record *record)
{
    struct recording *recording = of(rt);
    APPEND(recording, CALL_TRACE, record->kind, record->node, record->request, record->a, record->b);
    if (recording->inner != NULL)
        recording->inner->ops->trace(recording->inner, record);
    else if (recording->listener.trace != NULL)
        recording->listener.trace(recording->listener.self, rt->now_ns, record);
}

static const struct runtime_ops operations = {
    .timer_set = op_timer_set,
    .launch = op_launch,
    .launch_end = op_launch_end,
    .write_post = op_write_post,
    .write_stop = op_write_stop,
    .immediate_expect = op_immediate_expect,
    .send = op_send,
    .trace = op_trace,
};

/* ---- Recording --------------------------------------------------------------------------------------------------- */

struct recording *recording_make(const char *path, struct runtime *inner, struct user_error *error)
{
    FILE *file = fopen(path, "wb");
    unsigned char in_flight = (unsigned char)inner->limits.launches_in_flight;
    if (file == NULL || fwrite(magic, sizeof magic, 1, file) != 1 || fwrite(&in_flight, 1, 1, file) != 1) {
        user_error_set(error, NULL, 0, NULL, "%s cannot be written: %s", path, strerror(errno));
        if (file != NULL)
            fclose(file);
        return NULL;
    }
    struct recording *recording = calloc(1, sizeof *recording);
    CHECK(recording != NULL);
    recording->runtime =
        (struct runtime){.ops = &operations, .node = inner->node, .limits = inner->limits, .policy = inner->policy};
    recording->inner = inner;
    recording->file = file;
    return recording;
}

bool recording_free(struct recording *recording)
{
    if (recording == NULL)
        return true;
    bool whole = !recording->broken && fclose(recording->file) == 0;
    if (recording->broken)
        fclose(recording->file);
    free(recording->calls);
    free(recording->starts);
    free(recording);
    return whole;
}

struct runtime *recording_seam(struct recording *recording)
{
    return &recording->runtime;
}

void recording_node(struct recording *recording, struct node *node)
{
    recording->node = node;
}

/* An arrival is a struct with a list behind it; a message is its bytes. */
static size_t event_data(const struct event *event, unsigned char **owned)
{
    *owned = NULL;
    if (event->kind == EVENT_MESSAGE) {
        *owned = malloc((size_t)event->count + 1);
        CHECK(*owned != NULL);
        memcpy(*owned, event->data, (size_t)event->count);
        return (size_t)event->count;
    }
    if (event->kind != EVENT_ARRIVAL)
        return 0;
    const struct request_spec *spec = event->data;
    size_t blocks = event->status == ARRIVAL_NEW ? spec->block_count : 0;
    struct frame_writer writer = {.size = 64 + blocks * 8};
    writer.bytes = malloc(writer.size);
    CHECK(writer.bytes != NULL);
    const uint64_t fields[] = {(uint64_t)spec->prompt_tokens << 32 | spec->output_tokens, (uint64_t)spec->id,
                               (uint64_t)blocks << 32 | spec->block_tokens, (uint64_t)spec->deadline_ns,
                               spec->token_seed};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        write_u64(&writer, fields[i]);
    for (size_t i = 0; i < blocks; i++)
        write_u64(&writer, spec->blocks[i]);
    *owned = writer.bytes;
    return writer.used;
}

#define ENTRY_HEADER_BYTES 40

void recording_handle(struct recording *recording, const struct event *event)
{
    unsigned char *data;
    size_t data_bytes = event_data(event, &data);
    recording->used = 0;
    recording->start_count = 0;
    recording->runtime.now_ns = recording->inner->now_ns;
    node_handle(recording->node, event);
    unsigned char header[ENTRY_HEADER_BYTES];
    struct frame_writer writer = {.bytes = header, .size = sizeof header};
    write_u64(&writer, (uint64_t)recording->runtime.now_ns);
    write_u16(&writer, event->kind);
    write_u16(&writer, event->status);
    write_u32(&writer, event->id);
    write_u64(&writer, event->count);
    write_u64(&writer, data_bytes);
    write_u64(&writer, recording->used);
    recording->broken |= fwrite(header, sizeof header, 1, recording->file) != 1;
    if (data_bytes > 0)
        recording->broken |= fwrite(data, data_bytes, 1, recording->file) != 1;
    if (recording->used > 0)
        recording->broken |= fwrite(recording->calls, recording->used, 1, recording->file) != 1;
    recording->broken |= fflush(recording->file) != 0; /* what led to a sudden end is what is wanted most */
    free(data);
}

/* ---- Replaying --------------------------------------------------------------------------------------------------- */

struct entry {
    struct event event;
    int64_t now_ns;
    uint64_t data_bytes;
    uint64_t call_bytes;
    unsigned char *bytes; /* data, then calls */
    struct request_spec spec;
    uint64_t *blocks;
};

static void entry_free(struct entry *entry)
{
    free(entry->bytes);
    free(entry->blocks);
    *entry = (struct entry){0};
}

static bool read_arrival(struct entry *entry)
{
    struct frame_reader reader = {.bytes = entry->bytes, .length = (size_t)entry->data_bytes};
    uint64_t lengths = read_u64(&reader);
    uint64_t name = read_u64(&reader);
    uint64_t blocks = read_u64(&reader);
    entry->spec = (struct request_spec){
        .id = (uint32_t)name,
        .prompt_tokens = (uint32_t)(lengths >> 32),
        .output_tokens = (uint32_t)lengths,
        .block_count = (uint32_t)(blocks >> 32),
        .block_tokens = (uint32_t)blocks,
    };
    entry->spec.deadline_ns = (int64_t)read_u64(&reader);
    entry->spec.token_seed = read_u64(&reader);
    if (entry->spec.block_count > entry->data_bytes / 8)
        return false;
    entry->blocks = calloc((size_t)entry->spec.block_count + 1, sizeof *entry->blocks);
    CHECK(entry->blocks != NULL);
    for (uint32_t i = 0; i < entry->spec.block_count; i++)
        entry->blocks[i] = read_u64(&reader);
    entry->spec.blocks = entry->blocks;
    entry->event.data = &entry->spec;
    return read_end(&reader);
}

/* 1: an entry; 0: the end of the file; -1: what is there makes no sense. */
static int read_entry(FILE *file, struct entry *entry)
{
    unsigned char header[ENTRY_HEADER_BYTES];
    size_t got = fread(header, 1, sizeof header, file);
    if (got == 0)
        return 0;
    struct frame_reader reader = {.bytes = header, .length = got};
    entry->now_ns = (int64_t)read_u64(&reader);
    entry->event.kind = read_u16(&reader);
    entry->event.status = read_u16(&reader);
    entry->event.id = read_u32(&reader);
    entry->event.count = read_u64(&reader);
    entry->data_bytes = read_u64(&reader);
    entry->call_bytes = read_u64(&reader);
    if (reader.bad || entry->data_bytes > ENTRY_BYTES_MAX || entry->call_bytes > ENTRY_BYTES_MAX)
        return -1;
    size_t bytes = (size_t)(entry->data_bytes + entry->call_bytes);
    entry->bytes = malloc(bytes + 1);
    CHECK(entry->bytes != NULL);
    if (fread(entry->bytes, 1, bytes, file) != bytes)
        return -1;
    if (entry->event.kind == EVENT_ARRIVAL)
        return read_arrival(entry) ? 1 : -1;
    if (entry->event.kind == EVENT_MESSAGE && entry->event.count != entry->data_bytes)
        return -1;
    entry->event.data = entry->bytes;
    return 1;
}

/* ---- What led to a difference ------------------------------------------------------------------------------------ */

static void remember(struct recording *recording, int64_t now_ns, const char *prefix, const char *text)
{
    if (recording->line_count == DIVERGENCE_BEFORE_MAX)
        memmove(&recording->lines[0], &recording->lines[1], --recording->line_count * sizeof recording->lines[0]);
    struct divergence_line *line = &recording->lines[recording->line_count++];
    line->at_ns = now_ns;
    snprintf(line->text, sizeof line->text, "%s%s", prefix, text);
}

/* The last of the first `count` calls of the event in hand, in which both were alike. */
static void remember_calls(struct recording *recording, size_t count, int64_t now_ns)
{
    if (recording->listener.divergence == NULL)
        return;
    for (size_t i = count - (size_t)min_u64(count, DIVERGENCE_BEFORE_MAX); i < count; i++) {
        char text[DIVERGENCE_TEXT_SIZE - 8];
        size_t start = recording->starts[i];
        recording_call_text(recording->calls + start, recording->used - start, text, sizeof text);
        remember(recording, now_ns, "", text);
    }
}

/* The caller has put the node's name there. */
static void tell(const struct recording *recording, const struct divergence *found)
{
    struct divergence *divergence = recording->listener.divergence;
    if (divergence == NULL)
        return;
    char name[sizeof divergence->node];
    memcpy(name, divergence->node, sizeof name);
    *divergence = *found;
    memcpy(divergence->node, name, sizeof name);
    divergence->before_count = recording->line_count;
    memcpy(divergence->before, recording->lines, sizeof divergence->before);
}

static bool same_calls(struct recording *recording, const struct entry *entry, int64_t number, struct user_error *error)
{
    const unsigned char *recorded = entry->bytes + entry->data_bytes;
    size_t at = 0;
    while (at < recording->used && at < entry->call_bytes && recording->calls[at] == recorded[at])
        at++;
    if (at == recording->used && at == entry->call_bytes)
        return true;
    /* Up to the start of this call the two are alike, so that it starts there in both. */
    size_t start = recording->used;
    size_t place = recording->start_count;
    for (size_t i = 0; i < recording->start_count && recording->starts[i] <= at; i++) {
        start = recording->starts[i];
        place = i;
    }
    if (at == recording->used) {
        start = at;
        place = recording->start_count;
    }
    struct divergence found = {.what = "event", .found = true, .record = (uint64_t)number};
    found.time_a_ns = found.time_b_ns = entry->now_ns;
    found.request = recording_call_request(recorded + start, (size_t)entry->call_bytes - start);
    char event[96];
    recording_event_text(&entry->event, event, sizeof event);
    recording_call_text(recorded + start, (size_t)entry->call_bytes - start, found.a, sizeof found.a);
    recording_call_text(recording->calls + start, recording->used - start, found.b, sizeof found.b);
    user_error_set(error, NULL, 0, NULL,
                   "event %" PRId64 ", %s, at %" PRId64 " ns: call %zu was to %s and is now to %s%s", number, event,
                   entry->now_ns, place + 1, found.a, found.b,
                   strcmp(found.a, found.b) == 0 ? ": they differ in what follows" : "");
    if (strcmp(found.a, found.b) == 0)
        snprintf(found.b, sizeof found.b, "the same, with other values after it");
    remember(recording, entry->now_ns, "told of ", event);
    remember_calls(recording, place, entry->now_ns);
    tell(recording, &found);
    return false;
}

static int64_t replay(struct recording *recording, FILE *file, struct user_error *error)
{
    for (int64_t number = 0;; number++) {
        struct entry entry = {.bytes = NULL};
        int got = read_entry(file, &entry);
        bool same = false;
        if (got < 0)
            user_error_set(error, NULL, 0, NULL, "event %" PRId64 " makes no sense", number);
        if (got > 0) {
            recording->used = 0;
            recording->start_count = 0;
            recording->runtime.now_ns = entry.now_ns;
            if (recording->listener.event != NULL)
                recording->listener.event(recording->listener.self, entry.now_ns, &entry.event);
            node_handle(recording->node, &entry.event);
            same = same_calls(recording, &entry, number, error);
            if (same)
                remember_calls(recording, recording->start_count, entry.now_ns);
        }
        entry_free(&entry);
        if (got == 0)
            return number;
        if (!same)
            return -1;
    }
}

int64_t recording_replay(const char *path, const struct node_config *config, const struct runtime_limits *limits,
                         struct user_error *error)
{
    return recording_replay_heard(path, config, limits, &(struct recording_listener){.trace = NULL}, error);
}

int64_t recording_replay_heard(const char *path, const struct node_config *config, const struct runtime_limits *limits,
                               const struct recording_listener *listener, struct user_error *error)
{
    char start[sizeof magic];
    FILE *file = fopen(path, "rb");
    unsigned char in_flight = 0;
    if (file == NULL || fread(start, sizeof start, 1, file) != 1 || memcmp(start, magic, sizeof magic) != 0 ||
        fread(&in_flight, 1, 1, file) != 1) {
        user_error_set(error, NULL, 0, NULL, "%s is no recording", path);
        if (file != NULL)
            fclose(file);
        return -1;
    }
    struct recording recording = {
        .runtime = {.ops = &operations, .node = config->node, .limits = *limits, .policy = listener->policy},
        .listener = *listener,
    };
    recording.runtime.limits.launches_in_flight = in_flight; /* what its device had */
    size_t size = node_size(config, &recording.runtime.limits);
    void *memory = aligned_alloc(64, size);
    CHECK(memory != NULL);
    memset(memory, 0, size);
    recording.node = node_make(config, &recording.runtime, memory, size);
    int64_t events = replay(&recording, file, error);
    free(memory);
    free(recording.calls);
    free(recording.starts);
    fclose(file);
    return events;
}
