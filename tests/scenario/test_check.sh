#!/usr/bin/env bash
# tandem check: the gate over tandem's own suite is open; it says what a change did and closes on a worse one; a
# baseline is blessed with a reason, and never half.
. "$(dirname "$0")/cli.bash"
cd "$here"

# The project's own gate. What it says is the answer to "what has this change done?". A change that is meant is blessed:
# scripts/bless --reason TEXT.
"$TANDEM" check --baseline "$root/scenarios/suites/own.baseline" --junit junit.xml > own 2> err || {
    cat own err >&2
    fail "something is worse than at the last blessing"
}
expect '^[0-9]* scenarios: ' own
expect '<testsuite name="tandem check" tests="[0-9]*" failures="0" errors="0">' junit.xml
[ "$(wc -c < "$root/scenarios/suites/own.baseline")" -lt 1000000 ] || fail "the own baseline is too large to commit"

cat > own.lua << 'END'
return suite {
  question = "Does the router look at queues?",
  seeds = 10,
  cases = {
    case { name = "busy", scenario = "w1-llama-70b.lua",
      set = { ["load.requests"] = 150, ["load.rate"] = per_second(24), ["load.prompt"] = uniform(128, 4096) },
      watch = { "ttft.p95", "tpot.p50", "spans.prefill_queue.mean", "completed" } },
    case { scenario = "real-mla-dp.lua", seeds = 2 },
  },
}
END

# Without a baseline there is nothing to compare with; a reason is wanted for one.
refused 'own.baseline: no baseline' check own.lua
refused '--update: wants --reason' check own.lua --update
refused '--reason: is for --update' check own.lua --reason why
refused '--update: does not go with --set' check own.lua --update --reason why --set load.requests=10
refused '--update: does not go with --against' check own.lua --update --reason why --against "$TANDEM"
answers check own.lua --update --reason 'this is how it was'
expect 'own.baseline: blessed, 2 of 2 scenarios changed, 0 worse' out
cp own.baseline first.baseline

# Twice the same, whatever the number of threads. Blessing what has not changed changes nothing.
answers check own.lua --exact --threads 1
cp out once
answers check own.lua --exact --threads 3
cmp out once || fail "the number of threads changes the answer"
expect '^busy  *same  *10  *10 ' out
answers check own.lua --update --reason 'nothing'
expect 'nothing has changed' out
cmp own.baseline first.baseline || fail "a baseline has changed with nothing to bless"

# A policy that does not look at queues: the first decision that differs is the router's, queues of prefillers grow, and
# the verdict is worse. The other scenario has one prefiller, so that it changes nothing there.
status 1 check own.lua --set "routing.prefill='random'" --junit junit.xml
expect '^2 scenarios: 1 same, 1 worse$' out
expect '^  before at [0-9]* ns: front routed request [0-9]* decoder=\([0-9]*\) prefiller=[0-9]*$' out
expect '^  after at [0-9]* ns: front routed request [0-9]* decoder=\([0-9]*\) prefiller=[0-9]*$' out
expect '^ttft.p95 .* worse$' out
expect '^spans.prefill_queue.mean .* worse$' out
expect '^prefill_queue ' out
expect '<failure message="worse: ttft.p95 +' junit.xml
! grep -q '^completed .* worse' out || fail "requests are lost by routing"
status 1 check own.lua --set "routing.prefill='random'" --format json
expect '"worse": 1' out
expect '"changed": 0' out
expect '"first_decision": {' out
status 1 check own.lua --set "routing.prefill='random'" --format md
expect '^## tandem check: 2 scenarios: 1 same, 1 worse$' out
status 1 check own.lua --set "routing.prefill='random'" --format csv
expect '^busy,worse,10,' out

