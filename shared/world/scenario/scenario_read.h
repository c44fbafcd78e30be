/* Reading tables of the scenario language by schema, with the full key path and the line in every error and the origin
 * of every value. All functions run inside a sandbox_call(); what is wrong leaves it by sandbox_fail().
 */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_READ_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_READ_H

#include "world/scenario/lua_sandbox.h"
#include "world/scenario/scenario_lua.h"
#include "world/scenario/scenario_schema.h"
#include "world/scenario/scenario_words.h"

#define READ_PATH_SIZE 160
#define READ_KEYS_MAX 8
#define POLICY_CODES_MAX (POLICY_KINDS + SCENARIO_POOLS_MAX)

enum origin_kind { ORIGIN_DEFAULT = 1, ORIGIN_FILE = 2, ORIGIN_SET = 3 };

struct origin {
    char path[READ_PATH_SIZE];
    enum origin_kind kind;
    uint32_t source;
    int line;
};

struct origins {
    struct origin *items;
    size_t count;
    size_t capacity;
};

struct reader {
    lua_State *L;
    struct origins *origins;
    const struct scenario_override *sets;
    size_t set_count;
    struct step_tables **steps; /* SCENARIO_POOLS_MAX places for what is allocated while reading; NULL: free */
    struct fault_list **faults; /* likewise one */
    struct request_list **requests;
    struct policy_code **codes; /* POLICY_CODES_MAX places */
};

/* A table being read. */
struct cursor {
    struct reader *reader;
    int index;                    /* on the stack; 0: the table is absent, every key takes its default */
    char path[READ_PATH_SIZE];    /* "pools.prefill"; empty for the scenario */
    struct word_mark mark;        /* of the nearest enclosing word, */
    char keys[READ_KEYS_MAX][40]; /* and the way from its table to this one */
    unsigned key_count;
};

/* The cursor of the table on top of the stack, which a word made: its own place. */
struct cursor cursor_at_word(struct reader *reader, const char *path, const struct word_mark *mark);

/* The cursor of a table in `parent` under `key`, which the caller has pushed: a plain table keeps its parent's
 * place. */
struct cursor cursor_below(const struct cursor *parent, const char *key);

/* Pushes the value of a key and returns its Lua type. */
int cursor_push(const struct cursor *cursor, const char *key);

/* As cursor_push(); fails unless it is a table made by `word` (NULL: a plain table). */
void cursor_push_table(const struct cursor *cursor, const char *key, const char *word);

/* Fails for a key: path and line are its own, or those of the override that set it. key may be NULL: the table. */
_Noreturn void cursor_fail(const struct cursor *cursor, const char *key, const char *format, ...)
    USER_ERROR_FORMAT(3, 4);

/* The function under the key, which decides something: NULL where there is none. Fails where it cannot be carried
 * elsewhere. */
const struct policy_code *read_policy(const struct cursor *cursor, const char *key);

/* Notes where a value came from that read_fields() does not read. */
void cursor_origin(const struct cursor *cursor, const char *key, bool present);

/* Reads every field of `schema` into its place in *base. */
void read_fields(const struct cursor *cursor, const struct schema *schema, void *base);

/* Fails when the table has a key that is neither in `schema` (may be NULL) nor among `others`. */
void read_no_others(const struct cursor *cursor, const struct schema *schema, const char *const *others,
                    size_t other_count);

/* The whole number on top of the stack, in [min, max]. */
int64_t read_count(const struct cursor *cursor, const char *key, int64_t min, int64_t max, const char *limit);

/* The length of the list at the cursor; fails when anything but a list of 1 to `max` entries is there. */
uint32_t read_list_length(const struct cursor *cursor, uint32_t max, const char *limit);

/* The keys of the table at the cursor in alphabetical order; at most `max`, else it fails. The texts live in the
 * table. */
size_t read_sorted_keys(const struct cursor *cursor, const char **names, size_t max, const char *limit);

#endif
