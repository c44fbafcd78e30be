#!/usr/bin/env bash
# tandem validate: errors are those that were accepted, the gate closes on worse ones, and twice is the same. What fits
# constants takes minutes and runs with scripts/test --all.
set -euo pipefail
accepted="$1/scenarios/validation/accepted.csv"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT
cd "$here"

fail() {
    echo "$1" >&2
    exit 1
}

"$TANDEM" validate --quick --summary --format csv --errors once.csv --against "$accepted" > once 2> err ||
    fail "errors are larger than the accepted ones: $(cat err)"
"$TANDEM" validate nics transfers layerwise steps timestamps --threads 1 --errors twice.csv > /dev/null
grep -F -x -f twice.csv once.csv > both || true
cmp both twice.csv || fail "the same comparison gives other errors"

# A tenth and half a percent worse than accepted closes the gate, and so do rows that are no longer there.
sed 's/^nics,\([0-9]*\),[0-9]*,/nics,\1,100,/' "$accepted" > lower.csv
status=0
"$TANDEM" validate nics --against lower.csv > /dev/null 2> err || status=$?
[ "$status" = 1 ] || fail "status $status with an error above the accepted one"
grep -q '^nics: the median error is' err || fail "the gate does not say what is worse: $(cat err)"
sed 's/^nics,[0-9]*,/nics,17,/' "$accepted" > more.csv
status=0
"$TANDEM" validate nics --against more.csv > /dev/null 2> err || status=$?
[ "$status" = 1 ] && grep -q '^nics: 16 rows' err || fail "status $status with a row fewer than accepted: $(cat err)"

status=0
"$TANDEM" validate nisc > /dev/null 2> err || status=$?
[ "$status" = 2 ] && grep -q "did you mean 'nics'" err || fail "status $status for an unknown source: $(cat err)"
status=0
"$TANDEM" validate nics --against nowhere.csv > /dev/null 2> err || status=$?
[ "$status" = 2 ] || fail "status $status without the accepted errors"
"$TANDEM" validate nics --format json | grep -q '"key": "nics"' || fail "JSON has no key"
