/* The network under random traffic: against an independent max-min allocation, against the plain form with an event a
 * layer, and against a checksum that every compiler must reach. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arith.h"
#include "base/rng.h"
#include "sim/net/network_internal.h"
#include "sim/net/nic.h"
#include "support/network_fixture.h"

#include <math.h>
#include <stdlib.h>

/* ---- Random swarms ----------------------------------------------------------------------------------------------- */

#define SWARM_NODES 6u
#define SWARM_RANKS 4u
#define SWARM_PLANS 12u
#define SWARM_FLOWS 64u

struct swarm {
    struct network_node nodes[SWARM_NODES];
    struct transfer_plan *plans[SWARM_PLANS];
};

/* One draw a statement, here and below: the order within an initializer or an argument list is the compiler's
 * choice. */
static struct nic random_nic(struct rng *rng)
{
    struct nic nic = {0};
    nic.base_ns = (int64_t)rng_below(rng, 40000);
    nic.bytes_per_s = rng_between(rng, GB, 50 * GB);
    nic.gap_ps = (int64_t)rng_below(rng, 500000);
    nic.knee_permille = (uint32_t)rng_between(rng, 1000, 9000);
    nic.posting_ps = (int64_t)rng_below(rng, 300000);
    nic.queue_depth = (uint32_t)rng_below(rng, 200);
    nic.posts_together = (uint32_t)rng_below(rng, 2);
    return nic;
}

/* Any ranks to any ranks, some ranks loaded twice, runs of different lengths, layers split over stages. */
static struct transfer_plan *random_plan(struct rng *rng)
{
    uint16_t layers = (uint16_t)rng_between(rng, 1, 12);
    uint16_t planes = (uint16_t)rng_between(rng, 1, 2);
    struct transfer_plan *plan = plan_straight((uint32_t)rng_between(rng, 1, SWARM_RANKS), layers, planes, 0);
    plan->writes_per_unit = plan->bytes_per_unit = 0;
    bool alike = rng_chance(rng, 1, 2);
    uint32_t run_bytes = 1024u << rng_below(rng, 6);
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        struct transfer_pair *pair = &plan->pairs[i];
        pair->runs = alike ? 1 : (uint32_t)rng_between(rng, 1, 3);
        pair->run_bytes = alike ? run_bytes : (uint32_t)rng_between(rng, 1000, 100000);
        if (!alike) {
            pair->source_rank = (uint16_t)rng_below(rng, SWARM_RANKS);
            pair->destination_rank = (uint16_t)rng_below(rng, SWARM_RANKS);
        }
        uint64_t writes = (uint64_t)pair->layer_count * plan->planes * pair->runs;
        plan->writes_per_unit += writes;
        plan->bytes_per_unit += writes * pair->run_bytes;
    }
    return plan;
}

static void swarm_make(struct swarm *swarm, struct rng *rng)
{
    bool same = rng_chance(rng, 1, 2);
    struct nic nic = random_nic(rng);
    /* Machines of eight GPUs, two instances on each, on one, two, four or eight NICs. */
    uint32_t nics = 1u << rng_below(rng, 4);
    for (uint32_t i = 0; i < SWARM_NODES; i++) {
        swarm->nodes[i] = (struct network_node){.ranks = SWARM_RANKS};
        swarm->nodes[i].nvlink_domain = (uint32_t)rng_below(rng, 4);
        swarm->nodes[i].machine = i / 2;
        swarm->nodes[i].gpu = i % 2 * SWARM_RANKS;
        swarm->nodes[i].hardware.gpus_per_node = 2 * SWARM_RANKS;
        swarm->nodes[i].hardware.nics_per_node = nics;
        swarm->nodes[i].hardware.nic = same ? nic : random_nic(rng);
        swarm->nodes[i].hardware.nvlink_bytes_per_s = rng_below(rng, 2) * 100 * GB;
    }
    for (uint32_t i = 0; i < SWARM_PLANS; i++)
        swarm->plans[i] = random_plan(rng);
}

static void swarm_free(struct swarm *swarm)
{
    for (uint32_t i = 0; i < SWARM_PLANS; i++)
        free(swarm->plans[i]);
}

static struct flow_spec random_spec(const struct swarm *swarm, struct rng *rng, int64_t now_ns)
{
    struct flow_spec spec = {0};
    spec.source = (uint32_t)rng_below(rng, SWARM_NODES / 2);
    spec.destination = (uint32_t)rng_between(rng, SWARM_NODES / 2, SWARM_NODES - 1);
    spec.plan = swarm->plans[rng_below(rng, SWARM_PLANS)];
    spec.units = (uint32_t)rng_below(rng, 60);
    spec.tail_writes = (uint32_t)rng_below(rng, 3);
    spec.gate_first_ns = now_ns + (int64_t)rng_below(rng, 2000000) - 500000;
    uint64_t longest = UINT64_C(1) << rng_between(rng, 1, 22);
    if (!rng_chance(rng, 1, 5))
        spec.gate_layer_ns = (int64_t)rng_between(rng, 1, longest);
    spec.tail_bytes = spec.tail_writes * 500;
    return spec;
}

