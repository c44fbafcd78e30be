#!/usr/bin/env bash
# A command that needs no fabric does not load libfabric, one of whose providers takes a fifth of a second to calibrate
# before main() begins.
source "$1/tests/scenario/cli.bash"
LD_DEBUG=files "$TANDEM" --version > "$here/out" 2> "$here/err" || fail "$(tail -n 3 "$here/err")"
expect '^tandem ' "$here/out"
expect 'libsqlite3' "$here/err" # so is the trace of the loader read
! grep -q 'libfabric' "$here/err" || fail 'libfabric is loaded'
LD_DEBUG=files "$TANDEM" explain "$root/tests/data/run-small.lua" > "$here/out" 2> "$here/err"
! grep -q 'libfabric' "$here/err" || fail 'libfabric is loaded to explain'
