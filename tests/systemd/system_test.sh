#!/usr/bin/env bash
# Two nodes with a real systemd, as an administrator has them: packages installed in two booted Debian roots, a limited link between
# them, a job that trains across both while daemons are killed, frozen, restarted and upgraded, and one root loses its power.
# Usage: system_test.sh PACKAGE_FOLDER CACHE_FOLDER RANK_PROGRAM [EARLIER_PACKAGE_FOLDER]. One line per check; exit status 1: one failed;
# 77: skipped, with the reason. `./dev system-test` runs it.
set -uo pipefail

readonly packages=$1 cache=$2 rank_program=$3 earlier=${4-$1}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here exposure_max=2.0 boot_seconds=120
# shellcheck source=tests/systemd/debian_root.sh
. "$here/debian_root.sh"
find_packages "$packages"
for tool in ip tc nsenter; do command -v "$tool" >/dev/null || skip "$tool is not installed: ./dev setup --full"; done
[[ -x $rank_program ]] || skip "no program $rank_program: ./dev build"
make_bare_root
# shellcheck source=tests/systemd/checks.sh
. "$here/checks.sh"
work=$(mktemp -d "$cache/nodes-XXXXXX")
readonly work
# shellcheck source=tests/systemd/system_nodes.sh
. "$here/system_nodes.sh"
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

first_debs=("$earlier"/*.deb)
((${#first_debs[@]})) || skip "no packages in $earlier"

# ---- packages of the next version: those that were built, under a higher number than the ones that the nodes begin with ----
next_version() { # DEB FOLDER
    local tree=$work/next
    rm -rf "$tree"
    dpkg-deb -R "$1" "$tree"
    sed -i -E 's/^(Version: .*)$/\1+next1/; s/(libgradsieve0|libgradsieve-dev|gradsieve) \(= ([^)]*)\)/\1 (= \2+next1)/g' "$tree/DEBIAN/control"
    dpkg-deb --root-owner-group -b "$tree" "$2" >/dev/null
    rm -rf "$tree"
}
mkdir "$work/next-packages"
for deb in "${debs[@]}"; do next_version "$deb" "$work/next-packages"; done

# ---- two roots ----
make_link
for node in a b; do
    cp -a --reflink=auto "$bare" "$work/$node"
    mkdir -p "$work/$node/gradsieve-test/next"
    cp "${first_debs[@]}" "$rank_program" "$work/$node/gradsieve-test"
    cp "$work"/next-packages/*.deb "$work/$node/gradsieve-test/next"
    chmod 755 "$work/$node/gradsieve-test" "$work/$node/gradsieve-test/${rank_program##*/}"
    echo "$node" >"$work/$node/etc/hostname"
    power_on "$node" || { tail -20 "$work/console-$node.log"; skip "systemd-nspawn does not start a root here"; }
done
for node in a b; do
    within "$boot_seconds" has_booted "$node" || { tail -20 "$work/console-$node.log"; skip "a root does not boot here"; }
done

# ---- installation ----
install_in() { inside "$1" bash -c 'dpkg -i /gradsieve-test/*.deb'; }
status_is_green() { inside "$1" gradsieve status; }
exposure() { inside "$1" systemd-analyze security --no-pager gradsieved.service | sed -nE 's/.*Overall exposure level for gradsieved.service: ([0-9.]+).*/\1/p'; }
for node in a b; do
    check "$node: the packages install" install_in "$node"
    check "$node: status is green within 10 s" within 10 status_is_green "$node"
done
exposed=$(exposure a)
check "a: systemd-analyze security says $exposed, allowed is $exposure_max" at_most "$exposure_max" "$exposed"

