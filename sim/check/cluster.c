/* See cluster.h. */
#include "sim/check/cluster.h"

#include "base/arith.h"
#include "base/limits.h"
#include "host/memory.h"

#include <stdlib.h>
#include <string.h>

/* What a request is at, on the side of its decoder and on that of its prefiller. */
enum decoder_state { DECODER_NONE, DECODER_WAITING, DECODER_FILLING, DECODER_READY, DECODER_DECODING, DECODER_STATES };
enum prefiller_state { PREFILLER_NONE, PREFILLER_QUEUED, PREFILLER_COMPUTING, PREFILLER_DRAINING, PREFILLER_STATES };

struct place {
    uint16_t decoder;
    uint16_t prefiller;
    uint8_t decoder_state;
    uint8_t prefiller_state;
};

struct cluster {
    struct place *places; /* by request */
    uint32_t capacity;
    uint32_t decoders[NODES_MAX][DECODER_STATES];
    uint32_t prefillers[NODES_MAX][PREFILLER_STATES];
};

struct cluster *cluster_make(void)
{
    struct cluster *cluster = memory_zeroed(1, sizeof *cluster);
    return cluster;
}

void cluster_free(struct cluster *cluster)
{
    if (cluster == NULL)
        return;
    free(cluster->places);
    free(cluster);
}

static struct place *place_of(struct cluster *cluster, uint32_t request)
{
    if (request >= cluster->capacity) {
        uint32_t capacity = max_u32(request + 1, max_u32(1024, 2 * cluster->capacity));
        cluster->places = memory_resized(cluster->places, capacity * sizeof *cluster->places);
        memset(cluster->places + cluster->capacity, 0, (capacity - cluster->capacity) * sizeof *cluster->places);
        cluster->capacity = capacity;
    }
    return &cluster->places[request];
}

static void decoder_is(struct cluster *cluster, struct place *place, uint16_t node, enum decoder_state state)
{
    cluster->decoders[place->decoder][place->decoder_state]--;
    place->decoder = node;
    place->decoder_state = (uint8_t)state;
    cluster->decoders[node][state]++;
}

static void prefiller_is(struct cluster *cluster, struct place *place, uint16_t node, enum prefiller_state state)
{
    cluster->prefillers[place->prefiller][place->prefiller_state]--;
    place->prefiller = node;
    place->prefiller_state = (uint8_t)state;
    cluster->prefillers[node][state]++;
}

/* A late record of another node than the one that has the request now (an attempt that was given up) says nothing. */
static void prefiller_moves(struct cluster *cluster, struct place *place, uint16_t node, enum prefiller_state state)
{
    if (place->prefiller_state != PREFILLER_NONE && place->prefiller == node)
        prefiller_is(cluster, place, node, state);
}

void cluster_trace(struct cluster *cluster, const struct trace_record *record)
{
    if (record->request == TRACE_NO_REQUEST || record->request >= UINT32_MAX / 2)
        return;
    struct place *place = place_of(cluster, record->request);
    switch (record->kind) {
    case TRACE_RECEIVED:
    case TRACE_PREEMPTED:
        decoder_is(cluster, place, record->node, DECODER_WAITING);
        break;
    case TRACE_DISPATCHED:
        decoder_is(cluster, place, record->node, DECODER_FILLING);
        break;
    case TRACE_READY:
        decoder_is(cluster, place, record->node, DECODER_READY);
        break;
    case TRACE_DECODE_STARTED:
        decoder_is(cluster, place, record->node, DECODER_DECODING);
        break;
    case TRACE_FINISHED:
    case TRACE_REJECTED:
    case TRACE_FAILED:
    case TRACE_ABORTED:
        decoder_is(cluster, place, place->decoder, DECODER_NONE);
        if (record->node == place->prefiller)
            prefiller_is(cluster, place, place->prefiller, PREFILLER_NONE);
        break;
    case TRACE_ACCEPTED:
        prefiller_is(cluster, place, record->node, PREFILLER_QUEUED);
        break;
    case TRACE_PREFILL_STARTED:
        prefiller_is(cluster, place, record->node, PREFILLER_COMPUTING);
        break;
    case TRACE_PREFILL_FINISHED:
        /* A mixed instance has nothing to send. */
        prefiller_moves(cluster, place, record->node,
                        place->decoder == record->node && place->decoder_state != DECODER_NONE ? PREFILLER_NONE
                                                                                               : PREFILLER_DRAINING);
        break;
    case TRACE_DRAINED:
    case TRACE_QUIESCED:
        prefiller_moves(cluster, place, record->node, PREFILLER_NONE);
        break;
    default:
        break;
    }
}

static uint32_t total(const struct cluster *cluster, uint32_t node)
{
    uint32_t sum = 0;
    for (uint32_t s = 1; s < DECODER_STATES; s++)
        sum += cluster->decoders[node][s];
    for (uint32_t s = 1; s < PREFILLER_STATES; s++)
        sum += cluster->prefillers[node][s];
    return sum;
}

static void describe_node(const struct cluster *cluster, uint32_t index, const char *name, struct divergence_node *node)
{
    *node = (struct divergence_node){
        .node = index,
        .waiting = cluster->decoders[index][DECODER_WAITING],
        .filling = cluster->decoders[index][DECODER_FILLING],
        .ready = cluster->decoders[index][DECODER_READY],
        .decoding = cluster->decoders[index][DECODER_DECODING],
        .queued = cluster->prefillers[index][PREFILLER_QUEUED],
        .prefilling = cluster->prefillers[index][PREFILLER_COMPUTING],
        .draining = cluster->prefillers[index][PREFILLER_DRAINING],
    };
    memcpy(node->name, name, sizeof node->name);
}

void cluster_describe(const struct cluster *cluster, const char (*names)[48], uint32_t count,
                      struct divergence *divergence)
{
    /* The least number of requests that is shown, so that no more are shown than there is room for. */
    uint32_t least = 0;
    uint32_t shown = count > 0 ? count - 1 : 0;
    while (shown > DIVERGENCE_NODES_MAX) {
        least++;
        shown = 0;
        for (uint32_t i = 1; i < count; i++)
            shown += total(cluster, i) >= least;
    }
    divergence->node_count = 0;
    divergence->nodes_left_out = 0;
    for (uint32_t i = 1; i < count; i++) {
        if (total(cluster, i) < least)
            divergence->nodes_left_out++;
        else
            describe_node(cluster, i, names[i], &divergence->nodes[divergence->node_count++]);
    }
}
