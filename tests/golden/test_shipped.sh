#!/usr/bin/env bash
# Every shipped scenario decides what it decided: trace hashes of shipped.txt, a line a run, whoever compiled. With
# TANDEM_BLESS in the environment shipped.txt is written instead of compared.
set -euo pipefail
golden="$1/tests/golden/shipped.txt"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT

TANDEM="$TANDEM" "$1/scripts/hashes" > "$here/shipped.txt"
if [ -n "${TANDEM_BLESS:-}" ]; then
    cp "$here/shipped.txt" "$golden"
elif ! diff -u "$golden" "$here/shipped.txt"; then
    echo "Runs differ from the approved ones. If the model changed on purpose, scripts/bless approves them." >&2
    exit 1
fi
