/* The network against known answers: the measured write table, sharing worked by hand, queueing formulas. Random
 * traffic is in test_network_swarm.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/arith.h"
#include "base/rng.h"
#include "sim/net/network.h"
#include "sim/net/nic.h"
#include "support/network_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Machines and plans ------------------------------------------------------------------------------------------ */

/* ConnectX-7 and EFA as fitted to Table 2 of arXiv 2510.27656; a window deep enough not to bind. */
static const struct nic connectx7 = {.base_ns = 11200,
                                     .bytes_per_s = 46800000000,
                                     .gap_ps = 86000,
                                     .knee_permille = 1750,
                                     .posting_ps = 86000,
                                     .queue_depth = 512};
static const struct nic efa = {.base_ns = 32200,
                               .bytes_per_s = 43300000000,
                               .gap_ps = 474000,
                               .knee_permille = 8000,
                               .posting_ps = 474000,
                               .queue_depth = 512};

/* The next finished flow, whenever that is; *last_byte_ns is when its last byte left. */
static struct flow_done next_done(struct network *network, int64_t *last_byte_ns)
{
    struct flow_done done;
    for (;;) {
        int64_t now_ns = network_next_ns(network);
        assert_true(now_ns != TIME_NEVER);
        *last_byte_ns = now_ns;
        if (network_advance(network, now_ns, &done))
            return done;
    }
}

static void assert_idle(struct network *network)
{
    assert_int_equal(network_next_ns(network), TIME_NEVER);
}

static void assert_near(double value, double expected, double relative)
{
    if (!(fabs(value - expected) <= relative * fabs(expected)))
        fail_msg("%.9g is not within %.3g %% of %.9g", value, 100 * relative, expected);
}

/* ---- One transfer ------------------------------------------------------------------------------------------------ */

static double paged_gbps(const struct nic *nic, uint32_t bytes, uint32_t queue_depth)
{
    struct hardware hardware = {.nic = *nic};
    hardware.nic.queue_depth = queue_depth;
    struct network *network = network_of(&hardware, 2, 1, false);
    struct transfer_plan *plan = plan_straight(1, 1, 1, bytes);
    network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = plan, .units = 10000});
    int64_t last_ns;
    struct flow_done done = next_done(network, &last_ns);
    assert_int_equal(done.bytes, (uint64_t)bytes * 10000);
    assert_int_equal(done.writes, 10000);
    network_free(network);
    free(plan);
    return (double)bytes * 10000 * 8 / (double)last_ns;
}

static double single_gbps(const struct nic *nic, uint32_t bytes)
{
    struct hardware hardware = {.nic = *nic};
    struct network *network = network_of(&hardware, 2, 1, false);
    struct transfer_plan *plan = plan_straight(1, 1, 1, bytes);
    network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = plan, .units = 1});
    int64_t last_ns;
    struct flow_done done = next_done(network, &last_ns);
    network_free(network);
    free(plan);
    return (double)bytes * 8 / (double)done.landed_ns;
}

static void writes_cost_what_was_measured(void **state)
{
    (void)state;
    static const uint32_t paged_kib[4] = {1, 8, 16, 64};
    static const double paged[2][4] = {{91, 320, 367, 370}, {17, 138, 274, 364}};
    static const uint32_t single_kib[4] = {64, 256, 1024, 32768};
    static const double single[2][4] = {{44, 116, 245, 378}, {16, 54, 145, 336}};
    const struct nic *const nics[2] = {&connectx7, &efa};
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 4; i++) {
            double many = paged_gbps(nics[n], paged_kib[i] * 1024, 512);
            double one = single_gbps(nics[n], single_kib[i] * 1024);
            print_message("%s: paged %2u KiB %5.1f (%5.1f)   single %5u KiB %5.1f (%5.1f) Gbps\n",
                          n == 0 ? "ConnectX-7" : "EFA       ", paged_kib[i], many, paged[n][i], single_kib[i], one,
                          single[n][i]);
            assert_near(many, paged[n][i], 0.06);
            assert_near(one, single[n][i], 0.08);
        }
}

