/* What a scenario file may not do: reach outside, run for ever, fill the memory. Each attempt ends in an error, in
 * bounded time, and leaves the process as it was.
 */
#define _XOPEN_SOURCE 700

#include "support/scenario_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void refuse(const char *text, const char *expected)
{
    scenario_text_must_fail(text, NULL, 0, expected);
}

static void refuse_name(const char *name)
{
    char text[128];
    struct user_error error = {.set = false};
    snprintf(text, sizeof text, "local x = %s", name);
    assert_null(scenario_text_load(text, NULL, 0, &error));
    if (strstr(error.text, "is not part of the scenario language") == NULL)
        fail_msg("%s: %s", name, error.text);
}

static void test_names_out_of_reach(void **state)
{
    (void)state;
    static const char *const names[] = {
        "io",        "os",    "debug",  "load",   "loadstring", "loadfile",     "dofile",         "package",
        "coroutine", "utf8",  "rawget", "rawset", "rawequal",   "setmetatable", "collectgarbage", "getmetatable",
        "next",      "pairs", "print",  "_G",     "_VERSION",   "warn",         "xpcall",         "string_",
    };
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        refuse_name(names[k]);
}

static void test_members_out_of_reach(void **state)
{
    (void)state;
    static const char *const members[] = {
        "string.rep",  "string.dump",  "string.find", "string.match", "string.gsub", "string.gmatch",   "string.byte",
        "string.pack", "math.random",  "math.log",    "math.exp",     "math.sin",    "math.randomseed", "table.sort",
        "table.move",  "table.concat", "table.pack",  "table.remove", "('x').rep",   "('x').gsub",      "('x').dump",
    };
    char text[128];
    for (size_t k = 0; k < sizeof members / sizeof members[0]; k++) {
        snprintf(text, sizeof text, "local f = %s\nif f ~= nil then error('reached') end", members[k]);
        refuse(text, "plan.lua: must end with: return scenario { ... }");
    }
    refuse("os.execute('true')", "plan.lua:1: 'os' is not part of the scenario language; did you mean 'ms'?");
    refuse("local t = ('x'):rep(1 << 30)", "plan.lua:1: attempt to call a nil value (method 'rep')");
}

static void test_bytecode(void **state)
{
    (void)state;
    static const char chunk[] = "\x1bLua\x54\x00\x19\x93\r\n\x1a\n";
    struct user_error error = {.set = false};
    scenario_text_write("plan.lua", chunk, sizeof chunk);
    assert_null(scenario_load("plan.lua", NULL, 0, &error));
    assert_string_equal(error.text, "plan.lua: compiled Lua; a scenario is text");
}

static void test_files_out_of_reach(void **state)
{
    (void)state;
    static const char *const names[] = {
        "../../etc/passwd", "/etc/passwd", "..secret", "models/../../secret", ".hidden",
        "models//x",        "models/.x",   "",         "models.x;y",
    };
    char text[128];
    char expected[256];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        snprintf(text, sizeof text, "require '%s'", names[k]);
        snprintf(expected, sizeof expected,
                 "plan.lua:1: require '%s': a module is named as in require \"models.deepseek-r1\"", names[k]);
        refuse(text, expected);
    }
    refuse("require 'models.gpt-5'",
           "plan.lua:1: require 'models.gpt-5': there is no models/gpt-5.lua in . or " TANDEM_SOURCE_DIR "/scenarios");
    refuse("require 'plan'", "plan.lua:1: require 'plan': the file requires itself");
    refuse("require(nil)", "plan.lua:1: bad argument #1 to 'require' (string expected, got nil)");
}

/* A link inside the folder that leads out of it is not followed. */
static void test_links_out_of_reach(void **state)
{
    (void)state;
    char outside[] = "/tmp/tandem-outside-XXXXXX";
    int file = mkstemp(outside);
    assert_true(file >= 0);
    assert_int_equal(write(file, "return 3", 8), 8);
    assert_int_equal(close(file), 0);
    assert_int_equal(symlink(outside, "leads_out.lua"), 0);
    refuse("require 'leads_out'",
           "plan.lua:1: require 'leads_out': there is no leads_out.lua in . or " TANDEM_SOURCE_DIR "/scenarios");
    assert_int_equal(unlink("leads_out.lua"), 0);
    assert_int_equal(unlink(outside), 0);
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    struct user_error error = {.set = false};
    assert_null(scenario_load("absent.lua", NULL, 0, &error));
    assert_string_equal(error.text, "absent.lua: cannot be read: No such file or directory");
    error = (struct user_error){.set = false};
    assert_null(scenario_load("/dev/zero", NULL, 0, &error));
    assert_string_equal(error.text, "/dev/zero: cannot be read: it is a device, expected a regular file");
    error = (struct user_error){.set = false};
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_null(scenario_load("folder", NULL, 0, &error));
    assert_string_equal(error.text, "folder: cannot be read: Is a directory");
    assert_int_equal(rmdir("folder"), 0);
}

#define TOO_LONG "the scenario ran for too long; is there an endless loop?"
#define TOO_LARGE "plan.lua: the scenario needs more than 64 MiB of memory"

