"""Pods that know only the variables of their controllers: a network namespace each, its hosts file in place of the
cluster's name server."""
import collections
import os
import re
import signal
import subprocess
import time

import netns
from harness import MUSTER, LiveTest, long, main, processes, wait_for, within

NAMES = ("GROUP_RANK", "GROUP_WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
WORLD = ["--no-python", "sh", "-c", "echo " + " ".join(f"${name}" for name in NAMES) + " $(hostname)"]
IN_A_POD = {"PATH": "/usr/bin:/bin", "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
LOOPBACK = ("127.0.0.1", "localhost")
LATE_S = 20


def indexed(i, pods):
    return {"JOB_COMPLETION_INDEX": i, "HOSTNAME": f"train-{i}", "PET_NNODES": pods}


def job_set(i, pods):
    """Returns the variables of a JobSet with one pod in each Job."""
    return {"JOB_COMPLETION_INDEX": 0, "HOSTNAME": f"llm-workers-{i}-0", "JOBSET_NAME": "llm", "JOBSET_JOB_INDEX": i,
            "JOBSET_REPLICATEDJOB_NAME": "workers", "JOBSET_REPLICATEDJOB_REPLICAS": pods, "JOBSET_RESTART_ATTEMPT": 0,
            "PET_NNODES": pods}


def pytorch_job(i, pods):
    """Returns the variables that version 1.3 of the operator writes: to the master, its own name is localhost."""
    return {"RANK": i, "WORLD_SIZE": pods, "MASTER_PORT": 23456, "MASTER_ADDR": "localhost" if i == 0 else "mnist-master-0",
            "HOSTNAME": f"mnist-worker-{i - 1}" if i else "mnist-master-0"}


def train_job(i, pods):
    return {"PET_NNODES": pods, "PET_NPROC_PER_NODE": 2, "PET_NODE_RANK": i, "PET_MASTER_ADDR": "llm-node-0-0.llm",
            "PET_MASTER_PORT": 29500, "JOB_COMPLETION_INDEX": i, "HOSTNAME": f"llm-node-0-{i}"}


class Pods(LiveTest):
    def setUp(self):
        super().setUp()
        self.cluster = netns.Cluster(4)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.down)

    def address(self, node, name):
        """Maps `name` to the given node on all nodes."""
        for i in range(1, 5):
            others = [pair for pair in self.cluster.names(i) if pair[1] != name]
            self.cluster.set_names(i, [*others, (self.cluster.address(node), name)])

    def own_name(self, node, full):
        """Adds the pod's own name as kubelet writes it to a pod's hosts file."""
        self.cluster.add_name(node, f"{full}.default.svc.cluster.local {full.split('.')[0]}", self.cluster.address(node))

    def start(self, node, variables, *args):
        env = [f"{name}={value}" for name, value in {**IN_A_POD, **variables}.items()]
        return self.cluster.run(node, ["env", "-i", *env, MUSTER, *map(str, args or WORLD)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self, pods, workers_each=1):
        """Checks that the pods form one world, with one node per pod."""
        seen = collections.Counter()
        for i, pod in enumerate(pods):
            out, err = pod.communicate(timeout=120)
            self.assertEqual(pod.returncode, 0, err)
            for line in out.splitlines():
                group, groups, rank, world, local, local_size = map(int, line.split()[:6])
                self.assertEqual((group, groups, world, local_size), (i, len(pods), len(pods) * workers_each, workers_each), out)
                self.assertEqual(rank, i * workers_each + local)
                seen[rank] += 1
        self.assertEqual(seen, {rank: 1 for rank in range(len(pods) * workers_each)})

    @long
    def test_pods_of_an_indexed_job_form_one_world(self):
        for i in range(3):
            self.own_name(i + 1, f"train-{i}.workers")
        self.address(1, "train-0.workers")
        self.check([self.start(i + 1, indexed(i, 3)) for i in range(3)])

    def test_pods_of_a_job_set_form_one_world(self):
        self.address(1, "llm-workers-0-0.llm")
        self.check([self.start(i + 1, job_set(i, 3)) for i in range(3)])

    @long
    def test_pods_of_a_pytorch_job_form_one_world(self):
        self.address(1, "mnist-master-0")
        self.check([self.start(i + 1, pytorch_job(i, 3)) for i in range(3)])

    @long
    def test_pods_of_a_train_job_form_one_world(self):
        self.address(1, "llm-node-0-0.llm")
        self.check([self.start(i + 1, train_job(i, 3)) for i in range(3)], workers_each=2)

    def test_two_jobs_share_a_network(self):
        self.address(1, "llm-workers-0-0.llm")
        self.address(1, "another-workers-0-0.another")
        def another(i):
            return {**job_set(i, 2), "HOSTNAME": f"another-workers-{i}-0", "JOBSET_NAME": "another"}
        first = [self.start(i + 1, job_set(i, 2)) for i in range(2)]
        second = [self.start(i + 1, another(i)) for i in range(2)]
        self.check(first)
        self.check(second)

    def test_pods_wait_for_the_name_of_pod_0(self):
        pods = [self.start(i + 1, job_set(i, 3)) for i in range(3)]
        self.assertIn("waiting for the host of the job at llm-workers-0-0.llm", pods[1].stderr.readline() + pods[1].stderr.readline())
        self.wait(LATE_S)
        self.address(1, "llm-workers-0-0.llm")
        self.check(pods)

    def wait(self, seconds):
        """Waits: the fault itself lasts that long."""
        subprocess.run(["sleep", str(seconds)], check=True)

    def test_pod_0_comes_back_at_another_address(self):
        self.address(1, "llm-workers-0-0.llm")
        mark = self.path("runs")
        worker = ["--max-restarts", "3", "--no-python", "sh", "-c",
                  f"echo x >>{mark}.$RANK; until test $(wc -l <{mark}.0) -ge 2 -a $(wc -l <{mark}.1) -ge 2; do sleep 0.1; done; echo done $RANK"]
        pods = [self.start(i + 1, job_set(i, 2), *worker) for i in range(2)]
        wait_for(lambda: all(self.exists(f"{mark}.{i}") for i in range(2)), "both workers run")
        pods[0].kill()
        self.address(3, "llm-workers-0-0.llm")
        back = self.start(3, job_set(0, 2), *worker)
        for pod in (back, pods[1]):
            out, err = pod.communicate(timeout=120)
            self.assertEqual(pod.returncode, 0, err)
            self.assertIn("done", out)

    def test_a_deleted_job_saves_and_says_why_it_ended(self):
        """muster is process 1 of each pod; kubelet signals only that one, and kills after the pod's 30 s."""
        self.address(1, "llm-workers-0-0.llm")
        mark = self.path("saved")
        worker = ["--no-python", "sh", "-c",
                  f"trap 'sleep 3; echo x >>{mark}.$RANK; exit 0' TERM; echo x >{mark}.up.$RANK; while :; do sleep 0.1; done"]
        pods = []
        for i in range(2):
            env = [f"{name}={value}" for name, value in {**IN_A_POD, **job_set(i, 2)}.items()]
            pods.append(self.cluster.run(i + 1, ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "env", "-i", *env,
                                                 MUSTER, *worker],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        wait_for(lambda: all(self.exists(f"{mark}.up.{i}") for i in range(2)), "both workers run")
        began = time.monotonic()
        firsts = [pid for pid, (_, _, line) in processes().items() if line.startswith(MUSTER) and mark in line and self.is_first(pid)]
        self.assertEqual(len(firsts), 2)
        for pid in firsts:
            os.kill(pid, signal.SIGTERM)
        for i, pod in enumerate(pods):
            _, err = pod.communicate(timeout=60)
            self.assertEqual(pod.returncode, 143, err)
            self.assertRegex(err, r"muster: stopped by SIGTERM( on node-\S+)?")
            self.assertEqual(self.read(f"saved.{i}"), "x\n", "it saved once")
        self.assertLess(time.monotonic() - began, within(3, below=30))

    def is_first(self, pid):
        """Returns True if the process is process 1 of a PID namespace."""
        with open(f"/proc/{pid}/status", encoding="utf-8") as f:
            return re.search(r"^NSpid:\t\d+\t1$", f.read(), re.MULTILINE) is not None

    def exists(self, path):
        try:
            with open(path, encoding="utf-8") as f:
                return bool(f.read())
        except OSError:
            return False

    def test_a_pod_without_the_number_of_pods_ends_with_one_line(self):
        variables = {k: v for k, v in job_set(2, 3).items() if k != "PET_NNODES"}
        pod = self.start(1, variables)
        out, err = pod.communicate(timeout=30)
        self.assertEqual((pod.returncode, out), (2, ""))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("pods of 3 Jobs are numbered by PET_NNODES", err)

    def test_a_pod_without_a_subdomain_ends_with_one_line(self):
        pod = self.start(1, indexed(1, 3))
        out, err = pod.communicate(timeout=30)
        self.assertEqual((pod.returncode, out), (2, ""))
        self.assertEqual(err.count("\n"), 1, err)
        self.assertIn("subdomain", err)


if __name__ == "__main__":
    netns.require_netns()
    main()
