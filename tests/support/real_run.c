/* See real_run.h. */
#define _GNU_SOURCE
#include "support/real_run.h"

#include "base/arith.h"
#include "world/scenario/policy_host.h"
#include "world/load/workload.h"
#include "cli/commands.h"
#include "real/runtime/recording.h"
#include "real/runtime/recording_words.h"
#include "real/control/frame.h"
#include "real/memory/shared_memory.h"
#include "real/cluster/real_world.h"
#include "support/device_instance.h"
#include "host/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#define OPTIONS_MAX 40
#define WAIT_NS (180 * NS_PER_S) /* on a very busy machine */

/* ---- Starting ---------------------------------------------------------------------------------------------------- */

static void path_of(const char *scenario, char *path, size_t size)
{
    bool relative = scenario[0] != '/';
    snprintf(path, size, "%s%s%s", relative ? TANDEM_SOURCE_DIR : "", relative ? "/" : "", scenario);
}

static _Noreturn void launch(const struct real_run *run, const char *scenario, const char *const *options)
{
    static const struct command *const list[] = {&command_run, NULL};
    char path[512];
    char database[128];
    char tokens[128];
    char events[128];
    char log[128];
    snprintf(events, sizeof events, "--record-events=%s/events", run->folder);
    path_of(scenario, path, sizeof path);
    snprintf(database, sizeof database, "--db=%s/run.db", run->folder);
    snprintf(tokens, sizeof tokens, "--tokens=%s/tokens.csv", run->folder);
    snprintf(log, sizeof log, "%s/log", run->folder);
    const char *argv[OPTIONS_MAX + 8] = {"tandem", "run", path, "--backend=real", database, tokens, events};
    int argc = 7;
    for (uint32_t i = 0; options != NULL && options[i] != NULL; i++) {
        CHECK(argc < OPTIONS_MAX);
        argv[argc++] = options[i];
    }
    if (freopen(log, "w", stdout) == NULL || dup2(fileno(stdout), STDERR_FILENO) < 0)
        _exit(99);
    char *copies[OPTIONS_MAX + 8] = {NULL};
    for (int i = 0; i < argc; i++)
        copies[i] = strdup(argv[i]);
    exit(command_main(argc, copies, list, stdout, stderr));
}

void real_run_start(struct real_run *run, const char *scenario, const char *const *options)
{
    *run = (struct real_run){.folder = "/tmp/tandem-real-XXXXXX"};
    assert_non_null(mkdtemp(run->folder));
    fflush(NULL);
    run->launcher = fork();
    assert_true(run->launcher >= 0);
    if (run->launcher == 0)
        launch(run, scenario, options);
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

static uint32_t children_of(pid_t parent, pid_t *pids, uint32_t room)
{
    char path[96];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    uint32_t count = 0;
    int pid;
    while (file != NULL && count < room && fscanf(file, "%d", &pid) == 1)
        pids[count++] = pid;
    if (file != NULL)
        fclose(file);
    return count;
}

bool real_run_ended(const struct real_run *run)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)run->launcher, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* Returns how many instances have executors. */
static uint32_t look(struct real_run *run)
{
    uint32_t with_executors = 0;
    run->instance_count = children_of(run->launcher, run->processes, REAL_RUN_PROCESSES_MAX);
    run->process_count = run->instance_count;
    for (uint32_t i = 0; i < run->instance_count; i++) {
        uint32_t more = children_of(run->processes[i], run->processes + run->process_count,
                                    REAL_RUN_PROCESSES_MAX - run->process_count);
        for (uint32_t k = 0; k < more; k++)
            run->owner[run->process_count + k] = i;
        run->process_count += more;
        with_executors += more > 0;
    }
    return with_executors;
}

void real_run_look(struct real_run *run)
{
    look(run);
}

bool real_run_processes(struct real_run *run, uint32_t instances)
{
    int64_t until_ns = clock_now_ns() + WAIT_NS;
    for (;;) {
        if (look(run) == instances && run->instance_count == instances)
            return true;
        if (real_run_ended(run))
            return false;
        assert_true(clock_now_ns() < until_ns);
        usleep(2000);
    }
}

int64_t real_run_recorded_bytes(const struct real_run *run)
{
    char path[128];
    struct stat status;
    snprintf(path, sizeof path, "%s/events/node-0.events", run->folder);
    return stat(path, &status) == 0 ? (int64_t)status.st_size : 0;
}