# ---- a cluster ----
make_keys() {
    local node key
    {
        printf '[state]\nsnapshot_steps = 20\n'
        for node in a b; do
            key=$(inside "$node" runuser -u gradsieve -- gradsieve keygen --out /var/lib/gradsieve | tail -1 | grep -oE '[^ "]{40}' | tail -1) || return 1
            printf '[[node]]\nname = "%s"\naddress = "%s"\npublic_key = "%s"\n' "$node" "${address[$node]}" "$key"
        done
    } >"$work/gradsieved.toml"
    for node in a b; do
        cp "$work/gradsieved.toml" "$work/$node/etc/gradsieve/gradsieved.toml"
        inside "$node" gradsieve check-config && inside "$node" systemctl restart gradsieved || return 1
    done
}
sees_peer() { inside "$1" gradsieve peers | grep -qE "^ *${peer[$1]} .* up "; }
check "both get keys and one configuration, and restart" make_keys
for node in a b; do check "$node: its peer is up within 10 s" within 10 sees_peer "$node"; done

# ---- a job across both: two ranks on each ----
start_ranks() { # NODE
    local rank
    for rank in $([[ $1 == a ]] && echo 0 1 || echo 2 3); do
        nsenter --target "${leader[$1]}" --mount --uts --ipc --net --pid --root --wd -- runuser -u trainer -- \
            "/gradsieve-test/${rank_program##*/}" --rank "$rank" --world 4 --steps 1000000 --compute-ms 20 --deadline-ms 30000 \
            </dev/null >>"$work/rank-$rank.log" 2>&1 &
        disown # the shell does not tell of its death
    done
}
stop_ranks() { for node in a b; do [[ -z ${leader[$node]-} ]] || inside "$node" bash -c \
    'for rank in $(grep -ls "^e2e_resuming" /proc/[0-9]*/comm); do kill -KILL "$(basename "$(dirname "$rank")")"; done'; done; }
newest_step() { awk '/^average / && $2 > newest {newest = $2} END {print newest + 0}' "$work"/rank-*.log; }
all_beyond() { # STEP
    local rank
    for rank in 0 1 2 3; do awk -v step="$1" '/^average / && $2 > step {found = 1} END {exit !found}' "$work/rank-$rank.log" || return 1; done
}
job_goes_on() { within 90 all_beyond "$(($(newest_step) + 5))" || { tail -n 3 "$work"/rank-*.log; return 1; }; }
# Not since the last time: a job that went on from kept state has a first step beyond 1.
beginnings=0
nobody_began_anew() {
    local now
    now=$(cat "$work"/rank-*.log | grep -c '^started 1$')
    same "$beginnings" "$now" || { tail -n 5 "$work"/rank-*.log; return 1; }
}
# Every average of a step, on all ranks and in all their lives, has the same bits.
averages_agree() { cat "$work"/rank-*.log | awk '/^average/ {key = $1 " " $2; if (key in seen && seen[key] != $3) {print key, seen[key], $3; bad = 1} seen[key] = $3} END {exit bad}'; }
sent_bytes() { tc -n "$(namespace_of "$1")" -s qdisc show dev "$device" | sed -nE 's/.*Sent ([0-9]+) bytes.*/\1/p' | head -1; }
for node in a b; do inside "$node" useradd --create-home --groups gradsieve trainer; done
for rank in 0 1 2 3; do : >"$work/rank-$rank.log"; done
sent_before=$(sent_bytes a)
for node in a b; do start_ranks "$node"; done
check "four ranks train across both" job_goes_on
check "the limited link carried it" differ "$sent_before" "$(sent_bytes a)"
beginnings=$(cat "$work"/rank-*.log | grep -c '^started 1$')

is_another() { # NODE PID
    local now
    now=$(main_pid "$1")
    [[ $now != 0 && $now != "$2" ]]
}

# ---- killed ----
before=$(main_pid b) moment=$(seconds_now)
check "systemctl kill -s KILL on b" inside b systemctl kill -s KILL gradsieved
check "b comes back" within 30 is_another b "$before"
check "a named it: closed" within 10 said_after a "$moment" "b is closed"
check "the job goes on" job_goes_on
check "from the state that systemd kept" nobody_began_anew

