#!/usr/bin/env bash
# bench: a line for the scenario as it stands, and for each of the long runs: streamed, the whole command, many
# instances.
source "$1/tests/scenario/cli.bash"
answers bench "$root/tests/data/run-small.lua" --set 'load.rate=per_second(5)' --repeat 1 --requests 3000 --format json
for figure in 'w1 200' 'million 3000' 'run 3000' 'instances 300'; do
    read -r name requests <<< "$figure"
    sed -n "/^  \"$name\": {/,/^  }/p" "$here/out" > "$here/figure"
    expect "\"requests\": $requests," "$here/figure"
    expect '"requests_per_wall_second": [1-9]' "$here/figure"
    expect '"peak_mib": [1-9]' "$here/figure"
done
# The whole command is another process than its simulation: it has the database and the report in its memory as well.
answers bench "$root/tests/data/run-small.lua" --set 'load.rate=per_second(5)' --repeat 1 --requests 0
[ "$(wc -l < "$here/out")" = 2 ] || fail "long runs without requests: $(cat "$here/out")"