/* The deterministic powers against the C library's. */
static void knee_is_the_power_mean(void **state)
{
    (void)state;
    struct rng rng = rng_stream(1, 0, RNG_NETWORK);
    for (int i = 0; i < 20000; i++) {
        struct nic nic = {0};
        nic.bytes_per_s = rng_between(&rng, GB / 10, 100 * GB);
        nic.gap_ps = (int64_t)rng_below(&rng, 2000000);
        nic.knee_permille = (uint32_t)rng_between(&rng, 1000, 20000);
        uint64_t longest = UINT64_C(1) << rng_between(&rng, 1, 24);
        uint64_t bytes = rng_between(&rng, 1, longest);
        double p = nic.knee_permille / 1000.0;
        double wire = (double)bytes * 1e12 / (double)nic.bytes_per_s;
        double expected = pow(pow((double)nic.gap_ps, p) + pow(wire, p), 1 / p);
        assert_true(fabs((double)nic_stream_ps(&nic, bytes) - expected) <= 0.51 + 1e-11 * expected);
    }
}

/* q writes a round of a + b / B: 4 writes of 50 KB at 1 GB/s with a = 350 us leave every 400 us. */
static void window_bounds_the_rate(void **state)
{
    (void)state;
    struct nic nic = {.base_ns = 350000, .bytes_per_s = GB, .knee_permille = 1000};
    assert_near(paged_gbps(&nic, 50000, 4), 8 * 4 * 50000.0 / 400000, 1e-6);
    assert_near(paged_gbps(&nic, 50000, 8), 8, 1e-6);
}

/* Each rank posts its own writes: 40 us each, beside which 10 us of the NIC do not count, on one rank or on eight. */
static void ranks_post_side_by_side(void **state)
{
    (void)state;
    struct hardware hardware = simple_hardware();
    hardware.nic.posting_ps = 40000000;
    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
        struct network *network = network_of(&hardware, 2, ranks, false);
        struct transfer_plan *plan = plan_straight(ranks, 32, 2, 10000);
        network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = plan, .units = 235});
        int64_t last_ns;
        next_done(network, &last_ns);
        assert_near((double)last_ns, 15040 * 40e3, 1e-5);
        assert_near((double)network_node_totals(network, 0).posting_busy_ns, 15040 * 40e3, 1e-5);
        network_free(network);
        free(plan);
    }
}

/* Four ranks' writes of 10 us each go through one thread that takes 4 us a write: 4 us, not 2.5, per write. */
static void one_thread_posts_for_all_ranks(void **state)
{
    (void)state;
    struct hardware hardware = simple_hardware();
    hardware.nic.posting_ps = 4000000;
    hardware.nic.posts_together = 1;
    struct network *network = network_of(&hardware, 3, 4, false);
    struct transfer_plan *plan = plan_straight(4, 10, 1, 10000);
    network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = plan, .units = 25});
    int64_t last_ns;
    next_done(network, &last_ns);
    assert_near((double)last_ns, 25 * 10 * 4 * 4000, 1e-5);
    struct network_totals totals = network_node_totals(network, 0);
    assert_int_equal(totals.posting_busy_ns, 4000000);
    assert_int_equal(totals.transmit_busy_ns, 2500000);
    assert_int_equal(totals.op_bound_ns, 0);
    assert_int_equal(network_node_totals(network, 1).receive_busy_ns, 2500000);

    /* Two destinations do not help a sender that is bound by posting. */
    int64_t start_ns = last_ns;
    network_start(network, start_ns, &(struct flow_spec){.destination = 1, .plan = plan, .units = 25});
    network_start(network, start_ns, &(struct flow_spec){.destination = 2, .plan = plan, .units = 25});
    next_done(network, &last_ns);
    assert_near((double)(last_ns - start_ns), 2 * 4000000, 1e-5);
    network_free(network);
    free(plan);
}

/* Two instances of two ranks on a machine, and their peers on another. With a NIC a GPU each transfer has two; with two
 * NICs for four GPUs it has one, as both ranks stand beside it; with one for all, the transfers halve it. A NIC that
 * goes down does so for all who share it. */
