#!/usr/bin/env bash
# symbols.sh pure ARCHIVE: the pure library asks nothing of the world but check_failed() and a few functions of
# string.h, and has no state of its own.
# symbols.sh exact ARCHIVE: no function of libm whose last bits differ between machines, and no random numbers of the C
# library, which differ too: what decides anything stays reproducible.
# Prints each violation and exits 1.
set -euo pipefail
rule=$1 archive=$2

nm -A -f sysv "$archive" 2>/dev/null | awk -v rule="$rule" '
BEGIN {
    FS = "[ \t]*[|][ \t]*"
    strings = "^(memchr|memcmp|memcpy|memmove|memset|strchr|strcmp|strlen|strncmp|strnlen)$"
    # What compilers call by themselves: 128-bit division, the GOT, stack protection; sanitizers and coverage where on.
    compiler = "^(__(u?div|u?mod|mul)(ti3|oti4)|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$"
    tools = "^__(asan|odr_asan|ubsan|tsan|sanitizer|sancov|start___san|stop___san|gcov|llvm|prof|unnamed)"
    inexact = "^(a?(sin|cos|tan)h?|atan2|exp(2|10|m1)?|log(2|10|1p|b)?|pow|cbrt|hypot|erfc?|[lt]gamma)[fl]?$"
    unfixed = "^(s?rand(om)?|rand_r|[dlm]rand48)$"
}
NF >= 7 {
    member = $1
    sub(/:[^:]*$/, "", member)
    sub(/^.*:/, "", member)
    name = $1
    sub(/^.*:/, "", name)
    class = $3
    section = $7
    if (name !~ tools) {
        if (class == "U") {
            wanted[name] = member
        } else if (class ~ /[A-Z]/) {
            defined[name] = 1
        }
        if (rule == "pure" && class ~ /^[BbDdCGgSs]$/ && section !~ /^[.]data[.]rel[.]ro/) {
            print member ": writable data: " name " (" section ")"
            bad = 1
        }
    }
    seen = 1
}
END {
    if (!seen) {
        print "no symbols: not an archive of objects?"
        exit 1
    }
    for (name in wanted) {
        if (name in defined)
            continue
        if (rule == "pure" && name !~ strings && name !~ compiler && name != "check_failed") {
            print wanted[name] ": the pure logic may not call " name
            bad = 1
        }
        if (rule == "exact" && (name ~ inexact || name ~ unfixed)) {
            print wanted[name] ": not reproducible: " name
            bad = 1
        }
    }
    exit bad
}' | LC_ALL=C sort
