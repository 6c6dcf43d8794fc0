// What the workers of an attempt leave behind, for the judge of its failure: the machine's evidence
// at each death, their last output, the files in which they say why they ended, and what the worker
// library reported. Control loop only; what may wait for a disk is done on the output thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/hang/rings.h"
#include "agent/job/job_folders.h"
#include "agent/job/job_recorder.h"
#include "agent/output/output.h"
#include "agent/process/worker_processes.h"
#include "agent/report/evidence.h"
#include "agent/report/kernel_log.h"
#include "rendezvous/base/process_limit.h"

namespace muster {

class Remains {
 public:
  Remains(boost::asio::io_context& io, JobRecorder& record, Output& output, const Rings& rings,
          const JobFolders& folders, const std::string& executable);

  void begin_attempt();
  // Called as soon as a worker has failed; what takes longer is added to the record later.
  HostEvidence gather(const WorkerExit& exit);
  // The attempt's out-of-memory kills alone.
  HostEvidence memory() const;
  // True if the worker, which has failed, may have done so only because another rank left: what it
  // raised, or what its library reported, blames one, or it aborted.
  bool may_be_victim(const WorkerExit& exit) const;
  // Reads all output to its end. Without `keep` no tails are kept in files.
  void read(bool keep, const std::vector<WorkerTraces>& traces,
            std::function<void(const AttemptRemains&)> done);

 private:
  boost::asio::io_context& io_;
  JobRecorder& record_;
  Output& output_;
  const Rings& rings_;
  const JobFolders& folders_;
  const std::string comm_;  // The executable's name in the kernel.
  OomWatch oom_;
  ProcessLimits process_limits_;
  KernelLog kernel_log_;  // Marked as an attempt starts, then read on the output thread.
};

}  // namespace muster