static void nics_are_shared(void **state)
{
    (void)state;
    static const uint32_t nics[] = {0, 4, 2, 1};
    static const int64_t expected_us[] = {1000, 1000, 2000, 4000};
    struct transfer_plan *plan = plan_straight(2, 10, 1, 10000);
    for (int i = 0; i < 4; i++) {
        struct hardware hardware = simple_hardware();
        hardware.gpus_per_node = 4;
        hardware.nics_per_node = nics[i];
        struct network_node nodes[4];
        for (uint32_t n = 0; n < 4; n++)
            nodes[n] = (struct network_node){
                .ranks = 2, .nvlink_domain = n, .machine = n / 2, .gpu = n % 2 * 2, .hardware = hardware};
        struct network *network = network_make(nodes, 4, false);
        int64_t last_ns;
        for (int down = 0; down < 2; down++) {
            int64_t start_ns = down * 10000000;
            network_start(network, start_ns,
                          &(struct flow_spec){.source = 0, .destination = 2, .plan = plan, .units = 10});
            network_start(network, start_ns,
                          &(struct flow_spec){.source = 1, .destination = 3, .plan = plan, .units = 10});
            if (down) { /* a NIC beside the first instance, for the first millisecond */
                network_nic(network, start_ns, 0, 1, false);
                network_nic(network, start_ns + 1000000, 0, 0, true);
                network_nic(network, start_ns + 1000000, 0, 1, true);
            }
            for (int flow = 0; flow < 2; flow++)
                next_done(network, &last_ns);
            assert_near((double)(last_ns - start_ns), (double)(expected_us[i] + 1000 * down) * 1e3, 1e-5);
        }
        assert_idle(network);
        network_free(network);
    }
    free(plan);
}

/* GPUs 0 and 2 of a machine share a NIC, and 1 and 3: alone an instance has two, beside the other they halve both. */
static void nics_are_shared_as_listed(void **state)
{
    (void)state;
    static const int64_t expected_us[] = {1000, 2000};
    struct transfer_plan *plan = plan_straight(2, 10, 1, 10000);
    for (uint32_t flows = 1; flows <= 2; flows++) {
        struct hardware hardware = simple_hardware();
        hardware.gpus_per_node = 4;
        memcpy(hardware.gpu_nics, (const uint8_t[]){1, 2, 1, 2}, 4);
        struct network_node nodes[4];
        for (uint32_t n = 0; n < 4; n++)
            nodes[n] = (struct network_node){
                .ranks = 2, .nvlink_domain = n, .machine = n / 2, .gpu = n % 2 * 2, .hardware = hardware};
        memset(nodes[2].hardware.gpu_nics, 0, 4); /* the receivers have a NIC a GPU */
        memset(nodes[3].hardware.gpu_nics, 0, 4);
        struct network *network = network_make(nodes, 4, false);
        int64_t last_ns = 0;
        for (uint32_t f = 0; f < flows; f++)
            network_start(network, 0,
                          &(struct flow_spec){.source = f, .destination = 2 + f, .plan = plan, .units = 10});
        for (uint32_t f = 0; f < flows; f++)
            next_done(network, &last_ns);
        assert_near((double)last_ns, (double)expected_us[flows - 1] * 1e3, 1e-5);
        assert_idle(network);
        network_free(network);
    }
    free(plan);
}

/* Two NICs a machine here, one there: the second NIC of machine 0 is not the first of machine 1. */
static void nics_of_two_machines_are_not_one(void **state)
{
    (void)state;
    struct transfer_plan *plan = plan_straight(1, 10, 1, 10000);
    struct network_node nodes[4];
    for (uint32_t n = 0; n < 4; n++) {
        nodes[n] = (struct network_node){.ranks = 1, .nvlink_domain = n, .machine = n, .hardware = simple_hardware()};
        nodes[n].hardware.gpus_per_node = 4;
        nodes[n].hardware.nics_per_node = n == 1 ? 2 : 1; /* counted through: 2 and 3 of machine 1, 2 of machine 2 */
    }
    struct network *network = network_make(nodes, 4, false);
    int64_t last_ns = 0;
    network_start(network, 0, &(struct flow_spec){.source = 1, .destination = 0, .plan = plan, .units = 10});
    network_start(network, 0, &(struct flow_spec){.source = 2, .destination = 3, .plan = plan, .units = 10});
    next_done(network, &last_ns);
    next_done(network, &last_ns);
    assert_near((double)last_ns, 1e6, 1e-5);
    network_free(network);
    free(plan);
}

