#!/usr/bin/env bash
# Runs inside the booted root: installs the packages, uses them as an administrator would, and takes them away again.
# One line per check, "ok ..." or "FAILED ..."; "all checks done" at the end.
set -uo pipefail
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
cd /gradsieve-test || exit 1

# shellcheck source=tests/systemd/checks.sh
. ./checks.sh
main_pid() { systemctl show --value --property=MainPID gradsieved; }
listener() { awk '$NF == "/run/gradsieve/gradsieved.sock" {print $7}' /proc/net/unix | sort | head -1; }
# Exit status 0 means live; what it printed is shown if the check fails.
status_is_green() { gradsieve status 2>&1; }

# ---- first installation ----
check "the packages install" dpkg -i ./*.deb
check "Python finds package and library" python3 -c 'import gradsieve; assert gradsieve.library_version() == gradsieve.__version__'
check "the daemon is enabled" systemctl is-enabled gradsieved.service
check "its socket is enabled" systemctl is-enabled gradsieved.socket
check "a first installation starts it" systemctl is-active gradsieved.socket gradsieved.service

# ---- start, by hand ----
systemctl stop gradsieved.service 2>/dev/null
check "a clean stop is a success" same success "$(systemctl show --value --property=Result gradsieved)"
check "the socket's path outlives a stop" test -S /run/gradsieve/gradsieved.sock
check "systemctl start gradsieved" systemctl start gradsieved
check "status is green within 10 s" within 10 status_is_green
check "it runs as its own user" same gradsieve "$(stat -c %U "/proc/$(main_pid)")"
check "it may lock memory without limit" same infinity "$(systemctl show --value --property=LimitMEMLOCK gradsieved)"
check "the journal has its lines" bash -c 'journalctl --no-pager -u gradsieved | grep -q "gradsieved\["'
check "members of the group may attach, others not" same "660 root gradsieve" "$(stat -c '%a %U %G' /run/gradsieve/gradsieved.sock)"
check "reload leaves it running" bash -c 'pid=$(systemctl show --value -p MainPID gradsieved); systemctl reload gradsieved && [[ $pid == "$(systemctl show --value -p MainPID gradsieved)" ]]'

# ---- metrics ----
check "the package ships alert rules and a dashboard" test -s /usr/share/doc/gradsieve/examples/alerts.yml -a -s /usr/share/doc/gradsieve/examples/grafana-dashboard.json
check "the metrics' timer waits to be enabled" same disabled "$(systemctl is-enabled gradsieve-metrics.timer)"
mkdir -p /var/lib/prometheus/node-exporter && chown 65534 /var/lib/prometheus/node-exporter
check "the timer starts" systemctl enable --now gradsieve-metrics.timer
check "metrics reach the collector's folder" within 10 grep -q '^gradsieve_up 1$' /var/lib/prometheus/node-exporter/gradsieve.prom
check "the collector may read them" same 644 "$(stat -c %a /var/lib/prometheus/node-exporter/gradsieve.prom)"

# ---- restarts ----
before=$(main_pid) listener_before=$(listener)
check "restart" systemctl restart gradsieved
check "another process runs after it" differ "$before" "$(main_pid)"
check "the listener is the same one" same "$listener_before" "$(listener)"
check "status is green after a restart" within 10 status_is_green
before=$(main_pid)
kill -KILL "$before"
check "a killed daemon comes back" within 60 bash -c '[[ "$(systemctl show --value -p MainPID gradsieved)" != 0 && "$(systemctl show --value -p MainPID gradsieved)" != '"$before"' ]]'
check "status is green after a crash" within 60 status_is_green
check "the listener is still the same one" same "$listener_before" "$(listener)"

# ---- a job, and an upgrade under it ----
useradd --create-home --groups gradsieve trainer
useradd --create-home outsider
chmod 755 . ./hold_job
check "who is not in the group is turned away, and told so" bash -c '! runuser -u outsider -- ./hold_job </dev/null >outsider.txt && grep "join the group .gradsieve." outsider.txt'
mkfifo hold && exec 9<>hold
runuser -u trainer -- ./hold_job <hold >trainer.txt 2>&1 9>&- &
check "who is in the group trains" within 20 grep -qx 'average 0.5' trainer.txt
check "status shows the job" within 10 bash -c 'gradsieve status --json | grep -q "\"held\""'
before=$(main_pid)
check "an upgrade under a live job installs" bash -c 'dpkg -i ./gradsieve_*.deb >upgrade.txt 2>&1'
check "it leaves the daemon alone" same "$before" "$(main_pid)"
check "it says how to restart" grep -q 'systemctl restart gradsieved' upgrade.txt
exec 9>&-
check "the job lived through it and ends in good order" within 20 grep -qx 'detached' trainer.txt
check "status shows no job any more" within 10 bash -c 'gradsieve status --json | tr -d " \t\r\n" | grep -F "\"jobs\":[]"'

# ---- an upgrade without a job ----
configuration=/etc/gradsieve/gradsieved.toml
echo '# edited by the administrator' >>"$configuration"
before=$(main_pid)
check "an upgrade installs" dpkg -i ./gradsieve_*.deb
check "without a job it restarts the daemon" differ "$before" "$(main_pid)"
check "status is green after an upgrade" within 10 status_is_green
check "an edited configuration stays" grep -q '^# edited by' "$configuration"

# ---- an upgrade that is broken off ----
check "an upgrade is unpacked and not configured" dpkg --unpack ./gradsieve_*.deb
check "the package is purged in that state" dpkg --purge gradsieve
check "its daemon is gone with it" not grep -lxs gradsieved /proc/[0-9]*/comm
check "it can be installed again" dpkg -i ./gradsieve_*.deb
check "status is green again" within 10 status_is_green

# ---- purge ----
check "the packages are purged" dpkg --purge gradsieve python3-gradsieve libgradsieve-dev libgradsieve0
check "no daemon is left" not grep -lxs gradsieved /proc/[0-9]*/comm
check "no user is left" not getent passwd gradsieve
check "no group is left" not getent group gradsieve
check "no state, socket or configuration is left" absent /var/lib/gradsieve /run/gradsieve /etc/gradsieve
check "no unit is left" bash -c '! find /etc/systemd /lib/systemd /usr/lib/sysusers.d /usr/lib/tmpfiles.d /var/lib/systemd -name "*gradsieve*" | grep .'
check "nothing was ever left in /dev/shm" bash -c '! ls -A /dev/shm | grep .'
check "nothing is failed" bash -c '! systemctl --failed --no-legend --plain | grep gradsieve'

if ((failed)); then
    echo "---- journal"
    journalctl --no-pager --boot -u gradsieved.service -u gradsieved.socket | tail -60
    echo "---- what the training processes said"
    cat trainer.txt outsider.txt 2>/dev/null
fi
echo "all checks done"
