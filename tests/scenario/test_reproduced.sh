#!/usr/bin/env bash
# The scenarios with published figures beside them, the pair of unlike machines and the prefix trace: each holds what it
# expects, and what only two runs together say holds too.
set -euo pipefail
scenarios="$1/scenarios"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT

fail() {
    echo "$1" >&2
    exit 1
}

# holds COMMAND SCENARIO OPTION...: every check of the scenario holds. The answer is left in SCENARIO.csv.
holds() {
    local command="$1" scenario="$2" status=0
    shift 2
    "$TANDEM" "$command" "$scenarios/$scenario.lua" --db "$here/db" --format csv "$@" \
        > "$here/$scenario.csv" 2> "$here/err" || status=$?
    [ "$status" = 0 ] || fail "tandem $command $scenario $*: status $status: $(cat "$here/err")"
}

# of FILE KEY FORMAT: a number of a run.
of() {
    awk -F, -v key="$2" -v form="$3" '{ gsub(/"[^"]*"/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == key) place = i; next }
        { printf form, $place }' "$here/$1"
}

# mean SCENARIO METRIC: in whole ms.
mean() { of "$1.csv" "$2_ms.mean" "%.0f"; }

holds run article-r1-mixed
holds run article-r1-tp8-1p3d --record transfers
holds run article-r1-tp8-aggregated
worse=$(($(mean article-r1-tp8-1p3d ttft) - $(mean article-r1-tp8-aggregated ttft)))
[ "$worse" -gt 50 ] && [ "$worse" -lt 200 ] || fail "TTFT is $worse ms worse than aggregated"
[ "$(mean article-r1-tp8-1p3d transfer)" -gt 50 ] || fail "no transfer was recorded"
holds run article-r1-dp8
holds run layerwise-qwen3-235b --record transfers
holds run layerwise-qwen3-235b-aggregated
for pair in 0 1 2 3 4 5; do
    # The window decides the length: only that of 16K is what the scenario's own check is about.
    "$TANDEM" run "$scenarios/layerwise-transfer-qwen3-235b.lua" --db "$here/db" --format csv \
        --set "load.window={s($((pair * 100))),s($((pair * 100 + 100)))}" > "$here/pair" 2> /dev/null || [ $? -eq 1 ]
    took=$(of pair spans_ms.exposed_transfer.mean "%.3f")
    awk -v took="$took" -v before="${before:-0}" 'BEGIN { exit !(took > 1.8 * before) }' ||
        fail "the transfer of a prompt twice as long takes $took ms after ${before:-0}"
    before="$took"
done
holds run layerwise-transfer-qwen3-235b
holds run mooncake-prefix
holds plan article-qwen3-coder-ratio
holds plan mixed-hardware
for published in "$scenarios"/published-*.lua; do
    holds run "$(basename "$published" .lua)"
done
