#!/usr/bin/env bash
# test_mpirun.sh ROOT: the processes of a run are those of a job that somebody else's launcher started. Skipped (77)
# without mpirun, or where the real runtime was not built.
source "$1/tests/scenario/cli.bash"

skip() {
    echo "skipped: $1"
    exit 77
}
"$TANDEM" help bench-fabric > /dev/null 2>&1 || skip "this tandem has no real runtime"
command -v mpirun > /dev/null || skip "no mpirun (Debian: openmpi-bin)"

flags=(--oversubscribe --bind-to none)
[ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)

# job PROCESSES ARGUMENT...: status in $got.
job() {
    local count="$1"
    shift
    got=0
    TMPDIR="$here" timeout 120 mpirun "${flags[@]}" -n "$count" "$TANDEM" run "$root/scenarios/real-mla-dp.lua" \
        --backend real --provider tcp --heartbeats 100 --db "$here/job.db" "$@" > "$here/out" 2> "$here/err" || got=$?
}

# One process is no job: it starts its instances itself.
for count in 3 1; do
    job "$count" --verify --format json
    [ "$got" = 0 ] || fail "mpirun -n $count: status $got: $(tail -n 5 "$here/err")"
    expect '"completed": 40' "$here/out"
    expect "verified: [1-9][0-9]* pieces" "$here/err"
    [ "$(grep -c '"scenario"' "$here/out")" = 1 ] || fail "mpirun -n $count: more than one answer"
done
sql_is "$here/job.db" "SELECT count(*) FROM run" 2
sound "$here/job.db"

# With any other number of processes the error names how many it takes.
for count in 2 4; do
    job "$count"
    [ "$got" != 0 ] || fail "mpirun -n $count: no error"
    expect "the front and 2 instances want 3 processes of the job, not $count" "$here/err"
done
