#!/usr/bin/env bash
# explain: the resolved scenario and the transfer plan, as text and JSON; and what it and compare refuse.
set -euo pipefail
scenario="$1/scenarios/w1-llama-70b.lua"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT

fail() {
    echo "$1" >&2
    exit 1
}

# expect PATTERN FILE
expect() {
    grep -q -e "$1" "$2" || fail "no '$1' in: $(cat "$2")"
}

# refused PATTERN ARGUMENT...: exit status 2, one line on stderr with the pattern, nothing on stdout.
refused() {
    local pattern="$1" status=0
    shift
    "$TANDEM" "$@" > "$here/out" 2> "$here/err" || status=$?
    [ "$status" = 2 ] || fail "tandem $*: status $status"
    [ ! -s "$here/out" ] || fail "tandem $*: an answer and an error"
    [ "$(wc -l < "$here/err")" = 1 ] || fail "tandem $*: $(cat "$here/err")"
    expect "$pattern" "$here/err"
}

"$TANDEM" explain "$scenario" --set 'load.rate=per_second(8)' > "$here/text"
expect '^load.rate .*8.*--set' "$here/text"
expect '^model.layers  *80 .*llama-3.1-70b.lua:' "$here/text"
"$TANDEM" explain "$scenario" --format json > "$here/json"
expect '"identity": "[0-9a-f]\{64\}"' "$here/json"

# A prompt of 129 tokens moves 128: two pages of 64. 80 layers, 4 ranks, 2 planes, one run each: 640 writes a page.
"$TANDEM" explain "$scenario" --transfer 129 > "$here/text"
expect 'expected N  *1280 writes' "$here/text"
"$TANDEM" explain "$scenario" --transfer 130 --format json > "$here/json"
expect '"n_expected": 1920' "$here/json"
expect '"pages": 3' "$here/json"

refused 'a prompt has 1 to' explain "$scenario" --transfer 0
refused "did you mean 'load'" explain "$scenario" --set loadd.rate=3
refused 'nearest: --transfer' explain "$scenario" --tranfser 3
refused 'No such file' explain "$here/none.lua"
refused "nearest: 'explain'" explian "$scenario"
refused 'no results database' compare last last~1 --db "$here/none.db"
[ ! -e "$here/none.db" ] || fail 'compare made a database'
