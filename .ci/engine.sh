#!/usr/bin/env bash
# A container engine for the tests, on a Debian host that has none and may reach no image registry.
#
#   engine.sh up      Debian's Docker Engine and compose, a daemon of its own, a base image made here; again: does nothing
#   engine.sh env     what a shell has to export to use it:  eval "$(.ci/engine.sh env)"
#   engine.sh down    ends this daemon's containers and the daemon, and takes back what it changed on the host
#   engine.sh purge   down, and forget its images, too
#
# Special here: the daemon keeps everything in one folder and is known by it, so nothing of another engine on the same
# host is touched. Images are made of Debian's own packages: local/python:3.11-slim, and local/wheels with the files of
# pip's find-links folder, if pip has one. They trust the CAs that this host trusts; they are for tests and never shipped.
set -euo pipefail

STATE=${LOCKSTEP_ENGINE:-/var/tmp/lockstep-engine}  # short: a socket's path has at most 108 bytes
PYTHON_IMAGE=local/python:3.11-slim
WHEELS_IMAGE=local/wheels:latest
export DOCKER_HOST=unix://$STATE/docker.sock
DOCKER=/usr/bin/docker  # Debian's: it has BuildKit built in

say() { printf '[engine %4ss] %s\n' "$SECONDS" "$*" >&2; }

install() {
  if [ -x /usr/sbin/dockerd ] && [ -x /usr/bin/docker-compose ] && [ -x /usr/sbin/debootstrap ]; then return; fi
  say "installing packages"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq -o DPkg::Lock::Timeout=300
  # No recommendations: one of them mounts cgroups anew.
  apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 docker.io docker-compose debootstrap \
    >"$STATE/apt.log" 2>&1 || { tail -20 "$STATE/apt.log" >&2; return 1; }
}

command_of() { [ -r "/proc/$1/cmdline" ] && tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null; }
is_ours() { [ -n "${1:-}" ] && command_of "$1" | grep -qF -- "--data-root $STATE/data"; }

# A daemon that was killed leaves its containerd, the shims, and the containers below them.
end_leftovers() {
  local pid child
  for pid in $(pgrep -x containerd-shim || true); do
    command_of "$pid" | grep -qF -- "$STATE/exec/" || continue
    for child in $(pgrep -P "$pid" || true); do kill -9 "$child" 2>/dev/null || true; done
    kill -9 "$pid" 2>/dev/null || true
  done
  pid=$(cat "$STATE/exec/containerd/containerd.pid" 2>/dev/null || true)
  if [ -n "$pid" ] && command_of "$pid" | grep -qF -- "$STATE/exec/"; then kill -9 "$pid" || true; fi
  awk -v own="$STATE/" 'index($2, own) == 1 {print $2}' /proc/mounts | sort -r |
    while read -r mounted; do umount -l "$mounted" || true; done
  rm -rf "$STATE/docker.pid" "$STATE/docker.sock" "$STATE/exec"
}

start() {
  if is_ours "$(cat "$STATE/docker.pid" 2>/dev/null)" && $DOCKER info >/dev/null 2>&1; then say "already up"; return; fi
  end_leftovers
  # Forwarding is on before the daemon starts: then it leaves the policy of FORWARD alone.
  [ -f "$STATE/ip_forward" ] || cat /proc/sys/net/ipv4/ip_forward >"$STATE/ip_forward"
  echo 1 >/proc/sys/net/ipv4/ip_forward
  cat >"$STATE/daemon.json" <<'JSON'
{ "bip": "172.29.0.1/24",
  "default-address-pools": [ { "base": "172.30.0.0/16", "size": 24 } ],
  "storage-driver": "overlay2",
  "log-driver": "json-file", "log-opts": { "max-size": "10m", "max-file": "2" },
  "shutdown-timeout": 5 }
JSON
  setsid nohup /usr/sbin/dockerd --config-file "$STATE/daemon.json" --host "$DOCKER_HOST" --data-root "$STATE/data" \
    --exec-root "$STATE/exec" --pidfile "$STATE/docker.pid" >"$STATE/dockerd.log" 2>&1 </dev/null &
  local pid=$!
  for _ in $(seq 1 300); do
    if $DOCKER info >/dev/null 2>&1; then say "daemon up"; return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.2
  done
  tail -20 "$STATE/dockerd.log" >&2
  return 1
}

have() { $DOCKER image inspect "$1" >/dev/null 2>&1; }

base_image() {
  have "$PYTHON_IMAGE" && return
  local root where=$STATE suite mirror
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | head -1)
  # In memory where there is room: dpkg waits for the disk after every file.
  if [ "$(df -m --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 1500 ] 2>/dev/null; then where=/dev/shm; fi
  root=$(mktemp -d "$where/lockstep-base.XXXXXX")
  chmod 755 "$root"
  say "making $PYTHON_IMAGE"
  mkdir -p "$STATE/debs"
  debootstrap --variant=minbase --cache-dir="$STATE/debs" --include=python3,python3-venv,python3-pip,ca-certificates \
    "$suite" "$root" "$mirror" >"$STATE/debootstrap.log" 2>&1 || { tail -20 "$STATE/debootstrap.log" >&2; return 1; }
  # A host behind a proxy of its own has CAs of its own; pip in a venv would look at its own bundle.
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
  chroot "$root" update-ca-certificates >/dev/null 2>&1
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\nfind-links = /wheels\n' >"$root/etc/pip.conf"
  mkdir -p "$root/wheels"
  rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
  ln -sf /usr/bin/python3 "$root/usr/local/bin/python"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
  rm -f "$root/etc/resolv.conf"
  tar -C "$root" --exclude='./dev/*' --exclude='./proc/*' --exclude='./sys/*' -c . |
    $DOCKER import -c 'CMD ["python3"]' -c 'ENV LANG=C.UTF-8' - "$PYTHON_IMAGE" >/dev/null
  rm -rf "$root"
}

