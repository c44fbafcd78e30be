#!/usr/bin/env bash
# edges.sh PAGE PROGRAM...: which edge of the two state machines of the KV messenger is in which story, as a page.
# Compares it with PAGE, or writes it with TANDEM_BLESS=1. Fails when an edge is in no story.
set -euo pipefail
page=$1
shift
made=$(mktemp)
trap 'rm -f "$made"' EXIT
for program in "$@"; do
    story=$(basename "$program")
    "$program" edges | sed "s/\$/\t$story/"
done | awk -F'\t' '
    $1 == "edge" && !($2 in role) { role[$2] = $3; from[$2] = $4; to[$2] = $5; words[$2] = $6; count++ }
    $1 == "taken" {
        if (seen[$2]++ < 3)
            where[$2] = where[$2] (where[$2] == "" ? "" : ", ") $4 ": " $3
    }
    END {
        print "# Where every edge can be read\n"
        print "The edges of the two state machines (ARCHITECTURE.md, section 3), as seen between two events of a node,"
        print "and the stories of this folder that tell of each in trace form; three at most are named. Written by"
        print "`TANDEM_BLESS=1 ctest --preset dev -R stories/edges`, which without it checks that this page is right"
        print "and that no edge is missing. An edge that is not listed fails whatever test takes it"
        print "(tests/support/edges.c).\n"
        print "| | from | to | what happens | stories |\n|---|---|---|---|---|"
        for (i = 0; i < count; i++) {
            printf "| %s | %s | %s | %s | %s |\n", role[i], from[i], to[i], words[i], where[i]
            if (where[i] == "") {
                printf "%s: from %s to %s: %s: is in no story\n", role[i], from[i], to[i], words[i] > "/dev/stderr"
                missing = 1
            }
        }
        exit missing
    }' > "$made"
if [ -n "${TANDEM_BLESS:-}" ]; then
    cp "$made" "$page"
else
    diff -u "$page" "$made"
fi