# A change that is not worse opens the gate, unless it has to be exact; the other way round the policy is better.
answers check own.lua --set "routing.decode='round_robin'"
expect '^2 scenarios: .*1 changed' out
status 1 check own.lua --exact --set "routing.decode='round_robin'"
sed 's/set = {/set = { ["routing.prefill"] = "random",/' own.lua > random.lua
answers check random.lua --update --reason 'a baseline of the worse policy'
answers check random.lua --set "routing.prefill='least_queued_tokens'"
expect '^2 scenarios: 1 same, 1 better$' out

# Another build in place of a baseline: here the same one.
answers check own.lua --against "$TANDEM" --exact
expect "^own.lua against $TANDEM: tandem " out
status 1 check own.lua --against "$TANDEM" --set "routing.prefill='random'"
refused '--against: /bin/false cannot run the suite (exit status 1)' check own.lua --against /bin/false
refused '--against: ./nowhere cannot be run: No such file' check own.lua --against ./nowhere

# The history keeps every reason.
sed -i 's/= 150/= 140/' own.lua
answers check own.lua --update --reason 'fewer "requests", <enough>'
answers check --history --baseline own.baseline
expect '^1 .*this is how it was$' out
expect '^2 .* 2  *1  *[01]  *fewer "requests", <enough>$' out
answers check own.lua
expect 'blessing 2 of .*, fewer "requests", <enough>$' out

# A case that the baseline lacks, a baseline of something else.
sed -i 's/seeds = 2/seeds = 3/' own.lua
refused 'own.lua: the baseline has no run of real-mla-dp with seed 3' check own.lua
"$TANDEM" run "$root/scenarios/real-mla-dp.lua" --db runs.db > /dev/null
refused 'runs.db: not a baseline, but another database' check own.lua --baseline runs.db
sed -i 's/scenario = "real-mla/scenraio = "real-mla/' own.lua
refused "own.lua:8: cases.2.scenraio: unknown key; did you mean 'scenario'?" check own.lua

# Killed while it blesses, at whatever point: the old baseline or the new one, whole.
cat > slow.lua << 'END'
return suite {
  question = "Is half a baseline ever there?", seeds = 8,
  cases = { case { scenario = "w1-llama-70b.lua", set = { ["load.requests"] = 400 } } },
}
END
answers check slow.lua --update --reason 'before'
sed -i 's/= 400/= 401/' slow.lua
for delay in 0.02 0.05 0.1 0.2 0.4 0.8; do
    "$TANDEM" check slow.lua --update --reason "after $delay" > /dev/null 2>&1 &
    pid=$!
    sleep "$delay"
    kill -9 "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
    answers check --history --baseline slow.baseline
    expect ' before$' out
    sql_is slow.baseline 'PRAGMA integrity_check' ok
    sql_is slow.baseline 'SELECT count(*) FROM case_run' 8
done

# git bisect finds the commit that made it worse, over one that cannot be built. The commits hold no sources: what they
# "build" is this tandem with the policy of the commit.
if command -v git > /dev/null; then
    mkdir history
    cd history
    git init -q .
    git config user.email test@example.org
    git config user.name test
    mkdir -p scripts build/release
    printf '#!/bin/sh\n! grep -q broken policy\n' > scripts/build
    printf '#!/bin/sh\nexec "%s" "$@" --set "routing.prefill=$(cat policy)"\n' "$TANDEM" > build/release/tandem
    chmod +x scripts/build build/release/tandem
    for policy in "'least_queued_tokens'" "'least_queued_tokens' " "broken" "'least_queued_tokens'" "'random'" \
        "'random' "; do
        echo "$policy" > policy
        git add -A
        git commit -q -m "the policy is $policy"
    done
    cp "$root/scripts/bisect-step" ..
    sed -i 's/scenraio/scenario/; s/seeds = 3/seeds = 2/' ../own.lua
    answers check ../own.lua --update --reason 'the good one'
    git bisect start HEAD HEAD~5 > /dev/null
    git bisect run ../bisect-step ../own.lua ../own.baseline > bisected 2>&1 || fail "bisecting: $(tail bisected)"
    expect "the policy is 'random'$" bisected
    expect '^[0-9a-f]* is the first bad commit$' bisected
    cd ..
fi
