#!/usr/bin/env bash
# explain over every shipped scenario, and the transfer plan of 4096 tokens against tests/golden/transfer-* where there
# is one. With TANDEM_BLESS set, they are written anew, for every scenario.
set -euo pipefail
root="$1"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT
cd "$root" # paths in answers are as they were given

fail() {
    echo "$1" >&2
    exit 1
}

golden() {
    local stored="tests/golden/transfer-$1"
    if [ -n "${TANDEM_BLESS:-}" ]; then
        cp "$here/out" "$stored"
    elif [ -e "$stored" ]; then
        seen=$((seen + 1))
        diff -u "$stored" "$here/out" || fail "$stored: another answer; if it is the right one, set TANDEM_BLESS"
    fi
}

seen=0
for scenario in scenarios/*.lua; do
    name="$(basename "$scenario" .lua)"
    "$TANDEM" explain "$scenario" > "$here/out" || fail "$scenario cannot be explained"
    identity="$(sed -n 's/^identity \([0-9a-f]\{64\}\)$/\1/p' "$here/out")"
    [ -n "$identity" ] || fail "$scenario has no identity"
    # Every value says where it comes from; where instances stand, and over what they reach each other, follows.
    [ "$(awk 'NR > 3 && /^[0-9]+ machine/ { exit } NR > 3 && NF < 3' "$here/out" | grep -c -v '^$')" = 0 ] ||
        fail "$scenario: a value without origin"
    grep -q '^[0-9]* machine' "$here/out" || fail "$scenario: nothing of where its instances stand"
    "$TANDEM" explain "$scenario" --format json > "$here/out"
    grep -q "\"identity\": \"$identity\"" "$here/out" || fail "$scenario: JSON has another identity"
    grep -q '"role"\|"path": "pools' "$here/out" || fail "$scenario: JSON has no values"
    if ! grep -q '"prefill"' "$scenario" || ! grep -q '"decode"' "$scenario"; then
        status=0
        "$TANDEM" explain "$scenario" --transfer 4096 > "$here/out" 2> "$here/err" || status=$?
        [ "$status" = 2 ] || fail "$scenario: a transfer plan without prefillers and decoders"
        grep -q 'wants a .* pool, and there is none' "$here/err" || fail "$scenario: $(cat "$here/err")"
        continue
    fi
    "$TANDEM" explain "$scenario" --transfer 4096 > "$here/out"
    golden "$name.txt"
    "$TANDEM" explain "$scenario" --transfer 4096 --format json > "$here/out"
    grep -q '"n_expected": [1-9]' "$here/out" || fail "$scenario: a transfer of nothing"
    golden "$name.json"
done
[ -n "${TANDEM_BLESS:-}" ] || [ "$seen" -ge 8 ] || fail "only $seen transfer plans"
