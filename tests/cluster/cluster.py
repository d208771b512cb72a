#!/usr/bin/env python3
"""A real SLURM cluster on this one machine, for tests.

    with Cluster(nodes=4) as cluster:
        cluster.run(["srun", "-N4", "hostname"]).stdout

Every node is a set of namespaces with its own host name, address, /tmp, /dev/shm and processes, so
MPI sees different machines. All of them are children of one `unshare --kill-child`: when that
process ends (stop(), or this program is killed) the kernel takes everything away.

By hand, as root:
    cluster.py start [--nodes=4]      prints the cluster's folder
    cluster.py exec DIR [--node=n2] -- srun -N4 hostname
    cluster.py stop DIR
"""

import argparse
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = ["slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "munged", "ip", "unshare",
            "nsenter"]
HEAD = "head"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Long timeouts: two cores may carry the whole cluster and a compiler as well.
SLURM_CONF = """\
ClusterName=gaccd
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket,cred_expire=30
CryptoType=crypto/munge
MpiDefault=none
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=100000
SlurmdTimeout=300
SlurmctldTimeout=300
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=120
KillWait=5
UnkillableStepTimeout=120
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/%n/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n/slurmd.log
SlurmctldDebug=info
SlurmdDebug=info
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-{nodes}] CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


class ClusterError(Exception):
    """The cluster itself failed; the message says where its logs are."""


def why_not_here():
    """Why no cluster can be started on this machine, or None."""
    if os.geteuid() != 0:
        return f"needs root for namespaces, and runs as uid {os.geteuid()}"
    missing = [p for p in PROGRAMS if not shutil.which(p, path=PATH)]
    if missing:
        return f"programs not installed: {' '.join(missing)}"
    probe = subprocess.run(["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "true"],
                           capture_output=True, text=True, timeout=60)
    if probe.returncode != 0:
        return f"no namespaces: {probe.stderr.strip()}"
    return None


def _die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Cluster:
    def __init__(self, nodes=4, cpus=8, keep=(), detached=False, settings=None, disks=None):
        """keep: paths the nodes must see although they lie below /tmp (others are visible anyway).

        settings: lines of slurm.conf by name, instead of ours. disks: folders below work/ that are a
        small disk of their own, shared by all nodes, by size ("16m").
        """
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self.disks = disks or {}
        self.nodes = [f"n{i}" for i in range(1, nodes + 1)]
        self.cpus = cpus
        needed = {str(Path(p).resolve()) for p in [HERE, *keep]}
        self.keep = sorted(p for p in needed if p.startswith("/tmp/"))
        self.detached = detached
        self.dir = None
        self._top = None

    @classmethod
    def attach(cls, folder):
        """The cluster that `cluster.py start` left running in this folder."""
        cluster = cls(nodes=len(list(Path(folder).glob("n[0-9]*"))))
        cluster.dir = Path(folder)
        return cluster

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, value, trace):
        self.stop(keep_logs=kind is not None)

    # -- life ------------------------------------------------------------------------------------

    def start(self, timeout=240):
        self._write_files()
        (self.dir / "disks").write_text("".join(
            f"{size} {self.dir}/work/{name}\n" for name, size in self.disks.items()))
        command = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child",
                   str(HERE / "cluster_head.sh"), str(self.dir), str(len(self.nodes)), *self.keep]
        with open(self.dir / "boot.log", "wb") as log:
            self._top = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         env={"PATH": PATH}, cwd="/", start_new_session=True,
                                         preexec_fn=None if self.detached else _die_with_parent)
        (self.dir / "top.pid").write_text(f"{self._top.pid}\n")
        try:
            self._wait_idle(timeout)
        except ClusterError:
            self.print_logs()
            self.stop(keep_logs=True)
            raise
        return self

    def _write_files(self):
        # Not below /tmp, which the nodes hide; short, as sockets' paths must be.
        self.dir = Path(tempfile.mkdtemp(prefix="gaccd-cluster.", dir="/var/tmp"))
        self.dir.chmod(0o755)
        for name in ["munge", "state", "hostproc", "work"]:
            (self.dir / name).mkdir()
        for name in self.nodes:
            for sub in ["spool", "tmp", "munge"]:
                (self.dir / name / sub).mkdir(parents=True)
            (self.dir / name / "tmp").chmod(0o1777)
        (self.dir / "munge" / "key").write_bytes(os.urandom(128))
        (self.dir / "munge" / "key").chmod(0o600)
        hosts = ["127.0.0.1 localhost", "10.77.0.254 head"]
        hosts += [f"10.77.0.{i} {name}" for i, name in enumerate(self.nodes, 1)]
        (self.dir / "hosts").write_text("\n".join(hosts) + "\n")
        # Cgroups are not used, but slurmd looks for them; v1 also starts where none are mounted.
        (self.dir / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        conf = SLURM_CONF.format(dir=self.dir, nodes=len(self.nodes), cpus=self.cpus)
        for name, value in self.settings.items():
            conf = re.sub(rf"^{name}=.*\n", "", conf, flags=re.M) + f"{name}={value}\n"
        (self.dir / "slurm.conf").write_text(conf)

    def _wait_idle(self, timeout):
        deadline = time.monotonic() + timeout
        seen = "nothing"
        while time.monotonic() < deadline:
            if self._top.poll() is not None:
                raise ClusterError(f"the cluster died while starting, logs in {self.dir}")
            if (self.dir / "head.pid").exists() and (self.dir / "munge" / "socket").exists():
                answer = self.run(["sinfo", "-h", "-N", "-p", "main", "-o", "%T"], timeout=20, check=False)
                seen = answer.stdout.split() or answer.stderr.strip()
                if seen == ["idle"] * len(self.nodes):
                    return
            time.sleep(0.2)
        raise ClusterError(f"nodes not idle after {timeout} s: {seen}, logs in {self.dir}")

    def stop(self, keep_logs=False):
        top = int((self.dir / "top.pid").read_text())
        pids = [p for p in [self._pid(None), *map(self._pid, self.nodes)] if p]
        if _comm(top) == "unshare":  # the number may be somebody else's by now
            os.kill(top, signal.SIGKILL)
        if self._top:
            self._top.wait(timeout=60)
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{p}").exists() for p in pids):
            if time.monotonic() > deadline:
                raise ClusterError(f"processes {pids} of {self.dir} did not end in 60 s")
            time.sleep(0.05)
        if keep_logs:
            print(f"cluster: logs kept in {self.dir}", file=sys.stderr)
        else:
            shutil.rmtree(self.dir)

    def power_off(self, node):
        """The node is gone at once, with all its processes; SLURM has to find out."""
        os.kill(self._pid(node), signal.SIGKILL)

    def power_on(self, node, timeout=180):
        """A node that was powered off starts again, with an empty /tmp."""
        # SLURM learns that its jobs there are gone; by itself it asks only after SlurmdTimeout.
        self.run(["scontrol", "update", f"nodename={node}", "state=down", "reason=power"])
        (self.dir / node / "pid").unlink(missing_ok=True)
        shutil.rmtree(self.dir / node / "tmp")
        (self.dir / node / "tmp").mkdir()
        (self.dir / node / "tmp").chmod(0o1777)
        self.run(["setsid", "--fork", HERE / "cluster_start_node.sh", self.dir, node[1:], *self.keep],
                 timeout=timeout)
        self._wait_back(node, timeout)

    def _wait_back(self, node, timeout):
        deadline = time.monotonic() + timeout
        while not (self._pid(node) and self._comes_up(node)):
            if time.monotonic() > deadline:
                raise ClusterError(f"{node} is not back after {timeout} s, logs in {self.dir}")
            time.sleep(0.2)

    def _comes_up(self, node):
        self.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=False)
        state = self.run(["sinfo", "-h", "-p", "main", "-n", node, "-o", "%T"], check=False).stdout
        return state.strip() in ("idle", "allocated", "mixed")

    def link(self, node, up):
        """Plugs the node's network cable in or out. In: waits until SLURM uses the node again."""
        self.run(["ip", "link", "set", f"v{node[1:]}", "up" if up else "down"])
        if up:
            self._wait_back(node, timeout=180)

    def kill_controller(self):
        for process in self.processes("slurmctld", HEAD):
            process.signal(signal.SIGKILL)

    def start_controller(self):
        self.run(["setsid", "--fork", "sh", "-c", "exec slurmctld -D >/dev/null 2>&1"])

    def path(self, below_work):
        """A folder of work/ as the nodes see it, disks included."""
        return Path(f"/proc/{self._pid(None)}/root{self.dir}/work/{below_work}")

    # -- use -------------------------------------------------------------------------------------

    def run(self, command, node=None, env=None, cwd=None, timeout=120, check=True):
        """Runs a command on the head (or on a node) and returns its CompletedProcess, text streams.

        It is killed after `timeout` seconds (exit status 124). check: a failure raises, with output.
        """
        full_env = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8",
                    "SLURM_CONF": str(self.dir / "slurm.conf"),
                    "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
                    # SLURM 22.05's own choice lets a rank leave a fence early on a busy machine;
                    # Open MPI then crashes in MPI_Init (1 start in 15; with ring 0 in 200).
                    "SLURM_PMIX_FENCE": "ring",
                    **{name: str(value) for name, value in (env or {}).items()}}
        enter = ["nsenter", f"--target={self._pid(node)}", "--net", "--mount", "--pid", "--uts",
                 "--ipc", f"--wdns={cwd or self.dir / 'work'}"]
        limit = ["timeout", "--kill-after=10", str(timeout)]
        # Files, not pipes: a child that outlives its killed parent would hold a pipe open.
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            code = subprocess.run(enter + limit + [str(c) for c in command], env=full_env,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                  timeout=timeout + 60).returncode
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(command, code, out.read(), err.read())
        if check and done.returncode != 0:
            raise ClusterError(f"{' '.join(map(str, command))}: exit {done.returncode}\n"
                               f"{done.stdout}{done.stderr}")
        return done

    def sbatch(self, script, *args, options=(), env=None, cwd=None):
        """Submits a script and returns the job id."""
        out = self.run(["sbatch", "--parsable", *options, script, *args], env=env, cwd=cwd).stdout
        return out.strip().split(";")[0]

    def job(self, job_id):
        """The fields of `scontrol show job`, for example JobState, ExitCode ("78:0"), NodeList."""
        text = self.run(["scontrol", "show", "job", job_id]).stdout
        return dict(re.findall(r"^\s*(\w+)=(.*)$", text, re.M)) | dict(
            re.findall(r"(\w+)=(\S*)", text))

    def wait_job(self, job_id, timeout=300):
        """Waits for the job's end and returns its fields."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            fields = self.job(job_id)
            if fields["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return fields
            time.sleep(0.5)
        raise ClusterError(f"job {job_id} still {fields['JobState']} after {timeout} s")

    def processes(self, name, node=None):
        """Processes of this name on one node or on all: a list of Process, by rank."""
        nodes = [node] if node else self.nodes
        spaces = {_pid_space(pid): n for n in nodes if (pid := self._pid(n if n != HEAD else None))}
        spaces.pop(None, None)
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _comm(entry.name) == name:
                where = spaces.get(_pid_space(entry.name))
                if where:
                    found.append(Process(int(entry.name), where))
        return sorted(found, key=lambda p: (p.rank is None, p.rank))

    def print_logs(self, lines=40, out=sys.stderr):
        """The ends of all logs of the cluster and of the files its jobs wrote into work/."""
        logs = [self.dir / "boot.log", self.dir / "slurmctld.log", *self.dir.glob("n*/boot.log"),
                *self.dir.glob("n*/slurmd.log"), *(self.dir / "work").rglob("*")]
        for log in logs:
            if log.is_file() and log.stat().st_size and not log.is_symlink():
                tail = log.read_text(errors="replace").splitlines()[-lines:]
                print(f"--- {log}", *tail, sep="\n", file=out)

    def _pid(self, node):
        """The first process of a node (None: of the head) as this machine numbers it, or None."""
        path = self.dir / node / "pid" if node else self.dir / "head.pid"
        text = path.read_text().strip() if path.exists() else ""
        return int(text) if text and Path(f"/proc/{text}").exists() else None


class Process:
    """One process on a node, as this machine sees it."""

    def __init__(self, pid, node):
        self.pid = pid
        self.node = node
        environ = dict(e.split("=", 1) for e in _read(f"/proc/{pid}/environ").split("\0") if "=" in e)
        rank = environ.get("SLURM_PROCID")
        self.rank = int(rank) if rank else None
        self.restart = int(environ.get("SLURM_RESTART_COUNT") or 0)
        self.job = environ.get("SLURM_JOB_ID")

    def signal(self, number):
        os.kill(self.pid, number)

    def __repr__(self):
        return f"rank {self.rank} on {self.node} (pid {self.pid})"


def _read(path):
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _comm(pid):
    return _read(f"/proc/{pid}/comm").strip()


def _pid_space(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("start")
    start.add_argument("--nodes", type=int, default=4)
    start.add_argument("--cpus", type=int, default=8, help="per node; more than the machine has is fine")
    start.add_argument("--keep", action="append", default=[], help="path below /tmp the nodes need")
    execute = verbs.add_parser("exec")
    execute.add_argument("dir")
    execute.add_argument("--node", help="default: the head")
    execute.add_argument("--timeout", type=int, default=600)
    execute.add_argument("command", nargs="+")
    stop = verbs.add_parser("stop")
    stop.add_argument("dir")
    args = parser.parse_args()

    if args.verb == "start":
        reason = why_not_here()
        if reason:
            sys.exit(f"cluster: {reason}")
        print(Cluster(args.nodes, args.cpus, args.keep, detached=True).start().dir)
        return 0
    cluster = Cluster.attach(args.dir)
    if args.verb == "stop":
        cluster.stop()
        return 0
    done = cluster.run(args.command, node=args.node, timeout=args.timeout, check=False)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
