#!/usr/bin/env bash
# Pools that replace lost instances: what a `kill` without `back` means there is what it means with it, three seconds
# later, when the loss is known.
source "$1/tests/scenario/cli.bash"
with() { # FAULT FILE
    sed "s|^return scenario {|return scenario { faults = { $1 },|; s|r.completed == 200|r.requests == 40|
        /targets = /d" \
        "$root/tests/data/run-small.lua" > "$here/$2"
}
load=(--set load.requests=40 --set 'load.rate=per_second(5)' --format json)
hash() {
    sed -n 's/.*"trace_hash": "\([0-9a-f]*\)".*/\1/p' "$here/out"
}
with 'kill { node = "decode-0", at = s(1) }' killed.lua
with 'kill { node = "decode-0", at = s(1), back = s(3.5) }' back.lua

answers run "$here/back.lua" --db "$here/a.db" "${load[@]}"
back="$(hash)"
answers run "$here/killed.lua" --db "$here/b.db" "${load[@]}"
never="$(hash)"
answers run "$here/killed.lua" --db "$here/c.db" "${load[@]}" --set 'pools.decode.replace=s(0.5)'
replaced="$(hash)"
{ [ -n "$back" ] && [ "$replaced" = "$back" ]; } || fail "replaced: $replaced, back: $back"
[ "$never" != "$back" ] || fail "nobody came, and nothing differs"
# What a fault says itself goes before.
answers run "$here/back.lua" --db "$here/d.db" "${load[@]}" --set 'pools.decode.replace=s(2)'
[ "$(hash)" = "$back" ] || fail "the pool's word went before the fault's"

# It is shown where it is said, and nowhere else.
answers explain "$here/killed.lua" --set 'pools.decode.replace=s(0.5)'
expect '^pools.decode.replace  *ms(500)  *--set' "$here/out"
answers explain "$here/killed.lua"
! grep -q replace "$here/out" || fail "$(grep replace "$here/out")"
refused 'pools.decode.replace' run "$here/killed.lua" --db "$here/a.db" --set 'pools.decode.replace=5'
