#!/usr/bin/env bash
# self_test.sh FOLDER CC: the checkers of this folder catch what they are for, and nothing else. Every case plants one
# file, or one object, and names what must be reported about it; "" means nothing. Each checker runs once over all of
# its cases, and once over a clean tree, which must pass.
set -euo pipefail
checkers=$1 compiler=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cases=0 failures=0
subjects=() expectations=()

plant() { # TREE PATH TEXT
    mkdir -p "$root/$1/$(dirname "$2")"
    printf '%b' "$3" > "$root/$1/$2"
}

file_case() { # TREE PATH TEXT EXPECTED
    plant "$1" "$2" "$3"
    subjects+=("$2") expectations+=("$4")
}

object_case() { # TREE TEXT EXPECTED
    local name=case_${#subjects[@]}
    plant "$1" "$name.c" "$2"
    "$compiler" -std=c11 -O1 -fno-builtin -c "$root/$1/$name.c" -o "$root/$1/$name.o"
    subjects+=("$name.o") expectations+=("$3")
}

fail() {
    failures=$((failures + 1))
    printf 'FAILED: %s\n' "$1"
}

verify() { # NAME COMMAND...: runs the checker and settles the cases collected so far
    local name=$1 output status=0 about
    shift
    output=$("$@" 2>&1) || status=$?
    [ $status -eq 1 ] || fail "$name: exit status $status with violations planted"
    for i in "${!subjects[@]}"; do
        cases=$((cases + 1))
        about=$(grep -F "${subjects[i]}:" <<< "$output" || true)
        if [ -z "${expectations[i]}" ]; then
            [ -z "$about" ] || fail "$name: nothing is wrong with ${subjects[i]}, got: $about"
        elif [[ $about != *"${expectations[i]}"* ]]; then
            fail "$name: ${subjects[i]}: expected \"${expectations[i]}\", got: $about"
        fi
    done
    subjects=() expectations=()
}

passes() { # NAME COMMAND...
    local name=$1 output
    shift
    cases=$((cases + 1))
    output=$("$@" 2>&1) || fail "$name: a clean input does not pass: $output"
}

plant clean shared/base/clean.h \
    '/* A header. */\n#ifndef TANDEM_BASE_CLEAN_H\n#define TANDEM_BASE_CLEAN_H\n\n#endif\n'
plant clean shared/model/clean.c '/* A source. */\n#include "base/clean.h"\n\n#include <string.h>\n'
plant clean sim/clean.c '/* A source. */\n#include "base/clean.h"\n#include "sim/clean.h"\n\n#include <pthread.h>\n'
plant clean shared/cli/main.c '/* A source. */\n#include "sim/clean.h"\n#include <sqlite3.h>\n'
passes includes bash "$checkers/includes.sh" "$root/clean"
passes tidy bash "$checkers/tidy.sh" "$root/clean"

tree=includes
file_case $tree shared/base/right.c '#include "base/x.h"\n#include <stdint.h>\n' ''
file_case $tree shared/base/stdio.c '#include <stdio.h>\n' 'stdio.c:1: shared/base/ may not include stdio.h'
file_case $tree shared/serve/math.h '\n# include <math.h>\n' 'math.h:2: shared/serve/ may not include math.h'
file_case $tree shared/base/model.c '#include "model/x.h"\n' 'may not include model/x.h'
file_case $tree shared/model/serve.c '#include "serve/x.h"\n' 'may not include serve/x.h'
file_case $tree shared/serve/messenger.c '#include "messenger/x.h"\n' 'may not include messenger/x.h'
file_case $tree shared/messenger/roles.c '#include "roles/x.h"\n' 'may not include roles/x.h'
file_case $tree shared/node.c '#include "host/x.h"\n' 'may not include host/x.h'
file_case $tree shared/runtime.h '#include "node.h"\n' 'may not include node.h'
file_case $tree shared/host/sim.c '#include "sim/x.h"\n' 'may not include sim/x.h'
file_case $tree shared/host/world.c '#include "world/x.h"\n' 'may not include world/x.h'
file_case $tree shared/world/scenario/load.c '#include "world/load/x.h"\n' 'may not include world/load/x.h'
file_case $tree shared/world/load/run.c '#include "run/x.h"\n' 'may not include run/x.h'
file_case $tree shared/run/results/compare.c '#include "run/compare/x.h"\n' 'may not include run/compare/x.h'
file_case $tree shared/run/compare/results.c '#include "run/results/x.h"\n#include <sqlite3.h>\n' ''
file_case $tree shared/run/cli.c '#include "cli/x.h"\n' 'may not include cli/x.h'
file_case $tree sim/cost/run.c '#include "run/x.h"\n' 'may not include run/x.h'
file_case $tree sim/engine/checkers.c '#include "sim/checkers/x.h"\n' 'may not include sim/checkers/x.h'
file_case $tree sim/engine/backend.c '#include "sim/x.h"\n' 'may not include sim/x.h'
file_case $tree sim/plan/check.c '#include "sim/check/x.h"\n' 'may not include sim/check/x.h'
file_case $tree sim/swarm/cli.c '#include "cli/x.h"\n' 'may not include cli/x.h'
file_case $tree real/fabric/runtime.c '#include "real/runtime/x.h"\n' 'may not include real/runtime/x.h'
file_case $tree real/runtime/cluster.c '#include "real/cluster/x.h"\n' 'may not include real/cluster/x.h'
file_case $tree real/cluster/cli.c '#include "cli/x.h"\n' 'may not include cli/x.h'
file_case $tree shared/cli/main.c '#include "sim/x.h"\n' ''
file_case $tree shared/host/openssl.c '#include <openssl/sha.h>\n' 'may not include openssl/sha.h'
file_case $tree sim/net/real.c '#include "real/x.h"\n' 'may not include real/x.h'
file_case $tree sim/store.c '#include <sqlite3.h>\n' 'may not include sqlite3.h'
file_case $tree real/sim.c '#include "sim/x.h"\n' 'may not include sim/x.h'
file_case $tree sim/macro.c '#include NAME\n' 'may not include'
verify includes bash "$checkers/includes.sh" "$root/$tree"

tree=tidy
comment='/* A source. */\n'
long=$(printf '%0121d' 0)
statements=$(printf '    f();\\n%.0s' {1..68})
file_case $tree sim/f70.c "${comment}void f(void)\n{\n$statements}\n" ''
file_case $tree sim/f71.c "${comment}void f(void)\n{\n    f();\n$statements}\n" '71 lines in one function: void f(void)'
file_case $tree sim/l1200.c "$comment$(printf '\\n%.0s' {1..1199})" ''
file_case $tree sim/l1201.c "$comment$(printf '\\n%.0s' {1..1200})" 'over 1,200 lines'
file_case $tree sim/tab.c "${comment}\tint a;\n" 'sim/tab.c:2: tab'
file_case $tree sim/blank.c "${comment}int a; \n" 'blank at the end'
file_case $tree sim/wide.c "${comment}/* $long */\n" 'over 120 columns'
file_case $tree scenarios/wide.lua "-- $long\n" 'over 120 columns'
file_case $tree scenarios/models/wide.lua "-- $long\n" ''
file_case $tree sim/end.c "${comment}int a;" 'no newline at the end'
file_case $tree sim/silent.c 'int a;\n' 'opens without a comment'
file_case $tree sim/posix.c "#define _POSIX_C_SOURCE 200809L\n$comment" ''
file_case $tree sim/guard.h "$comment#ifndef A_H\n#define A_H\n#endif\n" 'guard should be TANDEM_SIM_GUARD_H'
file_case $tree scripts/open "# TO""DO: more\n" 'scripts/open:1: left open'
file_case $tree sim/open_fix.c "${comment}/* FIX""ME */\n" 'left open'
file_case $tree sim/open_x.c "${comment}/* XX""X */\n" 'left open'
file_case $tree sim/template.c "${comment}const char name[] = \"/tmp/a-XXXXXX\";\n" ''
file_case $tree README.md 'See /home''/me/notes.\n' 'README.md:1: a path outside the tree'
file_case $tree NOTES.md 'See .''./shared''/notes.\n' 'NOTES.md:1: a path outside the tree'
file_case $tree INSTALL.md 'See pypi''.org.\n' 'INSTALL.md:1: a package registry'
verify tidy bash "$checkers/tidy.sh" "$root/$tree"

tree=pure
object_case $tree 'void *memcpy(void *, const void *, unsigned long); void f(void *a) { memcpy(a, "x", 1); }\n' ''
passes symbols ar rc "$root/clean.a" "$root/$tree"/*.o
passes symbols bash "$checkers/symbols.sh" pure "$root/clean.a"
object_case $tree 'typedef unsigned __int128 u; u f(u a, u b) { return a / b; }\n' ''
object_case $tree 'const int a = 3; const char *const b[] = {"x", "y"};\n' ''
object_case $tree 'int puts(const char *); void f(void) { puts("x"); }\n' 'the pure logic may not call puts'
object_case $tree 'void *malloc(unsigned long); void *f(void) { return malloc(1); }\n' 'may not call malloc'
object_case $tree 'double sqrt(double); double f(double a) { return sqrt(a); }\n' 'may not call sqrt'
object_case $tree 'int f(void) { static int a; return a++; }\n' 'writable data: '
object_case $tree 'int a = 3;\n' 'writable data: a (.data)'
object_case $tree 'const char *b[] = {"x", "y"};\n' 'writable data: b'
ar rc "$root/pure.a" "$root/$tree"/*.o
verify 'symbols pure' bash "$checkers/symbols.sh" pure "$root/pure.a"

tree=exact
object_case $tree 'double sqrt(double); double f(double a) { return sqrt(a); }\n' ''
object_case $tree 'double pow(double, double); double f(double a) { return pow(a, 3); }\n' 'not reproducible: pow'
object_case $tree 'float expf(float); float f(float a) { return expf(a); }\n' 'not reproducible: expf'
object_case $tree 'int rand(void); int f(void) { return rand(); }\n' 'not reproducible: rand'
ar rc "$root/exact.a" "$root/$tree"/*.o
verify 'symbols exact' bash "$checkers/symbols.sh" exact "$root/exact.a"

echo "$cases cases, $failures failed"
[ $failures -eq 0 ]
