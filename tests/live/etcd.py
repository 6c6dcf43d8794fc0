"""A real etcd for a test: one member or three on loopback, with TLS and client certificates if asked for.

    with etcd.Etcd(folder, members=3) as cluster:
        cluster.endpoint            # "127.0.0.1:40001,127.0.0.1:40011,..."
        cluster.kill(cluster.leader())

The members are children of the test, which kills them by pid, and keep everything in `folder`. The programs are the
machine's, or come from $MUSTER_ETCD, a folder into which Debian's packages were unpacked (./dev test makes it; installing
the package would start a service).
"""
import json
import os
import shutil
import signal
import subprocess
import sys

from harness import wait_for
from ports import free_port

SKIPPED = 77
# Members report when they are ready, but not when the cluster accepts changes.
START_LIMIT_S = 60


def find_programs():
    """(etcd, etcdctl), None for a missing one."""
    unpacked = os.environ.get("MUSTER_ETCD")
    path = f"{unpacked}/usr/bin" if unpacked else None
    return shutil.which("etcd", path=path), shutil.which("etcdctl", path=path)


def require_etcd():
    programs = {"etcd": find_programs()[0], "etcdctl": find_programs()[1], "openssl": shutil.which("openssl")}
    missing = [name for name, path in programs.items() if not path]
    if missing:
        print(f"SKIPPED: no etcd: {', '.join(missing)} not found in MUSTER_ETCD={os.environ.get('MUSTER_ETCD', '')!r} "
              "nor on this machine (./dev test unpacks it)", file=sys.stderr)
        sys.exit(SKIPPED)


class Certificates:
    """A certificate authority and the certificates that it signs, as files in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        self.openssl("req", "-x509", *self.new_key("ca"), "-days", "2", "-subj", "/CN=test-authority", "-out", self.path("ca.pem"))

    def path(self, name):
        return f"{self.folder}/{name}"

    def openssl(self, *args):
        subprocess.run(["openssl", *args], check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", self.path(f"{name}.key"))

    def sign(self, name, subject, names="IP:127.0.0.1,DNS:localhost", days="2"):
        """Writes NAME.pem and NAME.key. `subject`: "/CN=etcd", or "/O=x" for one without a common name."""
        self.openssl("req", *self.new_key(name), "-subj", subject, "-out", self.path(f"{name}.csr"))
        with open(self.path(f"{name}.ext"), "w", encoding="ascii") as f:
            f.write(f"subjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        self.openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"),
                     "-CAcreateserial", "-days", days, "-extfile", self.path(f"{name}.ext"), "-out", self.path(f"{name}.pem"))


class Etcd:
    def __init__(self, folder, members=1, certificates=None, server="server", client_certificates=False, gateway=None):
        """`certificates`: TLS with their pair `server`; `client_certificates`: clients must have certificates, too.
        `gateway`: a line for a configuration file that turns the JSON gateway on or off; "": the file has no such line;
        None: there is no file."""
        self.folder, self.count, self.certificates = folder, members, certificates
        self.server, self.client_certificates, self.gateway = server, client_certificates, gateway
        self.etcd, self.etcdctl = find_programs()
        self.processes = [None] * members
        self.ports = [free_port() for _ in range(2 * members)]
        self.scheme = "https" if certificates else "http"
        self.endpoint = ",".join(self.client(i) for i in range(members))

    def __enter__(self):
        try:
            for i in range(self.count):
                self.start(i)
            wait_for(self.takes_changes, lambda: f"etcd takes changes; see {self.folder}/m*.log", START_LIMIT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process and process.poll() is None:
                process.kill()
                process.send_signal(signal.SIGCONT)
                process.wait()

    def start(self, i):
        client, peer = f"{self.scheme}://{self.client(i)}", self.peer(i)
        settings = {
            "name": f"m{i}", "data-dir": f"{self.folder}/m{i}", "listen-client-urls": client, "advertise-client-urls": client,
            "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster-token": self.folder,
            "initial-cluster": ",".join(f"m{k}={self.peer(k)}" for k in range(self.count)), "initial-cluster-state": "new",
            # Data need not survive a crash of the machine.
            "unsafe-no-fsync": "true", "logger": "zap", "log-level": "warn"}
        if self.certificates:
            settings["cert-file"] = self.certificates.path(f"{self.server}.pem")
            settings["key-file"] = self.certificates.path(f"{self.server}.key")
        if self.client_certificates:
            settings["trusted-ca-file"] = self.certificates.path("ca.pem")
            settings["client-cert-auth"] = "true"
        command = [self.etcd, *(f"--{key}={value}" for key, value in settings.items())]
        if self.gateway is not None:
            command = [self.etcd, "--config-file", self.configuration(settings)]
        with open(f"{self.folder}/m{i}.log", "ab") as log:
            self.processes[i] = self.spawn(i, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def configuration(self, settings):
        path = f"{self.folder}/{settings['name']}.yaml"
        with open(path, "w", encoding="ascii") as f:
            f.write("".join(f"{key}: {value}\n" for key, value in settings.items()) + self.gateway)
        return path

    # Overridden for members on other nodes: their addresses, and how to run something there.

    def client(self, i):
        return f"127.0.0.1:{self.ports[i]}"

    def spawn(self, _i, command, **popen):
        return subprocess.Popen(command, **popen)

    def run_ctl(self, command, **popen):
        return subprocess.Popen(command, **popen)

    def peer(self, i):
        return f"http://127.0.0.1:{self.ports[self.count + i]}"

    def ctl(self, *args, user=None, endpoint=None):
        """Runs etcdctl: (exit code, stdout, stderr)."""
        command = [self.etcdctl, "--endpoints", ",".join(f"{self.scheme}://{one}" for one in (endpoint or self.endpoint).split(","))]
        if self.certificates:
            command += ["--insecure-skip-tls-verify", "--cert", self.certificates.path("client.pem"),
                        "--key", self.certificates.path("client.key")]
        if user:
            command += ["--user", user]
        env = {**{k: v for k, v in os.environ.items() if not k.startswith("ETCDCTL_")}, "ETCDCTL_API": "3"}
        process = self.run_ctl([*command, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=env)
        out, err = process.communicate()
        return process.returncode, out, err

    def takes_changes(self):
        return self.ctl("--command-timeout=2s", "put", "ready", "1")[0] == 0

    def check_ctl(self, *args, **options):
        code, out, err = self.ctl(*args, **options)
        assert code == 0, f"etcdctl {args}: {err}"
        return out

    def status(self, i):
        return json.loads(self.check_ctl("endpoint", "status", "-w", "json", endpoint=self.client(i)))[0]["Status"]

    def leader(self):
        """The leader's number."""
        for i in range(self.count):
            status = self.status(i)
            if status["leader"] == status["header"]["member_id"]:
                return i
        raise AssertionError("no member is the leader")

    def make_leader(self, i):
        member = f"{self.status(i)['header']['member_id']:x}"
        for _ in range(10):  # Another election may come between.
            if self.leader() == i:
                return
            self.ctl("move-leader", member)
        raise AssertionError(f"member {i} does not become the leader")

    def revision(self):
        return json.loads(self.check_ctl("get", "none", "-w", "json"))["header"]["revision"]

    def leases(self):
        return {lease["id"] for lease in json.loads(self.check_ctl("lease", "list", "-w", "json"))["leases"] or []}

    def kill(self, i):
        self.processes[i].kill()
        self.processes[i].wait()

    def stop(self, i):
        self.processes[i].send_signal(signal.SIGSTOP)

    def go_on(self, i):
        self.processes[i].send_signal(signal.SIGCONT)