/* ---- Max-min, done again in floating point over single ranks ------------------------------------------------------
 */

#define ORACLE_RESOURCES (SWARM_NODES * SIDES * SWARM_RANKS)

/* NICs by number on their machine, as if it were the rank of its first instance or second; the rest by rank. */
static uint32_t oracle_resource(const struct swarm *swarm, uint32_t node, enum side side, uint32_t rank)
{
    const struct network_node *at = &swarm->nodes[node];
    uint32_t nics = at->hardware.nics_per_node;
    uint32_t place = at->gpu + rank;
    if (side == NIC_OUT || side == NIC_IN)
        place = place * nics / at->hardware.gpus_per_node;
    else if (side == POSTING && at->hardware.nic.posts_together)
        place = at->gpu;
    return (side * SWARM_NODES + node / 2 * 2) * SWARM_RANKS + place;
}

static void oracle_loads(const struct swarm *swarm, const struct network *network, const struct flow *flow,
                         double *loads)
{
    const struct route *route = &network->routes[flow->route];
    const struct transfer_plan *plan = route->plan;
    for (uint32_t r = 0; r < ORACLE_RESOURCES; r++)
        loads[r] = 0;
    const struct hardware *from = &swarm->nodes[route->source].hardware;
    const struct hardware *to = &swarm->nodes[route->destination].hardware;
    bool nvlink = swarm->nodes[route->source].nvlink_domain == swarm->nodes[route->destination].nvlink_domain &&
                  from->nvlink_bytes_per_s > 0 && to->nvlink_bytes_per_s > 0;
    enum side out = nvlink ? NVLINK_OUT : NIC_OUT;
    enum side in = nvlink ? NVLINK_IN : NIC_IN;
    for (uint32_t i = 0; i < plan->pair_count; i++) {
        const struct transfer_pair *pair = &plan->pairs[i];
        double writes = (double)pair->layer_count * plan->planes * pair->runs / (double)plan->bytes_per_unit;
        uint64_t out_ps = nvlink ? nic_wire_ps(from->nvlink_bytes_per_s, pair->run_bytes)
                                 : nic_transmit_ps(&from->nic, pair->run_bytes);
        uint64_t in_ps =
            nvlink ? nic_wire_ps(to->nvlink_bytes_per_s, pair->run_bytes) : nic_stream_ps(&to->nic, pair->run_bytes);
        loads[oracle_resource(swarm, route->source, out, pair->source_rank)] += writes * (double)out_ps;
        loads[oracle_resource(swarm, route->destination, in, pair->destination_rank)] += writes * (double)in_ps;
        if (!nvlink)
            loads[oracle_resource(swarm, route->source, POSTING, pair->source_rank)] +=
                writes * (double)from->nic.posting_ps;
    }
}

/* loads in picoseconds a byte; rates in bytes a picosecond */
static void oracle_fill(uint32_t count, double (*loads)[ORACLE_RESOURCES], const double *demand, double *rates)
{
    bool fixed[SWARM_FLOWS] = {false};
    for (uint32_t left = count; left > 0;) {
        double level = INFINITY;
        double levels[ORACLE_RESOURCES];
        for (uint32_t r = 0; r < ORACLE_RESOURCES; r++) {
            double used = 0;
            double weight = 0;
            for (uint32_t f = 0; f < count; f++) {
                double most = 0;
                for (uint32_t q = 0; q < ORACLE_RESOURCES; q++)
                    most = fmax(most, loads[f][q]);
                used += fixed[f] ? rates[f] * loads[f][r] : 0;
                weight += fixed[f] ? 0 : loads[f][r] / most;
            }
            levels[r] = weight > 1e-12 ? fmax(1 - used, 0) / weight : INFINITY;
            level = fmin(level, levels[r]);
        }
        uint32_t before = left;
        for (int pass = 0; pass < 2 && left == before; pass++)
            for (uint32_t f = 0; f < count; f++) {
                double most = 0;
                bool full = false;
                for (uint32_t r = 0; r < ORACLE_RESOURCES; r++) {
                    most = fmax(most, loads[f][r]);
                    full |= loads[f][r] > 0 && levels[r] <= level * (1 + 1e-9);
                }
                if (fixed[f] || (pass == 0 ? demand[f] > level / most : !full))
                    continue;
                rates[f] = pass == 0 ? demand[f] : level / most;
                fixed[f] = true;
                left--;
            }
        assert_true(left < before);
    }
}

