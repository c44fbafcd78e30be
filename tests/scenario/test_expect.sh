#!/usr/bin/env bash
# expect: what it can read of a run, and that a sweep says which of its runs did not hold.
set -euo pipefail
root="$1"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT

fail() {
    echo "$1" >&2
    exit 1
}

# scenario CHECKS: a sweep over prompts of one chunk and of three.
scenario() {
    cat > "$here/small.lua" << END
local h100 = require "hardware.h100"
return scenario {
  question = "What does a run tell?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h100, shardings = { { tensor = 1 } }, token_budget = 1024 },
    decode = pool { role = "decode", machine = h100, shardings = { { tensor = 1 } } },
  },
  load = closed { concurrency = 2, requests = 10, prompt = 1000, output = 4 },
  vary = { ["load.prompt"] = { 1000, 3000 } },
  expect = function(r)
$1
  end,
}
END
    cp -r "$root/scenarios/models" "$root/scenarios/hardware" "$here/"
}

# status WANTED OPTION...
status() {
    local wanted="$1" got=0
    shift
    "$TANDEM" run "$here/small.lua" --db "$here/db" "$@" > "$here/out" 2> "$here/err" || got=$?
    [ "$got" = "$wanted" ] || fail "run $*: status $got: $(cat "$here/err")"
}

scenario '
    local prompt = r.prompt_tokens // r.completed
    check(r.params["load.prompt"] == (prompt == 1000 and "1000" or "3000"), "the swept value is told")
    check(r.ttft_ms.max >= r.ttft_ms.p99 and r.itl_ms.max >= r.itl_ms.p99, "the greatest is told")
    check(r.transfer_ms.p50 ~= nil and r.transfer_ms.max >= r.transfer_ms.p50, "transfers are told")
    check(r.spans_ms.prefill.p50 <= r.transfer_ms.max, "a transfer lasts as long as its prefill")
    check(r.instances[1].ranks == 1 and r.instances[1].compute_bound <= 1, "an instance is told")
    check(r.aborted == 0 and r.cached_share == 0, "counts are told")'
status 0 --record transfers
[ "$(grep -c '^[13]000  *10 ' "$here/out")" = 2 ] || fail "not a row for each prompt: $(cat "$here/out")"

# A database that has never recorded transfers tells of none.
rm "$here/db"
scenario '    check(r.transfer_ms.p50 == nil, "no transfer was recorded")'
status 0

scenario '    check(r.prompt_tokens // r.completed == 1000, "the prompt is short")'
status 1
grep -q '^with load.prompt=3000:$' "$here/err" || fail "which run did not hold? $(cat "$here/err")"
[ "$(grep -c 'the prompt is short' "$here/err")" = 1 ] || fail "one run did not hold: $(cat "$here/err")"

scenario '    check(r.params["load.rate"] == nil, "a value that does not vary")'
status 2
grep -q "the result has no 'load.rate'" "$here/err" || fail "$(cat "$here/err")"
