#!/usr/bin/env bash
# What a machine or its owner withholds is told: memory, room in files, a disk that is full, and files that are none.
source "$1/tests/scenario/cli.bash"
sed '/vary = /d' "$root/tests/data/run-small.lua" > "$here/small.lua"

# limited ULIMIT-OPTIONS STATUS ARGUMENT...: as status, within a limit.
limited() {
    local limit="$1" wanted="$2" got=0
    shift 2
    # shellcheck disable=SC2086
    (ulimit $limit && exec "$TANDEM" "$@" > "$here/out" 2> "$here/err") || got=$?
    [ "$got" = "$wanted" ] || fail "tandem $* within $limit: status $got, expected $wanted: $(tail -n 5 "$here/err")"
}

# A sanitizer takes address space of its own.
if ! grep -q __asan_init "$TANDEM"; then
    awk 'BEGIN { print "arrival_s,prompt_tokens,output_tokens"; for (i = 4000000; i > 0; i--) print i ",1,1" }' \
        > "$here/load.csv"
    sed "s|load = poisson {|load = trace { file = 'load.csv', format = 'csv' }, --|" "$here/small.lua" \
        > "$here/large.lua"
    limited "-v 150000" 3 run "$here/large.lua" --db "$here/memory.db"
    expect '^tandem: out of memory: the machine gives no ' "$here/err"
    [ "$(wc -l < "$here/err")" = 1 ] || fail "out of memory: $(cat "$here/err")"
    sound "$here/memory.db"
fi

# A limit on files: the database, a timeline, a scenario.
limited "-f 64" 2 run "$here/small.lua" --db "$here/file.db"
expect 'file.db' "$here/err"
answers run "$here/small.lua" --db "$here/a.db"
limited "-f 64" 2 timeline last --db "$here/a.db" --out "$here/timeline.json"
expect 'the timeline could not be written' "$here/err"

# A full disk behind a redirection, whoever answers.
for command in "--version" "explain $here/small.lua" "runs --db $here/a.db" "show last --db $here/a.db" \
    "run $here/small.lua --db $here/a.db --format json" "timeline last --db $here/a.db"; do
    got=0
    # shellcheck disable=SC2086
    "$TANDEM" $command > /dev/full 2> "$here/err" || got=$?
    [ "$got" = 2 ] || fail "tandem $command > /dev/full: status $got"
    expect 'could not be written' "$here/err"
done

# No database without a name: SQLite would keep it where nobody looks, and delete it.
refused 'empty, expected the path of a database' run "$here/small.lua" --db ''

# What is no regular file is refused, and not waited for.
mkfifo "$here/fifo"
for file in "$here/fifo" /dev/zero; do
    got=0
    timeout 20 "$TANDEM" run "$file" --db "$here/a.db" 2> "$here/err" || got=$?
    [ "$got" = 2 ] || fail "tandem run $file: status $got"
    expect 'cannot be read: it is a .*, expected a regular file' "$here/err"
    sed "s|load = poisson {|load = trace { file = '$file', format = 'csv' }, --|" "$here/small.lua" > "$here/trace.lua"
    got=0
    timeout 20 "$TANDEM" run "$here/trace.lua" --db "$here/a.db" 2> "$here/err" || got=$?
    [ "$got" = 2 ] || fail "a trace $file: status $got"
    expect 'expected a regular file' "$here/err"
done

# How many work at once is said within limits, and a number beyond them is not another one.
for number in 0 257 99999999999; do
    refused "threads: must be 1 to 256, not $number" run "$here/small.lua" --db "$here/a.db" --threads "$number"
    refused "threads: must be 1 to 256, not $number" plan "$here/small.lua" --db "$here/a.db" --threads "$number"
    refused "threads: must be 1 to 256, not $number" check --threads "$number"
    refused "threads: must be 1 to 256, not $number" validate timestamps --threads "$number"
    refused "jobs: must be 1 to 256, not $number" fuzz --seeds 1 --jobs "$number"
done

# A fault that cannot happen.
sed '/expect = /,/end,/d' "$root/tests/data/run-small.lua" > "$here/faults.lua"
one=(run "$here/faults.lua" --db "$here/faults.db" --set 'load.rate=per_second(5)')
refused 'faults.1.request: request 99999999 never arrives: the load has 200' "${one[@]}" \
    --set 'faults={ leave { request = 99999999 } }'
refused 'faults.1.request: request 200 never arrives' "${one[@]}" --set 'faults={ leave { request = 200 } }'
status 0 "${one[@]}" --set 'faults={ leave { request = 199 } }'

# What is wrong is told as what it is, and where.
small=(run "$here/faults.lua" --set 'load.rate=per_second(5)')
refused 'load.requests: missing, or 0; requests, 1 at least' "${small[@]}" --db "$here/a.db" --set load.requests=0
refused 'faults.lua: vary: load.rat=1: load.rat: unknown key' run "$here/faults.lua" --db "$here/a.db" \
    --set 'vary={ ["load.rat"] = { 1, 2 } }'
refused '^/nowhere/a.db: cannot be created: its folder does not exist' "${small[@]}" --db /nowhere/a.db
refused "^$here: is a folder, expected the path of a database" "${small[@]}" --db "$here"
if command -v sqlite3 > /dev/null; then
    cp "$here/faults.db" "$here/dropped.db"
    sqlite3 "$here/dropped.db" 'DROP VIEW request_latency'
    refused 'no such table: request_latency: somebody has changed its schema' show 1 --db "$here/dropped.db"
fi
(
    cd "$here"
    sed '/vary = /d' faults.lua > alone.lua
    printf 'return suite { question = "?", seeds = 1, cases = { case { scenario = "alone.lua" } } }\n' > own.lua
    refused 'true: ran and wrote no baseline: it is no tandem' check own.lua --against "$(command -v true)"
)

# The checkers of every byte keep up with a large model: 405B over 16 ranks, long prompts.
cat > "$here/large.lua" << 'END'
local h200 = require "hardware.h200"
return scenario {
  question = "Do the checkers keep up?",
  model = require "models.llama-3.1-405b",
  pools = {
    prefill = pool { role = "prefill", machine = h200, shardings = { { tensor = 16 } }, count = 2 },
    decode = pool { role = "decode", machine = h200, shardings = { { tensor = 16 } }, count = 2 },
  },
  load = poisson { rate = per_second(0.1), requests = 10, prompt = uniform(60000, 120000), output = 50 },
  faults = {},
}
END
ln -s "$root"/scenarios/* "$here/" 2> "$here/err" || true
got=0
timeout 60 "$TANDEM" run "$here/large.lua" --db "$here/large.db" > "$here/out" 2> "$here/err" || got=$?
[ "$got" = 0 ] || fail "ten prompts of a large model under checkers: status $got: $(cat "$here/err")"