static void completion_is_dated(void **state)
{
    (void)state;
    struct hardware hardware = simple_hardware();
    hardware.nic.base_ns = 30000;
    hardware.poll_ns = 700;
    struct network_node nodes[3] = {{.ranks = 2, .nvlink_domain = 0, .hardware = hardware},
                                    {.ranks = 2, .nvlink_domain = 1, .hardware = hardware},
                                    {.ranks = 2, .nvlink_domain = 0, .hardware = hardware}};
    struct network *network = network_make(nodes, 3, false);
    struct transfer_plan *plan = plan_straight(2, 4, 2, 100000);
    int64_t last_ns;

    /* 16 writes of 100 KB over two NICs: 800 us; a tail of two writes and 3000 bytes adds 3 us. */
    struct flow_spec spec = {
        .source = 0, .destination = 1, .plan = plan, .units = 1, .tail_writes = 2, .tail_bytes = 3000, .owner = 77};
    network_start(network, 5000, &spec);
    struct flow_done done = next_done(network, &last_ns);
    assert_int_equal(last_ns, 5000 + 800000 + 3000);
    assert_int_equal(done.landed_ns, last_ns + 30000 + 700);
    assert_int_equal(done.confirmed_ns, done.landed_ns + 15000);
    assert_int_equal(done.owner, 77);
    assert_int_equal(done.layers, 4);
    assert_int_equal(done.writes, 16 + 2);
    assert_int_equal(done.bytes, 1600000 + 3000);
    assert_false(done.stopped);

    /* To an instance on the same host, at 8 GB/s a GPU and with the copy's latency in place of the NIC's. */
    spec.destination = 2;
    spec.tail_writes = spec.tail_bytes = 0;
    network_start(network, 0, &spec);
    done = next_done(network, &last_ns);
    assert_int_equal(last_ns, 100000);
    assert_true(done.landed_ns > last_ns + 700 && done.landed_ns < last_ns + 10000);
    assert_int_equal(network_node_totals(network, 0).transmit_busy_ns, 800000);

    /* Only a tail, at its gate. */
    spec = (struct flow_spec){.destination = 1,
                              .plan = plan,
                              .tail_writes = 1,
                              .tail_bytes = 2000,
                              .gate_first_ns = 1000,
                              .gate_layer_ns = 500};
    network_start(network, 0, &spec);
    done = next_done(network, &last_ns);
    assert_int_equal(last_ns, 1000 + 3 * 500 + 2000);
    assert_int_equal(done.bytes, 2000);
    assert_int_equal(done.writes, 1);
    assert_idle(network);
    network_free(network);
    free(plan);
}

/* ---- Sharing, worked by hand ------------------------------------------------------------------------------------- */

struct hand {
    struct network *network;
    struct transfer_plan *plan; /* one rank, one layer, units of 100 MB: a NIC carries a thousand a second */
};

static struct hand hand_make(uint32_t nodes)
{
    struct hardware hardware = simple_hardware();
    hardware.nic.bytes_per_s = 100 * GB;
    return (struct hand){network_of(&hardware, nodes, 1, false), plan_straight(1, 1, 1, 100000000)};
}

static void hand_free(struct hand *hand)
{
    assert_idle(hand->network);
    network_free(hand->network);
    free(hand->plan);
}

static void hand_start(struct hand *hand, int64_t now_ns, uint32_t from, uint32_t to, uint32_t units, uint64_t owner)
{
    struct flow_spec spec = {.source = from, .destination = to, .plan = hand->plan, .units = units, .owner = owner};
    network_start(hand->network, now_ns, &spec);
}

static void hand_expect(struct hand *hand, uint64_t owner, double last_byte_s)
{
    int64_t last_ns;
    struct flow_done done = next_done(hand->network, &last_ns);
    assert_int_equal(done.owner, owner);
    assert_near((double)last_ns, last_byte_s * 1e9, 2e-7);
}

static void equal_flows_share_exactly(void **state)
{
    (void)state;
    struct hand hand = hand_make(3);
    int64_t last_ns;
    hand_start(&hand, 0, 0, 1, 1000, 1);
    hand_start(&hand, 0, 0, 2, 1000, 2);
    assert_int_equal(next_done(hand.network, &last_ns).owner, 1);
    assert_int_equal(last_ns, 2 * NS_PER_S);
    assert_int_equal(next_done(hand.network, &last_ns).owner, 2);
    assert_int_equal(last_ns, 2 * NS_PER_S);
    hand_free(&hand);
}

/* Three transfers of 4 s each at 0, 1 and 2 s over one receiver. A sends 1 s alone, 0.5 of two, then a third: 2.5 s
 * left at 2 s take 7.5 s. B has then 1 s left of two: 2 s more. C the last 0.5 alone. The link is never idle: 12 s for
 * 12 s of work. Shares fixed at the start would have A end at 4, B at 9 and C at 14. */
