#!/usr/bin/env bash
# tandem timeline: a stored run becomes a timeline whose events add up to what the run took; --bisect tells where two
# runs part, and what cannot be had again is said.
. "$(dirname "$0")/cli.bash"
cd "$here"
scenario="$root/tests/data/run-small.lua"

run() {
    "$TANDEM" run "$scenario" --db runs.db --set 'load.rate=per_second(10)' --set expect=nil "$@" > /dev/null
}
run --record transfers,steps
run --seed 7
run --set load.requests=20

answers trace 1 --db runs.db # the older name
cp out timeline.json
answers timeline 1 --db runs.db --out written.json
[ ! -s out ] || fail "a timeline in a file and on the screen"
cmp timeline.json written.json || fail "the timeline differs by where it goes"
expect '"traceEvents":\[' timeline.json
expect '"ph":"M","name":"process_name","pid":0,"args":{"name":"front"}' timeline.json
expect '"cat":"step"' timeline.json
expect '"cat":"transfer"' timeline.json
if command -v python3 > /dev/null; then
    # Every begun event ends, none before it began; the spans of a request fill it without a gap.
    python3 - timeline.json << 'END' || fail "the timeline makes no sense"
import json, sys
open_events, spans, whole = {}, {}, {}
for event in json.load(open(sys.argv[1]))["traceEvents"]:
    if event["ph"] not in "be":
        continue
    key = (event["cat"], event["id"], event["name"], event["pid"])
    at = round(event["ts"] * 1000)
    if event["ph"] == "b":
        assert key not in open_events, key
        open_events[key] = at
        continue
    start = open_events.pop(key)
    assert at >= start, key
    if event["cat"] == "span":
        spans[event["id"]] = spans.get(event["id"], 0) + at - start
    if event["cat"] == "request":
        whole[event["id"]] = at - start
assert not open_events, open_events
assert whole and spans == whole, (len(whole), len(spans))
END
fi
# Without recorded steps and transfers the spans alone.
answers timeline 2 --db runs.db
! grep -q '"cat":"step"\|"cat":"transfer"' out || fail "rows that were not recorded"
expect '"cat":"span"' out

# Another seed parts at the first arrival, fewer requests where the others arrive.
status 1 timeline --bisect 1 2 --db runs.db
expect '^first difference at trace record 0, front, request 0:$' out
expect '^  run 1 at [0-9]* ns: front arrived request 0 ' out
expect '^  run 2 at [0-9]* ns: front arrived request 0 ' out
status 1 timeline --bisect 1 3 --db runs.db
expect '^first difference at trace record [1-9][0-9]*, ' out
expect '^  both at ' out
expect '^  requests at that instant: ' out
expect '^       2 decode-0 ' out
status 1 timeline --bisect 1 3 --db runs.db --format json
expect '"node": "front"' out
expect '"same": false' out
answers timeline --bisect 1 1 --db runs.db
expect '^the same decisions at the same times$' out

refused '--bisect: two runs are wanted' timeline --bisect 1 --db runs.db
refused '--bisect: goes with two runs' timeline 1 2 --db runs.db
refused '--bisect: makes no timeline' timeline --bisect 1 2 --db runs.db --out x.json
refused 'holds no run 9' timeline 9 --db runs.db
cp "$scenario" moved.lua
scenario=moved.lua
run --seed 3
rm moved.lua
# A scenario is known by the path that it was last called by, and that file is gone.
refused 'the traces cannot be compared: run 1 cannot be had again: moved.lua' timeline --bisect 1 4 --db runs.db
