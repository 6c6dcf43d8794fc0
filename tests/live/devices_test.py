"""GPUs through the real binary, on machines without one: the driver's management library is a stand-in that answers from a
file (tests/fakes/fake_nvml.cc); everything above it is real."""
import os
import signal

from harness import Job, LiveTest, alive_with, main, run, wait_for

FAKE_LIBRARY = os.path.join(os.environ["MUSTER_BUILD"], "tests", "fake_nvml")
SHOW = 'echo "$LOCAL_RANK|$CUDA_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER"'
TWO = """gpu 00000000:3B:00.0 GPU-aaaa1111-0000-0000-0000-000000000000 NVIDIA Test
gpu 00000000:5E:00.0 GPU-bbbb2222-0000-0000-0000-000000000000 NVIDIA Test
"""
SLICED = TWO + "mig 0 MIG-cccc3333-0000-0000-0000-000000000000\nmig 0 MIG-dddd4444-0000-0000-0000-000000000000\n"


class Devices(LiveTest):
    def environment(self, machine, **more):
        facts = self.write("machine", machine)
        env = {"FAKE_NVML": facts, "LD_LIBRARY_PATH": FAKE_LIBRARY, **more}
        return env

    def shown(self, machine, *flags, env=None):
        code, out, err = run(*flags, "--no-python", "sh", "-c", SHOW, env=self.environment(machine, **(env or {})))
        self.assertEqual(code, 0, err)
        return sorted(out.split()), err

    def refused(self, machine, *flags, env=None):
        code, out, err = run(*flags, "--no-python", "true", env=self.environment(machine, **(env or {})))
        self.assertEqual((code, out), (121, ""), err)
        self.assertEqual(len(err.splitlines()), 1, err)
        return err

    def test_gpu_and_auto_start_one_worker_for_each_gpu(self):
        for word in ("gpu", "auto"):
            lines, _ = self.shown(TWO, "--nproc-per-node", word)
            self.assertEqual(lines, ["0|0,1|PCI_BUS_ID", "1|0,1|PCI_BUS_ID"])

    def test_mig_slices_count_as_devices(self):
        lines, _ = self.shown(SLICED, "--nproc-per-node", "gpu", "--gpu-binding", "exclusive", "--keep-local-rank")
        self.assertEqual([line.split("|")[1] for line in lines],
                         ["MIG-cccc3333-0000-0000-0000-000000000000", "MIG-dddd4444-0000-0000-0000-000000000000",
                          "GPU-bbbb2222-0000-0000-0000-000000000000"])

    def test_exclusive_binding_gives_each_worker_its_own_gpu(self):
        lines, _ = self.shown(TWO, "--nproc-per-node", 2, "--gpu-binding", "exclusive")
        self.assertEqual(lines, ["0|0|PCI_BUS_ID", "0|1|PCI_BUS_ID"])
        lines, _ = self.shown(TWO, "--nproc-per-node", 2, "--gpu-binding", "exclusive", "--keep-local-rank")
        self.assertEqual(lines, ["0|0|PCI_BUS_ID", "1|1|PCI_BUS_ID"])

    def test_an_inherited_list_keeps_form_and_order(self):
        lines, _ = self.shown(TWO, "--nproc-per-node", "gpu", env={"CUDA_VISIBLE_DEVICES": "1,0"})
        self.assertEqual(lines, ["0|1,0|", "1|1,0|"])
        lines, _ = self.shown(TWO, "--nproc-per-node", "gpu", env={"CUDA_VISIBLE_DEVICES": "1,7,0"})
        self.assertEqual(lines, ["0|1|"])

    def test_an_entry_that_is_no_device_is_named_if_a_flag_uses_the_list(self):
        env = {"CUDA_VISIBLE_DEVICES": "0,9"}
        named = "CUDA_VISIBLE_DEVICES=0,9 ends at entry '9', which is not a device of this machine (this machine has GPUs 0-1)"
        for flags in (["--nproc-per-node", "gpu"], ["--nproc-per-node", "auto"], ["--gpus", "0"], ["--virtual-local-rank"],
                      ["--gpu-binding", "exclusive"]):
            lines, err = self.shown(TWO, *flags, env=env)
            self.assertEqual(len(lines), 1, err)
            self.assertEqual([line for line in err.splitlines() if "'9'" in line],
                             [f"muster: {named}: the workers see the devices before it"], flags)
        for flags in (["--nproc-per-node", 2, "--gpu-binding", "exclusive"], ["--gpus", "1"]):
            self.assertIn(named, self.refused(TWO, *flags, env=env))

    def test_the_gpus_flag_selects_devices(self):
        lines, _ = self.shown(TWO, "--nproc-per-node", 1, "--gpus", "1")
        self.assertEqual(lines, ["0|1|PCI_BUS_ID"])
        lines, _ = self.shown(TWO, "--nproc-per-node", 1, "--gpus", "GPU-bbbb2222-0000-0000-0000-000000000000")
        self.assertEqual(lines, ["0|GPU-bbbb2222-0000-0000-0000-000000000000|"])

    def test_the_driver_is_not_asked_unless_a_flag_needs_it(self):
        """The driver would hang if it were asked."""
        code, out, _ = run("--no-python", "sh", "-c", 'echo "<$CUDA_VISIBLE_DEVICES>"',
                           env=self.environment(TWO + "hang nvmlInit_v2\n", CUDA_VISIBLE_DEVICES="1, 0"))
        self.assertEqual((code, out), (0, "<1, 0>\n"))

    def test_a_signal_does_not_wait_for_a_driver_that_hangs(self):
        job = Job("--nproc-per-node", "gpu", "--no-python", "true", env=self.environment(TWO + "hang nvmlInit_v2\n"))
        self.addCleanup(job.__exit__)
        wait_for(lambda: alive_with("--internal-devices"), "the driver is asked")
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    def test_too_few_gpus_are_refused_or_reported(self):
        self.assertIn("3 workers need a device each, but there are 2",
                      self.refused(TWO, "--nproc-per-node", 3, "--gpu-binding", "exclusive"))
        self.assertIn("--gpus", self.refused(TWO, "--gpus", "5"))
        _, err = self.shown(TWO, "--nproc-per-node", 3, "--gpus", "0,1")
        self.assertIn("3 workers for 2 GPUs: ", err)

    def test_report_bindings_prints_a_table(self):
        _, err = self.shown(TWO, "--nproc-per-node", 2, "--gpu-binding", "exclusive", "--report-bindings")
        table = [line for line in err.splitlines() if line.startswith(("local rank", "0 ", "1 "))]
        self.assertEqual(len(table), 3, err)
        for word in ("device", "NUMA node", "cores", "threads"):
            self.assertIn(word, table[0])
        self.assertIn("GPU 1 (GPU-bbbb2222", table[2])

    def test_the_verdict_names_the_device(self):
        code, _, err = run("--nproc-per-node", 2, "--gpu-binding", "exclusive", "--no-python", "sh", "-c",
                           "[ $RANK = 1 ] && exit 4; sleep 1000", env=self.environment(TWO))
        self.assertEqual(code, 4)
        self.assertIn("GPU 1 (GPU-bbbb2222", err)

    def test_a_restart_waits_until_the_old_processes_have_left_the_gpu(self):
        """The driver keeps listing the dead worker; the second attempt starts once it no longer does."""
        machine = TWO + f"log {self.path('log')}\n"
        env = self.environment(machine)
        script = self.write("w.sh", f"""#!/bin/bash
            if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then
              echo "process 0 $$ 1000000" >>{self.path('machine')}
              exit 1
            fi
            grep -c process {self.path('machine')} >{self.path('seen')}
            exit 0
            """)
        job = Job("--nproc-per-node", 1, "--gpus", "0", "--max-restarts", 1, "--no-python", script, env=env)
        self.addCleanup(job.__exit__)
        wait_for(lambda: "restarting" in job.stderr(), "the first attempt has failed")
        before = self.read("log").count("asked")
        wait_for(lambda: self.read("log").count("asked") >= before + 3, "the driver is asked again and again")
        self.assertFalse(self.exists("seen"))
        self.write("machine", machine)
        self.assertEqual(job.wait(), 0)
        self.assertEqual(self.read("seen"), "0\n")


if __name__ == "__main__":
    main()