wheels_image() {
  local folder=${PIP_FIND_LINKS:-}
  have "$WHEELS_IMAGE" && return
  if [ -z "$folder" ] || ! ls "$folder"/*.whl >/dev/null 2>&1; then return 0; fi
  tar -C "$folder" -c . | $DOCKER import - "$WHEELS_IMAGE" >/dev/null
}

# `docker compose` by way of Debian's docker-compose.
compose_plugin() {
  mkdir -p "$STATE/bin" "$STATE/config/cli-plugins"
  ln -sf /usr/bin/docker /usr/bin/docker-compose "$STATE/bin/"
  cat >"$STATE/config/cli-plugins/docker-compose" <<'PLUGIN'
#!/bin/sh
if [ "$1" = docker-cli-plugin-metadata ]; then
  echo '{"SchemaVersion":"0.1.0","Vendor":"Debian","Version":"v1.29.2","ShortDescription":"docker-compose"}'
  exit 0
fi
[ "$1" = compose ] && shift
exec /usr/bin/docker-compose "$@"
PLUGIN
  chmod +x "$STATE/config/cli-plugins/docker-compose"
}

try_it() {
  test "$($DOCKER run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges --pids-limit 64 \
    --memory 256m --memory-swap 256m --user 1000:1000 "$PYTHON_IMAGE" python -c 'print(6 * 7)')" = 42
}

print_env() {
  cat <<EXPORTS
export DOCKER_HOST=$DOCKER_HOST
export DOCKER_CONFIG=$STATE/config
export DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1
export PATH=$STATE/bin:\$PATH
export BASE_IMAGE=$PYTHON_IMAGE
export ENGINE_SOCKET=$STATE/docker.sock ENGINE_GID=$(stat -c %g "$STATE/docker.sock" 2>/dev/null || echo 0)
EXPORTS
  # torch from the wheels that this host's pip has, and from no index beside the usual one.
  if have "$WHEELS_IMAGE"; then echo "export WHEELS_IMAGE=$WHEELS_IMAGE TORCH_INDEX_URL="; fi
}

# What the daemon leaves: bridges, chains of iptables, forwarding, empty cgroups of containers that were killed hard.
restore_host() {
  local tool table rule chain link group
  { ip -o link show type bridge 2>/dev/null || true; } | awk -F': ' '$2 ~ /^(docker0|br-[0-9a-f]{12})$/ {print $2}' |
    while read -r link; do ip link del "$link" || true; done
  for tool in iptables ip6tables; do
    command -v $tool >/dev/null || continue
    for table in filter nat; do
      { $tool -w -t $table -S 2>/dev/null || true; } |
        awk '/^-A (FORWARD|PREROUTING|OUTPUT|POSTROUTING) / && /DOCKER|docker0|br-[0-9a-f]/ {$1="-D"; print}' |
        while read -r rule; do $tool -w -t $table $rule || true; done
      for rule in -F -X; do
        for chain in $({ $tool -w -t $table -S 2>/dev/null || true; } | awk '$1=="-N" && $2 ~ /^DOCKER/ {print $2}'); do
          $tool -w -t $table $rule "$chain" || true
        done
      done
    done
  done
  for group in /sys/fs/cgroup/*/docker; do
    [ -d "$group" ] && find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  done
  if [ -f "$STATE/ip_forward" ]; then
    cat "$STATE/ip_forward" >/proc/sys/net/ipv4/ip_forward
    rm -f "$STATE/ip_forward"
  fi
}

down() {
  local pid running
  pid=$(cat "$STATE/docker.pid" 2>/dev/null || true)
  if is_ours "$pid"; then
    running=$($DOCKER ps -aq || true)
    [ -z "$running" ] || $DOCKER rm -f $running >/dev/null || true
    $DOCKER network prune -f >/dev/null || true
    $DOCKER volume prune -f >/dev/null || true
    kill "$pid"
    for _ in $(seq 1 100); do is_ours "$pid" || break; sleep 0.1; done
    if is_ours "$pid"; then kill -9 "$pid" || true; fi
  fi
  end_leftovers
  restore_host
  say "down"
}

[ "$(id -u)" = 0 ] || { echo "engine.sh: it starts a daemon, and needs root for that" >&2; exit 1; }
mkdir -p "$STATE"
case "${1:-}" in
  up) install; start; compose_plugin; base_image; wheels_image; try_it; say "ready" ;;
  env) print_env ;;
  down) down ;;
  purge) down; rm -rf "$STATE" ;;
  *) echo "usage: engine.sh up | env | down | purge" >&2; exit 2 ;;
esac
