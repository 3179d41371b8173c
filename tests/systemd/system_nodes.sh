# Two booted Debian roots, a and b, with a limited link between them. Sourced by system_test.sh; needs `bare`, `work`, `rank_program`.
# What is started here ends with `power_off` or with the script (`clean_up`).

readonly rate=200mbit burst=64kb latency=50ms device=gsn0
declare -A address=([a]=10.80.0.1 [b]=10.80.0.2) peer=([a]=b [b]=a) supervisor=() leader=()

namespace_of() { echo "gradsieve-system-$1-$$"; }

make_link() {
    local node name
    for name in $(ip netns list | grep -o '^gradsieve-system-[ab]-[0-9]*'); do # of runs that were killed
        [[ -e /proc/${name##*-} ]] || ip netns delete "$name"
    done
    for node in a b; do ip netns add "$(namespace_of "$node")"; done
    ip link add "$device" netns "$(namespace_of a)" type veth peer name "$device" netns "$(namespace_of b)"
    for node in a b; do
        ip -n "$(namespace_of "$node")" address add "${address[$node]}/24" dev "$device"
        ip -n "$(namespace_of "$node")" link set lo up
        ip -n "$(namespace_of "$node")" link set "$device" up
        tc -n "$(namespace_of "$node")" qdisc add dev "$device" root tbf rate "$rate" burst "$burst" latency "$latency"
    done
}

# Each root in a control group of its own: its systemd takes the one that it is started in.
own_group() {
    local hierarchy
    for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [[ -w $hierarchy/cgroup.procs ]] || continue
        mkdir -p "$hierarchy/gradsieve-system-$1" && echo "$BASHPID" >"$hierarchy/gradsieve-system-$1/cgroup.procs"
    done
}

power_on() { # NODE
    local node=$1
    ip -n "$(namespace_of "$node")" link set "$device" up
    (
        own_group "$node"
        exec systemd-nspawn --quiet --directory="$work/$node" --machine="gradsieve-$node" --register=no --keep-unit \
            --network-namespace-path="/run/netns/$(namespace_of "$node")" --console=pipe --boot </dev/null
    ) >>"$work/console-$node.log" 2>&1 &
    supervisor[$node]=$!
    within 60 find_leader "${supervisor[$node]}" >/dev/null || return 1
    leader[$node]=$(find_leader "${supervisor[$node]}")
}
# The first process of the root that a systemd-nspawn has started.
find_leader() { # PID
    local child
    for child in $(pgrep -P "$1"); do
        [[ $(awk '/^NSpid:/ {print $NF}' "/proc/$child/status") == 1 ]] && echo "$child" && return 0
    done
    return 1
}

# As when the power goes: no process in the root hears of it, and nobody outside hears from it.
power_off() { # NODE
    ip -n "$(namespace_of "$1")" link set "$device" down || true
    kill -KILL "${supervisor[$1]}" ${leader[$1]+"${leader[$1]}"} 2>/dev/null || true
    wait "${supervisor[$1]}" 2>/dev/null || true
    [[ -z ${leader[$1]-} ]] || within 20 not test -e "/proc/${leader[$1]}"
    unset "supervisor[$1]" "leader[$1]"
}

inside() { # NODE COMMAND...: as root, in the root's own namespaces
    nsenter --target "${leader[$1]}" --mount --uts --ipc --net --pid --root --wd -- \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "${@:2}"
}

has_booted() { # NODE
    [[ $(inside "$1" systemctl is-system-running 2>/dev/null) =~ ^(running|degraded)$ ]]
}

main_pid() { inside "$1" systemctl show --value --property=MainPID gradsieved; } # NODE: in the root's own numbers
seconds_now() { date +%s.%N; }

# Seconds from a moment to the first line of NODE's daemon that begins with TEXT; nothing if there is none since.
said_after() { # NODE MOMENT TEXT
    inside "$1" journalctl --no-pager --output=short-unix --unit=gradsieved --since="@${2%.*}" |
        awk -v from="$2" -v text="$3" '$1 > from && index($0, ": " text) {printf "%.2f\n", $1 - from; found = 1; exit} END {exit !found}'
}
at_most() { # LIMIT VALUE
    awk -v limit="$1" -v value="$2" 'BEGIN {if (value == "" || value > limit) {print "seen: " value ", allowed: " limit; exit 1}}'
}

clean_up() {
    local node hierarchy
    for node in a b; do [[ -z ${supervisor[$node]-} ]] || power_off "$node"; done
    for node in a b; do
        ip netns delete "$(namespace_of "$node")" 2>/dev/null || true
        rmdir "/run/systemd/nspawn/propagate/gradsieve-$node" 2>/dev/null || true
        for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
            find "$hierarchy/gradsieve-system-$node" -depth -type d -exec rmdir {} + 2>/dev/null || true
        done
    done
    rm -rf "$work"
}