static void starts_and_ends_re_rate(void **state)
{
    (void)state;
    struct hand hand = hand_make(4);
    hand_start(&hand, 0, 0, 3, 4000, 1);
    hand_start(&hand, NS_PER_S, 1, 3, 4000, 2);
    hand_start(&hand, 2 * NS_PER_S, 2, 3, 4000, 3);
    hand_expect(&hand, 1, 9.5);
    hand_expect(&hand, 2, 11.5);
    hand_expect(&hand, 3, 12.0);
    struct network_totals totals = network_node_totals(hand.network, 3);
    assert_int_equal(totals.receive_busy_ns, 12 * NS_PER_S);
    hand_free(&hand);
}

/* Senders 0, 1, 2 to receiver 3 get a third each; sender 0's transfer to 4 takes the two thirds that this leaves. When
 * it ends (0.9 s), nothing changes for the others, whose receiver is full. */
static void what_a_bottleneck_leaves_is_used(void **state)
{
    (void)state;
    struct hand hand = hand_make(5);
    hand_start(&hand, 0, 0, 3, 400, 1);
    hand_start(&hand, 0, 1, 3, 400, 2);
    hand_start(&hand, 0, 2, 3, 500, 3);
    hand_start(&hand, 0, 0, 4, 600, 4);
    hand_expect(&hand, 4, 0.9);
    hand_expect(&hand, 1, 1.2);
    hand_expect(&hand, 2, 1.2);
    hand_expect(&hand, 3, 1.3);
    hand_free(&hand);
}

/* A gated transfer produces a fifth of what its NIC carries: 10 layers of 100 units, 0.5 s apart. Two free ones share
 * what it leaves, 400 units/s each, and end 1000 units at 2.5 s. Its last layer comes at 4.5 s and goes alone. */
static void demand_caps_leave_the_rest(void **state)
{
    (void)state;
    struct hand hand = hand_make(4);
    struct transfer_plan *layered = plan_straight(1, 10, 1, 100000000);
    struct flow_spec gated = {
        .destination = 1, .plan = layered, .units = 100, .gate_layer_ns = NS_PER_S / 2, .owner = 9};
    network_start(hand.network, 0, &gated);
    hand_start(&hand, 0, 0, 2, 1000, 1);
    hand_start(&hand, 0, 0, 3, 1000, 2);
    hand_expect(&hand, 1, 2.5);
    hand_expect(&hand, 2, 2.5);
    hand_expect(&hand, 9, 4.6);
    hand_free(&hand);
    free(layered);
}

/* The same, but from 0 s to 2 s nine others leave it a tenth: 100 units/s. At 2 s it has sent 200 and lags production
 * (400) by 200. Alone it gains 800/s: caught up at 2.25 s, and from then on it leaves 800/s to the 400 units that start
 * then. */
static void a_backlog_takes_all_until_it_has_caught_up(void **state)
{
    (void)state;
    struct hand hand = hand_make(4);
    struct transfer_plan *layered = plan_straight(1, 10, 1, 100000000);
    struct flow_spec gated = {
        .destination = 1, .plan = layered, .units = 100, .gate_layer_ns = NS_PER_S / 2, .owner = 99};
    network_start(hand.network, 0, &gated);
    for (uint64_t i = 0; i < 9; i++)
        hand_start(&hand, 0, 0, 2, 200, i);
    for (uint64_t i = 0; i < 9; i++)
        hand_expect(&hand, i, 2.0);
    struct flow_done done;
    int64_t now_ns = network_next_ns(hand.network);
    assert_true(now_ns >= 2250000000 && now_ns < 2250001000);
    assert_false(network_advance(hand.network, now_ns, &done));
    hand_start(&hand, now_ns, 0, 3, 400, 50);
    hand_expect(&hand, 50, 2.75);
    hand_expect(&hand, 99, 4.6);
    hand_free(&hand);
    free(layered);
}

/* Hidden behind compute exactly when a layer's bytes take no longer than its compute: then only the last layer's
 * transfer shows. */
static void hides_behind_compute(void **state)
{
    (void)state;
    struct hardware hardware = simple_hardware();
    struct transfer_plan *plan = plan_straight(2, 20, 2, 25000); /* 50 us a unit and layer on each NIC */
    for (int form = 0; form < 2; form++) {
        struct network *network = network_of(&hardware, 2, 2, form == 1);
        for (int64_t layer_ns = 300000; layer_ns <= 700000; layer_ns += 50000) {
            struct flow_spec spec = {
                .destination = 1, .plan = plan, .units = 10, .gate_first_ns = 1000000, .gate_layer_ns = layer_ns};
            network_start(network, 0, &spec);
            int64_t last_ns;
            next_done(network, &last_ns);
            int64_t expected_ns = layer_ns >= 500000 ? 1000000 + 19 * layer_ns + 500000 : 1000000 + 20 * 500000;
            assert_int_equal(last_ns, expected_ns);
        }
        assert_idle(network);
        network_free(network);
    }
    free(plan);
}

