# To be sourced: `step` runs a command, and says in one line what it took and what test runners counted.

counted='^([0-9]+: )?([0-9]+%: Checks.*|[0-9]+% tests passed.*|Ran [0-9]+ tests?|[0-9]+ passed.*|[0-9]+ examples?, .*|[#ℹ] (pass|fail|skipped) [0-9]+)'

# Shows the output, which is kept in $out where that is set, where the command fails. At a terminal the line begins with the
# step's name as long as it lasts; elsewhere the name has a line of its own first, as steps may run side by side.
step() { # NAME COMMAND [ARG...]; NAME is one of $steps_of, where that is set
    local name=${steps_of:+$steps_of: }$1 start=$SECONDS log status
    log=${out:+$out/${1//[^A-Za-z0-9]/-}.log}
    log=${log:-$(mktemp)}
    shift
    if [ -t 1 ]; then printf '%-46s' "$name"; else echo "$name ..."; fi
    set +e # not `if`, inside of which no `set -e` holds
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    set -e
    if [ -t 1 ]; then printf '\r'; fi
    if [ "$status" -ne 0 ]; then
        printf '%-46sFAILED\n' "$name"
        cat "$log"
    else
        printf '%-46s%4d s%s\n' "$name" "$((SECONDS - start))" \
            "$(grep -aoE "$counted" "$log" | sed -E 's/^[0-9]+: |^[#ℹ] //; s/ in [0-9.]+s.*//; s/^/, /' | tr -d '\n')"
    fi
    [ -n "${out:-}" ] || rm -f "$log"
    return "$status"
}

# A language's tools/check: the stage that is named, or all of them.
run_stages() { # [package | test | release]
    case ${1:-all} in
    package) package ;;
    test) tests ;;
    release) release ;;
    all)
        package
        tests
        release
        ;;
    *)
        echo "check: there is no stage \"$1\": give package, test or release" >&2
        return 2
        ;;
    esac
}
