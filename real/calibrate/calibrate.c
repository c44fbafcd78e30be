/* See calibrate.h. */
#include "real/calibrate/calibrate.h"

#include "base/arith.h"
#include "world/scenario/hardware_load.h"
#include "real/calibrate/message_profiler.h"
#include "real/control/mesh.h"

#include <string.h>

#define FABRIC_TURNS 12u
#define RUN_LIMIT_S 600

/* A base's name may already be that of a calibrated machine. */
static void name_machine(const struct calibration *what, struct hardware *hardware)
{
    static const char ending[] = "-calibrated";
    char name[sizeof hardware->name];
    size_t length = strlen(hardware->name);
    bool ends = length >= sizeof ending - 1 && strcmp(hardware->name + length - (sizeof ending - 1), ending) == 0;
    if (what->name != NULL)
        snprintf(name, sizeof name, "%s", what->name);
    else
        snprintf(name, sizeof name, "%.*s%s", (int)(sizeof name - sizeof ending), hardware->name, ends ? "" : ending);
    memcpy(hardware->name, name, sizeof name);
}

static bool measure_fabric(const struct calibration *what, struct profile *profile, struct progress *progress,
                           const struct fabric_profiler_config *config, struct user_error *error)
{
    struct hardware *hardware = &profile->hardware;
    struct fabric_times *times = &profile->fabric;
    hardware->arm_ns = 0;
    if (!message_profiler(what->bind, &hardware->message_ns, error) ||
        !fabric_profiler(config, progress, times, error) ||
        !nic_fit(times->single, FABRIC_SIZES, times->stream, FABRIC_SIZES, &hardware->nic, error))
        return false;
    profile->misfit = nic_misfit(times->single, FABRIC_SIZES, times->stream, FABRIC_SIZES, &hardware->nic);
    snprintf(hardware->nic.name, sizeof hardware->nic.name, "%s", times->provider);
    hardware->nic.posting_ps = times->posting_ps;
    hardware->nic.posts_together = 1; /* the fabric thread of an instance posts for all its ranks */
    hardware->nic.queue_depth = config->window;
    /* Instances of one machine write over the same fabric as others; the network model has them use this rate. */
    if (strcmp(what->device, "host") == 0)
        hardware->nvlink_bytes_per_s = hardware->nic.bytes_per_s;
    hardware->watcher_ns = times->watcher_ns;
    hardware->poll_ns = times->poll_ns;
    return true;
}

static bool measure(const struct calibration *what, struct calibrated *result, struct progress *progress,
                    struct user_error *error)
{
    const struct fabric_profiler_config fabric = {.provider = what->provider,
                                                  .address = what->bind,
                                                  .window = what->window,
                                                  .turns = FABRIC_TURNS,
                                                  .crowded = result->plan.crowded};
    uint64_t total = fabric_profiler_steps(&fabric);
    for (uint32_t t = 0; t < result->plan.count; t++)
        total += (uint64_t)step_job_launches(&result->plan.item[t]) * (what->rounds + 1);
    progress_total(progress, total);
    if (!measure_fabric(what, &result->profile, progress, &fabric, error))
        return false;
    for (uint32_t t = 0; t < result->plan.count; t++) {
        struct step_job *job = &result->plan.item[t];
        struct user_error wrong = {.set = false};
        if (!step_profiler(job, what->rounds, progress, &result->quality[t], &wrong)) {
            if (wrong.set)
                user_error_set(error, NULL, 0, NULL, "%s: %s", job->name, wrong.text);
            return false;
        }
    }
    return true;
}

/* What a busy machine gives is no property of it: better no profile than one that is noise. */
static bool fits(const struct calibration *what, const struct calibrated *result, struct user_error *error)
{
    const struct profile *profile = &result->profile;
    const struct machine_load *load = &profile->load;
    uint32_t allowed = what->misfit_permille;
    char busy[96] = "";
    if (machine_busy(load))
        snprintf(busy, sizeof busy, "; the load average was %u.%02u on %u processors", load->load_permille / 1000,
                 load->load_permille % 1000 / 10, load->processors);
    if (profile->misfit.alone_permille > allowed || profile->misfit.streamed_permille > allowed)
        user_error_set(error, NULL, 0, NULL,
                       "no profile is written: the fits miss the measured writes by %u.%u %% alone and %u.%u %% "
                       "streamed, on average, and --misfit allows %u %%%s",
                       profile->misfit.alone_permille / 10, profile->misfit.alone_permille % 10,
                       profile->misfit.streamed_permille / 10, profile->misfit.streamed_permille % 10, allowed / 10,
                       busy);
    for (uint32_t t = 0; t < result->plan.count && !error->set; t++)
        if (result->quality[t].spread_permille > (int64_t)allowed)
            user_error_set(error, NULL, 0, NULL,
                           "no profile is written: the steps of %s spread by %lld.%lld %% from round to round, and "
                           "--misfit allows %u %%%s",
                           result->plan.item[t].name, (long long)result->quality[t].spread_permille / 10,
                           (long long)result->quality[t].spread_permille % 10, allowed / 10, busy);
    return !error->set;
}

/* The scenarios for real, when everything else has been measured. */
static bool correct(const struct calibration *what, struct calibrated *result, struct user_error *error)
{
    struct hardware *hardware = &result->profile.hardware;
    struct real_options options = {
        .provider = what->provider,
        .device = what->device,
        .bind = what->bind,
        .window = what->window,
        .heartbeats_missed = HEARTBEATS_MISSED_DEFAULT,
        .limit_s = RUN_LIMIT_S,
    };
    snprintf(options.address, sizeof options.address, "%s", what->bind);
    if (!in_run_measure(&(struct in_run_config){.scenarios = what->scenarios,
                                                .scenario_count = what->scenario_count,
                                                .sets = what->sets,
                                                .set_count = what->set_count,
                                                .options = &options},
                        &result->plan, &result->in_run, error))
        return false;
    if (result->in_run.messages > 0) {
        hardware->message_ns = result->in_run.message_ns;
        hardware->arm_ns = result->in_run.arm_ns;
    }
    result->profile.in_run = &result->in_run;
    return true;
}

bool calibrate(const struct calibration *what, struct calibrated *result, struct user_error *error)
{
    memset(result, 0, sizeof *result);
    struct profile *profile = &result->profile;
    profile->base = what->base;
    profile->device = what->device;
    profile->rounds = what->rounds;
    profile->steps = &result->plan;
    profile->quality = result->quality;
    if (!hardware_load(what->base, &profile->hardware, error))
        return false;
    for (size_t i = 0; i < what->scenario_count; i++)
        if (!step_plan_add(&result->plan, what->scenarios[i], what->sets, what->set_count, what->device, error))
            return false;
    name_machine(what, &profile->hardware);
    profile_describe_host(profile);
    struct progress *progress = progress_start("calibrating", 0);
    bool good = measure(what, result, progress, error);
    progress_end(progress);
    good = good && fits(what, result, error);
    return good && (!what->in_run || correct(what, result, error));
}