/* ---- Stop, kill, failed NICs ------------------------------------------------------------------------------------- */

static void stopping_sends_what_is_there(void **state)
{
    (void)state;
    struct hardware hardware = simple_hardware();
    struct transfer_plan *plan = plan_straight(1, 10, 1, 1000000);
    struct network *network = network_of(&hardware, 2, 1, false);
    struct flow_spec spec = {.destination = 1,
                             .plan = plan,
                             .units = 2,
                             .tail_writes = 1,
                             .tail_bytes = 10,
                             .gate_first_ns = 0,
                             .gate_layer_ns = 5 * NS_PER_MS};
    int64_t last_ns;
    /* At 12 ms layers 0, 1 and 2 are there and 4.8 MB of their 6 are gone. */
    uint32_t flow = network_start(network, 0, &spec);
    network_stop(network, 12 * NS_PER_MS, flow);
    struct flow_done done = next_done(network, &last_ns);
    assert_true(done.stopped);
    assert_int_equal(done.layers, 3);
    assert_int_equal(done.writes, 6);
    assert_int_equal(done.bytes, 6000000);
    assert_int_equal(last_ns, 13200000);

    /* Before its first layer: at once and empty. After its last: too late to stop. */
    spec.gate_first_ns = 100 * NS_PER_MS;
    flow = network_start(network, 20 * NS_PER_MS, &spec);
    network_stop(network, 30 * NS_PER_MS, flow);
    done = next_done(network, &last_ns);
    assert_true(done.stopped && done.layers == 0 && done.bytes == 0 && done.landed_ns == 30 * NS_PER_MS);
    flow = network_start(network, 40 * NS_PER_MS, &spec);
    assert_false(network_advance(network, 100 * NS_PER_MS, &done));
    network_stop(network, 146 * NS_PER_MS, flow);
    done = next_done(network, &last_ns);
    assert_true(!done.stopped && done.layers == 10 && done.writes == 21);
    assert_idle(network);
    network_free(network);
    free(plan);
}

static void killed_flows_leave_at_once(void **state)
{
    (void)state;
    struct hand hand = hand_make(3);
    struct flow_spec spec = {.destination = 1, .plan = hand.plan, .units = 1000, .owner = 1};
    uint32_t victim = network_start(hand.network, 0, &spec);
    hand_start(&hand, 0, 0, 2, 1000, 2);
    network_kill(hand.network, NS_PER_S, victim);
    hand_expect(&hand, 2, 1.5);
    struct network_totals totals = network_node_totals(hand.network, 0);
    assert_int_equal(totals.bytes, 150 * GB);
    assert_int_equal(totals.flows, 2);
    hand_free(&hand);
}

/* Two end together; the second is killed after the first has been reported: it is not, and its id is free. */
static void a_finished_flow_can_still_be_killed(void **state)
{
    (void)state;
    struct hand hand = hand_make(3);
    struct flow_spec spec = {.destination = 1, .plan = hand.plan, .units = 500, .owner = 1};
    network_start(hand.network, 0, &spec);
    spec.destination = 2;
    uint32_t second = network_start(hand.network, 0, &spec);
    struct flow_done done;
    assert_int_equal(network_next_ns(hand.network), NS_PER_S);
    assert_true(network_advance(hand.network, NS_PER_S, &done));
    assert_int_equal(network_next_ns(hand.network), NS_PER_S);
    network_stop(hand.network, NS_PER_S, second);
    network_kill(hand.network, NS_PER_S, second);
    assert_false(network_advance(hand.network, NS_PER_S, &done));
    assert_int_equal(network_start(hand.network, NS_PER_S, &spec), second);
    int64_t last_ns;
    next_done(hand.network, &last_ns);
    assert_int_equal(last_ns, 1500 * NS_PER_MS);
    hand_free(&hand);
}

/* Two ranks; rank 1's receiver fails from 0.1 s to 0.5 s. The transfer that needs it stalls, the other one has rank 0
 * to itself. */
