# For the scripts that judge the packages: one line per check, "ok ..." or "FAILED ..." with what was seen. Sourced; `failed` is 1
# once a check has failed.
failed=0

check() { # WHAT COMMAND...
    local what=$1 output
    shift
    if output=$("$@" 2>&1); then
        echo "ok $what"
    else
        echo "FAILED $what: $*"
        printf '%s\n' "$output" | tail -30 | sed 's/^/    /'
        failed=1
    fi
}
# SECONDS COMMAND...: until it succeeds. The longer limits only keep a hang from lasting; 10 s after a start is a promise.
within() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < until)) || { "$@"; return; }
        sleep 0.1
    done
}
not() { ! "$@"; }
same() { [[ -n $1 && $1 == "$2" ]] || { echo "'$1' and '$2' differ"; return 1; }; }
differ() { [[ -n $2 && $2 != 0 && $1 != "$2" ]] || { echo "'$1', then '$2'"; return 1; }; }
absent() { for path in "$@"; do [[ ! -e $path && ! -L $path ]] || { ls -ld "$path"; return 1; }; done; }
