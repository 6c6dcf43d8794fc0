// What follows a finding: where its ranks are, on the console, and all that is known of the job's
// ranks, in a file of the log folder; the latter for musterctl dump as well. Control loop only.
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

  // A verdict was said: where its ranks are, and what is to follow.
  void look_into(const hang::Finding& finding, const HangNews& said, std::function<void()> then);
  // After a finding was said: where its ranks are. `quiet`: the late ones alone, held by nothing.
  void tell(const hang::Finding& finding, bool quiet, std::function<void()> told);
  void dump(DumpDone done);
  // The attempt is over: what was to follow does not any more, what is there is written.
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
  std::map<uint64_t, std::shared_ptr<Bundle>> bundles_;  // Until they are written.
  uint64_t last_bundle_ = 0;
  int hang_files_ = 0;
  int dump_files_ = 0;
};

}  // namespace muster