static void failed_nics_stall_their_flows(void **state)
{
    (void)state;
    struct hardware hardware = simple_hardware();
    struct network *network = network_of(&hardware, 2, 2, false);
    struct transfer_plan *both = plan_straight(2, 1, 1, 1000000);
    struct transfer_plan *one = plan_straight(1, 1, 1, 1000000);
    network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = both, .units = 200, .owner = 1});
    network_start(network, 0, &(struct flow_spec){.destination = 1, .plan = one, .units = 200, .owner = 2});
    network_nic(network, 100 * NS_PER_MS, 1, 1, false);
    int64_t last_ns;
    assert_int_equal(next_done(network, &last_ns).owner, 2);
    assert_int_equal(last_ns, 250 * NS_PER_MS);
    assert_idle(network);
    network_start(network, 300 * NS_PER_MS,
                  &(struct flow_spec){.destination = 1, .plan = both, .units = 150, .owner = 3});
    assert_idle(network);
    network_nic(network, 500 * NS_PER_MS, 1, 1, true);
    next_done(network, &last_ns);
    assert_int_equal(next_done(network, &last_ns).owner, 3);
    assert_int_equal(last_ns, 800 * NS_PER_MS);
    network_free(network);
    free(both);
    free(one);
}

/* ---- Queueing formulas ------------------------------------------------------------------------------------------- */

struct queue_result {
    double mean_s;
    double error_s; /* two standard errors, over batches */
};

/* Poisson arrivals over one NIC of 1 GB/s, mean service 1 ms. `fifo`: one at a time, the next when the last has
 * ended. */
static struct queue_result queue_run(double load, bool exponential, bool fifo, uint64_t seed)
{
    enum { BATCHES = 40, PER_BATCH = 5000, TOTAL = BATCHES * PER_BATCH };
    struct hardware hardware = simple_hardware();
    struct network *network = network_of(&hardware, 2, 1, false);
    struct transfer_plan *plan = plan_straight(1, 1, 1, 100);
    struct rng rng = rng_stream(seed, 0, RNG_ARRIVALS);
    static int64_t arrived_ns[TOTAL];
    static uint32_t units[TOTAL];
    int64_t now_ns = 0;
    for (int i = 0; i < TOTAL; i++) {
        now_ns += (int64_t)rng_exponential(&rng, (uint64_t)(1e6 / load));
        arrived_ns[i] = now_ns;
        units[i] = exponential ? (uint32_t)rng_exponential(&rng, 10000) : 10000;
    }
    double sum[BATCHES] = {0};
    int next = 0;
    int started = 0;
    for (int ended = 0; ended < TOTAL;) {
        struct flow_done done;
        int64_t at_ns = network_next_ns(network);
        if (next < TOTAL && arrived_ns[next] < at_ns)
            at_ns = arrived_ns[next++];
        while (network_advance(network, at_ns, &done)) {
            sum[done.owner / PER_BATCH] += (double)(at_ns - arrived_ns[done.owner]) / 1e9;
            ended++;
        }
        for (; started < next && (!fifo || started == ended); started++) {
            struct flow_spec spec = {
                .destination = 1, .plan = plan, .units = units[started], .owner = (uint64_t)started};
            network_start(network, at_ns, &spec);
        }
    }
    struct queue_result result = {0};
    double squares = 0;
    for (int i = 0; i < BATCHES; i++)
        result.mean_s += sum[i] / TOTAL;
    for (int i = 0; i < BATCHES; i++)
        squares += pow(sum[i] / PER_BATCH - result.mean_s, 2);
    result.error_s = 2 * sqrt(squares / (BATCHES - 1) / BATCHES);
    network_free(network);
    free(plan);
    return result;
}

static void check_queue(const char *name, struct queue_result result, double expected_s)
{
    print_message("%s: mean %.4f ms +- %.4f, formula %.4f ms\n", name, 1e3 * result.mean_s, 1e3 * result.error_s,
                  1e3 * expected_s);
    assert_true(result.error_s < 0.1 * expected_s);
    assert_true(fabs(result.mean_s - expected_s) < 2 * result.error_s);
}

/* One NIC is a processor-sharing server: mean time 1 / (mu - lambda), whatever the distribution of sizes (M/D/1-PS has
 * the same mean). Served one by one it is M/D/1: D + D * load / (2 * (1 - load)). */
