/* The words of the scenario language that make tables: scenario, pool, model, machine, nic, the loads, the length
 * distributions, the targets; and `with`, which makes a changed copy of any of them.
 *
 * Each remembers what it made, where: a table has no type and no line of its own in Lua, and errors need both.
 */
#ifndef TANDEM_WORLD_SCENARIO_SCENARIO_WORDS_H
#define TANDEM_WORLD_SCENARIO_SCENARIO_WORDS_H

#include <lua.h>
#include <stdbool.h>
#include <stdint.h>

struct word_mark {
    char word[16];   /* "pool" */
    char opened[16]; /* what stands in the source text: "pool" or "with" */
    uint32_t source; /* index of the sandbox's sources */
    int line;
    char module[64]; /* as required, where a module returned this table; else empty */
};

/* A lua_CFunction: adds the words to the table of globals on top of the stack. */
int scenario_words_open(lua_State *L);

/* The mark of the table at `index`; NULL for a plain table or anything else. */
const struct word_mark *scenario_word(lua_State *L, int index);

/* Replaces the table on top of the stack by a shallow copy that bears the same mark. */
void scenario_word_copy(lua_State *L);

/* Marks the table on top of the stack as made by `word`, where `opened` stands in the text of the caller. */
void scenario_word_make(lua_State *L, const char *word, const char *opened);

/* Notes that module `name` returned the value on top of the stack. */
void scenario_word_module(lua_State *L, const char *name);

#endif
