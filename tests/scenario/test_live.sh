#!/usr/bin/env bash
# A plan's prediction beside a measurement, from the outside: a scenario is simulated, its cluster served, and the run
# replayed onto the endpoint; both say the same, request by request. And an endpoint that is not there, or not one.
source "$1/tests/scenario/cli.bash"
cd "$here"
cat > rate.lua <<'L'
local h100 = require "hardware.h100"
return scenario {
  question = "Does what is served take what is simulated?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, shardings = { { tensor = 1 } } },
    decode = pool { role = "decode", machine = h100, shardings = { { tensor = 1 } } },
  },
  load = poisson { rate = per_second(25), requests = 80, warmup_requests = 10, abort_share = percent(10),
                   abort_within = s(1), prompt = uniform(100, 1500), output = uniform(20, 60) },
  targets = { ttft { p = 90, below = ms(500) } },
}
L
answers run rate.lua --db live.db
"$TANDEM" serve rate.lua --port 0 > served &
server=$!
trap 'kill $server 2> /dev/null || true; rm -rf "$here"' EXIT
for _ in $(seq 100); do
    grep -q ' at ' served && break
    sleep 0.05
done
endpoint=$(sed -n 's/.* at //p' served)

status 0 replay last --endpoint "$endpoint" --db live.db --salt 7 --format json
expect 'this client sent p50' "$here/err"
# How near the two come is for a quiet machine to say; here a wrong unit, or a time that is not the clock's, is found.
python3 - out <<'P'
import json, sys
answer = json.load(open(sys.argv[1]))
a, b = answer["a"], answer["b"]
assert b["backend"] == "live" and b["requests"] == a["requests"], b
assert b["rejected"] == b["failed"] == 0 and b["completed"] + b["aborted"] == a["completed"] + a["aborted"], b
assert "first_decode" not in [row["metric"] for row in answer["pairs"]], answer["pairs"]
assert b["spans_ms"]["prefill"]["p50"] is None and b["spans_ms"]["route"]["p50"] is not None
for metric in ("ttft_ms", "tpot_ms", "e2e_ms"):
    predicted, measured = a[metric]["p50"], b[metric]["p50"]
    assert predicted / 2 <= measured <= predicted * 4 + 100, (metric, predicted, measured)
P
# A scenario has no run to be compared with; its rows are the endpoint's. Then the whole goes back to simulation.
status 0 replay rate.lua --endpoint "$endpoint" --db live.db --prompt chat --set load.requests=20
expect 'prompts have --salt [0-9]' "$here/err"
expect 'live' "$here/out"
expect 'prompts have another number of tokens at the endpoint' "$here/err"
status 0 replay last --db live.db --format json
sound live.db
sql_is live.db "SELECT count(DISTINCT run_id) FROM sample WHERE counter = 'client_send_delay_p99_ns'" 2
sql_is live.db "SELECT group_concat(backend) FROM run" sim,live,live,sim

kill -TERM $server
wait $server || fail "the server ended with $?"
expect '^served ' served

refused 'connect' run rate.lua --endpoint "$endpoint" --db live.db
refused '--endpoint is for --backend live' run rate.lua --backend sim --endpoint "$endpoint" --db live.db
refused 'needs --endpoint' run rate.lua --backend live --db live.db
refused 'must begin with http' run rate.lua --endpoint ftp://x --db live.db
