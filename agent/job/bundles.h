// Follows up a finding: prints where its ranks are, and writes all that is known of the job's ranks
// to a file in the log folder, as musterctl dump does. Control loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/hang/detector_events.h"
#include "agent/job/hang_bundle.h"
#include "agent/job/job_answers.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"

namespace muster {

class Bundles {
 public:
  using DumpDone = std::function<void(Result<control::Dump>)>;

  Bundles(boost::asio::io_context& io, JobSeam& job, JobAnswers& answers)
      : io_(io), job_(job), answers_(answers) {}

  // Prints where a verdict's ranks are, writes the file, and calls `then` if the attempt goes on.
  void look_into(const hang::Finding& finding, const HangNews& said, std::function<void()> then);
  // Prints where a finding's ranks are, then calls `told`. `quiet`: only the late ones, unheld.
  void tell(const hang::Finding& finding, bool quiet, std::function<void()> told);
  void dump(DumpDone done);
  // Called when the attempt is over: writes what has been collected, and drops each `then`.
  void close();

 private:
  struct Bundle;
  using OnStacks = std::function<void(const Result<control::Stacks>&)>;

  void collect(Bundle bundle, const OnStacks& on_stacks);
  void add_to_bundle(uint64_t id, const std::function<void(HangBundle&)>& add);
  void write_bundle(uint64_t id);
  void on_bundle_written(uint64_t id, const std::optional<std::string>& failure);
  void say_where(const hang::Finding& finding, bool quiet, const Result<control::Stacks>& read);

  boost::asio::io_context& io_;
  JobSeam& job_;
  JobAnswers& answers_;
  std::map<uint64_t, std::shared_ptr<Bundle>> bundles_;  // Bundles not yet written.
  uint64_t last_bundle_ = 0;
  int hang_files_ = 0;
  int dump_files_ = 0;
};

}  // namespace muster
