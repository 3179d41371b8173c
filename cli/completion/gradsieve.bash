# bash completion for gradsieve(1). Needs nothing but bash.

# Names of the nodes in the configuration file.
_gradsieve_nodes() {
    sed -n 's/^[[:space:]]*name[[:space:]]*=[[:space:]]*"\([^"]*\)".*/\1/p' /etc/gradsieve/gradsieved.toml 2>/dev/null
}

_gradsieve() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} options
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "status peers metrics trace codecs plan check-config keygen state doctor demo --help --version" -- "$current")
        return
    fi
    case $previous in
        --socket | --out | --output | --file)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
            ;;
        --state)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$current")
            return
            ;;
        --node)
            mapfile -t COMPREPLY < <(compgen -W "$(_gradsieve_nodes)" -- "$current")
            return
            ;;
    esac
    case $command in
        status) options="--socket --watch --json --all --help" ;;
        peers) options="--socket --json --help" ;;
        metrics) options="--socket --output --help" ;;
        trace) options="--job --run --steps --output --timeout --socket --json --help" ;;
        codecs) options="explain --elements --gradients --json --help" ;;
        plan)
            options="--params --nodes --link --step-ms --backward-share --latency-us --threads --codec-speed --socket-speed --codec --gradients --json --help"
            ;;
        check-config) options="--node --socket --state --help" ;;
        keygen) options="--out --force --show --help" ;;
        state) options="list save load release --run --group --step --all-steps --file --timeout --socket --state --json --help" ;;
        doctor) options="--node --socket --help" ;;
        demo) options="--help" ;;
        *) return ;;
    esac
    if [[ $current != -* && ($command == check-config || $command == doctor) ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
}

complete -F _gradsieve gradsieve
