/* NICs near to ranks, on a machine that is described here: two packages of two NUMA nodes, and in each node's PCI
 * domain a switch with two NICs and a GPU below it, and one GPU beside it. */
#include "real/control/bind_address.h"
#include "real/control/clock_estimate.h"
#include "real/fabric/topology.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DEVICE "pci_link_speed=\"0.000000\"/>\n"

/* I/O devices cannot be described in hwloc's short form: they are put into the XML of what can. */
static int setup_machine(void **state)
{
    hwloc_topology_t plain;
    char *xml = NULL;
    int length = 0;
    assert_int_equal(hwloc_topology_init(&plain), 0);
    assert_int_equal(hwloc_topology_set_synthetic(plain, "Package:2 Group:2 [NUMANode] Core:2 PU:1"), 0);
    assert_int_equal(hwloc_topology_load(plain), 0);
    assert_int_equal(hwloc_topology_export_xmlbuffer(plain, &xml, &length, 0), 0);
    char *whole = calloc(1, (size_t)length + 16384);
    assert_non_null(whole);
    const char *from = xml;
    char *to = whole;
    for (int g = 0; g < 4; g++) {
        const char *node = strstr(from, "type=\"NUMANode\"");
        assert_non_null(node);
        const char *end = strstr(node, "</object>");
        assert_non_null(end);
        end += strlen("</object>");
        memcpy(to, from, (size_t)(end - from));
        to += end - from;
        from = end;
        int gp = 1000 + 10 * g;
        to += sprintf(to,
                      "\n<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\""
                      " bridge_pci=\"%04x:[00-0f]\">\n"
                      "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"1-1\" depth=\"1\""
                      " bridge_pci=\"%04x:[01-04]\" pci_busid=\"%04x:00:01.0\""
                      " pci_type=\"0604 [1000:c010] [0000:0000] 00\" pci_link_speed=\"0.000000\">\n",
                      gp, g, gp + 1, g, g);
        to += sprintf(to,
                      "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"%04x:01:00.0\""
                      " pci_type=\"0200 [15b3:1021] [15b3:0001] 00\" " DEVICE
                      "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"%04x:02:00.0\""
                      " pci_type=\"0200 [15b3:1021] [15b3:0001] 00\" " DEVICE,
                      gp + 2, g, gp + 3, g);
        to += sprintf(to,
                      "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"%04x:03:00.0\""
                      " pci_type=\"0302 [10de:2330] [10de:16c1] a1\" " DEVICE "</object>\n"
                      "<object type=\"PCIDev\" gp_index=\"%d\" pci_busid=\"%04x:08:00.0\""
                      " pci_type=\"0302 [10de:2330] [10de:16c1] a1\" " DEVICE "</object>\n",
                      gp + 4, g, gp + 5, g);
    }
    strcpy(to, from);
    hwloc_topology_t machine;
    assert_int_equal(hwloc_topology_init(&machine), 0);
    hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_ALL);
    assert_int_equal(hwloc_topology_set_xmlbuffer(machine, whole, (int)strlen(whole) + 1), 0);
    assert_int_equal(hwloc_topology_load(machine), 0);
    hwloc_free_xmlbuffer(plain, xml);
    hwloc_topology_destroy(plain);
    free(whole);
    *state = machine;
    return 0;
}

static int teardown_machine(void **state)
{
    hwloc_topology_destroy(*state);
    return 0;
}

/* "0000:3b:00.0" */
static struct place pci(const char *text)
{
    unsigned domain;
    unsigned bus;
    assert_int_equal(sscanf(text, "%4x:%2x:00.0", &domain, &bus), 2);
    return (struct place){.kind = PLACE_PCI, .domain = (uint16_t)domain, .bus = (uint8_t)bus};
}

static struct place node(uint32_t number)
{
    return (struct place){.kind = PLACE_NUMA, .number = number};
}

static const struct place nowhere = {.kind = PLACE_UNKNOWN};