static void queueing_formulas_hold(void **state)
{
    (void)state;
    check_queue("M/M/1-PS 0.5", queue_run(0.5, true, false, 1), 0.001 / 0.5);
    check_queue("M/M/1-PS 0.8", queue_run(0.8, true, false, 2), 0.001 / 0.2);
    check_queue("M/D/1-PS 0.7", queue_run(0.7, false, false, 3), 0.001 / 0.3);
    check_queue("M/D/1    0.7", queue_run(0.7, false, true, 4), 0.001 + 0.001 * 0.7 / (2 * 0.3));
}

/* ---- Layer-wise transfer ----------------------------------------------------------------------------------------- */

/* Qwen3-235B (94 layers, 4 KV heads of 128, bf16), TP4 to TP4 over EFA, 128-token pages: 32 KiB runs, two planes, four
 * ranks. arXiv 2510.27656 reports 0.661, 0.952 and 1.610 ms a layer for 4K, 8K and 16K tokens, of which all but the
 * growth of about 1.25 us a page is a latency that overlaps with the next layer. The growth is what a rank's thread
 * needs to post its quarter of the writes at 5 us each; with that as the cost of a write the slope is met. */
static void layer_transfer_grows_with_the_posting_cost(void **state)
{
    (void)state;
    static const double measured_ms[3] = {0.661, 0.952, 1.610};
    static const uint32_t tokens[3] = {4096, 8192, 16384};
    double layer_ms[3];
    struct hardware hardware = {.nic = efa};
    hardware.nic.posting_ps = 5000000;
    struct network *network = network_of(&hardware, 2, 4, false);
    struct transfer_plan *plan = plan_straight(4, 94, 2, 32768);
    int64_t start_ns = 0;
    for (int i = 0; i < 3; i++) {
        int64_t last_ns;
        network_start(network, start_ns, &(struct flow_spec){.destination = 1, .plan = plan, .units = tokens[i] / 128});
        next_done(network, &last_ns);
        layer_ms[i] = (double)(last_ns - start_ns) / 94 / 1e6;
        start_ns = last_ns;
        print_message("%5u tokens: %.3f ms a layer, measured %.3f (latency included)\n", tokens[i], layer_ms[i],
                      measured_ms[i]);
    }
    assert_near((layer_ms[2] - layer_ms[0]) / (measured_ms[2] - measured_ms[0]), 1, 0.05);
    for (int i = 0; i < 3; i++)
        assert_true(measured_ms[i] - layer_ms[i] > 0.25 && measured_ms[i] - layer_ms[i] < 0.36);
    network_free(network);
    free(plan);
}

/* Five hundred transfers at once, all to one receiver: each gets its 500th, but for the rounding of rates to kB/s. */
static void many_concurrent_flows(void **state)
{
    (void)state;
    struct hand hand = hand_make(8);
    for (uint32_t i = 0; i < 500; i++)
        hand_start(&hand, 0, i % 7, 7, 1000, i);
    for (uint32_t i = 0; i < 500; i++) {
        int64_t last_ns;
        assert_int_equal(next_done(hand.network, &last_ns).owner, i);
        assert_near((double)last_ns, 500e9, 1e-5);
    }
    hand_free(&hand);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_cost_what_was_measured),
        cmocka_unit_test(knee_is_the_power_mean),
        cmocka_unit_test(window_bounds_the_rate),
        cmocka_unit_test(ranks_post_side_by_side),
        cmocka_unit_test(one_thread_posts_for_all_ranks),
        cmocka_unit_test(nics_are_shared),
        cmocka_unit_test(nics_are_shared_as_listed),
        cmocka_unit_test(nics_of_two_machines_are_not_one),
        cmocka_unit_test(completion_is_dated),
        cmocka_unit_test(equal_flows_share_exactly),
        cmocka_unit_test(starts_and_ends_re_rate),
        cmocka_unit_test(what_a_bottleneck_leaves_is_used),
        cmocka_unit_test(demand_caps_leave_the_rest),
        cmocka_unit_test(a_backlog_takes_all_until_it_has_caught_up),
        cmocka_unit_test(hides_behind_compute),
        cmocka_unit_test(stopping_sends_what_is_there),
        cmocka_unit_test(killed_flows_leave_at_once),
        cmocka_unit_test(a_finished_flow_can_still_be_killed),
        cmocka_unit_test(failed_nics_stall_their_flows),
        cmocka_unit_test(queueing_formulas_hold),
        cmocka_unit_test(layer_transfer_grows_with_the_posting_cost),
        cmocka_unit_test(many_concurrent_flows),
    };
    return cmocka_run_group_tests_name("network", tests, NULL, NULL);
}