static void check_rates(const struct swarm *swarm, const struct network *network)
{
    static double loads[SWARM_FLOWS][ORACLE_RESOURCES];
    double demand[SWARM_FLOWS], rates[SWARM_FLOWS], used[ORACLE_RESOURCES] = {0};
    const struct flow *flows[SWARM_FLOWS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < network->flow_count; i++) {
        const struct flow *flow = &network->flows[i];
        if (flow->state != FLOW_CAUGHT_UP && flow->state != FLOW_BEHIND && flow->state != FLOW_DRAINING)
            continue;
        if (flow->stalled) {
            assert_int_equal(flow->rate, 0);
            continue;
        }
        oracle_loads(swarm, network, flow, loads[count]);
        /* Behind and getting its production rate or less: whether it is capped there makes no difference. */
        demand[count] = flow->state == FLOW_CAUGHT_UP ? (double)flow->demand / 1e9 : INFINITY;
        for (uint32_t r = 0; r < ORACLE_RESOURCES; r++)
            used[r] += loads[count][r] * (double)flow->rate / 1e9;
        flows[count++] = flow;
    }
    /* Never above the line rate of any NIC, link or thread. */
    for (uint32_t r = 0; r < ORACLE_RESOURCES; r++)
        assert_true(used[r] <= 1 + 1e-12);
    oracle_fill(count, loads, demand, rates);
    for (uint32_t i = 0; i < count; i++)
        if (!(fabs((double)flows[i]->rate - rates[i] * 1e9) <= 2 + 1e-6 * rates[i] * 1e9))
            fail_msg("flow %u of %u: %.0f kB/s, expected %.3f", i, count, (double)flows[i]->rate, rates[i] * 1e9);
}

/* One random scenario: what is reported, folded into a sum, with everything checked on the way. */
struct outcome {
    uint64_t hash;
    uint64_t flows;
    uint64_t bytes_done;
    uint64_t bytes_sent;
    uint32_t events;
};

static void fold(uint64_t *hash, uint64_t value)
{
    *hash = (*hash ^ value) * UINT64_C(0x9fb21c651e98df25);
    *hash ^= *hash >> 32;
}

static void fold_done(struct outcome *outcome, const struct flow_done *done, int64_t now_ns)
{
    const uint64_t values[] = {(uint64_t)now_ns,
                               done->owner,
                               done->layers,
                               done->stopped,
                               done->writes,
                               done->bytes,
                               (uint64_t)done->landed_ns,
                               (uint64_t)done->confirmed_ns};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        fold(&outcome->hash, values[i]);
    outcome->flows++;
    outcome->bytes_done += done->bytes;
}

/* Runs the network to `until_ns`. */
static void run_until(struct network *network, int64_t until_ns, bool *live, struct outcome *outcome)
{
    struct flow_done done;
    while (network_next_ns(network) <= until_ns) {
        int64_t now_ns = network_next_ns(network);
        outcome->events++;
        while (network_advance(network, now_ns, &done)) {
            assert_true(live[done.flow]);
            live[done.flow] = false;
            fold_done(outcome, &done, now_ns);
        }
    }
}

static struct outcome run_swarm(uint64_t seed, bool per_layer, bool with_failures, bool checked)
{
    struct outcome outcome = {0};
    struct rng rng = rng_stream(seed, 0, RNG_NETWORK);
    struct swarm swarm;
    swarm_make(&swarm, &rng);
    struct network *network = network_make(swarm.nodes, SWARM_NODES, per_layer);
    bool live[SWARM_FLOWS] = {false};
    int64_t now_ns = 0;
    uint32_t actions = (uint32_t)rng_between(&rng, 3, 40);
    uint64_t pause_ns = rng_between(&rng, 1, 500000);
    for (uint32_t i = 0; i < actions; i++) {
        now_ns += (int64_t)(rng_chance(&rng, 1, 4) ? 0 : rng_below(&rng, pause_ns));
        run_until(network, now_ns, live, &outcome);
        uint64_t dice = rng_below(&rng, 10);
        uint32_t some = (uint32_t)rng_below(&rng, SWARM_FLOWS);
        if (dice < 7) {
            struct flow_spec spec = random_spec(&swarm, &rng, now_ns);
            spec.owner = i;
            live[network_start(network, now_ns, &spec)] = true;
        } else if (dice == 7 && live[some % 8]) {
            network_stop(network, now_ns, some % 8);
        } else if (dice == 8 && with_failures && live[some % 8]) {
            network_kill(network, now_ns, some % 8);
            live[some % 8] = false;
        } else if (dice == 9 && with_failures) {
            bool up = rng_chance(&rng, 1, 2);
            network_nic(network, now_ns, some % SWARM_NODES, some % SWARM_RANKS, up);
        }
        if (checked)
            check_rates(&swarm, network);
    }
    for (uint32_t i = 0; with_failures && i < SWARM_NODES * SWARM_RANKS; i++)
        network_nic(network, now_ns, i / SWARM_RANKS, i % SWARM_RANKS, true);
    while (network_next_ns(network) != TIME_NEVER) {
        run_until(network, network_next_ns(network), live, &outcome);
        if (checked)
            check_rates(&swarm, network);
    }
    for (uint32_t i = 0; i < SWARM_FLOWS; i++)
        assert_false(live[i]);
    for (uint32_t i = 0; i < SWARM_NODES; i++)
        outcome.bytes_sent += network_node_totals(network, i).bytes;
    network_free(network);
    swarm_free(&swarm);
    return outcome;
}

