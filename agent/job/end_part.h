// The end of a job on this node: the verdict on the screen and in files, the exit code, the goodbye
// to the other nodes and the engine, and the last output (agent/job/ending.h). Control loop only.
#pragma once

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

  void workers_over() { drive_.post(Ending::WorkersOver{}); }
  // Claims the end, before all other parts are stopped; false: it was claimed before.
  bool claim() { return !std::exchange(is_claimed_, true); }
  bool is_claimed() const { return is_claimed_; }
  // Ends the job and, at the very end, stops the loop. REQUIRES: all other parts have stopped.
  void begin(const group::JobOutcome& outcome);

  // A signal came that would stop the job. killed(): the user wants it to end now.
  void signalled() { drive_.post(Ending::Signalled{}); }
  void killed() { drive_.post(Ending::Killed{}); }
  bool is_killed() const { return machine_.is_killed(); }

  int exit_code() const { return exit_code_; }
  // True if a write of the output thread may still hang.
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
  std::string last_screen_;  // Kept until the output thread has it.
  int exit_code_ = 0;
};

}  // namespace muster