bool real_run_recorded(const struct real_run *run, int64_t bytes)
{
    int64_t until_ns = clock_now_ns() + WAIT_NS;
    while (real_run_recorded_bytes(run) < bytes) {
        if (real_run_ended(run))
            return false;
        assert_true(clock_now_ns() < until_ns);
        usleep(1000);
    }
    return true;
}

bool real_run_started(const struct real_run *run)
{
    return real_run_recorded(run, 1024); /* beyond the magic and the start: the first arrivals and what they led to */
}

/* Reads the entries that are whole: the last one of a run that goes on may be half written. */
static void read_entries(const struct real_run *run, uint32_t node,
                         void (*entry)(void *self, uint16_t event, const unsigned char *data, size_t data_bytes,
                                       const unsigned char *calls, size_t call_bytes),
                         void *self)
{
    char path[160];
    unsigned char header[40];
    snprintf(path, sizeof path, "%s/events/node-%u.events", run->folder, node);
    FILE *file = fopen(path, "rb");
    bool more = file != NULL && fseek(file, RECORDING_HEAD_BYTES, SEEK_SET) == 0;
    while (more && fread(header, sizeof header, 1, file) == 1) {
        struct frame_reader reader = {.bytes = header, .length = sizeof header, .at = 8};
        uint16_t event = read_u16(&reader);
        reader.at = 24;
        size_t data_bytes = (size_t)read_u64(&reader);
        size_t call_bytes = (size_t)read_u64(&reader);
        unsigned char *bytes = malloc(data_bytes + call_bytes + 1);
        assert_non_null(bytes);
        more = fread(bytes, 1, data_bytes + call_bytes, file) == data_bytes + call_bytes;
        if (more)
            entry(self, event, bytes, data_bytes, bytes + data_bytes, call_bytes);
        free(bytes);
    }
    if (file != NULL)
        fclose(file);
}

struct message_count {
    bool (*wanted)(const struct message *m);
    uint32_t to;
    uint32_t count;
};

static void count_heard(void *self, uint16_t event, const unsigned char *data, size_t data_bytes,
                        const unsigned char *calls, size_t call_bytes)
{
    (void)calls;
    (void)call_bytes;
    struct message_count *what = self;
    struct message m;
    what->count += event == EVENT_MESSAGE && wire_decode(data, data_bytes, &m) && what->wanted(&m);
}

/* Calls are of many forms: sends are found by how they begin, and by a message that parses. */
static void count_said(void *self, uint16_t event, const unsigned char *data, size_t data_bytes,
                       const unsigned char *calls, size_t call_bytes)
{
    (void)event;
    (void)data;
    (void)data_bytes;
    struct message_count *what = self;
    for (size_t at = 0; at + 24 <= call_bytes; at++) {
        struct frame_reader reader = {.bytes = calls, .length = call_bytes, .at = at};
        struct message m;
        if (read_u64(&reader) != CALL_SEND || read_u64(&reader) != what->to)
            continue;
        uint64_t length = read_u64(&reader);
        if (length <= call_bytes - reader.at && wire_decode(calls + reader.at, (size_t)length, &m))
            what->count += what->wanted(&m);
    }
}

uint32_t real_run_heard(const struct real_run *run, uint32_t node, bool (*wanted)(const struct message *m))
{
    struct message_count what = {.wanted = wanted};
    read_entries(run, node, count_heard, &what);
    return what.count;
}

uint32_t real_run_said(const struct real_run *run, uint32_t node, uint32_t to, bool (*wanted)(const struct message *m))
{
    struct message_count what = {.wanted = wanted, .to = to};
    read_entries(run, node, count_said, &what);
    return what.count;
}

/* 'T' of every thread. */
static bool stands_still(pid_t process)
{
    char path[300];
    bool still = true;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; still && (entry = readdir(folder)) != NULL;) {
        char text[256] = "";
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)process, entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (file == NULL)
            continue;
        const char *state = fgets(text, sizeof text, file) == NULL ? NULL : strrchr(text, ')');
        still = state != NULL && state[2] == 'T';
        fclose(file);
    }
    closedir(folder);
    return still;
}

void real_run_stop(pid_t process)
{
    int64_t until_ns = clock_now_ns() + WAIT_NS;
    assert_int_equal(kill(process, SIGSTOP), 0);
    while (!stands_still(process)) {
        assert_true(clock_now_ns() < until_ns);
        usleep(500);
    }
}

