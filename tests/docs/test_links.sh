#!/usr/bin/env bash
# Every relative link of a document leads to a file of the tree, every anchor to a heading, and where a function stands
# before a link, as in `node_handle()`, [shared/node.c](shared/node.c), that file defines it.
set -euo pipefail
cd "$1"
status=0
complain() {
    echo "$1" >&2
    status=1
}

anchors() { # FILE: of its headings, as they are made from them
    awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print tolower($0) }' "$1" |
        sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g; s/[^a-z0-9 _-]//g; s/ /-/g'
}

mapfile -t documents < <(
    {
        ls ./*.md
        find docs scenarios tests -name '*.md'
    } | sed 's|^\./||' | LC_ALL=C sort
)
links=0
for document in "${documents[@]}"; do
    folder=$(dirname "$document")
    while IFS= read -r link; do
        [[ $link =~ ^[a-z]+: ]] && continue
        links=$((links + 1))
        path=${link%%#*} anchor=
        [[ $link == *'#'* ]] && anchor=${link#*#}
        target=$document
        [ -z "$path" ] || target=$folder/$path
        if [ ! -e "$target" ]; then
            complain "$document: no file $link"
        elif [ -n "$anchor" ] && ! anchors "$target" | grep -qxF -e "$anchor"; then
            complain "$document: no heading $link"
        fi
    done < <(awk '/^```/ { code = !code } !code' "$document" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//')
    while read -r name path; do
        grep -qE "^[a-z].*\b$name\(" "$folder/$path" || complain "$document: $path does not define $name()"
    done < <(grep -oE '`[a-z_]+\(\)`, \[[^]]*\]\([^)]*\)' "$document" |
        sed -E 's/^`([a-z_]+)\(\)`.*\]\(([^)]*)\)$/\1 \2/')
done
[ "$links" -gt 50 ] || complain "only $links links were found"
readme=$(wc -c < README.md)
[ "$readme" -le 8192 ] || complain "README.md has $readme bytes, more than 8 KB"
exit $status
