#!/usr/bin/env python3
"""Runs a private RabbitMQ, as root, for the program `broker` beside this file.

    supervisor.py [--keep] [--trees-only] --cache DIR --owner UID [VERSION ...]

Prepares a tree (a root file system with RabbitMQ) for each version, all by default, then
runs the first one.  Writes the environment for clients to standard output, as JSON, once the
broker answers, and obeys `broker ctl`.  Ends when standard input is closed, which is when
`broker` ends, however that happens.  RabbitMQ lives in a PID namespace whose first process
the kernel kills when the supervisor ends, and with it all others.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SUITES = {"3.10": "bookworm", "4.0": "trixie", "4.3": "forky"}  # RabbitMQ: Debian suite
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FAILED = 125  # exit status
START_LIMIT = 180.0  # seconds; several may start at once
IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)  # by this process
SAVE_QUEUES = "[ok = dets:sync(T) || T <- dets:all()]."  # what it does by itself after half a second
WATERMARK = 0.6  # of the machine's memory: more than a test uses
# get_alarms is answered after every connection was told, which set_vm_memory_high_watermark does not wait for.
SET_WATERMARK = "vm_memory_monitor:set_vm_memory_high_watermark({:f}), rabbit_alarm:get_alarms()."
TICK = 0.05  # seconds between two looks at something that is waited for
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-plugins", "rabbitmq-queues")
HOME = "/var/lib/rabbitmq"  # RabbitMQ's, in a tree; the data directory is mounted there
PR_SET_PDEATHSIG, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 1, 0x20000, 0x4000000, 0x20000000
LIBC = ctypes.CDLL(None, use_errno=True)

# Runs $4… as user $3 in tree $1, mounted read-only, with directory $2 as RabbitMQ's home.
# Process 1 stays root: a change of user would undo PR_SET_PDEATHSIG.
IN_TREE = """
set -e; tree=$1; home=$2; user=$3; shift 3
mount --make-rprivate /
mount --bind "$tree" "$tree"
mount -o remount,bind,ro "$tree"
mount -t proc proc "$tree/proc"
mount --rbind /dev "$tree/dev"
mount -t tmpfs tmpfs "$tree/tmp"
mount --bind "$home" "$tree/var/lib/rabbitmq"
echo localhost >"$tree/proc/sys/kernel/hostname"
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

# Makes ca.pem, server.pem and server.key in the current directory.
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
subjectAltName = DNS:localhost, IP:127.0.0.1
END
new_key='-config openssl.cnf -nodes -newkey ec -pkeyopt ec_paramgen_curve:prime256v1'
openssl req $new_key -keyout ca.key -x509 -days 30 -extensions ca -subj '/CN=Test CA' -out ca.pem
openssl req $new_key -keyout server.key -subj /CN=localhost -out server.csr
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 \
    -extfile openssl.cnf -extensions server -out server.pem
"""


class Failure(Exception):
    """What failed, why, and what to do, for the user."""


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


def system_call(name: str, *arguments: int) -> None:
    if getattr(LIBC, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def spawn(script: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a shell script as process 1 of new PID, mount and host name namespaces.

    When it ends, is killed, or this process ends, the kernel kills all processes that it
    started and drops their mounts; wait() returns after that.  `options` are Popen's.
    """

    def become_init() -> None:
        os.setsid()
        system_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
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


# The broker


def reserve_ports() -> tuple[socket.socket, range]:
    """Returns five free ports, and what keeps other copies of this program off them.

    That is a Unix socket with an abstract name, which one process at a time can bind.
    The ports are below those that the kernel gives to outgoing connections.
    """
    for base in random.sample(range(20000, 32000, 8), 200):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0backhop-broker-{base}")
            for port in range(base, base + 5):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return reservation, range(base, base + 5)
        except OSError:
            reservation.close()
    raise Failure("cannot find five free ports in a row between 20000 and 32000")


