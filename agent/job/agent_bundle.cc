// Bundles: all that is known of the job's ranks, in a file of the log folder; after a verdict on a
// hang, and for musterctl dump.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "agent/job/agent_loop.h"
#include "agent/output/log_tree.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// Of other nodes, whose StackReader takes 8 s at most.
constexpr auto kAnswersLimit = std::chrono::seconds(9);
// A rank that is to fail waits no longer.
constexpr auto kBundleLimit = std::chrono::seconds(10);
// Of more ranks only the main threads, so that the answers fit.
constexpr size_t kAllThreadsRanksMax = 64;

// What a node says to each question it says once.
void add_lines(HangBundle& bundle, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (std::ranges::find(bundle.unanswered, line) == bundle.unanswered.end())
      bundle.unanswered.push_back(line);
  }
}

template <typename Rank>
void add_answer(HangBundle& bundle, const Result<control::OfRanks<Rank>>& answer,
                std::vector<Rank> HangBundle::* ranks) {
  if (!answer) return add_lines(bundle, {answer.error().message});
  bundle.*ranks = answer->ranks;
  add_lines(bundle, answer->unanswered);
}

control::Request variables_request(const control::RankRanges&) {
  return control::VariablesRequest{};
}

}  // namespace

struct AgentLoop::Bundle {
  std::string path;
  // The output thread reads it once it is being written.
  std::shared_ptr<HangBundle> contents = std::make_shared<HangBundle>();
  std::function<void()> then;  // As soon as all is collected.
  ControlHandlers::DumpDone written;
  std::shared_ptr<boost::asio::steady_timer> limit;
  int missing = 0;  // Answers.
  bool is_being_written = false;
};

std::string AgentLoop::log_folder() const {
  return folders_.temporary ? std::string() : folders_.run_dir;
}

// A verdict was said: where its ranks are, and what is to follow.
void AgentLoop::look_into(const hang::Finding& finding, const HangNews& said,
                          std::function<void()> then) {
  // After a failure the ranks are about to be stopped.
  const bool with_stacks = !finding.is_over;
  if (log_folder().empty()) {
    if (with_stacks) tell_stacks(finding, /*quiet=*/false, std::move(then));
    return;
  }
  Bundle bundle;
  bundle.path = fmt::format("{}/hang_{}.json", log_folder(), ++hang_files_);
  bundle.contents->verdict = said.report;
  bundle.contents->text = said.text;
  bundle.written = [this](const Result<control::Dump>& dump) {
    say(dump ? "the whole picture: " + dump->path
             : dump.error().message + "; the job continues without it");
  };
  if (!with_stacks) return collect(std::move(bundle), nullptr);
  bundle.then = std::move(then);
  collect(std::move(bundle), [this, finding](const Result<control::Stacks>& read) {
    say_stacks(finding, /*quiet=*/false, read);
  });
}

void AgentLoop::dump(ControlHandlers::DumpDone done) {
  if (log_folder().empty()) {
    return done(fail(ExitCode::environment,
                     "the job has no log folder for it: give it one with --log-dir"));
  }
  if (const auto ranks = wanted_ranks({}); !ranks) return done(tl::unexpected(ranks.error()));
  Bundle bundle;
  bundle.path = fmt::format("{}/dump_{}.json", log_folder(), ++dump_files_);
  bundle.written = std::move(done);
  collect(std::move(bundle), [](const Result<control::Stacks>&) {});
}

// `on_stacks`: what else they are for; null: they are not wanted.
void AgentLoop::collect(Bundle bundle, const BundleStacks& on_stacks) {
  const uint64_t id = ++last_bundle_;
  HangBundle& contents = *bundle.contents;
  contents.time = std::chrono::system_clock::now();
  contents.run_id = run_id_;
  contents.world_size = round_.world_size;
  contents.ranks = bundle_ranks(contents.verdict, round_.world_size);
  bundle.missing = on_stacks ? 3 : 2;
  bundle.limit = std::make_shared<boost::asio::steady_timer>(io_);
  call_after(*bundle.limit, kBundleLimit, [this, id] { write_bundle(id); });
  std::vector<int> ranks = contents.ranks;
  bundles_.emplace(id, std::make_shared<Bundle>(std::move(bundle)));

  std::ranges::sort(ranks);
  const auto records = [](control::RankRanges ranges) {
    return control::RecordsRequest{std::move(ranges), kBundleCalls};
  };
  ask_job(ranks, records, kAnswersLimit, [this, id](const std::vector<NodeAnswer>& answers) {
    add_to_bundle(id, [&](HangBundle& all) {
      add_answer(all, joined_records(answers, ""), &HangBundle::records);
    });
  });
  std::vector<int> all_ranks(static_cast<size_t>(round_.world_size));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  ask_job(all_ranks, variables_request, kAnswersLimit,
          [this, id](const std::vector<NodeAnswer>& answers) {
            add_to_bundle(id, [&](HangBundle& all) {
              std::vector<std::string> unanswered;
              all.variables = joined_variables(answers, unanswered);
              add_lines(all, unanswered);
            });
          });
  if (!on_stacks) return;
  const bool main_threads = ranks.size() > kAllThreadsRanksMax;
  const auto stacks = [main_threads](control::RankRanges ranges) {
    return control::StacksRequest{std::move(ranges), /*quiet=*/false, main_threads};
  };
  ask_job(ranks, stacks, kAnswersLimit,
          [this, id, on_stacks](const std::vector<NodeAnswer>& answers) {
            const Result<control::Stacks> read = joined_stacks(answers, "");
            on_stacks(read);
            add_to_bundle(id, [&](HangBundle& all) { add_answer(all, read, &HangBundle::stacks); });
          });
}

// Unless the answer comes too late.
void AgentLoop::add_to_bundle(uint64_t id, const std::function<void(HangBundle&)>& add) {
  const auto found = bundles_.find(id);
  if (found == bundles_.end() || found->second->is_being_written) return;
  add(*found->second->contents);
  if (--found->second->missing == 0) write_bundle(id);
}

// With what is there. On the output thread, which may wait for the disk; what follows does not.
void AgentLoop::write_bundle(uint64_t id) {
  const auto found = bundles_.find(id);
  if (found == bundles_.end() || std::exchange(found->second->is_being_written, true)) return;
  const std::shared_ptr<Bundle> bundle = found->second;
  bundle->limit->cancel();
  if (bundle->missing > 0)
    add_lines(*bundle->contents, {"some answers had not come yet when this was written"});
  output_->perform([this, id, path = bundle->path, contents = bundle->contents] {
    boost::asio::post(io_, [this, id, failure = replace_file(path, bundle_file(*contents))] {
      on_bundle_written(id, failure);
    });
  });
  if (const auto then = std::exchange(bundle->then, nullptr)) then();
}

void AgentLoop::on_bundle_written(uint64_t id, const std::optional<std::string>& failure) {
  const auto bundle = bundles_.extract(id).mapped();
  if (failure) return bundle->written(fail(ExitCode::environment, *failure));
  bundle->written(control::Dump{bundle->path, bundle->contents->unanswered});
}

// The attempt is over: what was to follow does not any more.
void AgentLoop::close_bundles() {
  std::vector<uint64_t> open;
  for (const auto& [id, bundle] : bundles_) {
    bundle->then = nullptr;
    open.push_back(id);
  }
  for (const uint64_t id : open)
    write_bundle(id);
}

}  // namespace muster
