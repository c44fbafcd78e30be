#!/usr/bin/env bash
# Decoders that compute prompts: thresholds that keep everything make of a decode pool what a mixed pool is, and those
# that keep nothing leave runs as they were, to the last decision. A mixed pool beside a pair takes its part.
source "$(dirname "$0")/cli.bash"

scenario() { # ROLE ROUTING POOLS
    cat << LUA
local h200 = require "hardware.h200"
local function of(role, count) return pool { role = role, machine = h200, count = count, shardings = { { tensor = 1 } },
    chunk = 1024, headroom = 64, memory_utilization = percent(13) } end
return scenario {
  question = "who computes the prompts?", model = require "models.llama-3.1-8b",
  pools = { a = of("$1", 2), ${3:-} },
  routing = { decode = "least_kv", prefill = "least_kv", ${2:-} },
  load = sessions { rate = per_second(4), requests = 1000, turns = uniform(1, 6), think = s(1),
    prompt = uniform(10, 2000), output = 200 },
}
LUA
}
hash_of() { # SCENARIO
    answers run "$1" --db "$here/runs.db" --format json
    sed -n 's/.*"trace_hash": "\([0-9a-f]*\)".*/\1/p' "$here/out"
}

scenario decode "max_local_prefill_length = 100000" > "$here/alone.lua"
scenario mixed > "$here/mixed.lua"
alone=$(hash_of "$here/alone.lua")
grep -q '"preemptions": [1-9]' "$here/out" || fail "nothing was preempted"
[ "$alone" = "$(hash_of "$here/mixed.lua")" ] || fail "a decode pool that computes all is no mixed pool"

scenario decode "" 'b = of("prefill", 1)' > "$here/pair.lua"
scenario decode "max_local_prefill_length = 0, max_prefill_queue_size = 0" 'b = of("prefill", 1)' > "$here/zero.lua"
[ "$(hash_of "$here/pair.lua")" = "$(hash_of "$here/zero.lua")" ] || fail "thresholds of 0 change a run"

scenario decode "" 'b = of("prefill", 1), c = of("mixed", 1)' > "$here/beside.lua"
answers run "$here/beside.lua" --db "$here/runs.db"
[ "$(awk '$1 == "c-0" { print $4 }' "$here/out")" -gt 50 ] || fail "the mixed pool got nothing"

scenario decode "" > "$here/half.lua"
refused "a pool of role 'prefill' is missing" run "$here/half.lua" --db "$here/runs.db"
