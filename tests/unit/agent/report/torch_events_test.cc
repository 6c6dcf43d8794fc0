// The expected lines equal torchrun's, key for key and space for space, except for names, numbers
// and the timestamp, which torchrun leaves 0.
#include "agent/report/torch_events.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

TorchEventContext sample_context() {
  TorchEventContext context;
  context.time = sample_time();
  context.run_id = "run-1";
  context.hostname = "node-7";
  context.entry_point = "python3";
  context.group_rank = 0;
  context.group_world_size = 1;
  context.total_run_time_s = 2;
  context.agent_restarts = 1;
  return context;
}

TEST(TorchAgentEvent, HasNoGroupAtTheFirstRendezvous) {
  TorchEventContext context = sample_context();
  context.group_rank.reset();
  context.group_world_size.reset();
  context.total_run_time_s = 0;
  context.agent_restarts = 0;
  EXPECT_EQ(
      torch_agent_event(context, "RENDEZVOUS", 197.5),
      R"({"name": "torchelastic.worker.status.RENDEZVOUS", "source": "AGENT", )"
      R"("timestamp": 1795215408123, "metadata": {"run_id": "run-1", "global_rank": null, )"
      R"("group_rank": null, "worker_id": null, "role": "default", "hostname": "node-7", )"
      R"("state": "RENDEZVOUS", "total_run_time": 0, "rdzv_backend": "c10d", "raw_error": null, )"
      R"("metadata": "{\"group_world_size\": null, \"entry_point\": \"python3\"}", )"
      R"("agent_restarts": 0, "duration_ms": 197.5}})"
      "\n");
}

TEST(TorchAgentEvent, HasNoDurationAtTheEnd) {
  EXPECT_EQ(
      torch_agent_event(sample_context(), "SUCCEEDED"),
      R"({"name": "torchelastic.worker.status.SUCCEEDED", "source": "AGENT", )"
      R"("timestamp": 1795215408123, "metadata": {"run_id": "run-1", "global_rank": null, )"
      R"("group_rank": 0, "worker_id": null, "role": "default", "hostname": "node-7", )"
      R"("state": "SUCCEEDED", "total_run_time": 2, "rdzv_backend": "c10d", "raw_error": null, )"
      R"("metadata": "{\"group_world_size\": 1, \"entry_point\": \"python3\"}", )"
      R"("agent_restarts": 1, "duration_ms": null}})"
      "\n");
}

TEST(TorchAgentEvent, CarriesTheErrorOfAFailure) {
  const auto json = nlohmann::json::parse(
      torch_agent_event(sample_context(), "FAILED", std::nullopt, "stopped by SIGTERM"));
  EXPECT_EQ(json.at("metadata").at("raw_error"), "stopped by SIGTERM");
  EXPECT_EQ(json.at("metadata").at("state"), "FAILED");
}

TEST(TorchWorkerEvent, HasRanksAndPidAtTheStart) {
  const TorchWorker worker{5, 1, 1, 2, 4711};
  EXPECT_EQ(torch_worker_event(sample_context(), worker, "START"),
            R"({"name": "torchelastic.worker.status.START", "source": "WORKER", )"
            R"("timestamp": 1795215408123, "metadata": {"run_id": "run-1", "global_rank": 5, )"
            R"("group_rank": 0, "worker_id": "4711", "role": "default", "hostname": "node-7", )"
            R"("state": "START", "total_run_time": 2, "rdzv_backend": "c10d", "raw_error": null, )"
            R"("metadata": "{\"group_world_size\": 1, \"entry_point\": \"python3\", )"
            R"(\"local_rank\": [1], \"role_rank\": [1], \"role_world_size\": [2], )"
            R"(\"exit_code\": [null], \"worker_pid\": [null]}", )"
            R"("agent_restarts": 1, "duration_ms": null}})"
            "\n");
}

nlohmann::json metadata_of_failure(const WorkerFailure& failure) {
  const TorchWorker worker{failure.rank, failure.local_rank, failure.rank, 8, failure.pid};
  return nlohmann::json::parse(torch_worker_event(sample_context(), worker, "FAILED", &failure))
      .at("metadata");
}

TEST(TorchWorkerEvent, HasTorchsTraitsForAFailureWithoutErrorFile) {
  const auto metadata = metadata_of_failure(sample_failure(1, ExitStatus::exited(3)));
  EXPECT_EQ(metadata.at("raw_error"),
            R"({"message": "<NONE>", "errorTraits": {"category": "system_terminated_error", )"
            R"("retryability": "False"}})");
  EXPECT_EQ(metadata.at("metadata"),
            R"({"group_world_size": 1, "entry_point": "python3", "local_rank": [1], )"
            R"("role_rank": [1], "role_world_size": [8], "exit_code": [3], "worker_pid": [1001]})");
}

TEST(TorchWorkerEvent, HasANegativeExitCodeForASignal) {
  const auto metadata = metadata_of_failure(sample_failure(1, ExitStatus::signaled(SIGTERM)));
  EXPECT_EQ(metadata.at("raw_error"), R"({"message": "<NONE>"})");
  EXPECT_EQ(nlohmann::json::parse(metadata.at("metadata").get<std::string>()).at("exit_code"),
            nlohmann::json::array({-15}));
}

TEST(TorchWorkerEvent, HasTheErrorFileOfARecordedFailure) {
  WorkerFailure failure = sample_failure(1, ExitStatus::exited(1));
  failure.error_file_content = recorded_error("ValueError: é", "tb", "10");
  EXPECT_EQ(metadata_of_failure(failure).at("raw_error"),
            R"({"message": {"message": "ValueError: \u00e9", "extraInfo": )"
            R"({"py_callstack": "tb", "timestamp": "10"}}})");
}

TEST(TorchWorkerEvent, QuotesAMalformedErrorFile) {
  WorkerFailure failure = sample_failure(1, ExitStatus::exited(1));
  failure.error_file_content = "torn \xff";
  EXPECT_EQ(metadata_of_failure(failure).at("raw_error"), R"({"message": "torn \ufffd"})");
}

}  // namespace
}  // namespace muster
