/* What the files of the scenario loader share. */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_INTERNAL_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_INTERNAL_H

#include "world/scenario/scenario_read.h"

/* What scenario_load() returns points at the first member. */
struct scenario_loaded {
    struct scenario scenario;
    struct sandbox sandbox;
    struct origins origins;
    struct step_tables *steps[SCENARIO_POOLS_MAX]; /* of the pools that have some, in the order of reading */
    struct fault_list *faults;                     /* NULL: it has none */
    struct request_list *requests;                 /* likewise */
    struct policy_code *codes[POLICY_CODES_MAX];   /* of functions that decide */
    struct scenario_override *sets;                /* copies */
    size_t set_count;
};

/* In the registry of the Lua state: the functions of the file. */
#define EXPECT_KEY "scenario expect"
#define EXPECT_PLAN_KEY "scenario expect_plan"

/* Changes the table on top of the stack, the scenario, as the override says. The tables on the way are copied first: a
 * machine that two pools share changes for one of them only. */
void scenario_override_apply(lua_State *L, const struct scenario_override *override);

/* The value on top of the stack as an expression that makes it again, in `text`; false when it has none that is short
 * enough. */
bool scenario_value_expression(lua_State *L, char *text, size_t size);

/* scenario_read_*.c: sections of a scenario. `root` is the scenario's cursor. */
void scenario_read_model(const struct cursor *root, struct architecture *model);
void scenario_read_pools(const struct cursor *root, struct scenario *scenario);
/* The machine at the cursor without the steps that were measured on it, whose key is left to the caller. */
void scenario_read_machine(const struct cursor *machine, struct hardware *hardware);
/* Steps measured on the machine at the cursor; its `gpu` has been read. */
void scenario_read_steps(const struct cursor *machine, struct hardware *hardware);
void scenario_read_load(const struct cursor *root, struct load *load);
void scenario_read_policies(const struct cursor *root, struct scenario *scenario);
void scenario_read_vary(const struct cursor *root, struct scenario *scenario);

/* scenario_read_faults.c: what goes wrong, and requests that are listed one by one. */
void scenario_read_faults(const struct cursor *root, struct scenario *scenario);
void scenario_read_requests(const struct cursor *load_cursor, struct load *load);
void scenario_check_faults(const struct cursor *root, const struct scenario *scenario);

/* Fails for a key by its full path. */
_Noreturn void scenario_fail_at(const struct cursor *root, const char *path, const char *format, ...)
    USER_ERROR_FORMAT(3, 4);

/* What no single key can be blamed for alone: parts that do not go together. */
void scenario_check(const struct cursor *root, const struct scenario *scenario);

/* The word `check` (scenario_expect.c). */
int scenario_expect_check(lua_State *L);

/* Visits every resolved value in the order of the canonical text. */
typedef void scenario_visitor(void *context, const char *path, const char *value);
void scenario_visit(const struct scenario *scenario, scenario_visitor *visit, void *context);
void scenario_visit_schema(const char *path, const struct schema *schema, const void *base, scenario_visitor *visit,
                           void *context);
void scenario_visit_faults(const struct fault_list *faults, scenario_visitor *visit, void *context);
void scenario_visit_requests(const struct request_list *list, scenario_visitor *visit, void *context);

/* The values the canonical text leaves out but `explain` shows first. */
void scenario_visit_head(const struct scenario *scenario, scenario_visitor *visit, void *context);

#endif
