#!/usr/bin/env bash
# A load as a file, read again as a trace: the same requests, a conversation's delays and shared prefixes included.
source "$1/tests/scenario/cli.bash"
cd "$here"

scenario() { # NAME LOAD
    cat > "$1" << L
local h100 = require "hardware.h100"
return scenario {
  question = "What is asked?",
  model = require "models.llama-3.1-8b",
  pools = { mixed = pool { role = "mixed", machine = h100, count = 1, shardings = { { tensor = 1 } } } },
  load = $2,
}
L
}

# Times begin at the first request of a trace, and blocks are named anew: all else is as it was.
same() {
    python3 - "$1" "$2" << 'P'
import json, sys
def read(path):
    names, first, rows = {}, None, []
    for line in open(path):
        row = json.loads(line)
        row["hash_ids"] = [names.setdefault(block, len(names)) for block in row.get("hash_ids", [])]
        if "timestamp" in row:
            first = row["timestamp"] if first is None else first
            row["timestamp"] = round(row["timestamp"] - first, 3)
        rows.append(row)
    return rows
a, b = read(sys.argv[1]), read(sys.argv[2])
assert len(a) > 10 and len(a) == len(b), (len(a), len(b))
for x, y in zip(a, b):
    assert abs(x.pop("timestamp") - y.pop("timestamp")) < 0.01 and x == y, (x, y)
P
}

scenario drawn.lua \
    'poisson { rate = per_second(5), requests = 40, prompt = uniform(10, 2000), output = uniform(1, 90) }'
status 0 load drawn.lua --out drawn.jsonl
expect '^40 requests$' err
scenario again.lua 'trace { file = "drawn.jsonl", format = "mooncake" }'
status 0 load again.lua --out again.jsonl
same drawn.jsonl again.jsonl
status 0 run again.lua
expect '40' out

status 0 load "$root/scenarios/sessions-prefix.lua" --set load.requests=200 --out turns.jsonl
expect 'blocks have 64 tokens' err
[ "$(grep -c delay turns.jsonl)" -gt 10 ] || fail "no turn follows another: $(head -n 3 turns.jsonl)"
sed -n 1p turns.jsonl | grep -q '"hash_ids": \[0, 1, 2' || fail "$(head -n 1 turns.jsonl)"

scenario closed.lua 'closed { concurrency = 2, requests = 4, prompt = 10, output = 3 }'
refused 'a closed loop has no times' load closed.lua
refused 'cannot\|No such' load drawn.lua --out nowhere/x
