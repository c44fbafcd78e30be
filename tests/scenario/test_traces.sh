#!/usr/bin/env bash
# Request traces as they are found in the field play as they are written: times, units, block sizes, delays after
# answers, requests that wait for others; what is not known is an error with its line.
source "$1/tests/scenario/cli.bash"
cat > "$here/trace.lua" << 'LUA'
local h200 = require "hardware.h200"
return scenario {
  question = "does this recorded file play?",
  model = require "models.llama-3.1-8b",
  pools = {
    prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 1 } }, page = 16 },
    decode = pool { role = "decode", machine = h200, shardings = { { tensor = 1 } }, page = 16 },
  },
  load = trace { file = "burstgpt.csv", format = "csv" },
}
LUA
cp "$root"/tests/data/traces/* "$here"

play() { # FILE FORMAT [load.KEY=VALUE...]: rows as request|prompt|output|cached|arrived ms
    local file=$1 format=$2 set=()
    shift 2
    for key in "$@"; do set+=(--set "load.$key"); done
    rm -f "$here/a.db"
    answers run "$here/trace.lua" --db "$here/a.db" --set "load.file='$file'" --set "load.format='$format'" \
        "${set[@]}"
    sqlite3 "$here/a.db" \
        'SELECT request, prompt_tokens, output_tokens, cached_tokens, arrived_ns / 1000000 FROM request'
}
gap() { # A B: milliseconds from the end of request A to the arrival of B
    sqlite3 "$here/a.db" "SELECT (b.arrived_ns - a.finished_ns) / 1000000 FROM request a, request b
        WHERE a.request = $1 AND b.request = $2"
}
same() { [ "$1" = "$2" ] || fail "got: $1; expected: $2"; }

same "$(play burstgpt.csv csv)" $'0|510|21|0|0\n1|1200|300|0|28500' # a row without a response is a failure: left out
same "$(play own.csv csv "time_unit='s'" 'columns={arrival="sent at",prompt="in",output="out"}')" \
    $'0|100|10|0|0\n1|200|20|0|1500'
same "$(play bailian.jsonl mooncake block=16 "time_unit='s'")" $'0|60|20|0|0\n1|100|30|48|2500\n2|33|5|0|9250'
# Larger pages than blocks: the blocks of a page are taken together.
same "$(play bailian.jsonl mooncake block=8 "time_unit='s'" 2>&1 | tail -n 1 | grep -c 'expected 8 of 8 tokens')" 1
same "$(play sessions.jsonl mooncake | cut -d'|' -f1-4)" $'0|1024|50|0\n1|700|10|0\n2|1600|50|512'
same "$(gap 0 2)" 2000
same "$(play agents.jsonl mooncake | cut -d'|' -f1-4)" $'0|2048|128|0\n1|2560|128|1536'
same "$(gap 0 1)" 2500
same "$(play lengths.jsonl mooncake output=100)" $'0|700|50|0|0\n1|650|100|0|1500'
refused 'lengths.jsonl:2: output_length: missing' run "$here/trace.lua" --db "$here/a.db" \
    --set "load.file='lengths.jsonl'" --set "load.format='mooncake'"
sed 's/"input_length"/"class": 1, &/' "$here/lengths.jsonl" > "$here/class.jsonl"
refused 'class.jsonl:1: class: is not known' run "$here/trace.lua" --db "$here/a.db" \
    --set "load.file='class.jsonl'" --set "load.format='mooncake'" --set load.output=5
same "$(play class.jsonl mooncake output=100 'ignore={"class"}' | wc -l)" 2
refused 'columns.arrival: the name of a column is wanted' run "$here/trace.lua" --db "$here/a.db" \
    --set 'load.columns={prompt="in",output="out"}'
# A run of requests that wait for others can be had again.
play agents.jsonl mooncake > /dev/null
answers replay last --backend sim --db "$here/a.db"
same "$(sqlite3 "$here/a.db" 'SELECT count(DISTINCT trace_hash) FROM run')" 1
mkfifo "$here/pipe.csv"
refused 'expected a regular file' run "$here/trace.lua" --db "$here/a.db" --set "load.file='pipe.csv'"