static void distances_follow_the_machine(void **state)
{
    struct place nic = pci("0000:01:00.0");
    const struct {
        struct place rank;
        enum nic_distance distance;
    } cases[] = {
        {pci("0000:03:00.0"), NIC_SAME_SWITCH},
        {pci("0000:08:00.0"), NIC_SAME_NUMA},
        {pci("0001:03:00.0"), NIC_SAME_PACKAGE},
        {pci("0002:03:00.0"), NIC_ANYWHERE},

        {node(0), NIC_SAME_NUMA},
        {node(1), NIC_SAME_PACKAGE},
        {node(3), NIC_ANYWHERE},
        {nowhere, NIC_ANYWHERE},
        {node(100), NIC_ANYWHERE},
        {pci("0009:03:00.0"), NIC_ANYWHERE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(topology_distance(*state, &cases[i].rank, &nic), cases[i].distance);
        assert_int_equal(topology_distance(*state, &cases[i].rank, &nowhere), NIC_ANYWHERE);
        assert_int_equal(topology_distance(NULL, &cases[i].rank, &nic), NIC_ANYWHERE);
    }
}

/* Eight NICs, four nodes; a rank a GPU: each has the two below its switch to itself. */
static void each_gpu_has_the_nics_of_its_switch(void **state)
{
    struct place nics[8];
    struct place ranks[4];
    struct nic_choice choice;
    for (unsigned i = 0; i < 8; i++) {
        char text[16];
        snprintf(text, sizeof text, "%04x:%02x:00.0", 3 - i / 2, 1 + i % 2); /* named backwards */
        nics[i] = pci(text);
    }
    for (unsigned r = 0; r < 4; r++) {
        char text[16];
        snprintf(text, sizeof text, "%04x:03:00.0", r);
        ranks[r] = pci(text);
    }
    topology_choose(*state, ranks, 4, nics, 8, &choice);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(nic_choice_set(&choice, r), UINT32_C(3) << (6 - 2 * r));
        assert_int_equal(choice.distance[r], NIC_SAME_SWITCH);
    }
}

static void ranks_with_the_same_nics_share_them_out(void **state)
{
    const struct place nics[] = {pci("0000:01:00.0"), pci("0000:02:00.0"), pci("0002:01:00.0")};
    const struct place ranks[] = {node(0), node(0), node(2), node(2), node(3)};
    struct nic_choice choice;
    topology_choose(*state, ranks, 5, nics, 3, &choice);
    assert_int_equal(nic_choice_set(&choice, 0), 1);
    assert_int_equal(nic_choice_set(&choice, 1), 2);
    /* Two ranks of the node and one of its neighbour: for all the third is the nearest. */
    assert_int_equal(nic_choice_set(&choice, 2), 4);
    assert_int_equal(nic_choice_set(&choice, 3), 4);
    assert_int_equal(nic_choice_set(&choice, 4), 4);
    assert_int_equal(choice.distance[3], NIC_SAME_NUMA);
    assert_int_equal(choice.distance[4], NIC_SAME_PACKAGE);
}

static void nics_without_a_place_are_for_those_who_have_no_nearer(void **state)
{
    const struct place nics[] = {nowhere, pci("0000:01:00.0"), nowhere};
    const struct place ranks[] = {pci("0000:03:00.0"), pci("0003:03:00.0"), nowhere};
    struct nic_choice choice;
    topology_choose(*state, ranks, 3, nics, 3, &choice);
    assert_int_equal(nic_choice_set(&choice, 0), 2);
    /* Equally far from all three, the other two share them. */
    assert_int_equal(nic_choice_set(&choice, 1), 1);
    assert_int_equal(nic_choice_set(&choice, 2), 6);
}

/* What NIC a rank has where nothing is known, for all numbers of both. */
static void a_machine_that_tells_nothing_is_shared_by_number(void **state)
{
    (void)state;
    struct place places[TOPOLOGY_NICS_MAX] = {{.kind = PLACE_UNKNOWN}};
    struct nic_choice choice;
    for (uint32_t ranks = 1; ranks <= TOPOLOGY_NICS_MAX; ranks++)
        for (uint32_t nics = 1; nics <= TOPOLOGY_NICS_MAX; nics++) {
            uint32_t all = 0;
            topology_choose(NULL, places, ranks, places, nics, &choice);
            for (uint32_t r = 0; r < ranks; r++) {
                assert_int_equal(choice.nics[r][0], r * nics / ranks);
                if (nics >= ranks)
                    assert_int_equal(all & nic_choice_set(&choice, r), 0);
                all |= nic_choice_set(&choice, r);
            }
            if (nics >= ranks)
                assert_int_equal(all, (UINT32_C(1) << nics) - 1);
        }
}

