// Environments that engines give to the processes they start, without variables that say nothing
// about the other processes. Those whose comment names a version were recorded from real runs;
// those of Kubernetes, which a development machine does not have, follow the sources named there.
#pragma once

#include <string>

#include "agent/launch_spec.h"
#include "agent/process/worker_environment.h"

namespace muster {

// Expected facts about Slurm for one of its jobs.
inline EngineSpec engine_of_slurm(const std::string& job, int starts = 0) {
  return {.name = "Slurm",
          .job = job,
          .starts = starts,
          .signals_all = true,
          .one_console = true,
          .time_left = {{"--internal-slurm-time-left", job}, "squeue"},
          .requeue = {{"--internal-slurm-requeue", job}, "scontrol"},
          .requeue_if_preempted = {{"--internal-slurm-requeue", job, "if-preempted"}, "scontrol"},
          .requeue_by_hand = "scontrol requeue " + job};
}

// srun -N2 env (Slurm 22.05.8): the second task.
inline Environment slurm_two_nodes() {
  return {{"SLURMD_NODENAME", "node2"},
          {"SLURM_JOB_ID", "1"},
          {"SLURM_JOB_NODELIST", "node[1-2]"},
          {"SLURM_JOB_NUM_NODES", "2"},
          {"SLURM_LAUNCH_NODE_IPADDR", "10.99.0.1"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NNODES", "2"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NODELIST", "node[1-2]"},
          {"SLURM_NTASKS", "2"},
          {"SLURM_PROCID", "1"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "node[1-2]"},
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
          {"SLURM_TASKS_PER_NODE", "1(x2)"}};
}

// srun -n5 -N2 env (Slurm 22.05.8): the last task, alone on its node.
inline Environment slurm_five_tasks() {
  Environment environment = slurm_two_nodes();
  environment["SLURM_PROCID"] = "4";
  environment["SLURM_STEP_NUM_TASKS"] = environment["SLURM_NTASKS"] = "5";
  environment["SLURM_STEP_TASKS_PER_NODE"] = environment["SLURM_TASKS_PER_NODE"] = "4,1";
  return environment;
}

// srun -n4 -N1 env (Slurm 22.05.8).
inline Environment slurm_four_tasks() {
  return {{"SLURM_JOB_ID", "2"},
          {"SLURM_JOB_NODELIST", "node1"},
          {"SLURM_LOCALID", "3"},
          {"SLURM_NNODES", "1"},
          {"SLURM_NODEID", "0"},
          {"SLURM_PROCID", "3"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "node1"},
          {"SLURM_STEP_NUM_NODES", "1"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_TASKS_PER_NODE", "4"}};
}

// srun -N1 -n1 env (Slurm 22.05.8).
inline Environment slurm_one_task() {
  Environment environment = slurm_four_tasks();
  environment["SLURM_LOCALID"] = environment["SLURM_PROCID"] = "0";
  environment["SLURM_STEP_NUM_TASKS"] = environment["SLURM_STEP_TASKS_PER_NODE"] = "1";
  return environment;
}

// salloc -N2 env (Slurm 22.05.8): the shell stays where salloc was typed.
inline Environment slurm_salloc_shell() {
  return {{"SLURM_JOB_ID", "5"},           {"SLURM_JOB_NODELIST", "node[1-2]"},
          {"SLURM_JOB_NUM_NODES", "2"},    {"SLURM_NNODES", "2"},
          {"SLURM_NODELIST", "node[1-2]"}, {"SLURM_TASKS_PER_NODE", "1(x2)"}};
}

// salloc -N2 with LaunchParameters=use_interactive_step (Slurm 22.05.8): the shell is a step of one
// task on the first node, and keeps the job's numbers beside those of the step.
inline Environment slurm_interactive_step() {
  Environment environment = slurm_salloc_shell();
  environment.insert({{"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "0"},
                      {"SLURM_PROCID", "0"},
                      {"SLURM_STEP_ID", "4294967290"},
                      {"SLURM_STEP_NODELIST", "node1"},
                      {"SLURM_STEP_NUM_NODES", "1"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_STEP_TASKS_PER_NODE", "1"}});
  return environment;
}

// sbatch -N2 (Slurm 22.05.8): the script itself, on the first node.
inline Environment slurm_batch_script() {
  Environment environment = slurm_salloc_shell();
  environment.insert({{"ENVIRONMENT", "BATCH"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_NODEID", "0"},
                      {"SLURM_PROCID", "0"}});
  return environment;
}

// sbatch -N1 -w node3 --ntasks-per-node=2, hetjob, -N2 -w node1,node4 --ntasks-per-node=4, and in
// the script srun --het-group=0,1 env (Slurm 22.05.8): the third task, on node1. The nodes are
// numbered part by part; the lists are sorted by name.
inline Environment slurm_het_tasks() {
  return {{"SLURMD_NODENAME", "node1"},
          {"SLURM_HET_SIZE", "2"},
          {"SLURM_JOB_ID", "40"},
          {"SLURM_JOB_NODELIST", "node[1,3-4]"},
          {"SLURM_JOB_NODELIST_HET_GROUP_0", "node3"},
          {"SLURM_JOB_NODELIST_HET_GROUP_1", "node[1,4]"},
          {"SLURM_JOB_NUM_NODES", "3"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NNODES", "3"},
          {"SLURM_NODEID", "1"},
          {"SLURM_PROCID", "2"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "node[1,3-4]"},
          {"SLURM_STEP_NUM_NODES", "3"},
          {"SLURM_STEP_NUM_TASKS", "10"},
          {"SLURM_STEP_TASKS_PER_NODE", "4,2,4"}};
}

// The script of that job, on node3.
inline Environment slurm_het_script() {
  return {{"ENVIRONMENT", "BATCH"},
          {"SLURMD_NODENAME", "node3"},
          {"SLURM_HET_SIZE", "2"},
          {"SLURM_JOB_ID", "40"},
          {"SLURM_JOB_NODELIST", "node3"},
          {"SLURM_JOB_NUM_NODES", "1"},
          {"SLURM_JOB_NUM_NODES_HET_GROUP_0", "1"},
          {"SLURM_JOB_NUM_NODES_HET_GROUP_1", "2"},
          {"SLURM_NNODES", "1"},
          {"SLURM_NODEID", "0"},
          {"SLURM_PROCID", "0"}};
}

// mpirun --hostfile (node1 slots=2, node2 slots=2) -np 3 env (Open MPI 4.1.4): the third process.
inline Environment open_mpi_two_nodes() {
  return {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
          {"OMPI_COMM_WORLD_NODE_RANK", "0"},
          {"OMPI_COMM_WORLD_RANK", "2"},
          {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_MCA_orte_hnp_uri", "357629952.0;tcp://10.99.0.1:33357"},
          {"OMPI_MCA_orte_num_nodes", "2"},
          {"PMIX_RANK", "2"}};
}

// mpirun -np 1 env (Open MPI 4.1.4).
inline Environment open_mpi_alone() {
  Environment environment = open_mpi_two_nodes();
  environment["OMPI_COMM_WORLD_RANK"] = environment["PMIX_RANK"] = "0";
  environment["OMPI_COMM_WORLD_SIZE"] = environment["OMPI_MCA_orte_num_nodes"] = "1";
  return environment;
}

// mpiexec.hydra -np 2 env (MPICH 4.0.2): the second process.
inline Environment hydra() {
  return {{"HYDI_CONTROL_FD", "7"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"},
          {"PMI_FD", "8"},          {"PMI_RANK", "1"},        {"PMI_SIZE", "2"}};
}

// A pod of a PyTorchJob of one master and three workers, as setPodEnv() in
// pkg/controller.v1/pytorch/envvar.go of https://github.com/kubeflow/training-operator writes it
// (commit 1417bbc3; later ones add PET_* variables), with the variables that every pod has.
inline Environment pytorch_job() {
  return {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
          {"KUBERNETES_SERVICE_PORT", "443"},
          {"HOSTNAME", "mnist-worker-0"},
          {"PYTHONUNBUFFERED", "0"},
          {"MASTER_PORT", "23456"},
          {"MASTER_ADDR", "mnist-master-0"},
          {"WORLD_SIZE", "4"},
          {"RANK", "1"}};
}

// A pod of an Indexed Job, from the Kubernetes documentation: "Jobs", completion mode.
inline Environment indexed_job(const std::string& index) {
  return {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
          {"HOSTNAME", "train-" + index},
          {"JOB_COMPLETION_INDEX", index}};
}

}  // namespace muster
