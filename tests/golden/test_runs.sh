#!/usr/bin/env bash
# Runs whose trace hashes are approved in runs.txt: every compiler, optimization level and sanitizer must come to the
# same. Run again on the same database, and on two threads, they give the same answers. With TANDEM_BLESS in the
# environment runs.txt is written instead of compared.
set -euo pipefail
golden="$1/tests/golden/runs.txt"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT

for scenario in "$1"/tests/golden/runs/*.lua; do
    name=$(basename "$scenario" .lua)
    "$TANDEM" run "$scenario" --db "$here/$name.db" --threads 1 > "$here/table"
    "$TANDEM" runs --db "$here/$name.db" --format csv --limit 0 | sed '1d; s/,.*//' | sort -n |
        while read -r run; do
            "$TANDEM" show "$run" --db "$here/$name.db"
        done > "$here/text"
    # Beside the hashes, what a reader of a change wants to know: how much slower or faster everything became.
    echo "$name: count, mean, p50, p90, p95, p99, max in ms"
    sed -n -e 's/^run [0-9]*: .*, \(seed .*\)/  \1/p' -e 's/^\(ttft\|tpot\|e2e\) /  &/p' "$here/text"
    "$TANDEM" run "$scenario" --db "$here/$name.db" --threads 1 --format json > "$here/again.json"
    "$TANDEM" run "$scenario" --db "$here/$name-2.db" --threads 2 --format json > "$here/threads.json"
    cmp "$here/again.json" "$here/threads.json" >&2
done > "$here/runs.txt"

if [ -n "${TANDEM_BLESS:-}" ]; then
    cp "$here/runs.txt" "$golden"
elif ! diff -u "$golden" "$here/runs.txt"; then
    echo "Runs differ from the approved ones. If the model changed on purpose, scripts/bless approves them." >&2
    exit 1
fi