static void test_endless_loops(void **state)
{
    (void)state;
    refuse("while true do end", "plan.lua:1: " TOO_LONG);
    refuse("local function f() return f() end\nf()", "plan.lua:1: " TOO_LONG);
    refuse("while true do\n  pcall(function() while true do end end)\nend", "plan.lua:2: " TOO_LONG);
    refuse("local function f() while true do pcall(f) end end\npcall(f)\nwhile true do pcall(f) end",
           "plan.lua:3: " TOO_LONG);
    refuse("for _ in function() return 1 end do end", "plan.lua:1: " TOO_LONG);
}

static void test_memory(void **state)
{
    (void)state;
    refuse("local t = {}\nfor k = 1, 1 << 40 do t[k] = k end", TOO_LARGE);
    refuse("local s = 'x'\nwhile true do s = s .. s end", TOO_LARGE);
    refuse("local s = 'x'\nwhile true do s = string.format('%s%s', s, s) end", TOO_LARGE);
    refuse("local t = {}\nfor k = 1, 1 << 40 do table.insert(t, { {}, {} }) end", TOO_LARGE);
}

/* Few instructions that each work long: the processor time stops them. Without sanitizers this takes the 2 s
 * of SANDBOX_SECONDS_MAX (lua_sandbox.h), and never many times that. */
static void test_long_instructions(void **state)
{
    (void)state;
    struct timespec start;
    struct timespec end;
    struct user_error error = {.set = false};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    assert_null(scenario_text_load("local s = 'x'\nfor k = 1, 23 do s = s .. s end\n"
                                   "while true do local t = s .. 'y' end",
                                   NULL, 0, &error));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    assert_string_equal(error.text, "plan.lua:3: " TOO_LONG);
    assert_true(end.tv_sec - start.tv_sec < 10);
}

static void test_deep_recursion(void **state)
{
    (void)state;
    refuse("local function f() return 1 + f() end\nf()", TOO_LARGE);
    struct user_error error = {.set = false};
    char text[4096] = "return ";
    memset(text + 7, '(', 2000);
    assert_null(scenario_text_load(text, NULL, 0, &error));
    assert_non_null(strstr(error.text, "overflow"));
}

static void test_library(void **state)
{
    (void)state;
    refuse("string.format('%p', 'x')", "plan.lua:1: format: %p would print an address");
    refuse("string.format('%5.3p', 'x')", "plan.lua:1: format: %p would print an address");
    refuse("string.format('%s', {})", "plan.lua:1: format: a table has no text");
    refuse("error(tostring({}) .. tostring(error) .. tostring(ms(1500)) .. tostring(nil) .. tostring(1.5))",
           "plan.lua:1: tablefunctions(1.5)nil1.5");
    refuse("error(string.format('%d%% of %s, %5.2f', 3, ms(2), 1.005))", "plan.lua:1: 3% of ms(2),  1.00");
    refuse("table.insert({}, 1, 2)", "plan.lua:1: table.insert(list, value) appends; it takes nothing else here");
    refuse("local t = {}\nfor k = 1, 300 do table.insert(t, k) end\ntable.unpack(t)",
           "plan.lua:3: table.unpack(list) gives at most 256 values here");
    refuse("local a, b = table.unpack({3, 4})\nerror(a + b)", "plan.lua: 7");
    refuse("error({})", "plan.lua: raised an error that is not a text");
    refuse("local x = ms(3) + 1", "plan.lua:1: attempt to perform arithmetic on a quantity value");
}

/* An error inside a module names the module's file; catching it does not make the scenario good. */
static void test_errors_of_modules(void **state)
{
    (void)state;
    static const char broken[] = "\nlocal x = nil + 1";
    scenario_text_write("broken.lua", broken, sizeof broken - 1);
    refuse("require 'broken'", "broken.lua:2: attempt to perform arithmetic on a nil value");
    static const char binary[] = "\x1bLua";
    scenario_text_write("broken.lua", binary, sizeof binary - 1);
    refuse("pcall(require, 'broken')\nreturn 3", "broken.lua: compiled Lua; a scenario is text");
    scenario_text_write("broken.lua", "local x", 7);
    refuse("require 'broken'", "plan.lua:1: require 'broken': broken.lua returns nothing");
    scenario_text_write("other.lua", "return require 'broken'", 23);
    scenario_text_write("broken.lua", "return require 'other'", 22);
    refuse("require 'broken'", "other.lua:1: require 'broken': the file requires itself");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_out_of_reach),
        cmocka_unit_test(test_members_out_of_reach),
        cmocka_unit_test(test_bytecode),
        cmocka_unit_test(test_files_out_of_reach),
        cmocka_unit_test(test_links_out_of_reach),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_endless_loops),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_long_instructions),
        cmocka_unit_test(test_deep_recursion),
        cmocka_unit_test(test_library),
        cmocka_unit_test(test_errors_of_modules),
    };
    return cmocka_run_group_tests_name("scenario_sandbox", tests, scenario_text_setup, scenario_text_teardown);
}
