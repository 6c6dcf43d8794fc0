"""Every wrong input gets one line that names the thing and the remedy, the documented exit code, at once."""
import os
import resource
import subprocess
import tempfile
import time

from harness import MUSTER, LiveTest, main, run, within
from ports import listening


class WrongInput(LiveTest):
    checked = 0

    def refused(self, code, *args, names=(), **options):
        """The launcher refuses: exit code, one line, every word of `names` in it, within a second."""
        before = time.monotonic()
        got, out, err = run(*args, **options)
        took = time.monotonic() - before
        self.assertEqual(got, code, f"{args}: {err}")
        self.assertEqual(out, "")
        self.assertEqual(len(err.splitlines()), 1, f"{args}: {err}")
        self.assertTrue(err.startswith("muster: "), err)
        self.assertNotIn("muster: muster:", err)
        for name in names:
            self.assertIn(name, err)
        self.assertLess(took, within(1))
        WrongInput.checked += 1
        return err

    # ---- the program

    def test_a_missing_script_is_named(self):
        self.refused(127, "nowhere.py", names=["nowhere.py"])

    def test_a_missing_program_is_named(self):
        self.refused(127, "--no-python", "no-such-program", names=["no-such-program", "PATH"])

    def test_a_folder_as_program_is_refused(self):
        self.refused(126, self.folder.name, names=[self.folder.name, "folder"])

    def test_a_missing_interpreter_is_named(self):
        script = self.write("lost.sh", "#!/no/such/interpreter\n")
        self.refused(127, script, names=[script, "/no/such/interpreter"])

    def test_a_missing_python_is_named(self):
        script = self.write("x.py", "print(1)\n")
        self.refused(127, script, env={"PATH": self.folder.name, "VIRTUAL_ENV": "", "CONDA_PREFIX": ""},
                     names=["python", "--python"])

    def test_a_missing_program_of_the_python_flag_is_named(self):
        script = self.write("x.py", "print(1)\n")
        self.refused(127, "--python", "/no/python", script, names=["/no/python"])

    def test_an_elf_file_for_another_machine_is_refused(self):
        with open("/bin/true", "rb") as f:
            image = bytearray(f.read(4096))
        image[18:20] = b"\xb7\x00"  # e_machine: AArch64
        path = self.path("foreign")
        with open(path, "wb") as f:
            f.write(image)
        os.chmod(path, 0o755)
        if os.uname().machine == "aarch64":
            self.skipTest("this machine runs the foreign program")
        self.refused(126, path, names=[path])

    def test_a_truncated_elf_file_is_refused(self):
        path = self.path("cut")
        with open(path, "wb") as f:
            f.write(b"\x7fELF\x02\x01\x01")
        os.chmod(path, 0o755)
        self.refused(126, path, names=[path])

    def test_a_file_without_execute_permission_is_named(self):
        script = self.write("tool.sh", "#!/bin/sh\ntrue\n", mode=0o644)
        self.refused(126, "--no-python", script, names=[script, "chmod +x"])

    def test_a_program_that_cannot_be_executed_is_never_restarted(self):
        # It passes every check before the start and fails in execve: an ELF file of the right kind with a broken body.
        with open("/bin/true", "rb") as f:
            image = bytearray(f.read(64))
        path = self.path("broken")
        with open(path, "wb") as f:
            f.write(image)
        os.chmod(path, 0o755)
        self.refused(126, "--max-restarts", "5", path, names=[path])

    # ---- the place

    def test_a_removed_current_directory_is_named(self):
        gone = tempfile.mkdtemp()
        done = subprocess.run(["bash", "-c", f"cd {gone} && rmdir {gone} && exec {MUSTER} --no-python true"],
                              stderr=subprocess.PIPE, text=True, check=False, timeout=30)
        self.assertEqual(done.returncode, 121, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("muster: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("current directory", lines[0])

    def test_a_file_as_log_dir_is_refused(self):
        path = self.write("file", "")
        self.refused(121, "--log-dir", path, "-r", "3", "--no-python", "true", names=[path])

    def test_a_log_dir_that_cannot_be_created_is_named(self):
        self.refused(121, "--log-dir", "/proc/nowhere", "-r", "3", "--no-python", "true", names=["/proc/nowhere"])

    def test_a_low_descriptor_limit_is_named(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        err = self.refused(121, "--nproc-per-node", "100", "--no-python", "true", preexec_fn=limit,
                           env={"OMP_NUM_THREADS": "1"}, names=["ulimit -n", "100 workers"])
        self.assertIn("64", err)

    def test_a_low_soft_limit_is_raised_and_given_back(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
        code, out, err = run("--nproc-per-node", "50", "--no-python", "sh", "-c", "ulimit -n", preexec_fn=limit)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "64\n" * 50)

    def test_an_occupied_port_is_named_with_its_holder(self):
        taken, port = listening()
        with taken:
            self.refused(121, "--master-port", port, "--no-python", "true",
                         names=[str(port), f"pid {os.getpid()}", "--master-port"])

    # ---- the command line

    def test_junk_values_are_named(self):
        for args, names in {
            ("--nproc-per-node", "x", "true"): ["--nproc-per-node", "x"],
            ("--nproc-per-node", "0", "true"): ["--nproc-per-node", "0"],
            ("--nproc-per-node=-1", "true"): ["--nproc-per-node", "-1"],
            ("--max-restarts", "many", "true"): ["--max-restarts", "many"],
            ("--max-restarts", "-1", "true"): ["--max-restarts", "-1"],
            ("--monitor-interval", "0", "true"): ["--monitor-interval"],
            ("--nnodes", "3:2", "true"): ["--nnodes", "3:2"],
            ("--nnodes", "1:2:3", "true"): ["--nnodes", "1:2:3"],
            ("--nnodes", "x", "true"): ["--nnodes", "x"],
            ("--shutdown-timeout", "-3", "true"): ["--shutdown-timeout", "-3"],
            ("--redirects", "11", "true"): ["--redirects", "11"],
            ("--tee", "0:1,", "true"): ["--tee", "0:1,"],
            ("--local-ranks-filter", "0,,1", "true"): ["--local-ranks-filter"],
            ("--ranks", "5-2", "true"): ["--ranks", "5-2"],
            ("--rdzv-conf", "a", "true"): ["--rdzv-conf"],
            ("--rdzv-backend", "zookeeper", "true"): ["--rdzv-backend", "zookeeper", "c10d"],
            ("--rdzv-endpoint", "host:99999", "--rdzv-backend", "c10d", "true"): ["99999"],
            ("--master-port", "70000", "true"): ["--master-port", "70000"],
            ("--start-method", "thread", "true"): ["--start-method", "thread"],
            ("--event-log-handler", "kafka", "true"): ["--event-log-handler", "kafka"],
            ("--numa-binding", "core", "true"): ["--numa-binding", "core"],
            ("--logs-specs", "mine", "true"): ["--logs-specs", "mine"],
            ("--stdin", "first", "true"): ["--stdin", "first"],
            ("--exit-code", "7", "true"): ["--exit-code", "7"],
            ("--hang-timeout", "0", "true"): ["--hang-timeout", "0", "off"],
            ("--busy-timeout", "long", "true"): ["--busy-timeout", "long"],
            ("--signals-to-handle", "SIGKILL", "true"): ["SIGKILL"],
            ("--print-completion", "fish"): ["fish"],
            ("--module=x", "true"): ["--module"],
            ("-m", "--no-python", "true"): ["--no-python"],
            ("--rdzv-backend", "etcd", "true"): ["etcd", "--rdzv-endpoint", "ETCDCTL_ENDPOINTS"],
            ("--rdzv-backend", "etcd", "--rdzv-endpoint", "e:x", "true"): ["e:x", "HOST[:PORT]"],
            ("--rdzv-backend", "etcd", "--rdzv-endpoint", "e", "--rdzv-conf", "password=x", "true"): ["ETCDCTL_PASSWORD"],
            ("--standalone", "--nnodes", "2", "true"): ["--nnodes", "--standalone"],
            ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h:0", "true"): ["h:0", "port 0"],
            ("--nnodes", "2", "--master-addr", "h", "--node-rank", "2", "true"): ["--node-rank", "2"],
            ("--nnodes", "2", "--master-addr", "h", "--spares", "1", "true"): ["--spares", "c10d"],
            ("--rdzv-backend", "file", "true"): ["--rdzv-endpoint", "/PATH"],
            ("--rdzv-backend", "file", "--rdzv-endpoint", "h:1", "true"): ["h:1", "absolute"],
            ("--worker-port", "0", "true"): ["--worker-port", "0"],
            ("--master-port", "700", "--worker-port", "700", "true"): ["--worker-port", "700"],
            ("--lease", "0", "true"): ["--lease", "0"],
            ("--start-timeout", "soon", "true"): ["--start-timeout", "soon"],
            ("--iface", "a/b", "true"): ["--iface", "a/b"],
            ("--store-allow", "10.0.0.0/40", "true"): ["--store-allow", "10.0.0.0/40"],
            ("--max-membership-changes", "few", "true"): ["--max-membership-changes", "few"],
            ("--nproc-per-node",): ["--nproc-per-node"],
            (): ["program"],
        }.items():
            with self.subTest(args=args):
                self.refused(2, *args, names=names)

    def test_an_unknown_flag_names_the_nearest(self):
        self.refused(2, "--max-restart-count", "3", "true", names=["--max-restart-count", "--max-restarts"])
        self.refused(2, "--nproc-per-nod3", "3", "true", names=["--nproc-per-node"])

    def test_junk_in_the_environment_names_the_variable(self):
        self.refused(2, "true", env={"PET_MAX_RESTARTS": "x"}, names=["PET_MAX_RESTARTS", "x"])
        self.refused(2, "true", env={"PET_NO_PYTHON": "yes"}, names=["PET_NO_PYTHON", "yes"])
        self.refused(2, "true", env={"PET_NNODES": ""}, names=["PET_NNODES"])
        self.refused(2, "true", env={"PET_LEASE": "x"}, names=["PET_LEASE", "x"])
        self.refused(2, "true", env={"MUSTER_TOKEN": ""}, names=["MUSTER_TOKEN"])
        self.refused(2, "true", env={"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "soon"},
                     names=["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])
        for value in ("1", "x"):
            self.refused(121, "true", env={"MUSTER_END_WITH": value}, names=["MUSTER_END_WITH", "unset it"])

    def test_missing_gpus_are_named(self):
        self.refused(121, "--nproc-per-node", "gpu", "--no-python", "true", names=["gpu"])
        self.refused(121, "--gpus", "0", "--no-python", "true", names=["--gpus"])

    @classmethod
    def tearDownClass(cls):
        print(f"{cls.checked} wrong inputs refused with one line each")


if __name__ == "__main__":
    main()
