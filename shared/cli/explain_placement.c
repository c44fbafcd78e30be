/* See explain_placement.h. */
#include "cli/explain_placement.h"

#include "base/arith.h"
#include "host/user_error.h"

#include <inttypes.h>
#include <string.h>

#define PLACES_SHOWN 24 /* JSON has all */

/* As `run` deploys it. What sizes nodes does not move them: lengths of a trace need not be read. */
static struct deployment *deploy(const struct scenario *scenario, struct user_error *error)
{
    struct deployment_choice choice = deployment_default(scenario);
    struct deployment_sizes sizes = deployment_sizes(&scenario->load);
    sizes.prefix_block_tokens = 0;
    return deployment_make(scenario, &choice, &sizes, scenario->seed, error);
}

/* "one a GPU", "one for 2 GPUs", "3 for 8 GPUs", "2 for 4 GPUs: 1 2 1 2". */
static void nics_text(const struct hardware *hardware, char *text, size_t size)
{
    uint32_t gpus = hardware->gpus_per_node;
    uint32_t nics = hardware_nics(hardware);
    if (hardware->gpu_nics[0] != 0) {
        int used = snprintf(text, size, "%" PRIu32 " for %" PRIu32 " GPUs, which use NIC", nics, gpus);
        for (uint32_t g = 0; g < gpus && (size_t)used < size; g++)
            used += snprintf(text + used, size - (size_t)used, " %u", hardware->gpu_nics[g]);
    } else if (nics == gpus)
        snprintf(text, size, "one a GPU");
    else if (gpus % nics == 0)
        snprintf(text, size, "one for %" PRIu32 " GPUs, which share it", gpus / nics);
    else
        snprintf(text, size, "%" PRIu32 " for %" PRIu32 " GPUs, which share them", nics, gpus);
}

static void print_path(const struct scenario *scenario, const struct deployment *deployment, uint32_t p, uint32_t d,
                       FILE *out)
{
    const struct pool *from = &scenario->pools[p];
    const struct pool *to = &scenario->pools[d];
    struct deployment_paths paths = deployment_paths(deployment, p, d);
    char nics[2][64 + 4 * GPU_NICS_MAX];
    if (paths.by_nvlink + paths.by_nic == 0)
        return;
    nics_text(&from->hardware, nics[0], sizeof nics[0]);
    nics_text(&to->hardware, nics[1], sizeof nics[1]);
    fprintf(out, "%s to %s:", from->name, to->name);
    if (paths.by_nvlink > 0)
        fprintf(out, " %" PRIu64 " of %" PRIu64 " pairs over NVLink%s", paths.by_nvlink, paths.by_nvlink + paths.by_nic,
                paths.by_nic > 0 ? "," : "\n");
    if (paths.by_nic == 0)
        return;
    fprintf(out, " %" PRIu64 " of %" PRIu64 " pairs over the NICs (%s, %s", paths.by_nic,
            paths.by_nvlink + paths.by_nic, from->hardware.nic.name, nics[0]);
    if (strcmp(from->hardware.nic.name, to->hardware.nic.name) != 0 || strcmp(nics[0], nics[1]) != 0)
        fprintf(out, "; to %s, %s", to->hardware.nic.name, nics[1]);
    fprintf(out, ")\n");
}

static void print_place(const struct deployment_instance *instance, FILE *out)
{
    const struct instance_place *place = &instance->place;
    if (place->machines > 1)
        fprintf(out, "%s: machines %" PRIu32 "-%" PRIu32 "\n", instance->name, place->machine + 1,
                place->machine + place->machines);
    else if (instance->ranks > 1)
        fprintf(out, "%s: machine %" PRIu32 ", GPUs %" PRIu32 "-%" PRIu32 "\n", instance->name, place->machine + 1,
                place->gpu, place->gpu + instance->ranks - 1);
    else
        fprintf(out, "%s: machine %" PRIu32 ", GPU %" PRIu32 "\n", instance->name, place->machine + 1, place->gpu);
}

void explain_placement_print(const struct scenario *scenario, FILE *out)
{
    struct user_error error = {.set = false};
    struct deployment *deployment = deploy(scenario, &error);
    if (deployment == NULL) {
        fprintf(out, "\nnot deployed: %s\n", error.text);
        return;
    }
    fprintf(out, "\n%" PRIu32 " machine%s\n", deployment->machines, deployment->machines == 1 ? "" : "s");
    for (uint32_t i = 1; i < deployment->node_count && i <= PLACES_SHOWN; i++)
        print_place(&deployment->instances[i], out);
    if (deployment->node_count > PLACES_SHOWN + 1)
        fprintf(out, "and %" PRIu32 " more\n", deployment->node_count - 1 - PLACES_SHOWN);
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        for (uint32_t d = 0; d < scenario->pool_count; d++)
            print_path(scenario, deployment, p, d, out);
    deployment_free(deployment);
}

void explain_placement_json(const struct scenario *scenario, json_t *json)
{
    struct user_error error = {.set = false};
    struct deployment *deployment = deploy(scenario, &error);
    if (deployment == NULL) {
        json_object_set_new(json, "refused", json_string(error.text));
        return;
    }
    json_t *instances = json_array();
    json_t *handovers = json_array();
    for (uint32_t i = 1; i < deployment->node_count; i++) {
        const struct deployment_instance *instance = &deployment->instances[i];
        json_array_append_new(instances,
                              json_pack("{s:s, s:s, s:I, s:I, s:I}", "instance", instance->name, "pool",
                                        scenario->pools[instance->pool].name, "machine",
                                        (json_int_t)instance->place.machine + 1, "gpu", (json_int_t)instance->place.gpu,
                                        "ranks", (json_int_t)instance->ranks));
    }
    for (uint32_t p = 0; p < scenario->pool_count; p++)
        for (uint32_t d = 0; d < scenario->pool_count; d++) {
            struct deployment_paths paths = deployment_paths(deployment, p, d);
            if (paths.by_nvlink + paths.by_nic > 0)
                json_array_append_new(
                    handovers, json_pack("{s:s, s:s, s:s, s:I, s:I}", "from", scenario->pools[p].name, "to",
                                         scenario->pools[d].name, "path", deployment_paths_name(&paths), "nvlink_pairs",
                                         (json_int_t)paths.by_nvlink, "nic_pairs", (json_int_t)paths.by_nic));
        }
    json_object_set_new(json, "machines", json_integer(deployment->machines));
    json_object_set_new(json, "instances", instances);
    json_object_set_new(json, "handovers", handovers);
    deployment_free(deployment);
}
