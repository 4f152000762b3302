# To be sourced: `step` runs a command and prints one line: its name, seconds, processor time, totals of test runners.
#   BACKHOP_STEP_LIMIT   seconds after which a step is ended and fails (3600)
#   BACKHOP_TOTALS       a file to which each step appends the totals of its test runners
#   steps_of             what the names of steps begin with

counted='^([0-9]+: )?([0-9]+%: Checks.*|[0-9]+% tests passed.*|Ran [0-9]+ tests?|[0-9]+ passed.*|[0-9]+ examples?, .*|[#ℹ] (pass|fail|skipped) [0-9]+|[0-9]+ messages handled .*)'

# Runs a command. If it has not ended at the limit, ends it and all that it started, and returns 124.
run_limited() { # SECONDS LOG COMMAND [ARG...]
    (set -e; "${@:3}") >"$2" 2>&1 </dev/null &
    local pid=$!
    if has_ended "$pid" "$1"; then
        wait "$pid"
    else
        signal_tree TERM "$pid"
        has_ended "$pid" 30 || signal_tree KILL "$pid"
        return 124
    fi
}
has_ended() { # PID SECONDS
    timeout --foreground "$2" tail --pid="$1" --sleep-interval=0.1 --follow /dev/null
}
signal_tree() { # SIGNAL PID
    local each children
    children=$(cat "/proc/$2/task/"*/children)
    kill -"$1" "$2" || true
    for each in $children; do
        signal_tree "$1" "$each"
    done
}

# Shows the output if the command fails. At a terminal, the line begins with the name while the command runs. Elsewhere
# the name has a line of its own first, as steps may run side by side.
step() { # NAME COMMAND [ARG...]; the command may be a function
    local name=${steps_of:+$steps_of: }$1 limit=${BACKHOP_STEP_LIMIT:-3600} log took status
    log=${out:+$out/${1//[^A-Za-z0-9]/-}.log}
    log=${log:-$(mktemp)}
    shift
    if [ -t 1 ]; then printf '%-46s' "$name"; else echo "$name ..."; fi
    local TIMEFORMAT='%R %U %S'
    set +e # bash ignores `set -e` inside the condition of an `if`
    took=$({ time run_limited "$limit" "$log" "$@"; } 2>&1)
    status=$?
    set -e
    if [ -t 1 ]; then printf '\r'; fi
    if [ "$status" -ne 0 ]; then
        printf '%-46sFAILED\n' "$name"
        cat "$log"
        [ "$status" -ne 124 ] || echo "$name: ended at its limit of $limit s"
    else
        # In one write, as steps that run side by side share the output.
        printf '%-46s%s%s\n' "$name" "$(awk 'END { printf "%4d s, %d s of processors", $1, $2 + $3 + 0.5 }' <<<"$took")" \
            "$(grep -aoE "$counted" "$log" | sed -E 's/^[0-9]+: |^[#ℹ] //; s/ in [0-9.]+s.*//; s/^/, /' | tr -d '\n')"
        if [ -n "${BACKHOP_TOTALS:-}" ] && grep -qaE "$counted" "$log"; then
            { echo "$name:" && grep -aE "$counted" "$log"; } >>"$BACKHOP_TOTALS"
        fi
    fi
    [ -n "${out:-}" ] || rm -f "$log"
    return "$status"
}

# A language's tools/check: the stage that is named, or all of them.
run_stages() { # [package | linked | tools | test | lint | release]
    case ${1:-all} in
    package) package ;;
    linked) linked ;;
    tools) tools ;;
    test) tests ;;
    lint) lint ;;
    release) release ;;
    all)
        package
        tests
        lint
        release
        ;;
    *)
        echo "check: there is no stage \"$1\": give package, linked, test, lint or release" >&2
        return 2
        ;;
    esac
}
