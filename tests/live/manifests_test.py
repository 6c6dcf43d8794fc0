"""The manifests and scripts in examples/engines are valid: manifests have no field that Kubernetes does not know.

Each manifest goes through the published models of its kind: Kubeflow's Python packages, made from the OpenAPI documents of
Kubernetes, JobSet, Trainer and the training operator. These models silently drop unknown fields, fill in required ones and
turn numbers into strings, so a manifest is valid only if it comes out as it went in. They check the names and types of
fields, not the contents of strings.

Tests then misspell each key of each manifest and add an unknown key to each mapping: every mistake must be found. Scripts are
run if the machine has their engine (tests/live/slurm_test.py and engines_test.py start several nodes).

Needs the virtual environment that $MUSTER_MANIFESTS names (./dev test makes it), and runs in its Python.
"""
import copy
import glob
import json
import os
import shutil
import subprocess
import sys
import types
import unittest

VENV = os.environ.get("MUSTER_MANIFESTS")
if __name__ == "__main__" and not VENV:
    print("SKIPPED: MUSTER_MANIFESTS names no virtual environment with the models of manifests (./dev test makes it)",
          file=sys.stderr)
    sys.exit(77)
PYTHON = os.path.abspath(os.path.join(VENV or "", "bin", "python"))
if __name__ == "__main__" and sys.executable != PYTHON:
    os.execv(PYTHON, [PYTHON, *sys.argv])

import kubeflow.training  # noqa: E402
import kubeflow_trainer_api.models as trainer  # noqa: E402
import yaml  # noqa: E402

from harness import MUSTER, LiveTest, main  # noqa: E402

ENGINES = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/engines"))
MANIFESTS = sorted(glob.glob(f"{ENGINES}/*.yaml"))
FREE = {"selector", "limits", "pytorchReplicaSpecs"}  # The models accept any key in these.


def by_pydantic(model):
    return lambda document: model.from_dict(document).to_dict()


def by_training_operator(document):
    client = kubeflow.training.ApiClient()
    job = client.deserialize(types.SimpleNamespace(data=json.dumps(document)), "KubeflowOrgV1PyTorchJob")
    return client.sanitize_for_serialization(job)


KINDS = {
    ("v1", "Service"): by_pydantic(trainer.IoK8sApiCoreV1Service),
    ("batch/v1", "Job"): by_pydantic(trainer.IoK8sApiBatchV1Job),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): by_pydantic(trainer.JobsetV1alpha2JobSet),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): by_pydantic(trainer.TrainerV1alpha1TrainJob),
    ("kubeflow.org/v1", "PyTorchJob"): by_training_operator,
}


def wrong_with(document):
    """The reason why this is no valid manifest of its kind, or None."""
    through = KINDS.get((document.get("apiVersion"), document.get("kind")))
    if not through:
        return f"no kind {document.get('kind')} in {document.get('apiVersion')}"
    try:
        came_out = through(copy.deepcopy(document))
    except (ValueError, TypeError, AttributeError) as error:  # pydantic's errors, too.
        return str(error)
    differences = sorted(set(leaves(document)) ^ set(leaves(came_out)))
    return "not taken as it is: " + "; ".join(differences) if differences else None


def inside(node):
    """[(key or index, value)] of a mapping or list."""
    return list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ())


def leaves(node, path=()):
    """A line for each value, as text, since 4 == 4.0 and 1 == True."""
    for key, value in inside(node):
        yield from leaves(value, (*path, str(key)))
    if not inside(node):
        yield f"{'.'.join(path)} = {json.dumps(node)}"


