# To be sourced by the checks of packages: `step` runs a command and says one line of it.

# Says what it took and what the test runner counted; shows the output, which is kept in $out, where it fails.
step() { # NAME COMMAND [ARG...]
    local name=$1 log=$out/${1//[^A-Za-z0-9]/-}.log start=$SECONDS status
    shift
    printf '%-46s' "$name"
    set +e # not `if`, inside of which no `set -e` holds
    (set -e; "$@") >"$log" 2>&1 </dev/null
    status=$?
    set -e
    if [ "$status" -ne 0 ]; then
        echo "FAILED"
        cat "$log"
        exit 1
    fi
    echo "$((SECONDS - start)) s$(sed -nE 's/^([0-9]+ (passed|examples).*)|^ℹ (pass .*)/, \1\3/p' "$log")"
}
