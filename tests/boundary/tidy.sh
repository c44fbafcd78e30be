#!/usr/bin/env bash
# tidy.sh ROOT: what a reader may rely on in every file of the tree. Prints each violation as file:line and exits 1.
#
# Sources (C, CUDA, shell, CMake, Lua): at most 1,200 lines of at most 120 columns; no tab, no trailing blank, a newline
# at the end. C: no function over 70 lines; a file opens with a comment that says what it is for; a header is guarded by
# a macro named after its path. Everywhere: nothing left open, no path of somebody's machine, no package registry.
set -euo pipefail
cd "$1"

mapfile -t files < <(
    {
        find sim real shared scripts scenarios tests .ci -type f 2>/dev/null || true
        find . -maxdepth 1 -type f -printf '%P\n'
    } | grep -E -e "[.](c|h|cu|cuh|lua|sh|cmake|md|txt|json)\$" -e "^scripts/[^./]*\$" -e "^[.]ci/run\$" \
            -e "^[.](clang-[a-z]+|editorconfig|git[a-z]+)\$" |
        grep -vE "^tests/(golden|fuzz)/.*[.](txt|json)\$" | LC_ALL=C sort
)

status=0
awk '
function report(line, text)
{
    print file ":" line ": " text
    bad = 1
}
function finish()
{
    if (file == "" || !source)
        return
    if (count > 1200 && !data)
        report(count, "over 1,200 lines")
    if (c && !opened)
        report(1, "opens without a comment that says what the file is for")
    if (header && (guard != wanted || defined != wanted))
        report(1, "include guard should be " wanted)
}
BEGIN {
    # Brackets keep these patterns from matching this file.
    open_work = "(^|[^A-Za-z])(TO[D]O|FIX[M]E)([^A-Za-z]|$)|(^|[^X])XX[X]([^X]|$)"
    machine = "(^|[^A-Za-z0-9_.}])/(hom[e]|roo[t]|wor[k]|User[s])/|[.]librar[y]/|[.][.]/share[d]/"
    registry = "(deb[.]debia[n]|registry[.]npmj[s]|pypi[.]or[g]|crates[.]i[o])"
}
FNR == 1 {
    finish()
    file = FILENAME
    c = file ~ /[.](c|h|cu|cuh)$/
    header = file ~ /[.](h|cuh)$/
    source = c || file ~ /[.](lua|sh|cmake)$|CMakeLists[.]txt$|^scripts\/|^[.]ci\//
    data = file ~ /^scenarios\/(models|hardware|traces)\//
    guard = defined = ""
    inside = count = opened = 0
    wanted = file
    sub(/^shared\//, "", wanted)
    wanted = "TANDEM_" toupper(wanted)
    gsub(/[^A-Z0-9]/, "_", wanted)
}
# A feature macro may stand before the comment.
FNR <= 3 && /^\/\*/ { opened = 1 }
{
    count = FNR
    if ($0 ~ open_work)
        report(FNR, "left open: " $0)
    if ($0 ~ machine)
        report(FNR, "a path outside the tree: " $0)
    if ($0 ~ registry)
        report(FNR, "a package registry: " $0)
}
source {
    if (/\t/)
        report(FNR, "tab")
    if (/[ \t]$/)
        report(FNR, "blank at the end of the line")
    if (length($0) > 120 && !data)
        report(FNR, "over 120 columns")
}
c {
    if (guard == "" && /^#ifndef /)
        guard = $2
    if (defined == "" && guard != "" && /^#define /)
        defined = $2
    # The style puts the brace of a function, and of nothing else, alone in the first column.
    if ($0 == "{" && !inside) {
        inside = 1
        start = FNR
        name = before
    } else if ($0 == "}" && inside) {
        inside = 0
        if (FNR - start + 1 > 70)
            report(start, (FNR - start + 1) " lines in one function: " name)
    }
    before = $0
}
END {
    finish()
    exit bad
}
' "${files[@]}" || status=1

for file in "${files[@]}"; do
    if [ -n "$(tail -c 1 "$file")" ]; then
        echo "$file: no newline at the end"
        status=1
    fi
done
exit $status