def documents_of(path, with_gpus=False):
    """`with_gpus`: with the commented line for GPUs made a field."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return list(yaml.safe_load_all(text.replace("# resources", "resources") if with_gpus else text))


def mappings(node, path=()):
    """Yields the path to each mapping."""
    if isinstance(node, dict):
        yield path
    for key, value in inside(node):
        yield from mappings(value, (*path, key))


def at(node, path):
    for key in path:
        node = node[key]
    return node


def misspellings(document):
    """Yields (where, the document with one mistake)."""
    for path in mappings(document):
        if path and path[-1] in FREE:
            continue
        for key in at(document, path):
            spoilt = copy.deepcopy(document)
            mapping = at(spoilt, path)
            mapping[key[:-1] + "_"] = mapping.pop(key)
            yield (*path, key), spoilt
        spoilt = copy.deepcopy(document)
        at(spoilt, path)["terminationGraceSeconds"] = 30
        yield (*path, "terminationGraceSeconds"), spoilt


def strings_as_numbers(document):
    """Yields (where, the document with a forgotten quote), in which YAML reads 4 instead of "4"."""
    for path in mappings(document):
        if str(at(document, path).get("value", "")).isdigit():
            spoilt = copy.deepcopy(document)
            at(spoilt, path)["value"] = int(at(document, path)["value"])
            yield (*path, "value"), spoilt


def pods_of(document):
    """The specification of each pod in a document."""
    return [at(document, path) for path in mappings(document) if "containers" in at(document, path)]


def environment_of(container):
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container.get("env", [])}


class Manifests(unittest.TestCase):
    maxDiff = None

    def test_there_are_manifests_of_every_kind(self):
        kinds = {(document["apiVersion"], document["kind"]) for path in MANIFESTS for document in documents_of(path)}
        self.assertEqual(kinds, set(KINDS))

    def test_each_passes_its_model_unchanged(self):
        for path in MANIFESTS:
            for document in documents_of(path) + documents_of(path, with_gpus=True):
                with self.subTest(f"{os.path.basename(path)}: {document['kind']}"):
                    self.assertIsNone(wrong_with(document))

    def check_found(self, mistakes):
        for path in MANIFESTS:
            for document in documents_of(path, with_gpus=True):
                self.assertIsNone(wrong_with(document), path)  # Else every mistake would be found.
                spoilt = list(mistakes(document))
                missed = [".".join(map(str, where)) for where, each in spoilt if wrong_with(each) is None]
                self.assertEqual(missed, [], f"{path}: {document['kind']}")
                if spoilt:
                    print(f"{os.path.basename(path)}: {document['kind']}: {len(spoilt)} found, at depths "
                          f"{sorted({len(where) for where, _ in spoilt})}", file=sys.stderr)

    def test_each_misspelt_field_is_found(self):
        self.check_found(misspellings)

    def test_each_forgotten_quote_is_found(self):
        self.check_found(strings_as_numbers)

    def test_a_misspelt_field_is_named(self):
        document = documents_of(f"{ENGINES}/trainjob.yaml")[0]
        document["spec"]["trainer"]["nodes"] = document["spec"]["trainer"].pop("numNodes")
        self.assertEqual(wrong_with(document), "not taken as it is: spec.trainer.nodes = 4")

    def test_pod_counts_names_and_labels_agree(self):
        """No model checks PET_NNODES, or names and labels that must agree in two places."""
        service, job = documents_of(f"{ENGINES}/indexed-job.yaml")
        pod = job["spec"]["template"]["spec"]
        self.assertEqual(job["spec"]["completionMode"], "Indexed")
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"], {"job-name": job["metadata"]["name"]})
        replicated, = documents_of(f"{ENGINES}/jobset.yaml")[0]["spec"]["replicatedJobs"]
        for spec, replicas in (job["spec"], 1), (replicated["template"]["spec"], replicated["replicas"]):
            container, = spec["template"]["spec"]["containers"]
            self.assertEqual(spec["completions"], spec["parallelism"])
            self.assertEqual(environment_of(container)["PET_NNODES"], str(spec["completions"] * replicas))
        # Example: JOBSET_JOB_INDEX is the label .../job-index.
        labels = {name: f"metadata.labels['jobset.sigs.k8s.io/{name.removeprefix('JOBSET_').lower().replace('_', '-')}']"
                  for name in ("JOBSET_REPLICATEDJOB_NAME", "JOBSET_REPLICATEDJOB_REPLICAS", "JOBSET_JOB_INDEX",
                               "JOBSET_RESTART_ATTEMPT")}
        labels["JOBSET_NAME"] = "metadata.labels['jobset.sigs.k8s.io/jobset-name']"
        given = {name: value["fieldRef"]["fieldPath"] for name, value in environment_of(container).items()
                 if isinstance(value, dict)}
        self.assertEqual(given, labels)
        pytorchjob = documents_of(f"{ENGINES}/pytorchjob.yaml")[0]["spec"]["pytorchReplicaSpecs"]
        self.assertEqual(set(pytorchjob), {"Master", "Worker"})
        for replica in pytorchjob.values():  # The operator sets its variables in the container of this name.
            self.assertEqual([each["name"] for each in replica["template"]["spec"]["containers"]], ["pytorch"])

    def test_the_shutdown_timeout_is_shorter_than_the_pods_grace(self):
        for path in MANIFESTS:
            document = documents_of(path)[-1]
            for pod in pods_of(document) or [{"containers": [document["spec"]["trainer"]]}]:
                container, = pod["containers"]
                self.assertEqual(container["command"], ["muster", "train.py"], path)
                grace = int(environment_of(container)["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])
                self.assertLess(grace, pod.get("terminationGracePeriodSeconds", 30), path)


class Scripts(LiveTest):
    def test_each_parses_and_has_the_right_mode(self):
        scripts = [path for path in glob.glob(f"{ENGINES}/*") if path.endswith((".sh", ".sbatch"))]
        self.assertEqual(len(scripts), 5)
        for path in scripts:
            done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)
            self.assertEqual(os.access(path, os.X_OK), path.endswith(".sh"), path)

    def test_options_of_sbatch_stand_before_the_first_command(self):
        for path in glob.glob(f"{ENGINES}/*.sbatch"):
            with open(path, encoding="utf-8") as f:
                lines = f.read().splitlines()
            options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH --")]
            commands = [number for number, line in enumerate(lines) if line and not line.startswith("#")]
            self.assertTrue(options and max(options) < min(commands), path)

    def check_runs(self, script, engine, real):
        """Runs a script on this machine alone. In Debian two packages provide mpirun and mpiexec; `real` names one of them."""
        if not shutil.which(real):
            self.skipTest(f"there is no {real} (Debian: openmpi-bin, mpich)")
        self.write("hosts", "# Comments as in the example.\nlocalhost\n")
        self.write(engine, f'#!/bin/sh\nexec {shutil.which(real)} "$@"\n')
        os.symlink(MUSTER, self.path("muster"))
        self.write("train.py", "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n")
        env = {**os.environ, "PATH": f"{self.folder.name}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        done = subprocess.run([f"{ENGINES}/{script}", "hosts"], cwd=self.folder.name, env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "rank 0 of 1\n"), done.stderr)

    def test_the_mpirun_script_runs(self):
        self.check_runs("mpirun.sh", "mpirun", "mpirun.openmpi")

    def test_the_mpiexec_script_runs(self):
        self.check_runs("mpiexec.sh", "mpiexec", "mpiexec.hydra")


if __name__ == "__main__":
    main()
