#!/usr/bin/env bash
# What a run comes to is its exit status: a target that is missed, and by how much; nothing served, and why; pools that
# would get nothing.
source "$1/tests/scenario/cli.bash"
sed '/vary = /d' "$root/tests/data/run-small.lua" > "$here/small.lua"
answers run "$here/small.lua" --db "$here/a.db" --format json
expect '"met": true' "$here/out"
expect '"attainment": 1.0' "$here/out"

status 1 run "$here/small.lua" --db "$here/a.db" --set 'targets.1.below=ms(1)' --format json
expect '^target missed: ttft p95 is [0-9.]* ms, [0-9.]* ms ([0-9.]* %) over 1.000 ms; 200 of 200 requests' "$here/err"
expect '"met": false' "$here/out"
expect '"missed": 200' "$here/out"
[ "$(grep -c '^target missed' "$here/err")" = 1 ] || fail 'the other target was met'

# Requests that can never fit are no success, whatever the latencies of the others.
sed -e 's|prompt = [^)]*)|prompt = 1000000|; s|requests = 200|requests = 4|' \
    -e '/targets = /d; s|r.completed == 200|r.requests == 4|' \
    "$here/small.lua" > "$here/long.lua"
status 1 run "$here/long.lua" --db "$here/a.db" --format json
expect "^nothing was served; 4 of 4 requests rejected: its KV can never fit a decoder's pool" "$here/err"
expect '"too_large_decode": 4' "$here/out"
