#!/usr/bin/env bash
# Transfers in flight: more than 2^16 of them at once, all of which come to their end; as many as handoffs_max lets each
# decoder have, and no more; and the bound of a real run, whose reports must fit their ring.
source "$1/tests/scenario/cli.bash"
cat > "$here/many.lua" << 'LUA'
local h200 = require "hardware.h200"
return scenario {
  question = "How many transfers can be in flight at once?",
  model = require "models.llama-3.1-8b",
  pools = {
    p = pool { role = "prefill", machine = h200, count = 6, shardings = { { tensor = 1 } }, queue_max = 20000,
               prefix_cache = false },
    d = pool { role = "decode", machine = h200, count = 6, shardings = { { tensor = 1 } }, batch_max = 4096,
               queue_max = 20000, prefix_cache = false },
  },
  routing = { prefill = "round_robin", decode = "round_robin" },
  load = poisson { rate = per_second(1000000), requests = 100000, prompt = 17, output = 1 },
  messenger = { handoffs_max = 16384, deadline = s(600) },
}
LUA
in_flight="SELECT max((SELECT count(*) FROM request WHERE dispatched_ns <= t AND ready_ns > t)) FROM
    (SELECT max(arrived_ns) AS t FROM request UNION SELECT max(arrived_ns) / 2 FROM request)"
answers run "$here/many.lua" --db "$here/a.db"
sql_is "$here/a.db" "SELECT count(*) FROM request WHERE outcome = 1" 100000
sql_is "$here/a.db" "SELECT ($in_flight) > 65536" 1

answers run "$here/many.lua" --db "$here/b.db" --set messenger.handoffs_max=1000
sql_is "$here/b.db" "SELECT count(*) FROM request WHERE outcome = 1" 100000
sql_is "$here/b.db" "$in_flight" 6000

refused 'messenger.handoffs_max: for a real run at most 2048, not 16384' run "$here/many.lua" --db "$here/c.db" \
    --backend real --set pools.p.machine='require "hardware.host"' --set pools.d.machine='require "hardware.host"' \
    --set model='require "models.tiny-gqa"'
