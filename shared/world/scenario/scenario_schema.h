/* The keys of the scenario language, as data: what each is called, what it holds, its default and its limits. Reading,
 * checking, `explain`, the canonical text and docs/reference-language.md all follow these tables, so that none can know
 * a key the others do not. Every default is written here and nowhere else.
 */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_SCHEMA_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_SCHEMA_H

#include "world/scenario/lua_units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum field_kind {
    FIELD_TEXT = 1,   /* char[]; one of `names` where those are given */
    FIELD_COUNT = 2,  /* a whole number without a unit: of things, or of tokens */
    FIELD_FLAG = 3,   /* true or false, stored as 1 or 0 */
    FIELD_NAME = 4,   /* an enum, written as one of `names` */
    FIELD_MILLI = 5,  /* a number stored times 1000: the knee of a NIC */
    FIELD_TENTHS = 6, /* a number stored times 10: a percentile */
    FIELD_TIME_NS = 7,
    FIELD_TIME_PS = 8,
    FIELD_QUANTITY = 9, /* of `quantity`, stored in its base unit */
};

struct field_name {
    const char *name;
    int64_t value;
};

struct field {
    const char *key;
    enum field_kind kind;
    enum quantity_kind quantity; /* FIELD_QUANTITY, FIELD_TIME_*; else 0 */
    bool required;
    uint32_t offset;  /* in its struct */
    uint32_t width;   /* bytes there */
    int64_t fallback; /* stored where the key is absent and not required */
    int64_t min;      /* as stored */
    int64_t max;
    const char *limit; /* of base/limits.h, behind max; NULL: none */
    const struct field_name *names;
    uint32_t name_count;
};

struct schema {
    const struct field *fields;
    uint32_t count;
    uint32_t said; /* the last so many came later: they have a place in the canonical text, and so in a scenario's
                      identity, only where they are not the default: what scenarios meant before, they mean still */
};

extern const struct schema schema_top;
extern const struct schema schema_model;
extern const struct schema schema_machine;
extern const struct schema schema_nic;
extern const struct schema schema_steps;
extern const struct schema schema_pool;
extern const struct schema schema_engine;
extern const struct schema schema_draft; /* of struct pool */
extern const struct schema schema_sharding;
extern const struct schema schema_routing;
extern const struct schema schema_admission;
extern const struct schema schema_messenger;
extern const struct schema schema_target;
extern const struct schema schema_targets;
extern const struct schema schema_plan;
extern const struct schema schema_faults;
extern const struct schema schema_fault;
extern const struct schema schema_request;

/* By enum arrival_kind. The names of loads and targets are the words that make them. */
const struct schema *schema_of_load(unsigned arrivals);
extern const struct field_name target_names[];
extern const uint32_t target_name_count;
extern const struct field_name load_names[];
extern const uint32_t load_name_count;
extern const struct field_name fault_names[];
extern const uint32_t fault_name_count;

/* "packed", "apart from decode", "{1, 1, 2}": as the scenario says it. */
#define PLACEMENT_TEXT_SIZE (8 * SCENARIO_PLACES_MAX)
struct placement;
void placement_text(const struct placement *placement, char *text, size_t size);

/* A member of a struct by its field, as an integer; texts apart. */
int64_t field_load(const struct field *field, const void *base);
void field_store(const struct field *field, void *base, int64_t value);

/* The value as it is written in a scenario: 'fcfs', ms(25), 16384, true. `text` holds FIELD_TEXT_SIZE bytes. */
#define FIELD_TEXT_SIZE 1056
void field_text(const struct field *field, const void *base, char *text);

#endif