/* ---- What else a host is asked for ------------------------------------------------------------------------------- */

static void a_network_names_the_address_in_it(void **state)
{
    (void)state;
    char address[CONTROL_ADDRESS_BYTES];
    struct user_error error = {.set = false};
    assert_true(bind_address("127.0.0.0/8", address, &error));
    assert_string_equal(address, "127.0.0.1");
    assert_true(bind_address("10.1.2.3", address, &error));
    assert_string_equal(address, "10.1.2.3");
    assert_false(bind_address("240.0.0.0/8", address, &error)); /* addresses that nobody has */
    assert_string_equal(error.text, "this host has no address in 240.0.0.0/8");
    static const char *const bad[] = {"", "/8", "127.0.0.0/", "127.0.0.0/33", "127.0.0.0/8x", "host", "1.2.3.4.5/8"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(bind_address(bad[i], address, &error));
}

/* The true offset lies within the error, however unlike the two ways are. */
static void clocks_are_known_within_the_error(void **state)
{
    (void)state;
    static const int64_t true_ns = 1000000000000;
    static const int64_t there_ns[] = {900, 70, 20, 5000, 1};
    static const int64_t back_ns[] = {10, 60, 300, 1, 4000};
    struct clock_estimate estimate = clock_estimate_none();
    for (size_t i = 0; i < 5; i++) {
        int64_t asked_ns = 5000000 + 100000 * (int64_t)i;
        assert_true(clock_estimate_add(&estimate, asked_ns, asked_ns + there_ns[i] + true_ns,
                                       asked_ns + there_ns[i] + back_ns[i]));
        int64_t off_ns = estimate.offset_ns - true_ns;
        assert_true((off_ns < 0 ? -off_ns : off_ns) <= estimate.error_ns);
    }
    assert_int_equal(estimate.error_ns, 65); /* of the quickest exchange */
    assert_false(clock_estimate_add(&estimate, 100, 50, 99));
    assert_false(clock_estimate_add(&estimate, -1, 50, 99));
    assert_false(clock_estimate_add(&estimate, 1, -50, 99));
    struct clock_estimate after = {.offset_ns = estimate.offset_ns - 400, .error_ns = 30};
    assert_int_equal(clock_estimate_error_ns(&estimate, &after), 430);
    after.offset_ns = estimate.offset_ns;
    assert_int_equal(clock_estimate_error_ns(&estimate, &after), 65);
    after = clock_estimate_none(); /* the host was lost before the end */
    assert_int_equal(clock_estimate_error_ns(&estimate, &after), 65);
}

static void devices_are_named_by_their_bus(void **state)
{
    (void)state;
    static const char *const nonsense[] = {
        "", "0000:1b:00", "0000:1b:00.0.0", "0000:1b:zz.0", "10000:1b:00.0", "0000:1bb:00.0"};
    struct place place = place_of_device("0001:1B:0a.2");
    assert_int_equal(place.kind, PLACE_PCI);
    assert_int_equal(place.domain, 1);
    assert_int_equal(place.bus, 0x1b);
    assert_int_equal(place.device, 0x0a);
    assert_int_equal(place.function, 2);
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        assert_int_equal(place_of_device(nonsense[i]).kind, PLACE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(distances_follow_the_machine, setup_machine, teardown_machine),
        cmocka_unit_test_setup_teardown(each_gpu_has_the_nics_of_its_switch, setup_machine, teardown_machine),
        cmocka_unit_test_setup_teardown(ranks_with_the_same_nics_share_them_out, setup_machine, teardown_machine),
        cmocka_unit_test_setup_teardown(nics_without_a_place_are_for_those_who_have_no_nearer, setup_machine,
                                        teardown_machine),
        cmocka_unit_test(devices_are_named_by_their_bus),
        cmocka_unit_test(a_machine_that_tells_nothing_is_shared_by_number),
        cmocka_unit_test(a_network_names_the_address_in_it),
        cmocka_unit_test(clocks_are_known_within_the_error),
    };
    return cmocka_run_group_tests_name("topology", tests, NULL, NULL);
}
