// The end of a job on this node: its verdict on the screen and in its files, the exit code, the
// goodbye to the other nodes and the engine, and the last output (agent/job/ending.h). Control loop
// only.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "agent/job/agent.h"
#include "agent/job/drain.h"
#include "agent/job/ending.h"
#include "agent/job/engine_part.h"
#include "agent/job/job_folders.h"
#include "agent/job/job_recorder.h"
#include "agent/job/meeting_part.h"
#include "agent/job/time_limit.h"
#include "agent/output/output.h"
#include "agent/process/worker_processes.h"
#include "rendezvous/net/drive.h"

namespace muster {

class EndPart {
 public:
  struct Parts {
    WorkerProcesses& processes;
    JobRecorder& record;
    Output& output;
    EnginePart& engine;
    TimeLimit& time_limit;
    MeetingPart& meeting;
    Drain& drain;
  };

  EndPart(boost::asio::io_context& io, const AgentInput& input, const AgentContext& context,
          const JobFolders& folders, const Parts& parts);

  // The group of workers has finished.
  void workers_over() { drive_.post(Ending::WorkersOver{}); }
  // The job is about to stop all that it does; false: it has been told so before.
  bool claim() { return !std::exchange(is_claimed_, true); }
  bool is_claimed() const { return is_claimed_; }
  // All of that has stopped. The loop is stopped at the very end.
  void begin(const group::JobOutcome& outcome);

  // A signal that would stop the job. Killed: its user wants it to end now.
  void signalled() { drive_.post(Ending::Signalled{}); }
  void killed() { drive_.post(Ending::Killed{}); }
  bool is_killed() const { return machine_.is_killed(); }

  int exit_code() const { return exit_code_; }
  // Whether a write of the output thread may still hang.
  bool abandons_output() const { return abandoned_; }

 private:
  void write_error_file(const JobReport& report);
  void say_goodbye(bool succeeded);
  void perform(const Ending::Effect& effect);
  std::string notice_text(Ending::Notice what) const;

  boost::asio::io_context& io_;
  const AgentInput& input_;
  const AgentContext& context_;
  const JobFolders& folders_;
  const Parts parts_;
  Ending machine_;
  Drive<Ending, Ending::Tick> drive_;
  bool is_claimed_ = false;
  bool abandoned_ = false;
  std::string last_screen_;  // Until the output thread has it.
  int exit_code_ = 0;
};

}  // namespace muster
