/* See children.h. */
#define _GNU_SOURCE
#include "real/cluster/children.h"

#include "base/arith.h"
#include "real/fabric/leftovers.h"
#include "real/fabric/lifeline.h"
#include "real/memory/shared_memory.h"
#include "host/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIND_NS (3 * NS_PER_S) /* for a process to end by itself */

#define ARGUMENTS_MAX 256

struct children {
    uint32_t node_count;
    pid_t *pids; /* 0: none */
    int *death_fds;
    struct lifeline line;
};

void token_text(const unsigned char *token, char *text)
{
    for (size_t i = 0; i < CONTROL_TOKEN_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", token[i]);
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool token_parse(const char *text, unsigned char *token)
{
    if (text == NULL || strlen(text) != 2 * CONTROL_TOKEN_BYTES)
        return false;
    for (size_t i = 0; i < CONTROL_TOKEN_BYTES; i++) {
        int high = digit(text[2 * i]);
        int low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        token[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

struct arguments_of {
    char *values[ARGUMENTS_MAX];
    size_t count;
};

static void add(struct arguments_of *arguments, const char *text)
{
    CHECK(arguments->count + 1 < ARGUMENTS_MAX);
    char *copy = strdup(text);
    CHECK(copy != NULL);
    arguments->values[arguments->count++] = copy;
}

static void add_option(struct arguments_of *arguments, const char *name, const char *value)
{
    if (value == NULL)
        return;
    add(arguments, name);
    add(arguments, value);
}

static void add_number(struct arguments_of *arguments, const char *name, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add_option(arguments, name, text);
}

static void make_arguments(const struct children_config *config, uint32_t node, uint32_t incarnation,
                           struct arguments_of *arguments)
{
    const struct real_options *options = config->options;
    char front[CONTROL_ADDRESS_BYTES + 8];
    snprintf(front, sizeof front, "%s:%u", config->front_address, config->front_port);
    add(arguments, "tandem");
    add(arguments, "instance");
    add(arguments, config->scenario);
    add_number(arguments, "--node", node);
    add_number(arguments, "--incarnation", incarnation);
    add_option(arguments, "--front", front);
    add_number(arguments, "--seed", config->seed);
    for (const struct real_option *row = real_option_rows; row->name != NULL; row++) {
        char option[64];
        snprintf(option, sizeof option, "--%s", row->name);
        if (row->kind == REAL_OPTION_TEXT)
            add_option(arguments, option, real_option_text(options, row));
        else if (row->kind == REAL_OPTION_NUMBER)
            add_number(arguments, option, real_option_number(options, row));
        else if (real_option_flag(options, row))
            add(arguments, option);
    }
    for (size_t i = 0; i < config->set_count; i++) {
        char set[1200];
        snprintf(set, sizeof set, "%s=%s", config->sets[i].path, config->sets[i].value);
        add_option(arguments, "--set", set);
    }
}

/* ---- Processes --------------------------------------------------------------------------------------------------- */

static bool spawn(struct children *children, const struct children_config *config, uint32_t node, uint32_t incarnation,
                  struct user_error *error)
{
    struct arguments_of arguments = {.count = 0};
    make_arguments(config, node, incarnation, &arguments);
    char text[2 * CONTROL_TOKEN_BYTES + 1];
    token_text(config->token, text);
    CHECK(setenv(JOIN_TOKEN_VARIABLE, text, 1) == 0);
    lifeline_offer(&children->line);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        lifeline_pass(&children->line);
        execv("/proc/self/exe", arguments.values);
        _exit(127);
    }
    unsetenv(JOIN_TOKEN_VARIABLE);
    lifeline_withdraw();
    for (size_t i = 0; i < arguments.count; i++)
        free(arguments.values[i]);
    if (pid < 0) {
        user_error_set(error, NULL, 0, NULL, "no process for node %" PRIu32 ": %s", node, strerror(errno));
        return false;
    }
    children->pids[node] = pid;
    children->death_fds[node] = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(children->death_fds[node] >= 0);
    return true;
}

struct children *children_start(const struct children_config *config, struct user_error *error)
{
    struct children *children = calloc(1, sizeof *children);
    CHECK(children != NULL);
    children->node_count = config->node_count;
    children->pids = calloc(config->node_count, sizeof *children->pids);
    children->death_fds = calloc(config->node_count, sizeof *children->death_fds);
    CHECK(children->pids != NULL && children->death_fds != NULL);
    for (uint32_t i = 0; i < config->node_count; i++)
        children->death_fds[i] = -1;
    leftovers_remove();
    if (!lifeline_make(&children->line)) {
        user_error_set(error, NULL, 0, NULL, "no pipe for the processes of the run: %s", strerror(errno));
        children_end(children);
        return NULL;
    }
    for (uint32_t i = 1; i < config->node_count; i++) {
        if (!spawn(children, config, i, 0, error)) {
            children_end(children);
            return NULL;
        }
    }
    return children;
}

bool children_replace(struct children *children, const struct children_config *config, uint32_t node,
                      uint32_t incarnation, struct user_error *error)
{
    if (children->pids[node] > 0) {
        kill(children->pids[node], SIGKILL);
        while (waitpid(children->pids[node], NULL, 0) < 0 && errno == EINTR)
            continue;
        leftovers_remove_of(children->pids[node]);
        close(children->death_fds[node]);
    }
    children->pids[node] = 0;
    children->death_fds[node] = -1;
    return spawn(children, config, node, incarnation, error);
}

int children_death_fd(const struct children *children, uint32_t node)
{
    return children == NULL ? -1 : children->death_fds[node];
}

void children_end(struct children *children)
{
    if (children == NULL)
        return;
    int64_t until_ns = clock_now_ns() + KIND_NS;
    for (uint32_t i = 1; i < children->node_count; i++) {
        while (children->pids[i] > 0 && waitpid(children->pids[i], NULL, WNOHANG) == 0) {
            if (clock_now_ns() > until_ns)
                kill(children->pids[i], SIGKILL);
            usleep(2000);
        }
        if (children->pids[i] > 0)
            leftovers_remove_of(children->pids[i]);
        if (children->death_fds[i] >= 0)
            close(children->death_fds[i]);
    }
    lifeline_free(&children->line);
    free(children->pids);
    free(children->death_fds);
    free(children);
}
