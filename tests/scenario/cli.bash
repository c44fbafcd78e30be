# What the tests of the command line share; sourced. $1 of the script is the root of the tree, $TANDEM the binary.
set -euo pipefail
root="$1"
here="$(mktemp -d)"
trap 'rm -rf "$here"' EXIT

fail() {
    echo "$1" >&2
    exit 1
}

# expect PATTERN FILE
expect() {
    grep -q -e "$1" "$2" || fail "no '$1' in: $(cat "$2")"
}

# status WANTED ARGUMENT...: runs the command with its answer in $here/out and the rest in $here/err.
status() {
    local wanted="$1" got=0
    shift
    "$TANDEM" "$@" > "$here/out" 2> "$here/err" || got=$?
    [ "$got" = "$wanted" ] || fail "tandem $*: status $got, expected $wanted: $(tail -n 5 "$here/err")"
}

# refused PATTERN ARGUMENT...: exit status 2, an error with the pattern in one line, no answer.
refused() {
    local pattern="$1"
    shift
    status 2 "$@"
    [ ! -s "$here/out" ] || fail "tandem $*: an answer and an error"
    [ "$(wc -l < "$here/err")" = 1 ] || fail "tandem $*: $(cat "$here/err")"
    expect "$pattern" "$here/err"
}

# answers ARGUMENT...: exit status 0 and nothing but the answer.
answers() {
    status 0 "$@"
    [ ! -s "$here/err" ] || fail "tandem $*: $(cat "$here/err")"
}

# sql DATABASE QUERY: its answer; empty where there is no sqlite3 to ask.
sql() {
    ! command -v sqlite3 > /dev/null || sqlite3 "$1" "$2"
}

# sql_is DATABASE QUERY ANSWER
sql_is() {
    local answer
    answer="$(sql "$1" "$2")"
    [ -z "$answer" ] || [ "$answer" = "$3" ] || fail "$2: $answer, expected $3"
}

# sound DATABASE: it is whole and holds complete runs alone.
sound() {
    sql_is "$1" 'PRAGMA integrity_check' ok
    sql_is "$1" 'PRAGMA foreign_key_check' ''
    # Killed before its first transaction, a database has no tables.
    [ "$(sql "$1" 'PRAGMA user_version')" != 0 ] || return 0
    sql_is "$1" "SELECT count(*) FROM run WHERE status <> 'complete'" 0
}
