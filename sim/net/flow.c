/* One gated flow served at a constant rate.
 *
 * Layers of b arrive at g_k = first + k * d; the flow is served at rate r whenever something is available. With A(t)
 * the amount available and S(t) the amount served, S(t1) is the least of
 *
 *     S(t0) + r * (t1 - t0)                            never idle since t0
 *     A(g_k-) + r * (t1 - g_k), every g_k in (t0, t1]  idle just before g_k, never since
 *     A(t1)                                            idle now
 *
 * (Lindley's recurrence, unrolled.) A(g_k-) = k * b, so the middle line is linear in k and only the first and the last
 * g_k of the interval matter: any number of layers costs the same few operations. The plain form takes one step a
 * layer, S(t1) = min(A(t0), S(t0) + r * (t1 - t0)), and as both are exact in integers they agree to the last digit.
 */
#include "sim/net/network_internal.h"

uint64_t flow_available(const struct flow *flow, int64_t now_ns)
{
    if (now_ns >= flow->last_ns || flow->state == FLOW_DRAINING)
        return flow->work;
    if (now_ns < flow->first_ns)
        return 0;
    return ((uint64_t)((now_ns - flow->first_ns) / flow->step_ns) + 1) * flow->layer;
}

/* min(limit, amount + rate * duration_ns) */
static uint64_t serve(uint64_t amount, uint64_t rate, int64_t duration_ns, uint64_t limit)
{
    uint128 sum = (uint128)rate * (uint64_t)duration_ns + amount;
    return sum < limit ? (uint64_t)sum : limit;
}

static uint64_t serve_gated(const struct flow *flow, int64_t now_ns)
{
    int64_t from_ns = flow->synced_ns;
    uint64_t served = serve(flow->served, flow->rate, now_ns - from_ns, flow_available(flow, now_ns));
    int64_t first_tick = (from_ns - flow->first_ns) / flow->step_ns + 1;
    int64_t last_tick = (min_i64(now_ns, flow->last_ns) - flow->first_ns) / flow->step_ns;
    if (first_tick <= last_tick) {
        int64_t since_first_ns = now_ns - flow->first_ns - first_tick * flow->step_ns;
        int64_t since_last_ns = now_ns - flow->first_ns - last_tick * flow->step_ns;
        served = serve((uint64_t)first_tick * flow->layer, flow->rate, since_first_ns, served);
        served = serve((uint64_t)last_tick * flow->layer, flow->rate, since_last_ns, served);
    }
    return served;
}

void flow_sync(struct flow *flow, int64_t now_ns, bool per_layer)
{
    if (flow->state == FLOW_DRAINING || per_layer)
        flow->served = serve(flow->served, flow->rate, now_ns - flow->synced_ns, flow_available(flow, flow->synced_ns));
    else
        flow->served = serve_gated(flow, now_ns);
    flow->synced_ns = now_ns;
}

/* A flow has caught up when it has sent what production, spread evenly, had made one layer time ago:
 * S(t) >= b * (t - first) / d. From there on the production rate keeps it there, and all but the last layer is gone
 * when the last one comes. */
static int128 behind(const struct flow *flow)
{
    return (int128)flow->layer * (flow->synced_ns - flow->first_ns) - (int128)flow->served * flow->step_ns;
}

bool flow_has_caught_up(const struct flow *flow)
{
    return behind(flow) <= 0;
}

int64_t flow_next_ns(const struct flow *flow, bool per_layer)
{
    if (flow->state == FLOW_WAITING)
        return flow->first_ns;
    if (flow->state == FLOW_DRAINING) {
        uint64_t left = flow->work - flow->served;
        if (left == 0)
            return flow->synced_ns;
        return flow->rate == 0 ? TIME_NEVER : time_add(flow->synced_ns, (int64_t)ceil_div_u64(left, flow->rate));
    }
    int64_t next_ns = flow->last_ns;
    if (flow->state == FLOW_BEHIND) {
        int128 gain = (int128)flow->rate * flow->step_ns - (int128)flow->layer;
        int128 lag = behind(flow);
        if (lag <= 0 && gain >= 0)
            next_ns = flow->synced_ns;
        else if (gain > 0 && lag <= gain * (flow->last_ns - flow->synced_ns))
            next_ns = flow->synced_ns + (int64_t)((lag + gain - 1) / gain);
    }
    if (per_layer) {
        int64_t tick = (flow->synced_ns - flow->first_ns) / flow->step_ns + 1;
        next_ns = min_i64(next_ns, flow->first_ns + tick * flow->step_ns);
    }
    return next_ns;
}
