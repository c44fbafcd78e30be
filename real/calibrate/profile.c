/* See profile.h. */
#define _DEFAULT_SOURCE
#include "real/calibrate/profile.h"

#include "base/arith.h"
#include "host/busy.h"
#include "host/build_info.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The first line of every profile: how one knows that a file may be replaced. */
static const char first_line[] = "-- A hardware profile that `tandem calibrate` measured.";

/* ---- The host ---------------------------------------------------------------------------------------------------- */

/* The first model name in /proc/cpuinfo, without what would end a comment. */
static void processor_name(char *name, size_t size)
{
    char line[256];
    snprintf(name, size, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file != NULL)
        fclose(file);
}

void profile_describe_host(struct profile *profile)
{
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(profile->date, sizeof profile->date, "%Y-%m-%d %H:%M UTC", &utc);
    processor_name(profile->processor, sizeof profile->processor);
    profile->load = machine_load();
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

/* A text as the language reads it. */
static void quoted(char *out, size_t size, const char *text)
{
    size_t used = 0;
    out[used++] = '"';
    for (; *text != '\0' && used + 8 < size; text++) {
        if (*text == '"' || *text == '\\')
            out[used++] = '\\';
        if ((unsigned char)*text < ' ')
            used += (size_t)snprintf(out + used, size - used, "\\%03u", (unsigned)(unsigned char)*text);
        else
            out[used++] = *text;
    }
    out[used++] = '"';
    out[used] = '\0';
}

static void line(FILE *file, int indent, const char *key, const char *value, const char *comment)
{
    char text[256];
    snprintf(text, sizeof text, "%s = %s,", key, value);
    if (comment == NULL)
        fprintf(file, "%*s%s\n", indent, "", text);
    else
        fprintf(file, "%*s%-*s -- %s\n", indent, "", 36 - indent, text, comment);
}

/* value / unit, exactly; `unit` is a power of ten. */
static void decimal(char *text, size_t size, int64_t value, int64_t unit)
{
    size_t used = (size_t)snprintf(text, size, "%" PRId64, value / unit);
    int64_t rest = value % unit;
    if (rest != 0)
        text[used++] = '.';
    for (; rest != 0 && used + 1 < size; rest %= unit) {
        rest *= 10;
        text[used++] = (char)('0' + rest / unit);
    }
    text[used] = '\0';
}

static void text_line(FILE *file, int indent, const char *key, const char *text, const char *comment)
{
    char value[224];
    quoted(value, sizeof value, text);
    line(file, indent, key, value, comment);
}

/* The expression of exactly value / unit of a constructor's units: "us(11.2)". `unit` is a power of ten. */
static void quantity_line(FILE *file, int indent, const char *key, const char *constructor, int64_t value, int64_t unit,
                          const char *comment)
{
    char number[48];
    char text[96];
    decimal(number, sizeof number, value, unit);
    snprintf(text, sizeof text, "%s(%s)", constructor, number);
    line(file, indent, key, text, comment);
}

static void time_line(FILE *file, int indent, const char *key, int64_t ps, const char *comment)
{
    if (ps < 1000000)
        quantity_line(file, indent, key, "ns", ps, 1000, comment);
    else
        quantity_line(file, indent, key, "us", ps, 1000000, comment);
}

static void rate_line(FILE *file, const char *key, uint64_t bytes_per_s, int indent, const char *comment)
{
    quantity_line(file, indent, key, "GB_s", (int64_t)bytes_per_s, 1000000000, comment);
}

static void memory_line(FILE *file, uint64_t bytes)
{
    bool even = bytes % (UINT64_C(1) << 20) == 0;
    quantity_line(file, 2, "memory", even ? "MiB" : "bytes", (int64_t)(even ? bytes >> 20 : bytes), 1, NULL);
}

static void flops_line(FILE *file, const char *key, uint64_t flops)
{
    if (flops != 0)
        quantity_line(file, 2, key, "TFLOPS", (int64_t)flops, INT64_C(1000000000000), NULL);
}

static void count_line(FILE *file, int indent, const char *key, int64_t value, const char *comment)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    line(file, indent, key, text, comment);
}