void real_run_show_log(const struct real_run *run)
{
    char path[128];
    char line[512];
    snprintf(path, sizeof path, "%s/log", run->folder);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        fprintf(stderr, "  | %s", line);
    if (file != NULL)
        fclose(file);
}

bool real_run_logged(const struct real_run *run, const char *text)
{
    char path[128];
    char line[4096];
    bool found = false;
    snprintf(path, sizeof path, "%s/log", run->folder);
    FILE *file = fopen(path, "r");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
        found = strstr(line, text) != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}

pid_t real_run_thread(pid_t process, const char *name)
{
    char path[300];
    pid_t thread = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && thread == 0 && (entry = readdir(folder)) != NULL;) {
        char text[32] = "";
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)process, entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        if (fgets(text, sizeof text, file) != NULL && strcspn(text, "\n") == strlen(name) &&
            strncmp(text, name, strlen(name)) == 0)
            thread = (pid_t)strtol(entry->d_name, NULL, 10);
        fclose(file);
    }
    if (folder != NULL)
        closedir(folder);
    return thread;
}

int real_run_wait(struct real_run *run, int wanted)
{
    int status = 0;
    assert_int_equal(waitpid(run->launcher, &status, 0), run->launcher);
    int exit = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (exit != wanted)
        real_run_show_log(run);
    return exit;
}

