#!/usr/bin/env bash
# test_commands.sh ROOT [soak]: every command line of the documents works, and every query has an answer.
#
# Blocks of `sh` are run line by line, those of `sql` with sqlite3 on the tandem.db that the lines before left, all in a
# folder of the document's own. A comment before a block says where it is not: <!-- soak --> takes long, and is run
# with that argument; <!-- skip: WHAT IT NEEDS --> cannot be run here; <!-- not run: WHY -->. No other block may have
# lines that are commands, but what scripts/docs and its like put there.
set -euo pipefail
root=$(cd "$1" && pwd)
soak=${2:-}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
mkdir "$here/bin"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$TANDEM" > "$here/bin/tandem"
chmod +x "$here/bin/tandem"
export PATH=$here/bin:$PATH LC_ALL=C
status=0 ran=0
complain() {
    echo "$1" >&2
    status=1
}

# The blocks of a document as lines: KIND, tab, how it is marked, tab, line number, tab, text.
blocks() {
    awk '
        function quoted() { return mark ~ /^scripts\/|^([a-z]+ )*[$] / } # until the comment of its end
        /^<!-- end/ { mark = ""; next }
        /^<!-- / { mark = $0; sub(/^<!-- /, "", mark); sub(/ -->$/, "", mark); next }
        /^```/ && !inside { inside = 1; kind = substr($0, 4); if (kind == "") kind = "text"; next }
        /^```/ { inside = 0; print kind "\t" (mark == "" ? "-" : mark) "\t" FNR "\t"; if (!quoted()) mark = ""; next }
        inside { print kind "\t" (mark == "" ? "-" : mark) "\t" FNR "\t" $0; next }
        NF && !quoted() { mark = "" }' "$1"
}

run() { # DOCUMENT LINE COMMAND
    ran=$((ran + 1))
    (cd "$here/run" && bash -c "$3" < /dev/null > "$here/out" 2>&1) || {
        complain "$1:$2: exit status $?: $3"
        tail -n 20 "$here/out" >&2
    }
}

cd "$root"
for document in README.md CONTRIBUTING.md docs/*.md; do
    rm -rf "$here/run"
    mkdir "$here/run"
    for name in docs scenarios scripts tests; do
        ln -s "$root/$name" "$here/run/$name"
    done
    query=
    while IFS=$'\t' read -r kind mark line text; do
        case "$kind" in
        sh)
            [[ -n $text && $text != '#'* ]] || continue
            case "$mark" in
            -) [ -n "$soak" ] || run "$document" "$line" "$text" ;;
            soak) [ -z "$soak" ] || run "$document" "$line" "${text/#scripts/"$root/scripts"}" ;;
            skip:* | 'not run:'*) [ -z "$soak" ] || echo "$document:$line: ${mark}: $text" ;;
            *) complain "$document:$line: no such mark: $mark" ;;
            esac
            ;;
        sql)
            [ "$mark" = - ] && [ -z "$soak" ] || continue
            query+=$text$'\n'
            [ -z "$text" ] || continue
            ran=$((ran + 1))
            rows=$(cd "$here/run" && sqlite3 tandem.db "$query" 2>&1) || complain "$document:$line: $rows"
            [ -n "$rows" ] || complain "$document:$line: no row: $query"
            query=
            ;;
        *)
            [[ $mark != - || ! $text =~ ^(\$ )?(tandem|scripts/[a-z-]+|ctest|git)' ' ]] ||
                complain "$document:$line: a command in a block that is not run: $text"
            ;;
        esac
    done < <(blocks "$root/$document")
done
echo "$ran command lines and queries"
[ "$ran" -gt 0 ] || complain "nothing was run"
exit $status