/* ---- Sections ---------------------------------------------------------------------------------------------------- */

static void print_head(FILE *file, const struct profile *profile)
{
    fprintf(file, "%s\n", first_line);
    fprintf(file, "-- On %s, %" PRIu32 " processors (%s), load average %" PRIu32 ".%02" PRIu32 " before it began;\n",
            profile->date, profile->load.processors, profile->processor, profile->load.load_permille / 1000,
            profile->load.load_permille % 1000 / 10);
    fprintf(file, "-- tandem %s, build %.12s. What is not said to be measured is from %s.\n", build_version,
            build_identity, profile->base);
}

static double off_percent(int64_t fitted, int64_t measured)
{
    return ((double)fitted / (double)measured - 1) * 100;
}

static void print_fit(FILE *file, const struct profile *profile)
{
    const struct fabric_times *times = &profile->fabric;
    const struct nic *nic = &profile->hardware.nic;
    fprintf(file,
            "--\n-- The fabric (provider %s) between two processes, %" PRIu32 " writes in flight, medians; a write's\n",
            times->provider, nic->queue_depth);
    fprintf(file, "-- microseconds beside those of the fit: base + bytes / bandwidth alone, and\n");
    fprintf(file, "-- (gap^knee + (bytes / bandwidth)^knee)^(1/knee) in a stream.\n");
    fprintf(file, "--     bytes      alone     fitted    off %%   streamed     fitted    off %%\n");
    for (uint32_t s = 0; s < FABRIC_SIZES; s++) {
        int64_t single = nic_single_ps(nic, times->single[s].bytes);
        int64_t paged = nic_paged_ps(nic, times->stream[s].bytes);
        fprintf(file, "--   %7" PRIu64 " %10.2f %10.2f %8.0f %10.3f %10.3f %8.0f\n", times->single[s].bytes,
                (double)times->single[s].ps * 1e-6, (double)single * 1e-6, off_percent(single, times->single[s].ps),
                (double)times->stream[s].ps * 1e-6, (double)paged * 1e-6, off_percent(paged, times->stream[s].ps));
    }
}

static void print_steps_head(FILE *file, const struct profile *profile)
{
    if (profile->steps->count == 0)
        return;
    fprintf(file,
            "--\n-- Steps (device %s) from launch to the event that they are done, executors and collectives as in a\n",
            profile->device);
    fprintf(file,
            "-- run, one instance alone: medians of %" PRIu32 " rounds after one that is not counted, made to rise\n",
            profile->rounds);
    fprintf(file, "-- along both axes. Cells that no batch reaches lie on the line through their neighbours.\n");
    for (uint32_t t = 0; t < profile->steps->count; t++) {
        const struct step_quality *quality = &profile->quality[t];
        fprintf(file, "--   %s: %" PRIu32 " cells measured, %" PRIu32 " filled; half the quartiles' distance %.1f %%\n",
                profile->steps->item[t].name, quality->cells_measured, quality->cells_filled,
                (double)quality->spread_permille * 0.1);
    }
}

static void print_correction(FILE *file, const char *steps, const char *kind, const struct step_correction *correction)
{
    if (correction->launches < LINE_SAMPLES_LEAST)
        fprintf(file, "--   %s, %s: %" PRIu32 " launches, too few: as measured alone\n", steps, kind,
                correction->launches);
    else
        fprintf(file, "--   %s, %s: x %.2f and %.0f us a launch, by %" PRIu32 " launches\n", steps, kind,
                correction->line.factor, correction->line.base_ns * 1e-3, correction->launches);
}

