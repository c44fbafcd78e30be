#!/usr/bin/env bash
# Routing by prefix finds what is cached, however many workers there are: the share of prompt tokens found cached is the
# same for 64 workers, a bit each in one word, and for more.
source "$1/tests/scenario/cli.bash"
cat > "$here/many.lua" << 'LUA'
local h200 = require "hardware.h200"
return scenario {
  question = "does routing by prefix find as much among more workers?",
  model = require "models.llama-3.1-8b",
  pools = {
    p = pool { role = "prefill", machine = h200, count = 64, shardings = { { tensor = 1 } } },
    d = pool { role = "decode", machine = h200, count = 16, shardings = { { tensor = 1 } } },
  },
  routing = { prefill = "prefix_aware" },
  load = sessions {
    rate = per_second(100), requests = 6000, turns = 8, think = s(2), prompt = 1000, output = 50, system = 0,
  },
  vary = { ["pools.p.count"] = { 64, 65, 128 } },
}
LUA
answers run "$here/many.lua" --db "$here/a.db" --format json
shares=$(sed -n 's/.*"cached_share": \([0-9.]*\).*/\1/p' "$here/out" | tr '\n' ' ')
echo "$shares" | awk '
    NF != 3 || $1 < 0.69 { exit 1 } # of 0.78 with one worker that has all: the first words of a prompt are new
    { for (i = 2; i <= NF; i++) if ($i < 0.99 * $1 || $i > 1.01 * $1) exit 1 }' || fail "cached shares: $shares"