static bool gone(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

bool real_run_in_shared_memory(pid_t pid)
{
    char text[16];
    bool found = false;
    snprintf(text, sizeof text, "%d", (int)pid);
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        const char *at = strstr(entry->d_name, text);
        char before = at == NULL || at == entry->d_name ? ' ' : at[-1];
        char after = at == NULL ? ' ' : at[strlen(text)];
        bool whole = at != NULL && !(before >= '0' && before <= '9') && !(after >= '0' && after <= '9');
        if (whole)
            fprintf(stderr, "left in /dev/shm: %s\n", entry->d_name);
        found = found || whole;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* A process of the run that nobody has seen: instances have the run's folder among their arguments. */
static bool any_left(const struct real_run *run)
{
    bool found = false;
    DIR *folder = opendir("/proc");
    assert_non_null(folder);
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;) {
        char path[300];
        char text[4096];
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        FILE *file = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        if (file == NULL)
            continue;
        size_t length = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        for (size_t i = 0; i < length; i++)
            text[i] = text[i] == '\0' ? ' ' : text[i];
        text[length] = '\0';
        found = strstr(text, run->folder) != NULL;
    }
    closedir(folder);
    return found;
}

void real_run_left_nothing(const struct real_run *run)
{
    /* Executors of a killed instance, and instances of a killed launcher, are nobody's children for a moment. */
    int64_t until_ns = clock_now_ns() + 10 * NS_PER_S;
    assert_true(gone(run->launcher));
    while (any_left(run) && clock_now_ns() < until_ns)
        usleep(2000);
    assert_false(any_left(run));
    for (uint32_t i = 0; i < run->process_count; i++) {
        while (!gone(run->processes[i]) && clock_now_ns() < until_ns)
            usleep(2000);
        assert_true(gone(run->processes[i]));
        assert_false(real_run_in_shared_memory(run->processes[i]));
    }
    /* Nobody asks an instance or an executor for its exit status: what a sanitizer finds there is in the log alone.
     * Leaks are of libraries that were unloaded, which have no names any more. */
    if (real_run_logged(run, "ERROR: AddressSanitizer") || real_run_logged(run, "ThreadSanitizer:") ||
        real_run_logged(run, "runtime error: ")) {
        real_run_show_log(run);
        fail_msg("a sanitizer has found something");
    }
}

/* ---- Results ----------------------------------------------------------------------------------------------------- */

void real_run_read(const struct real_run *run, struct run_report *report)
{
    struct user_error error = {.set = false};
    char path[128];
    snprintf(path, sizeof path, "%s/run.db", run->folder);
    struct results *store = results_open(path, RESULTS_READ, &error);
    assert_non_null(store);
    int64_t id = results_run_lookup(store, "last", &error);
    if (id == 0 || !results_run_read(store, id, report, &error))
        fail_msg("%s", error.text);
    assert_true(results_close(store, &error));
}

bool real_run_has_database(const struct real_run *run)
{
    char path[128];
    snprintf(path, sizeof path, "%s/run.db", run->folder);
    return access(path, F_OK) == 0;
}

int64_t real_run_query(const struct real_run *run, const char *sql)
{
    char path[128];
    sqlite3 *database = NULL;
    sqlite3_stmt *statement = NULL;
    snprintf(path, sizeof path, "%s/run.db", run->folder);
    if (sqlite3_open_v2(path, &database, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_busy_timeout(database, 60000) != SQLITE_OK || /* the run itself may be writing */
        sqlite3_prepare_v2(database, sql, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(database));
    int result = sqlite3_step(statement);
    assert_true(result == SQLITE_ROW || result == SQLITE_DONE);
    int64_t value = result == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    assert_int_equal(sqlite3_finalize(statement), SQLITE_OK);
    assert_int_equal(sqlite3_close(database), SQLITE_OK);
    return value;
}

uint64_t real_run_stored(const struct real_run *run)
{
    if (!real_run_has_database(run) ||
        real_run_query(run, "SELECT count(*) FROM sqlite_schema WHERE name = 'run'") == 0)
        return 0;
    return (uint64_t)real_run_query(run, "SELECT count(*) FROM run WHERE status = 'complete'");
}

void real_run_database_sound(const struct real_run *run)
{
    assert_int_equal(real_run_query(run, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"),
                     0);
    assert_int_equal(real_run_query(run, "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    if (real_run_query(run, "SELECT count(*) FROM sqlite_schema WHERE name = 'run'") > 0) /* else it ended before */
        assert_int_equal(real_run_query(run, "SELECT count(*) FROM run WHERE status <> 'complete'"), 0);
}

/* Which of the options are --set PATH=VALUE. */
static size_t sets_of(const char *const *options, struct scenario_override *sets, char (*texts)[256])
{
    struct user_error error = {.set = false};
    size_t count = 0;
    for (uint32_t i = 0; options != NULL && options[i] != NULL; i++) {
        if (strncmp(options[i], "--set=", 6) != 0)
            continue;
        snprintf(texts[count], sizeof texts[count], "%s", options[i] + 6);
        assert_true(scenario_override_split(texts[count], &sets[count], &error));
        count++;
    }
    return count;
}

static void world_of(struct real_world *world, const char *scenario, const char *const *options)
{
    struct scenario_override sets[OPTIONS_MAX];
    char texts[OPTIONS_MAX][256];
    struct user_error error = {.set = false};
    char path[512];
    path_of(scenario, path, sizeof path);
    if (!real_world_load(world, path, sets, sets_of(options, sets, texts), -1, &error))
        fail_msg("%s", error.text);
}

int64_t real_run_replay(const struct real_run *run, const char *scenario, const char *const *options, uint32_t node,
                        void (*heard)(void *self, int64_t now_ns, const struct trace_record *record), void *self)
{
    struct real_world world;
    struct recording_listener listener = {.trace = heard, .self = self};
    struct policy *policy;
    struct runtime_limits limits = real_world_limits();
    char path[160];
    struct user_error why = {.set = false};
    world_of(&world, scenario, options);
    assert_true(node < world.deployment->node_count);
    listener.policy = policy = policy_host_make(world.scenario, world.deployment->instances[node].pool);
    snprintf(path, sizeof path, "%s/events/node-%u.events", run->folder, node);
    int64_t events = recording_replay_heard(path, &world.deployment->configs[node], &limits, &listener, &why);
    policy_host_free(policy);
    if (events < 0)
        fail_msg("node %u: %s", node, why.text);
    real_world_free(&world);
    return events;
}

/* Output tokens of a request, as far as they were written down: [position - prompt]. */
struct produced {
    struct request_spec spec;
    uint32_t count;
    uint32_t *tokens;
    uint64_t *blocks; /* of the spec */
};

static uint32_t read_tokens(const struct real_run *run, struct produced *requests, uint32_t request_count)
{
    char path[128];
    char line[96];
    uint32_t read = 0;
    snprintf(path, sizeof path, "%s/tokens.csv", run->folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file) != NULL) {
        uint32_t request;
        uint32_t position;
        uint32_t token;
        assert_int_equal(sscanf(line, "%" SCNu32 ",%" SCNu32 ",%" SCNu32, &request, &position, &token), 3);
        assert_true(request < request_count);
        struct produced *produced = &requests[request];
        assert_true(position >= produced->spec.prompt_tokens);
        uint32_t place = position - produced->spec.prompt_tokens;
        assert_int_equal(place, produced->count); /* without a gap, in order */
        assert_true(place < produced->spec.output_tokens);
        produced->tokens[produced->count++] = token;
        read++;
    }
    fclose(file);
    return read;
}

/* The run's requests, as they were stored. */
static void stored_requests(const struct real_run *run, struct results_requests *stored)
{
    struct user_error error = {.set = false};
    char path[128];
    snprintf(path, sizeof path, "%s/run.db", run->folder);
    struct results *store = results_open(path, RESULTS_READ, &error);
    assert_non_null(store);
    int64_t id = results_run_lookup(store, "last", &error);
    if (id == 0 || !results_requests_read(store, id, stored, &error))
        fail_msg("%s", error.text);
    assert_true(results_close(store, &error));
}

/* What a workload makes. Of conversations the run alone knows whose turn each request was. */
static struct produced *expected_requests(const struct real_run *run, const struct real_world *world, uint32_t *count)
{
    struct user_error error = {.set = false};
    bool sessions = world->scenario->load.arrivals == ARRIVAL_SESSIONS;
    struct results_requests stored = {.count = 0};
    if (sessions)
        stored_requests(run, &stored);
    struct workload_arrivals arrivals = {stored.count, stored.arrived_ns, stored.conversations};
    struct workload *workload = workload_create_again(&world->scenario->load, world->seed, world->recorded,
                                                      sessions ? &arrivals : NULL, &error);
    if (workload == NULL)
        fail_msg("%s", error.text);
    *count = world->scenario->load.requests != 0 ? world->scenario->load.requests : world->recorded->count;
    struct produced *requests = calloc(*count, sizeof *requests);
    assert_non_null(requests);
    bool closed = world->scenario->load.arrivals == ARRIVAL_CLOSED;
    struct workload_item item;
    for (uint32_t seen = 0; seen < *count;) {
        bool more = workload_next(workload, &item) || (closed && workload_closed_next(workload, 0, &item));
        assert_true(more);
        if (item.is_abort)
            continue;
        struct produced *request = &requests[item.spec.id];
        request->spec = item.spec;
        request->tokens = calloc(item.spec.output_tokens, sizeof(uint32_t));
        request->blocks = calloc(item.spec.block_count + 1, sizeof *request->blocks);
        assert_true(request->tokens != NULL && request->blocks != NULL);
        if (item.spec.block_count > 0)
            memcpy(request->blocks, item.spec.blocks, item.spec.block_count * sizeof *request->blocks);
        request->spec.blocks = request->blocks;
        seen++;
    }
    workload_free(workload);
    results_requests_free(&stored);
    return requests;
}

/* Computed once a request, for runs of one scenario follow each other by the hundred. Kept until another model or
 * seed. */
static const uint32_t *reference_of(const struct real_world *world, const struct request_spec *spec)
{
    static struct reference {
        uint64_t token_seed;
        uint32_t prompt;
        uint32_t output;
        uint64_t last_block; /* hashes are chained */
        uint32_t *tokens;
    } * known;
    static uint32_t count;
    static uint64_t weight_seed;
    static struct architecture model;
    if (weight_seed != world->seed || memcmp(&model, &world->scenario->model, sizeof model) != 0)
        for (; count > 0; count--)
            free(known[count - 1].tokens);
    weight_seed = world->seed;
    memcpy(&model, &world->scenario->model, sizeof model);
    uint64_t last_block = spec->block_count > 0 ? spec->blocks[spec->block_count - 1] : 0;
    for (uint32_t i = 0; i < count; i++)
        if (known[i].token_seed == spec->token_seed && known[i].prompt == spec->prompt_tokens &&
            known[i].output == spec->output_tokens && known[i].last_block == last_block)
            return known[i].tokens;
    known = realloc(known, (count + 1) * sizeof *known);
    assert_non_null(known);
    struct reference *new = &known[count++];
    *new = (struct reference){spec->token_seed, spec->prompt_tokens, spec->output_tokens, last_block, NULL};
    new->tokens = calloc(spec->output_tokens, sizeof *new->tokens);
    assert_non_null(new->tokens);
    struct device_prompt prompt = {
        .tokens = spec->prompt_tokens,
        .seed = spec->token_seed,
        .block_tokens = spec->block_tokens,
        .block_count = spec->block_count,
        .blocks = spec->blocks,
    };
    device_reference_of(&model, weight_seed, &prompt, spec->output_tokens, new->tokens, NULL);
    return new->tokens;
}

uint32_t real_run_check_tokens(const struct real_run *run, const char *scenario, const char *const *options)
{
    struct real_world world;
    world_of(&world, scenario, options);
    uint32_t count;
    struct produced *requests = expected_requests(run, &world, &count);
    uint32_t read = read_tokens(run, requests, count);
    struct run_report report;
    real_run_read(run, &report);
    uint32_t whole = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct produced *produced = &requests[i];
        whole += produced->count == produced->spec.output_tokens;
        const uint32_t *reference = produced->count > 0 ? reference_of(&world, &produced->spec) : NULL;
        for (uint32_t k = 0; k < produced->count; k++)
            if (reference[k] != produced->tokens[k])
                fail_msg("request %u (prompt %u): token %u is %u, not %u", i, produced->spec.prompt_tokens, k,
                         produced->tokens[k], reference[k]);
        free(produced->tokens);
        free(produced->blocks);
    }
    assert_true(whole >= report.completed);
    run_report_free(&report);
    free(requests);
    real_world_free(&world);
    return read;
}

/* How far the logit of the last of `count` tokens is below the greatest, on the host device after the others. */
static float behind(const struct real_world *world, const struct produced *produced, uint32_t count)
{
    struct architecture a = world->scenario->model;
    size_t floats = (size_t)a.hidden + a.vocab;
    uint32_t prompt = produced->spec.prompt_tokens;
    uint32_t page_count = (prompt + count) / 16 + 1;
    uint32_t *pages = calloc(page_count, sizeof *pages);
    float *tail = calloc(floats, sizeof *tail);
    CHECK(pages != NULL && tail != NULL);
    for (uint32_t i = 0; i < page_count; i++)
        pages[i] = i;
    a.tail_bytes = (uint32_t)(floats * sizeof *tail);
    a.tail_writes = 1;
    struct device_instance *host = device_instance_make(&(struct device_instance_config){
        .architecture = &a,
        .parallelism = {.tensor = 1, .data = 1, .expert = 1, .pipeline = 1},
        .page_tokens = 16,
        .layout = LAYOUT_HND,
        .pages = page_count,
        .sequences_max = 1,
        .tokens_max = page_count * 16,
        .weight_seed = world->seed,
    });
    struct step_change change = {.kind = STEP_CHUNK,
                                 .tokens = prompt,
                                 .page_count = page_count,
                                 .pages = pages,
                                 .token_seed = produced->spec.token_seed};
    struct device_token token;
    device_instance_step(host, &change, 1, false, &token);
    if (count > 1) {
        device_instance_given(host, 0, prompt, produced->tokens, count - 1);
        change.start = prompt;
        change.tokens = count - 1;
        change.page_count = 0;
        device_instance_step(host, &change, 1, false, &token);
    }
    device_instance_tail_store(host, 0, 0);
    memcpy(tail, device_instance_kv(host, 0) + kv_memory_tail_offset(device_instance_memory(host), 0, 0),
           floats * sizeof *tail);
    device_instance_free(host);
    float greatest = tail[a.hidden];
    for (uint32_t v = 1; v < a.vocab; v++)
        greatest = tail[a.hidden + v] > greatest ? tail[a.hidden + v] : greatest;
    float distance = greatest - tail[a.hidden + produced->tokens[count - 1]];
    free(pages);
    free(tail);
    return distance;
}

uint32_t real_run_check_tokens_near(const struct real_run *run, const char *scenario, const char *const *options,
                                    float tolerance, uint32_t *exact)
{
    struct scenario_override sets[OPTIONS_MAX];
    char texts[OPTIONS_MAX][256];
    struct user_error error = {.set = false};
    struct real_world world;
    char path[512];
    uint32_t count;
    path_of(scenario, path, sizeof path);
    assert_true(real_world_load(&world, path, sets, sets_of(options, sets, texts), -1, &error));
    struct produced *requests = expected_requests(run, &world, &count);
    uint32_t read = read_tokens(run, requests, count);
    *exact = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 1; k <= requests[i].count; k++) {
            float distance = behind(&world, &requests[i], k);
            if (!(distance <= tolerance))
                fail_msg("request %u (prompt %u): token %u is %u, whose logit is %f below the host's greatest", i,
                         requests[i].spec.prompt_tokens, k - 1, requests[i].tokens[k - 1], (double)distance);
            *exact += !(distance > 0.0f);
        }
        free(requests[i].tokens);
        free(requests[i].blocks);
    }
    free(requests);
    real_world_free(&world);
    return read;
}

/* ---- Clearing up ------------------------------------------------------------------------------------------------- */

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char inner[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        if (unlink(inner) != 0)
            remove_folder(inner);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
}

void real_run_free(struct real_run *run)
{
    remove_folder(run->folder);
}