static void print_in_run(FILE *file, const struct profile *profile)
{
    const struct in_run *in_run = profile->in_run;
    if (in_run == NULL)
        return;
    fprintf(file,
            "--\n-- Corrected by a run of each scenario, with other arrivals than its own, all processes at work:\n");
    for (uint32_t t = 0; t < profile->steps->count; t++) {
        const struct step_job *job = &profile->steps->item[t];
        if (job->table.prefill.row_count > 0)
            print_correction(file, job->name, "prefill", &in_run->prefill[t]);
        if (job->table.decode.row_count > 0)
            print_correction(file, job->name, "decode", &in_run->decode[t]);
    }
    fprintf(file, "--   messages: medians of %" PRIu32 " of the front and of %" PRIu32 " that waited for a count\n",
            in_run->messages, in_run->armed);
}

static void print_nic(FILE *file, const struct nic *nic)
{
    char knee[32];
    decimal(knee, sizeof knee, nic->knee_permille, 1000);
    fprintf(file, "  nic = nic {\n");
    text_line(file, 4, "name", nic->name, NULL);
    time_line(file, 4, "base", nic->base_ns * 1000, "measured: single writes");
    rate_line(file, "bandwidth", nic->bytes_per_s, 4, "measured: streamed writes");
    time_line(file, 4, "gap", nic->gap_ps, "measured: streamed writes");
    line(file, 4, "knee", knee, "measured: streamed writes");
    time_line(file, 4, "posting", nic->posting_ps, "measured: many small writes posted at once");
    line(file, 4, "posting_by", nic->posts_together ? "\"instance\"" : "\"rank\"",
         "one thread for all ranks of an instance");
    count_line(file, 4, "queue_depth", nic->queue_depth, "the engine's window");
    fprintf(file, "  },\n");
}

static void print_machine(FILE *file, const struct hardware *hardware, bool in_run)
{
    text_line(file, 2, "name", hardware->name, NULL);
    if (hardware->gpu[0] != '\0')
        text_line(file, 2, "gpu", hardware->gpu, "for models without measured steps");
    count_line(file, 2, "gpus", hardware->gpus_per_node, NULL);
    memory_line(file, hardware->memory_bytes);
    rate_line(file, "memory_bandwidth", hardware->memory_bytes_per_s, 2, NULL);
    flops_line(file, "bf16", hardware->bf16_flops);
    flops_line(file, "fp8", hardware->fp8_flops);
    flops_line(file, "fp4", hardware->fp4_flops);
    rate_line(file, "nvlink", hardware->nvlink_bytes_per_s, 2,
              hardware->nvlink_bytes_per_s == hardware->nic.bytes_per_s ? "instances of one machine use the fabric"
                                                                        : NULL);
    print_nic(file, &hardware->nic);
    time_line(file, 2, "watcher", hardware->watcher_ns * 1000, "measured: tick of the layer counter to post");
    time_line(file, 2, "poll", hardware->poll_ns * 1000, "measured: landed to known by a loop that sleeps");
    time_line(file, 2, "message", hardware->message_ns * 1000,
              in_run ? "measured: of the front, in a run" : "measured: half a round trip of 128 bytes");
    if (hardware->arm_ns > 0)
        time_line(file, 2, "arm", hardware->arm_ns * 1000, "measured: longer, of what waited for a count");
    quantity_line(file, 2, "price", "usd_per_hour", (int64_t)hardware->usd_micros_per_gpu_hour, 1000000, NULL);
    text_line(file, 2, "price_basis", hardware->price_basis, NULL);
}

static void print_grid(FILE *file, const char *key, const char *rows, const char *columns, const struct step_grid *grid)
{
    if (grid->row_count == 0)
        return;
    fprintf(file, "      %s = {\n        %s = { ", key, rows);
    for (uint32_t r = 0; r < grid->row_count; r++)
        fprintf(file, "%s%" PRIu32, r == 0 ? "" : ", ", grid->rows[r]);
    fprintf(file, " },\n        %s = { ", columns);
    for (uint32_t c = 0; c < grid->column_count; c++)
        fprintf(file, "%s%" PRIu64, c == 0 ? "" : ", ", grid->columns[c]);
    fprintf(file, " },\n        time = {\n");
    for (uint32_t r = 0; r < grid->row_count; r++) {
        fprintf(file, "          { ");
        for (uint32_t c = 0; c < grid->column_count; c++)
            fprintf(file, "%sns(%" PRId64 ")", c == 0 ? "" : ", ", grid->ns[r][c]);
        fprintf(file, " }, -- %" PRIu32 "\n", grid->rows[r]);
    }
    fprintf(file, "        },\n      },\n");
}