# ---- frozen ----
before=$(main_pid b) moment=$(seconds_now)
check "b's daemon is frozen" inside b bash -c "kill -STOP $before"
check "a names it: silent" within 10 said_after a "$moment" "b is silent"
named=$(said_after a "$moment" "b is silent")
check "after $named s, allowed are 4" at_most 4 "$named"
check "the watchdog ends it, and it comes back" within 40 is_another b "$before"
check "the journal says watchdog" inside b bash -c 'journalctl --no-pager -u gradsieved | grep -i "watchdog timeout"'
check "the job goes on" job_goes_on
check "from the state that systemd kept" nobody_began_anew

# ---- restarted ----
before=$(main_pid a)
check "systemctl restart on a, in the middle of a step" inside a systemctl restart gradsieved
check "another process runs" is_another a "$before"
check "the job goes on" job_goes_on
check "from the state that systemd kept" nobody_began_anew

# ---- without power ----
# Both groups of the job: from one alone it could not go on.
snapshots_lie_there() { [[ $(inside "$1" gradsieve status --json | grep -oE '"snapshot_step": *[1-9][0-9]*' | wc -l) == 2 ]]; }
for node in a b; do check "$node: every group has a snapshot on disk" within 60 snapshots_lie_there "$node"; done
moment=$(seconds_now)
power_off b
check "b loses its power: a names it" within 10 said_after a "$moment" "b is silent"
named=$(said_after a "$moment" "b is silent")
check "after $named s, allowed are 4" at_most 4 "$named"
power_on b || echo "FAILED b boots again"
check "b is up" within "$boot_seconds" has_booted b
check "its peer is up again" within 20 sees_peer a
stop_ranks
for node in a b; do start_ranks "$node"; done
check "the job, started again, goes on" job_goes_on
check "from the snapshot" nobody_began_anew

# ---- upgraded, one node at a time, under the job ----
version_in() { inside "$1" dpkg-query -W -f '${Version}' gradsieve; }
for node in a b; do
    old=$(version_in "$node") before=$(main_pid "$node")
    check "$node: the next version installs under the job" inside "$node" bash -c \
        'dpkg --force-confold -i /gradsieve-test/next/*.deb >/gradsieve-test/upgrade.txt 2>&1 || { cat /gradsieve-test/upgrade.txt; exit 1; }'
    check "$node: its configuration stays" same "$(cat "$work/gradsieved.toml")" "$(inside "$node" cat /etc/gradsieve/gradsieved.toml)"
    check "$node: it is another version" differ "$old" "$(version_in "$node")"
    check "$node: it leaves the daemon alone" same "$before" "$(main_pid "$node")"
    check "$node: it says how to restart" inside "$node" grep -q 'systemctl restart gradsieved' /gradsieve-test/upgrade.txt
    check "the job goes on" job_goes_on
    check "$node: restart" inside "$node" systemctl restart gradsieved
    check "$node: another process runs" is_another "$node" "$before"
    check "the job goes on, its nodes of $([[ $node == a ]] && echo two versions || echo the next version)" job_goes_on
    check "from the state that systemd kept" nobody_began_anew
done
check "every average had the same bits on all ranks, in all their lives" averages_agree
steps=$(newest_step)

# ---- gone ----
stop_ranks
for node in a b; do
    check "$node: purged" inside "$node" dpkg --purge gradsieve python3-gradsieve libgradsieve-dev libgradsieve0
    check "$node: no daemon, user, state, socket, configuration or unit is left" inside "$node" bash -c \
        '! grep -lxs gradsieved /proc/[0-9]*/comm && ! getent passwd gradsieve && ! getent group gradsieve && ! ls -d /var/lib/gradsieve /run/gradsieve /etc/gradsieve 2>/dev/null &&
         ! find /etc/systemd /lib/systemd /usr/lib/sysusers.d /usr/lib/tmpfiles.d /var/lib/systemd -name "*gradsieve*" | grep .'
    check "$node: nothing in /dev/shm" inside "$node" bash -c '! ls -A /dev/shm | grep .'
done

if ((failed)); then
    for node in a b; do
        echo "---- journal of $node"
        inside "$node" journalctl --no-pager --boot -u gradsieved.service -u gradsieved.socket | tail -40
    done
    echo "---- what the ranks said last"
    tail -n 5 "$work"/rank-*.log
fi
echo "all checks done: $steps steps"
exit "$failed"