static void rates_are_max_min(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++)
        run_swarm(seed, false, seed % 2 == 1, true);
}

static void bytes_are_conserved(void **state)
{
    (void)state;
    uint64_t flows = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct outcome outcome = run_swarm(seed, false, false, false);
        assert_int_equal(outcome.bytes_done, outcome.bytes_sent);
        flows += outcome.flows;
    }
    assert_true(flows > 5000);
}

static void closed_form_equals_an_event_a_layer(void **state)
{
    (void)state;
    uint64_t closed_events = 0;
    uint64_t plain_events = 0;
    for (uint64_t seed = 1000; seed < 6000; seed++) {
        struct outcome closed = run_swarm(seed, false, seed % 3 == 0, false);
        struct outcome plain = run_swarm(seed, true, seed % 3 == 0, false);
        if (closed.hash != plain.hash || closed.flows != plain.flows)
            fail_msg("seed %u differs", (unsigned)seed);
        closed_events += closed.events;
        plain_events += plain.events;
    }
    print_message("instants: closed form %.0f, an event a layer %.0f\n", (double)closed_events, (double)plain_events);
    assert_true(plain_events > closed_events * 3 / 2);
}

/* The unrolled recurrence alone, from any state that a flow can be in and at any rate: idle, behind, and both in
 * turn. */
static void unrolled_recurrence_equals_its_steps(void **state)
{
    (void)state;
    struct rng rng = rng_stream(3, 0, RNG_NETWORK);
    for (int i = 0; i < 200000; i++) {
        struct flow flow = {.state = FLOW_BEHIND};
        flow.layer = rng_between(&rng, 1, 1000);
        flow.step_ns = (int64_t)rng_between(&rng, 1, 100);
        flow.first_ns = (int64_t)rng_below(&rng, 50);
        flow.layers = (uint32_t)rng_between(&rng, 2, 20);
        flow.last_ns = flow.first_ns + (int64_t)(flow.layers - 1) * flow.step_ns;
        flow.work = flow.layer * flow.layers + rng_below(&rng, 10);
        flow.rate = rng_below(&rng, 3 * flow.layer / (uint64_t)flow.step_ns + 2);
        flow.synced_ns = (int64_t)rng_between(&rng, (uint64_t)flow.first_ns, (uint64_t)flow.last_ns - 1);
        uint64_t available = flow_available(&flow, flow.synced_ns);
        flow.served = rng_chance(&rng, 1, 3) ? available : rng_below(&rng, available + 1);
        int64_t to_ns = (int64_t)rng_between(&rng, (uint64_t)flow.synced_ns, (uint64_t)flow.last_ns);
        struct flow plain = flow;
        flow_sync(&flow, to_ns, false);
        while (plain.synced_ns < to_ns) {
            int64_t layers = (plain.synced_ns - plain.first_ns) / plain.step_ns + 1;
            flow_sync(&plain, min_i64(plain.first_ns + layers * plain.step_ns, to_ns), true);
        }
        assert_int_equal(flow.served, plain.served);
    }
}

/* Same results from every compiler and optimization level. */
static void results_are_the_same_everywhere(void **state)
{
    (void)state;
    uint64_t hash = 0;
    for (uint64_t seed = 0; seed < 300; seed++)
        fold(&hash, run_swarm(seed, false, true, false).hash);
    print_message("checksum 0x%08x%08x\n", (unsigned)(hash >> 32), (unsigned)hash);
    assert_true(hash == UINT64_C(0x1f696573476fa820));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_max_min),
        cmocka_unit_test(bytes_are_conserved),
        cmocka_unit_test(closed_form_equals_an_event_a_layer),
        cmocka_unit_test(unrolled_recurrence_equals_its_steps),
        cmocka_unit_test(results_are_the_same_everywhere),
    };
    return cmocka_run_group_tests_name("network_swarm", tests, NULL, NULL);
}