def is_answering(port: int, tls: ssl.SSLContext | None) -> bool:
    """Tells whether there is an AMQP 0-9-1 broker that greets clients (Connection.Start)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
            connection = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
            with connection, connection.makefile("rb") as stream:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                frame = stream.read(11)
    except OSError:
        return False
    return frame[:3] == b"\x01\x00\x00" and frame[7:] == b"\x00\x0a\x00\x0a"


class Broker:
    """A RabbitMQ whose files are in the current directory; `home` is what it sees of them."""

    def __init__(self, version: str, tree: Path, ports: Sequence[int]) -> None:
        self.version = version
        self.tree = tree
        self.port, self.tls_port, distribution_port, epmd_port, ctl_port = ports
        self.process: subprocess.Popen[bytes] | None = None
        passwd = (tree / "etc/passwd").read_text()
        self.user = re.findall(r"^rabbitmq:[^:]*:(\d+):(\d+):", passwd, re.MULTILINE)[0]
        local_only = "-kernel inet_dist_use_interface {127,0,0,1}"
        self.environment = {
            "PATH": SYSTEM_PATH,
            "HOME": HOME,
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CTL_DIST_PORT_MIN": str(ctl_port),
            "RABBITMQ_CTL_DIST_PORT_MAX": str(ctl_port),
            "RABBITMQ_MNESIA_BASE": f"{HOME}/mnesia",
            "RABBITMQ_LOG_BASE": f"{HOME}/log",
            "RABBITMQ_CONFIG_FILE": f"{HOME}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{HOME}/enabled_plugins",
            # No busy waiting: the processors are for the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{local_only} +sbwt none",
            "RABBITMQ_CTL_ERL_ARGS": local_only,
        }

    def configure(self) -> None:
        """Makes the certificates and the files that RabbitMQ reads."""
        done = subprocess.run(
            ["sh", "-c", MAKE_CERTIFICATES],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failure(f"cannot make certificates with openssl:\n{done.stdout}")
        self.tls = ssl.create_default_context(cafile="ca.pem")
        home = Path("home")
        home.mkdir(0o700)
        shutil.copy("server.pem", home)
        shutil.copy("server.key", home)
        (home / "enabled_plugins").write_text("[].\n")
        (home / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\n"
            f"listeners.ssl.local = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.certfile = {HOME}/server.pem\n"
            f"ssl_options.keyfile = {HOME}/server.key\n"
            "ssl_options.verify = verify_none\n"
            "ssl_options.fail_if_no_peer_cert = false\n"
            "disk_free_limit.absolute = 50MB\n"
        )
        for path in (home, *home.iterdir()):
            os.chown(path, *map(int, self.user))

    def spawn(self, program: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Starts one of RabbitMQ's programs in the tree."""
        tree, home, user = str(self.tree), os.path.abspath("home"), ":".join(self.user)
        command = [f"/usr/lib/rabbitmq/bin/{program}", *arguments]
        return spawn(IN_TREE, tree, home, user, *command, env=self.environment, **options)

    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def is_ready(self) -> bool:
        """Tells whether RabbitMQ serves clients, with and without TLS, and has booted fully."""
        return (
            is_answering(self.port, None)
            and is_answering(self.tls_port, self.tls)
            and b" completed with " in Path("console.log").read_bytes()  # a bit after listening
        )

    def start(self) -> None:
        """Starts RabbitMQ and returns when it is ready."""
        if self.is_running():
            raise Failure("RabbitMQ is running already")
        with open("console.log", "wb") as log:
            self.process = self.spawn(
                "rabbitmq-server", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        limit = time.monotonic() + START_LIMIT
        while not self.is_ready():
            late = time.monotonic() > limit
            if late or not self.is_running():
                self.kill()
                reason = f"no answer within {START_LIMIT:.0f} s" if late else "it ended"
                logs = [end_of(Path("console.log")), end_of(Path("home/log/rabbit@localhost.log"))]
                raise Failure(
                    "\n".join([f"RabbitMQ {self.version} did not start: {reason}", *logs])
                )
            pause()

    def kill(self) -> None:
        """Kills RabbitMQ (SIGKILL) if it is running; returns when its processes are gone."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def administer(self, *command: str) -> None:
        """Has rabbitmqctl do something."""
        process = self.spawn(
            "rabbitmqctl", *command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        if finish(process) != 0:
            raise Failure(f"rabbitmqctl {command[0]} failed")

    def stop(self) -> None:
        """Stops RabbitMQ as its administrator would; returns when its processes are gone."""
        if not self.process:
            raise Failure("RabbitMQ was not started")
        self.administer("stop")
        finish(self.process)

    def save(self) -> None:
        """Has RabbitMQ save its list of quorum queues: what a kill takes from it, nobody can use again."""
        self.administer("eval", SAVE_QUEUES)

    def set_alarm(self) -> None:
        """Has RabbitMQ block what publishes, as it does for want of memory."""
        self.administer("eval", SET_WATERMARK.format(0.000001))

    def clear_alarm(self) -> None:
        self.administer("eval", SET_WATERMARK.format(WATERMARK))

    def obey(self, request: Sequence[str], files: Sequence[int]) -> int:
        """Does what ctl is asked for; returns the exit status.  `files`: ctl's 0, 1 and 2."""
        if request and request[0] in TOOLS:
            stdin, stdout, stderr = files
            return finish(self.spawn(*request, stdin=stdin, stdout=stdout, stderr=stderr))
        actions: dict[str, Callable[[], None]] = {
            "start": self.start,
            "stop": self.stop,
            "kill": self.kill,
            "save": self.save,
            "set-alarm": self.set_alarm,
            "clear-alarm": self.clear_alarm,
        }
        if len(request) != 1 or request[0] not in actions:
            raise Failure(f"usage: ctl {'|'.join(actions)}, or ctl {'|'.join(TOOLS)} [ARG...]")
        actions[request[0]]()
        return 0


# Requests


def serve(broker: Broker, owner: int) -> None:
    """Obeys the `ctl` of the user with ID `owner`.  Raises Abandoned in the end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("ctl.sock")
        os.chmod("ctl.sock", 0o600)
        os.chown("ctl.sock", owner, -1)
        listener.listen()
        environment = {
            "AMQP_URL": f"amqp://guest:guest@127.0.0.1:{broker.port}/",
            "AMQPS_URL": f"amqps://guest:guest@localhost:{broker.tls_port}/",
            "BACKHOP_CA_FILE": os.path.abspath("ca.pem"),
            "BACKHOP_BROKER_VERSION": broker.version,
            "BACKHOP_BROKER_CTL": os.path.abspath("ctl"),
        }
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


def run(version: str, tree: Path, owner: int, keep: bool) -> None:
    """Runs a broker in a new directory, which is removed in the end, until it is abandoned."""
    need_program("openssl")
    reservation, ports = reserve_ports()
    broker = Broker(version, tree, ports)
    directory = tempfile.mkdtemp(prefix="backhop-broker-")
    os.chmod(directory, 0o755)
    os.chdir(directory)
    program = str(Path(__file__).resolve().with_name("broker"))
    ctl = shlex.join([sys.executable, program, "ctl", f"{directory}/ctl.sock", "--"])
    Path("ctl").write_text(f'#!/bin/sh\nexec {ctl} "$@"\n')
    os.chmod("ctl", 0o755)
    try:
        broker.configure()
        broker.start()
        serve(broker, owner)
    except Failure:
        keep = True
        raise
    finally:
        broker.kill()
        reservation.close()
        os.chdir("/")
        if keep:
            say(f"the files of the broker are in {directory}")
        else:
            shutil.rmtree(directory)


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
            run(versions[0], trees[0], options.owner, options.keep)
    except (Abandoned, BrokenPipeError):
        pass
    except (Failure, OSError) as error:
        say(str(error))
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
