#!/usr/bin/env bash
# self_test.sh FOLDER CC: the checkers of this folder catch what they are for. Each case plants one violation in an
# otherwise clean tree and expects its report; the clean tree must pass.
set -euo pipefail
checkers=$1 compiler=$2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cases=0 failures=0

plant() { # PATH TEXT
    mkdir -p "$tree/$(dirname "$1")"
    printf '%b' "$2" > "$tree/$1"
}

clean_tree() {
    rm -rf "${tree:?}"/*
    plant shared/base/clean.h '/* A header. */\n#ifndef TANDEM_BASE_CLEAN_H\n#define TANDEM_BASE_CLEAN_H\n\n#endif\n'
    plant shared/model/clean.c '/* A source. */\n#include "base/clean.h"\n\n#include <string.h>\n'
    plant sim/clean.c '/* A source. */\n#include "base/clean.h"\n#include "sim/clean.h"\n\n#include <pthread.h>\n'
    plant shared/host/main.c '/* A source. */\n#include "sim/clean.h"\n#include <sqlite3.h>\n'
}

verdict() { # NAME EXPECTED STATUS OUTPUT; an EXPECTED of "" means that the checker must pass
    cases=$((cases + 1))
    if { [ -z "$2" ] && [ "$3" != 0 ]; } || { [ -n "$2" ] && { [ "$3" != 1 ] || [[ $4 != *"$2"* ]]; }; }; then
        failures=$((failures + 1))
        printf 'FAILED: %s: expected "%s", got status %s and:\n%s\n' "$1" "$2" "$3" "$4"
    fi
}

in_tree() { # CHECKER PATH TEXT EXPECTED
    local output status=0
    clean_tree
    plant "$2" "$3"
    output=$(bash "$checkers/$1.sh" "$tree" 2>&1) || status=$?
    verdict "$1: $2" "$4" $status "$output"
}

in_archive() { # RULE TEXT EXPECTED
    local output status=0
    clean_tree
    plant object.c "$2"
    "$compiler" -std=c11 -O1 -fno-builtin -c "$tree/object.c" -o "$tree/object.o"
    ar rc "$tree/object.a" "$tree/object.o"
    output=$(bash "$checkers/symbols.sh" "$1" "$tree/object.a" 2>&1) || status=$?
    verdict "symbols $1: $2" "$3" $status "$output"
}

in_tree includes shared/base/clean.c '#include <stdint.h>\n' ''
in_tree includes shared/base/a.c '#include <stdio.h>\n' 'shared/base/a.c:1: shared/base/ may not include stdio.h'
in_tree includes shared/serve/a.h '\n# include <math.h>\n' 'shared/serve/a.h:2: shared/serve/ may not include math.h'
in_tree includes shared/base/a.c '#include "model/x.h"\n' 'may not include model/x.h'
in_tree includes shared/model/a.c '#include "serve/x.h"\n' 'may not include serve/x.h'
in_tree includes shared/node.c '#include "host/x.h"\n' 'may not include host/x.h'
in_tree includes shared/runtime.h '#include "node.h"\n' 'may not include node.h'
in_tree includes shared/host/a.c '#include "sim/x.h"\n' 'may not include sim/x.h'
in_tree includes shared/host/a.c '#include <openssl/sha.h>\n' 'may not include openssl/sha.h'
in_tree includes sim/net/a.c '#include "real/x.h"\n' 'may not include real/x.h'
in_tree includes sim/a.c '#include <sqlite3.h>\n' 'may not include sqlite3.h'
in_tree includes real/a.c '#include "sim/x.h"\n' 'may not include sim/x.h'
in_tree includes sim/a.c '#include NAME\n' 'may not include'

comment='/* A source. */\n'
long=$(printf '%0121d' 0)
statements=$(printf '    f();\\n%.0s' {1..69})
in_tree tidy sim/a.c "${comment}void f(void)\n{\n${statements/    f();\\n/}}\n" ''
in_tree tidy sim/a.c "${comment}void f(void)\n{\n$statements}\n" '71 lines in one function: void f(void)'
in_tree tidy sim/a.c "$comment$(printf '\\n%.0s' {1..800})" 'over 800 lines'
in_tree tidy sim/a.c "${comment}\tint a;\n" 'sim/a.c:2: tab'
in_tree tidy sim/a.c "${comment}int a; \n" 'blank at the end'
in_tree tidy sim/a.c "${comment}/* $long */\n" 'over 120 columns'
in_tree tidy scenarios/a.lua "-- $long\n" 'over 120 columns'
in_tree tidy scenarios/models/a.lua "-- $long\n" ''
in_tree tidy sim/a.c "${comment}int a;" 'no newline at the end'
in_tree tidy sim/a.c 'int a;\n' 'opens without a comment'
in_tree tidy sim/a.c "#define _POSIX_C_SOURCE 200809L\n$comment" ''
in_tree tidy sim/a.h "$comment#ifndef A_H\n#define A_H\n#endif\n" 'include guard should be TANDEM_SIM_A_H'
in_tree tidy scripts/a "# TO""DO: more\n" 'scripts/a:1: left open'
in_tree tidy sim/a.c "${comment}/* FIX""ME */\n" 'left open'
in_tree tidy sim/a.c "${comment}/* XX""X */\n" 'left open'
in_tree tidy sim/a.c "${comment}const char name[] = \"/tmp/a-XXXXXX\";\n" ''
in_tree tidy README.md 'See /home''/me/notes.\n' 'README.md:1: a path outside the tree'
in_tree tidy README.md 'See .''./shared''/notes.\n' 'README.md:1: a path outside the tree'

in_archive pure 'void *memcpy(void *, const void *, unsigned long); void f(void *a) { memcpy(a, "x", 1); }\n' ''
in_archive pure 'typedef unsigned __int128 u; u f(u a, u b) { return a / b; }\n' ''
in_archive pure 'int puts(const char *); void f(void) { puts("x"); }\n' 'object.o: the pure logic may not call puts'
in_archive pure 'void *malloc(unsigned long); void *f(void) { return malloc(1); }\n' 'may not call malloc'
in_archive pure 'double sqrt(double); double f(double a) { return sqrt(a); }\n' 'may not call sqrt'
in_archive pure 'int f(void) { static int a; return a++; }\n' 'object.o: writable data: '
in_archive pure 'int a = 3;\n' 'object.o: writable data: a (.data)'
in_archive pure 'const int a = 3; const char *const b[] = {"x", "y"};\n' ''
in_archive pure 'const char *b[] = {"x", "y"};\n' 'writable data: b'
in_archive exact 'double sqrt(double); double f(double a) { return sqrt(a); }\n' ''
in_archive exact 'double pow(double, double); double f(double a) { return pow(a, 3); }\n' 'not reproducible: pow'
in_archive exact 'float expf(float); float f(float a) { return expf(a); }\n' 'not reproducible: expf'
in_archive exact 'int rand(void); int f(void) { return rand(); }\n' 'not reproducible: rand'

echo "$cases cases, $failures failed"
[ $failures -eq 0 ]