static void print_sharding(FILE *file, const struct parallelism *parallelism)
{
    fprintf(file, "      sharding = { tensor = %u", (unsigned)parallelism->tensor);
    if (parallelism->data > 1)
        fprintf(file, ", data = %u", (unsigned)parallelism->data);
    if (parallelism->expert > 1)
        fprintf(file, ", expert = %u", (unsigned)parallelism->expert);
    if (parallelism->pipeline > 1)
        fprintf(file, ", pipeline = %u", (unsigned)parallelism->pipeline);
    fprintf(file, " },\n");
}

static void print_steps(FILE *file, const struct step_plan *plan)
{
    if (plan->count == 0)
        return;
    fprintf(file, "  steps = {\n");
    for (uint32_t t = 0; t < plan->count; t++) {
        const struct step_table *table = &plan->item[t].table;
        fprintf(file, "    steps {\n");
        text_line(file, 6, "model", table->model, NULL);
        print_sharding(file, &table->parallelism);
        if (table->in_flight > 1)
            fprintf(file, "      in_flight = %" PRIu32 ",                 -- launches, in other pipeline stages each\n",
                    table->in_flight);
        time_line(file, 6, "first_layer", table->first_layer_ns * 1000, "launch to the first tick, of the median step");
        if (table->launch_ns > 0)
            time_line(file, 6, "launch", table->launch_ns * 1000, "of decode steps, beyond the steps");
        print_grid(file, "prefill", "tokens", "keys", &table->prefill);
        print_grid(file, "decode", "sequences", "context", &table->decode);
        fprintf(file, "    },\n");
    }
    fprintf(file, "  },\n");
}

void profile_print(FILE *file, const struct profile *profile)
{
    print_head(file, profile);
    print_fit(file, profile);
    print_steps_head(file, profile);
    print_in_run(file, profile);
    fprintf(file, "return machine {\n");
    print_machine(file, &profile->hardware, profile->in_run != NULL);
    print_steps(file, profile->steps);
    fprintf(file, "}\n");
}

/* ---- Files ------------------------------------------------------------------------------------------------------- */

static bool is_profile(const char *path)
{
    char line[sizeof first_line] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool same = fread(line, 1, sizeof line - 1, file) == sizeof line - 1 && strcmp(line, first_line) == 0;
    fclose(file);
    return same;
}

bool profile_may_write(const char *path, bool force, struct user_error *error)
{
    char folder[1024];
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    if (length >= sizeof folder - 1 || strlen(path) > sizeof folder - 32) {
        user_error_set(error, NULL, 0, NULL, "--out: %.60s...: the path is too long", path);
        return false;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    if (access(length == 0 ? "." : folder, W_OK | X_OK) != 0)
        user_error_set(error, path, 0, NULL, "cannot be written: %s", strerror(errno));
    else if (!force && access(path, F_OK) == 0 && !is_profile(path))
        user_error_set(error, path, 0, NULL, "is there and no profile of tandem calibrate; --force overwrites it");
    return !error->set;
}

bool profile_write(const char *path, const struct profile *profile, struct user_error *error)
{
    char beside[1024];
    snprintf(beside, sizeof beside, "%s.%ld.part", path, (long)getpid());
    FILE *file = fopen(beside, "wx");
    if (file == NULL) {
        user_error_set(error, path, 0, NULL, "cannot be written: %s", strerror(errno));
        return false;
    }
    profile_print(file, profile);
    bool good = fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
    good = fclose(file) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        user_error_set(error, path, 0, NULL, "cannot be written: %s", strerror(errno));
        unlink(beside);
        return false;
    }
    return true;
}
