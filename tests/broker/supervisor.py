#!/usr/bin/env python3
"""Runs a private RabbitMQ or a cluster, as root, for the program `broker` beside this file.

    supervisor.py [--keep] [--trees-only] [--nodes N] --cache DIR --owner UID [VERSION ...]

Prepares a tree (a root file system with RabbitMQ) for each version, all by default, then
runs the first one.  Writes the environment for clients to standard output, as JSON, once the
broker answers, and obeys ctl.py.  Ends when standard input is closed, which is when
`broker` ends, however that happens.  RabbitMQ lives in a PID namespace whose first process
the kernel kills when the supervisor ends, and with it all others.  The network namespaces of a
cluster are held by open files of the supervisor alone, so they too go when it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import random
import re
import resource
import select
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

# RabbitMQ: Debian suite
SUITES = {"3.8": "bullseye", "3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}
PAUSE_MINORITY = ("3.8", "3.10", "4.0")  # whose clusters choose how to handle a partition
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FAILED = 125  # exit status
START_LIMIT = 180.0  # seconds; several may start at once
GRACE = 10.0  # seconds between SIGTERM and SIGKILL for what the command left
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)  # by this process
ADVANCED_CONFIG = """
% What a wait queue sent to a target that died it sends again after this time, not after three minutes: tests wait for it.
[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, RESEND_MS}]}].
"""
DELAYED_PLUGIN, MANAGEMENT_PLUGIN = "rabbitmq_delayed_message_exchange", "rabbitmq_management"
# RabbitMQ does this by itself after half a second.
SAVE_QUEUES = "[ok = dets:sync(T) || T <- dets:all()]."
WATERMARK = 0.6  # of the machine's memory: more than a test uses
# get_alarms returns after every connection got the alarm; set_vm_memory_high_watermark does not wait for that.
SET_WATERMARK = "vm_memory_monitor:set_vm_memory_high_watermark({:f}), rabbit_alarm:get_alarms()."
TICK = 0.05  # seconds between two looks at something that is waited for
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = (
    "rabbitmqctl",
    "rabbitmq-diagnostics",
    "rabbitmq-queues",
    "rabbitmq-upgrade",
)
PORTS = (5672, 5671, 25672, 4369, 25673, 15672)  # of a node with an address of its own
PREFIX, LOCK = "backhop-broker-", "supervisor.lock"  # a directory; the file there that is locked
PLUGINS = "usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins"  # in a tree
HOME = "/var/lib/rabbitmq"  # RabbitMQ's, in a tree; the data directory is mounted there
LEAST_MEMORY_KB = 4 << 20  # that has to be available before RabbitMQ's files are in memory
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 1, 0x20000, 0x4000000, 0x20000000
CLONE_NEWNET = 0x40000000
NOWHERE = "02:00:00:00:00:00"  # a hardware address that no interface has
LIBC = ctypes.CDLL(None, use_errno=True)

# Runs $6… as user $3 on host $4 in tree $1, mounted read-only, with directory $2 as RabbitMQ's home and file $5 as its
# /etc/hosts.  Process 1 stays root: a change of user would undo PR_SET_PDEATHSIG.
# RabbitMQ has the plugins of its home in place of the tree's, which are in /mnt: it would look for modules in both.
IN_TREE = """
set -e; tree=$1; home=$2; user=$3; host=$4; hosts=$5; shift 5
mount --make-rprivate /
mount --bind "$tree" "$tree"
mount -o remount,bind,ro "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/tmp"
mount --bind "$home" "$tree/var/lib/rabbitmq"
plugins=$(echo "$tree"/usr/lib/rabbitmq/lib/*/plugins)
mount --bind "$plugins" "$tree/mnt"
mount --bind "$home/plugins" "$plugins"
mount --bind "$hosts" "$tree/etc/hosts"
echo "$host" >"$tree/proc/sys/kernel/hostname"
chroot --userspec="$user" --groups= "$tree" "$@" || exit
exit 0
"""

# Runs "$@", which builds a tree, with the proxies that apt uses.
BUILD_TREE = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
export http_proxy https_proxy
"$@" || exit
exit 0
"""

# Makes ca.pem, server.pem and server.key in the current directory, for the names and addresses in $1.
MAKE_CERTIFICATES = """
set -e
cat >openssl.cnf <<END
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $1
END
new_key='-config openssl.cnf -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1'
openssl req $new_key -keyout ca.key -x509 -days 30 -extensions ca -subj '/CN=Test CA' -out ca.pem
openssl req $new_key -keyout server.key -subj /CN=localhost -out server.csr
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 \
    -extfile openssl.cnf -extensions server -out server.pem
"""


class Failure(Exception):
    """The failure, the reason and the remedy, for the user."""


class Abandoned(Exception):
    """Standard input is closed: the program that needed the broker has ended."""


def say(text: str) -> None:
    print(f"broker: {text}", file=sys.stderr, flush=True)


def need_program(name: str) -> None:
    if not shutil.which(name):
        raise Failure(f"{name} is missing; install it: apt-get install {name}")


def end_of(log: Path) -> str:
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join([f"--- the end of {log.absolute()}", *text.splitlines()[-30:]])


# Processes in namespaces


def pause() -> None:
    """Waits one tick.  Raises Abandoned as soon as standard input is closed."""
    if select.select([0], [], [], TICK)[0]:
        raise Abandoned


def system_call(name: str, *arguments: int | bytes | None) -> None:
    if getattr(LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def spawn(
    script: str, *arguments: str, network: int | None = None, **options: Any
) -> subprocess.Popen[bytes]:
    """Starts a shell script as process 1 of new PID, mount and host name namespaces.

    When it ends, is killed, or this process ends, the kernel kills all processes that it
    started and drops their mounts; wait() returns after that.  `network` is an open network
    namespace, if not this process's.  `options` are Popen's.
    """

    def become_init() -> None:
        os.setsid()
        system_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if network is not None:
            system_call("setns", network, CLONE_NEWNET)
        system_call("unshare", CLONE_NEWNS | CLONE_NEWUTS)
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)

    own_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        system_call("unshare", CLONE_NEWPID)  # for the next child, not for this process
        command = ["/bin/sh", "-c", script, "broker", *arguments]
        return subprocess.Popen(command, preexec_fn=become_init, **options)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failure(
            f"cannot start a process in namespaces of its own: {error}; a container has to"
            " allow that (for Docker: --privileged)"
        ) from error
    finally:
        system_call("setns", own_namespace, CLONE_NEWPID)
        os.close(own_namespace)


def finish(process: subprocess.Popen[bytes]) -> int:
    """Waits for a process that spawn() started and returns its exit status."""
    try:
        while process.poll() is None:
            pause()
    finally:
        process.kill()
        process.wait()
    return process.returncode


def descendants(parent: int) -> list[int]:
    """Returns the IDs of the processes that descend from `parent`, itself included."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [parent]
    for each in found:
        found += children.get(each, [])
    return found


def end_processes_with(variable: str) -> None:
    """Ends all processes that have this in their environment, as "NAME=value", whatever they ignore."""
    mark, start = variable.encode(), time.monotonic()
    while True:
        left = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    left.append(int(path.parent.name))
        if not left or time.monotonic() > start + 2 * GRACE:
            return
        for each in left:
            with contextlib.suppress(OSError):
                late = time.monotonic() > start + GRACE
                os.kill(each, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(TICK)


# Trees


def debian_mirror() -> str:
    """Returns the URL of the Debian mirror that this host's apt uses."""
    listing = ""
    if "BACKHOP_DEBIAN_MIRROR" in os.environ:
        return os.environ["BACKHOP_DEBIAN_MIRROR"]
    if shutil.which("apt-get"):
        form = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(SITE)"
        command = ["apt-get", "indextargets", "--format", form]
        listing = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = re.search(r"^Debian\|Debian\|main\|(?!cdrom:)(.+)$", listing, re.MULTILINE)
    if not found:
        raise Failure(
            "cannot tell where to download Debian packages: apt has no package list from"
            " Debian; run `apt-get update`, or set BACKHOP_DEBIAN_MIRROR to the URL of a mirror"
        )
    return found.group(1)


def build_tree(version: str, tree: Path, log: Path) -> None:
    """Makes `tree`, a root file system with this version of RabbitMQ; uses the network."""
    suite = SUITES[version]
    need_program("mmdebstrap")
    if not KEYRING.exists():
        raise Failure(f"{KEYRING} is missing; install it: apt-get install debian-archive-keyring")
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--include=rabbitmq-server"]
    command += [f"--keyring={KEYRING}"]
    if suite == "forky":  # indexes of a suite that still changes expire after a week
        command += ['--aptopt=Acquire::Check-Valid-Until "false"']
    mirror = debian_mirror()
    command += [suite, str(tree), mirror]
    with open(log, "wb") as output:
        process = spawn(
            BUILD_TREE, *command, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        if finish(process) != 0:
            raise Failure(
                f"mmdebstrap cannot make a tree of Debian {suite} from {mirror}; to use another"
                f" mirror, set BACKHOP_DEBIAN_MIRROR to its URL\n{end_of(log)}"
            )
    log.unlink()
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for archive in tree.glob(f"{PLUGINS}/*.ez"):  # of 3.8; Erlang reads a directory faster
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(archive.parent)
        archive.unlink()
    there = [path.name[16:] for path in tree.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")]
    if not f"{' '.join(there)}.".startswith(f"{version}."):
        raise Failure(
            f"Debian {suite} now has RabbitMQ {' '.join(there) or '(none)'}, not {version}: change"
            f" SUITES in {__file__}, or set BACKHOP_DEBIAN_MIRROR to a mirror where {suite} still"
            f" has {version}, such as a snapshot of the archive"
        )


def try_lock(file: int) -> bool:
    """Locks an open file until it is closed, unless another process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def prepare_tree(version: str, cache: Path) -> Path:
    """Returns the tree for this version of RabbitMQ; builds it if there is none yet."""
    if version not in SUITES:
        raise Failure(f"there is no tree for RabbitMQ {version}, only for {', '.join(SUITES)}")
    tree = cache / "trees" / version
    if tree.is_dir():
        return tree
    with open(f"{tree}.lock", "w") as lock:
        if not try_lock(lock.fileno()):
            say(f"waiting for another run, which is preparing {tree}")
            while not try_lock(lock.fileno()):
                pause()
        if tree.is_dir():
            return tree
        say(f"preparing a RabbitMQ {version} tree in {tree}, once, about 20 s and 300 MB")
        new = tree.with_name(f"{version}.new")
        shutil.rmtree(new, ignore_errors=True)  # half built by a run that was killed
        try:
            build_tree(version, new, tree.with_name(f"{version}.log"))
            new.rename(tree)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return tree


# The network of a cluster


class Network:
    """A bridge with a network namespace for each of `count` nodes, in 198.18.K.0/24, where K is free.

    Node n has the address 198.18.K.(10 + n), the machine itself 198.18.K.1.  The bridge has a
    namespace of its own.  All are gone when this process ends: only its open files keep them.
    """

    def __init__(self, count: int) -> None:
        need_program("ip")
        self.host = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.bridge = self.new_namespace()
        self.nodes = [self.new_namespace() for _ in range(count)]
        self.ip(self.bridge, "link add bridge type bridge", "link set bridge up")
        for k in random.sample(range(256), 256):
            try:  # the name of the host's end must be unique
                self.connect(self.host, "host", f"backhop{k}", f"198.18.{k}.1")
                break
            except Failure as failure:
                if "exists" not in str(failure):
                    raise
        else:
            raise Failure("cannot find a free network in 198.18.0.0/16")
        self.addresses = [f"198.18.{k}.{11 + each}" for each in range(count)]
        for number, (namespace, address) in enumerate(zip(self.nodes, self.addresses), 1):
            self.connect(namespace, f"node{number}", "eth0", address)
            self.ip(namespace, "link set lo up")

    def new_namespace(self) -> int:
        system_call("unshare", CLONE_NEWNET)
        try:
            return os.open("/proc/self/ns/net", os.O_RDONLY)
        finally:
            system_call("setns", self.host, CLONE_NEWNET)

    def connect(self, namespace: int, port: str, interface: str, address: str) -> None:
        """Makes an interface with an address in a namespace, and joins it to a port of the bridge."""
        there = f"/proc/{os.getpid()}/fd/{namespace}"
        self.ip(
            self.bridge,
            f"link add {port} type veth peer name {interface} netns {there}",
            f"link set {port} master bridge up",
        )
        self.ip(namespace, f"addr add {address}/24 dev {interface}", f"link set {interface} up")

    def ip(self, namespace: int, *commands: str) -> None:
        """Has ip(8) obey commands in a namespace."""
        done = subprocess.run(
            ["ip", "-batch", "-"],
            input="\n".join(commands),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            preexec_fn=lambda: system_call("setns", namespace, CLONE_NEWNET),
        )
        if done.returncode != 0:
            raise Failure(f"cannot set up the network of a cluster: {done.stdout.strip()}")

    def separate(self, one: int, other: int) -> None:
        """Has two nodes, by index, send to each other into the void; the kernel reports nothing to them."""
        for at, to in ((one, other), (other, one)):
            entry = f"{self.addresses[to]} lladdr {NOWHERE} dev eth0 nud permanent"
            self.ip(self.nodes[at], f"neigh replace {entry}")

    def heal(self) -> None:
        for namespace in self.nodes:
            self.ip(namespace, "neigh flush dev eth0 nud permanent")


# The nodes


def reserve_ports() -> tuple[socket.socket, range]:
    """Returns six free ports, and what keeps other copies of this program off them.

    That is a Unix socket with an abstract name, which one process at a time can bind.
    The ports are below the range that the kernel gives to outgoing connections.
    """
    for base in random.sample(range(20000, 32000, 8), 200):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0backhop-broker-{base}")
            for port in range(base, base + 6):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return reservation, range(base, base + 6)
        except OSError:
            reservation.close()
    raise Failure("cannot find six free ports in a row between 20000 and 32000")


def delayed_plugin(version: str) -> Path | None:
    """Returns the delayed-message plugin's file for this version, from the files in BACKHOP_DELAYED_PLUGIN."""
    named = [Path(each) for each in os.environ.get("BACKHOP_DELAYED_PLUGIN", "").split(os.pathsep) if each]
    for file in named:
        if not file.is_file() or not re.fullmatch(rf"{DELAYED_PLUGIN}-v?\d+\.\d+\..*\.ez", file.name):
            raise Failure(
                f"BACKHOP_DELAYED_PLUGIN has {file}: name files as {DELAYED_PLUGIN}-{version}.2.ez, with"
                f" {os.pathsep!r} between them"
            )
    names = rf"{DELAYED_PLUGIN}-v?{re.escape(version)}\..*"
    return next((file for file in named if re.fullmatch(names, file.name)), None)


def applications(tree: Path, names: Sequence[str]) -> list[Path]:
    """Returns the directories of these applications of RabbitMQ, and of all that they depend on."""
    files = {file.stem: file for file in tree.glob(f"{PLUGINS}/*/ebin/*.app")}
    found, remaining = [], list(names)
    while remaining:
        file = files.pop(remaining.pop(), None)
        if file:  # others are Erlang's own, or found already
            found.append(file.parent.parent)
            for needed in re.findall(r"applications, *\[([^]]*)]", file.read_text()):
                remaining += re.findall(r"\w+", needed)
    return found


def wants_management() -> bool:
    """Returns true if brokers must serve the management API (BACKHOP_MANAGEMENT)."""
    return os.environ.get("BACKHOP_MANAGEMENT", "") not in ("", "0")


def wants_memory() -> bool:
    """Returns true if RabbitMQ's files must be in memory (BACKHOP_BROKER_MEMORY), and there is enough of it."""
    if os.environ.get("BACKHOP_BROKER_MEMORY", "") in ("", "0"):
        return False
    available = re.search(r"^MemAvailable: *(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return bool(available) and int(available[1]) >= LEAST_MEMORY_KB


def is_answering(address: str, port: int, tls: ssl.SSLContext | None) -> bool:
    """Returns true if there is an AMQP 0-9-1 broker that greets clients (Connection.Start)."""
    try:
        with socket.create_connection((address, port), timeout=5) as plain:
            connection = tls.wrap_socket(plain, server_hostname=address) if tls else plain
            with connection, connection.makefile("rb") as stream:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                frame = stream.read(11)
    except OSError:
        return False
    return frame[:3] == b"\x01\x00\x00" and frame[7:] == b"\x00\x0a\x00\x0a"


def make_certificates(names: Sequence[str]) -> None:
    """Makes ca.pem, server.pem and server.key in the current directory, for names as `DNS:localhost`."""
    done = subprocess.run(
        ["sh", "-c", MAKE_CERTIFICATES, "sh", ", ".join(names)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Failure(f"cannot make certificates with openssl:\n{done.stdout}")


class Node:
    """A RabbitMQ on host `host` at `address`, whose files are in `directory`."""

    def __init__(
        self,
        version: str,
        tree: Path,
        host: str,
        directory: Path,
        address: str,
        ports: Sequence[int],
        network: int | None = None,
    ) -> None:
        self.version = version
        self.tree = tree
        self.host = host
        self.name = f"rabbit@{host}"
        self.directory = directory
        self.home = directory / "home"  # what RabbitMQ sees of the directory
        self.console = directory / "console.log"
        self.address = address
        self.network = network
        self.port, self.tls_port, distribution_port, epmd_port, ctl_port, self.management_port = ports
        self.process: subprocess.Popen[bytes] | None = None
        self.is_paused = False
        self.is_in_memory = wants_memory()
        passwd = (tree / "etc/passwd").read_text()
        self.user = re.findall(r"^rabbitmq:[^:]*:(\d+):(\d+):", passwd, re.MULTILINE)[0]
        local_only = f"-kernel inet_dist_use_interface {{{address.replace('.', ',')}}}"
        self.environment = {
            "PATH": SYSTEM_PATH,
            "HOME": HOME,
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": address,
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CTL_DIST_PORT_MIN": str(ctl_port),
            "RABBITMQ_CTL_DIST_PORT_MAX": str(ctl_port),
            "RABBITMQ_MNESIA_BASE": f"{HOME}/mnesia",
            "RABBITMQ_LOG_BASE": f"{HOME}/log",
            "RABBITMQ_CONFIG_FILE": f"{HOME}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{HOME}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{HOME}/enabled_plugins",
            # No busy waiting, and one scheduler, which wakes no other: the processors are for the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{local_only} +sbwt none +sbwtdcpu none +sbwtdio none"
            f"{' +S 1:1' if self.is_in_memory else ''}",
            "RABBITMQ_CTL_ERL_ARGS": local_only,
        }

    def configure(self, hosts: str, cookie: str, settings: Sequence[str]) -> None:
        """Makes the files that RabbitMQ reads: `settings` are further lines of its configuration."""
        self.tls = ssl.create_default_context(cafile="ca.pem")
        self.home.mkdir(0o700, parents=True)
        if self.is_in_memory:
            self.mount_memory()
        (self.directory / "hosts").write_text(hosts)
        shutil.copy("server.pem", self.home)
        shutil.copy("server.key", self.home)
        (self.home / ".erlang.cookie").write_text(cookie)
        (self.home / ".erlang.cookie").chmod(0o400)
        self.make_plugins()
        lines = [
            f"listeners.tcp.local = {self.address}:{self.port}",
            f"listeners.ssl.local = {self.address}:{self.tls_port}",
            f"ssl_options.certfile = {HOME}/server.pem",
            f"ssl_options.keyfile = {HOME}/server.key",
            "ssl_options.verify = verify_none",
            "ssl_options.fail_if_no_peer_cert = false",
            "disk_free_limit.absolute = 50MB",
            *settings,
        ]
        if wants_management():
            lines += [
                f"management.tcp.ip = {self.address}",
                f"management.tcp.port = {self.management_port}",
                "collect_statistics_interval = 500",
            ]
        (self.home / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.home / "advanced.config").write_text(
            ADVANCED_CONFIG.replace("RESEND_MS", os.environ.get("BACKHOP_BROKER_RESEND_MS", "30000"))
        )
        for path in (self.home, *self.home.rglob("*")):
            os.chown(path, *map(int, self.user), follow_symlinks=False)

    def make_plugins(self) -> None:
        """Enables plugins. Has RabbitMQ find no others: Erlang looks for each module in all their directories."""
        enabled = [MANAGEMENT_PLUGIN] if wants_management() else []
        plugins = self.home / "plugins"
        plugins.mkdir()
        for each in applications(self.tree, ["rabbit", *enabled]):
            (plugins / each.name).symlink_to(f"/mnt/{each.name}")
        delayed = delayed_plugin(self.version)
        if delayed:
            shutil.copy(delayed, plugins)
            enabled.append(DELAYED_PLUGIN)
        (self.home / "enabled_plugins").write_text(f"[{','.join(enabled)}].\n")

    def mount_memory(self) -> None:
        """Has the home in memory, without waits for a disk."""
        system_call("mount", b"tmpfs", os.fsencode(self.home), b"tmpfs", 0, b"mode=0700")

    def free_memory(self, keep: bool) -> None:
        """Undoes that, once the node has ended; with `keep` the files are on the disk then."""
        kept = self.directory / "kept"
        if keep:
            shutil.copytree(self.home, kept, symlinks=True)
        system_call("umount2", os.fsencode(self.home), 0)
        if keep:
            self.home.rmdir()
            kept.rename(self.home)

    def spawn(self, program: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Starts a program in the tree. A relative path names one of RabbitMQ's."""
        tree, home, user = str(self.tree), str(self.home), ":".join(self.user)
        command = [self.host, str(self.directory / "hosts")]
        command += [os.path.join("/usr/lib/rabbitmq/bin", program), *arguments]
        options.update(env=self.environment, network=self.network)
        return spawn(IN_TREE, tree, home, user, *command, **options)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def is_ready(self) -> bool:
        """Returns true if RabbitMQ serves clients, with and without TLS, and has booted fully."""
        return (
            is_answering(self.address, self.port, None)
            and is_answering(self.address, self.tls_port, self.tls)
            and b" completed with " in self.console.read_bytes()  # a bit after listening
        )

    def begin_start(self) -> None:
        """Starts RabbitMQ, which is not ready yet."""
        if self.is_running():
            raise Failure(f"{self.name}: RabbitMQ is running already")
        with open(self.console, "wb") as log:
            self.process = self.spawn(
                "rabbitmq-server", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def finish_start(self, limit: float) -> None:
        """Returns when RabbitMQ is ready, until `limit` by the monotonic clock."""
        while not self.is_ready():
            late = time.monotonic() > limit
            if late or not self.is_running():
                self.kill()
                reason = f"no answer within {START_LIMIT:.0f} s" if late else "it ended"
                logs = [end_of(self.console), end_of(self.home / f"log/{self.name}.log")]
                raise Failure(
                    "\n".join([f"RabbitMQ {self.version} did not start: {reason}", *logs])
                )
            pause()

    def kill(self) -> None:
        """Kills RabbitMQ (SIGKILL) if it is running; returns when its processes are gone."""
        self.is_paused = False
        if self.process:
            self.process.kill()
            self.process.wait()

    def signal_all(self, number: int) -> None:
        if not self.process or not self.is_running():
            raise Failure(f"{self.name}: RabbitMQ is not running")
        for each in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)

    def stop_processes(self) -> None:
        """Has all its processes stand still (SIGSTOP)."""
        self.signal_all(signal.SIGSTOP)
        self.is_paused = True

    def continue_processes(self) -> None:
        self.signal_all(signal.SIGCONT)
        self.is_paused = False

    def administer(self, program: str, *command: str, stdin: Any = subprocess.DEVNULL) -> str:
        """Has one of RabbitMQ's tools do something; returns its output."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = self.spawn(
                program, *command, stdin=stdin, stdout=output, stderr=errors
            )
            status = finish(process)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        if status != 0:
            raise Failure(f"{self.name}: {program} {command[0]} failed: {''.join(texts)}")
        return texts[0]

    def evaluate(self, expression: str) -> str:
        """Has RabbitMQ evaluate Erlang; returns the value's text. `rabbitmqctl eval` takes the processors a hundred times as long."""
        with tempfile.TemporaryFile() as stdin:
            stdin.write(f"{expression}\n".encode())
            stdin.seek(0)
            said = self.administer("/usr/bin/erl_call", "-n", self.name, "-e", stdin=stdin)
        if not (said.startswith("{ok, ") and said.endswith("}")):
            raise Failure(f"{self.name}: {expression} failed: {said}")
        return said[len("{ok, ") : -len("}")]

    def stop(self) -> None:
        """Stops RabbitMQ as its administrator would; returns when its processes are gone."""
        if not self.process:
            raise Failure("RabbitMQ was not started")
        self.administer("rabbitmqctl", "stop")
        finish(self.process)

    def save(self) -> None:
        """Has RabbitMQ save its list of quorum queues: a queue that a kill takes from it is lost for good."""
        self.evaluate(SAVE_QUEUES)

    def set_alarm(self) -> None:
        """Has RabbitMQ block what publishes, as it does for want of memory."""
        self.evaluate(SET_WATERMARK.format(0.000001))

    def clear_alarm(self) -> None:
        self.evaluate(SET_WATERMARK.format(WATERMARK))

    def drain(self) -> None:
        """Has RabbitMQ take no clients and give its leaders away, as before an upgrade."""
        self.administer("rabbitmq-upgrade", "drain")

    def revive(self) -> None:
        self.administer("rabbitmq-upgrade", "revive")


# Requests


def numbers(text: str) -> list[int]:
    """Returns the numbers of "1,3"; none if it is something else."""
    parts = text.split(",")
    return [int(each) for each in parts] if all(each.isdecimal() for each in parts) else []


class Broker:
    """The nodes, one or a cluster, and the requests of `ctl`."""

    def __init__(self, nodes: Sequence[Node], network: Network | None = None) -> None:
        self.nodes = nodes
        self.network = network
        self.of_nodes: dict[str, Callable[[Sequence[Node]], None]] = {
            "start": self.start,
            "stop": self.each(Node.stop),
            "kill": self.each(Node.kill),
            "pause": self.each(Node.stop_processes),
            "continue": self.each(Node.continue_processes),
            "save": self.each(Node.save),
            "set-alarm": self.each(Node.set_alarm),
            "clear-alarm": self.each(Node.clear_alarm),
            "drain": self.each(Node.drain),
            "revive": self.each(Node.revive),
        }
        self.of_cluster: dict[str, tuple[int, Callable[..., str]]] = {  # how many arguments; what
            "leader": (1, self.leader),
            "move-leader": (2, self.move_leader),
            "add-member": (2, self.add_member),
            "delete-member": (2, self.delete_member),
            "rebalance": (0, self.rebalance),
            "heal": (0, self.heal),
        }

    @staticmethod
    def each(action: Callable[[Node], None]) -> Callable[[Sequence[Node]], None]:
        def act(nodes: Sequence[Node]) -> None:
            for node in nodes:
                action(node)

        return act

    def start(self, nodes: Sequence[Node]) -> None:
        """Starts nodes together, as some of them may wait for each other; returns when all are ready."""
        for node in nodes:
            node.begin_start()
        limit = time.monotonic() + START_LIMIT
        for node in nodes:
            node.finish_start(limit)

    def node(self, number: int) -> Node:
        if not 1 <= number <= len(self.nodes):
            raise Failure(f"there is no node {number}, only 1 to {len(self.nodes)}")
        return self.nodes[number - 1]

    def one(self) -> Node:
        """Returns a node that answers."""
        for node in self.nodes:
            if node.is_running() and not node.is_paused:
                return node
        raise Failure("no node is running")

    def of_queue(self, queue: str, what: str, node: Node | None = None) -> str:
        """Has Erlang evaluate `what`, where Q is a queue of the vhost /."""
        resource = f'rabbit_misc:r(<<"/">>, queue, <<{json.dumps(queue)}>>)'
        return (node or self.one()).evaluate(
            f"{{ok, Q}} = rabbit_amqqueue:lookup({resource}), {what}."
        )

    def leader(self, queue: str) -> str:
        """Returns the number of the node with a quorum queue's leader."""
        for node in self.nodes:  # not each of them may have a member, nor know its leader
            if not node.is_running() or node.is_paused:
                continue
            with contextlib.suppress(Failure):
                asked = "{N, _} = amqqueue:get_pid(Q), {ok, _, {_, L}} = ra:members({N, node()}, 5000), L"
                name = self.of_queue(queue, asked, node).strip("'")
                return str([each.name for each in self.nodes].index(name) + 1)
        raise Failure(f"no node knows the leader of {queue}")

    def move_leader(self, queue: str, number: str) -> str:
        to = self.node(int(number))
        said = self.of_queue(queue, f"rabbit_quorum_queue:transfer_leadership(Q, '{to.name}')")
        if not said.startswith(("{migrated", "{ok,")):  # before 4.3, since
            raise Failure(f"the leader of {queue} does not move to node {number}: {said}")
        return ""

    def add_member(self, queue: str, number: str) -> str:
        self.one().administer("rabbitmq-queues", "add_member", queue, self.node(int(number)).name)
        return ""

    def delete_member(self, queue: str, number: str) -> str:
        name = self.node(int(number)).name
        self.one().administer("rabbitmq-queues", "delete_member", queue, name)
        return ""

    def rebalance(self) -> str:
        self.one().administer("rabbitmq-queues", "rebalance", "quorum")
        return ""

    def heal(self) -> str:
        if self.network:
            self.network.heal()
        return ""

    def partition(self, groups: Sequence[str]) -> None:
        """Separates nodes in different groups, as "1" and "2,3". Nodes of a group, and clients, reach each other."""
        parts = [numbers(each) for each in groups]
        named = sorted(number for part in parts for number in part)
        if not self.network or len(parts) < 2 or named != list(range(1, len(self.nodes) + 1)):
            raise Failure(
                "usage: ctl partition GROUP GROUP...: each node of a cluster once, as 1 2,3"
            )
        self.network.heal()
        of_node = {number: index for index, part in enumerate(parts) for number in part}
        for one in named:
            for other in range(one + 1, len(named) + 1):
                if of_node[one] != of_node[other]:
                    self.network.separate(one - 1, other - 1)

    def obey(self, request: Sequence[str], files: Sequence[int]) -> int:
        """Executes ctl's request; returns the exit status.  `files`: ctl's 0, 1 and 2."""
        chosen = [self.node(each) for each in numbers(request[0])] if request else []
        words = request[1:] if chosen else request
        order, arguments = (words[0], words[1:]) if words else ("", [])
        if order in TOOLS and len(chosen) <= 1:
            node = chosen[0] if chosen else self.one()
            stdin, stdout, stderr = files
            return finish(node.spawn(order, *arguments, stdin=stdin, stdout=stdout, stderr=stderr))
        if order == "eval" and len(chosen) <= 1 and len(arguments) == 1:
            said = (chosen[0] if chosen else self.one()).evaluate(arguments[0])
            os.write(files[1], f"{said}\n".encode())
        elif order in self.of_nodes and not arguments:
            self.of_nodes[order](chosen or self.nodes)
        elif order == "partition" and not chosen:
            self.partition(arguments)
        elif order in self.of_cluster and len(arguments) == self.of_cluster[order][0]:
            said = self.of_cluster[order][1](*arguments)
            if said:
                os.write(files[1], f"{said}\n".encode())
        else:
            raise Failure(
                f"usage: ctl [NODE[,NODE...]] {'|'.join(self.of_nodes)}, or ctl [NODE]"
                f" {'|'.join(TOOLS)} [ARG...], or ctl [NODE] eval EXPRESSION, or ctl partition|{'|'.join(self.of_cluster)} [ARG...]"
            )
        return 0


# Requests


def serve(broker: Broker, owner: int) -> None:
    """Obeys the `ctl` of the user with ID `owner`.  Raises Abandoned in the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("ctl.sock")
        os.chmod("ctl.sock", 0o600)
        os.chown("ctl.sock", owner, -1)
        listener.listen()
        host = "localhost" if len(broker.nodes) == 1 else broker.nodes[0].address
        plain = [f"amqp://guest:guest@{each.address}:{each.port}/" for each in broker.nodes]
        environment = {
            "AMQP_URL": plain[0],
            "AMQPS_URL": f"amqps://guest:guest@{host}:{broker.nodes[0].tls_port}/",
            "BACKHOP_CA_FILE": os.path.abspath("ca.pem"),
            "BACKHOP_BROKER_VERSION": broker.nodes[0].version,
            "BACKHOP_BROKER_CTL": os.path.abspath("ctl"),
        }
        if wants_management():
            first = broker.nodes[0]
            environment["BACKHOP_MANAGEMENT_URL"] = f"http://guest:guest@{first.address}:{first.management_port}"
        if broker.network:
            environment["AMQP_URLS"] = " ".join(plain)
        os.write(1, json.dumps(environment).encode() + b"\n")
        inputs: list[Any] = [0, listener]
        while True:
            if 0 in select.select(inputs, [], [])[0]:
                raise Abandoned
            connection, _ = listener.accept()
            connection.settimeout(60)
            with connection, contextlib.suppress(OSError):
                request, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
                try:
                    status, error = broker.obey(json.loads(request), files), ""
                except (Failure, OSError, ValueError) as failure:
                    status, error = FAILED, str(failure)
                finally:
                    for file in files:
                        os.close(file)
                connection.sendall(json.dumps([status, error]).encode())


def make_broker(version: str, tree: Path, count: int, ports: Sequence[int]) -> Broker:
    """Returns a broker whose files are in the current directory, ready to start; `count` is 0 if it is no cluster."""
    cookie = f"{random.getrandbits(128):032X}"
    if not count:
        make_certificates(["DNS:localhost", "IP:127.0.0.1"])
        node = Node(version, tree, "localhost", Path.cwd(), "127.0.0.1", ports)
        node.configure("127.0.0.1 localhost\n", cookie, [])
        return Broker([node])
    network = Network(count)
    make_certificates([f"IP:{each}" for each in network.addresses])
    nodes = [
        Node(
            version, tree, f"node{number}", Path.cwd() / f"node{number}", address, PORTS, namespace
        )
        for number, (address, namespace) in enumerate(zip(network.addresses, network.nodes), 1)
    ]
    hosts = "".join(f"{node.address} {node.host}\n" for node in nodes)
    settings = [
        "loopback_users = none",
        "cluster_formation.peer_discovery_backend = classic_config",
    ]
    settings += [
        f"cluster_formation.classic_config.nodes.{number} = {node.name}"
        for number, node in enumerate(nodes, 1)
    ]
    if version in PAUSE_MINORITY:
        settings.append("cluster_partition_handling = pause_minority")
    for node in nodes:
        node.configure(f"127.0.0.1 localhost\n{hosts}", cookie, settings)
    return Broker(nodes, network)


def await_members(broker: Broker) -> None:
    """Returns when each node sees all others as running."""
    limit = time.monotonic() + START_LIMIT
    status = ("rabbitmqctl", "--silent", "cluster_status", "--formatter=json")
    for node in broker.nodes:
        while len(json.loads(node.administer(*status))["running_nodes"]) < len(broker.nodes):
            if time.monotonic() > limit:
                raise Failure(f"{node.name} did not join the cluster in {START_LIMIT:.0f} s")
            pause()


def clean_up() -> None:
    """Removes the directories of this program's supervisors that were killed: their lock is free."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError), open(path) as lock:
            if path.stat().st_uid == os.geteuid() and try_lock(lock.fileno()):
                shutil.rmtree(path.parent, ignore_errors=True)


def new_directory() -> tuple[Path, TextIO]:
    """Makes a directory for a broker's files, and locks it until the file that is returned is closed.

    The file gets the name that clean_up() looks for when it is locked already.
    """
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    os.chmod(directory, 0o755)
    unlocked = directory / f"{LOCK}.new"
    lock = open(unlocked, "w")
    try_lock(lock.fileno())
    unlocked.rename(directory / LOCK)
    return directory, lock


def run(version: str, tree: Path, owner: int, keep: bool, count: int) -> None:
    """Runs a broker in a new directory, which is removed in the end, until it is abandoned."""
    need_program("openssl")
    clean_up()
    system_call("unshare", CLONE_NEWNS)  # a later mount ends with this process and its children
    system_call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    reservation, ports = reserve_ports()
    directory, lock = new_directory()
    os.chdir(directory)
    program = str(Path(__file__).resolve().with_name("ctl.py"))
    ctl = shlex.join([sys.executable, "-I", "-S", program, f"{directory}/ctl.sock"])
    Path("ctl").write_text(f'#!/bin/sh\nexec {ctl} "$@"\n')
    os.chmod("ctl", 0o755)
    nodes: Sequence[Node] = []
    try:
        broker = make_broker(version, tree, count, ports)
        nodes = broker.nodes
        broker.start(nodes)
        if count:
            await_members(broker)
        serve(broker, owner)
    except Failure:
        keep = True
        raise
    finally:
        end_processes_with(
            f"BACKHOP_BROKER_CTL={directory}/ctl"
        )  # what a tool that was killed left
        for node in nodes:
            node.kill()
            if node.is_in_memory:
                node.free_memory(keep)
        reservation.close()
        os.chdir("/")
        if keep:
            say(f"the files of the broker are in {directory}")
            (directory / LOCK).unlink()
        else:
            shutil.rmtree(directory)
        lock.close()


def allow_many_files() -> None:
    """Raises the limit of open files to 65,536 if this process may, else as far as it may."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536))
    except ValueError:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--trees-only", action="store_true")
    parser.add_argument("--nodes", type=int, default=0, help="how many a cluster has")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--owner", type=int, required=True)
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    options = parser.parse_args()
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o022)
    allow_many_files()
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    try:
        versions = options.versions or list(SUITES)
        trees = [prepare_tree(version, options.cache) for version in versions]
        if not options.trees_only:
            run(versions[0], trees[0], options.owner, options.keep, options.nodes)
    except (Abandoned, BrokenPipeError):
        pass
    except (Failure, OSError) as error:
        say(str(error))
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
