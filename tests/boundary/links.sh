#!/usr/bin/env bash
# links.sh PROGRAM: a test of the pure logic needs the C library, cmocka and what compilers add, and nothing else.
set -euo pipefail
allowed='lib(c|m|gcc_s|cmocka|asan|ubsan|tsan|stdc\+\+|gcov)[.]so|ld-linux'
others=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p' | grep -Ev "^($allowed)" || true)
[ -z "$others" ] || {
    echo "$1 needs $others" >&2
    exit 1
}
