#include "agent/job/bundles.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "agent/hang/stacks.h"
#include "agent/output/log_tree.h"
#include "rendezvous/net/call_after.h"

namespace muster {
namespace {

// The StackReader of another node takes 8 s at most.
constexpr auto kAnswersLimit = std::chrono::seconds(9);
// A rank that will be failed for the hang waits no longer.
constexpr auto kBundleLimit = std::chrono::seconds(10);
// Limit above which only main threads are read, so that the answers fit.
constexpr size_t kAllThreadsRanksMax = 64;

// A node gives the same reason for every question; keep one copy.
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

// Limit of the named ranks that are shown, and of those that wait for them.
constexpr size_t kRanksTold = 8;

// The ranks to show, the late ones first.
std::vector<int> ranks_told(const hang::Finding& finding, bool quiet) {
  std::vector<int> ranks;
  for (size_t i = 0; i < std::min(finding.ranks.size(), kRanksTold); ++i)
    ranks.push_back(finding.ranks[i].rank);
  for (size_t i = 0; !quiet && i < std::min(finding.waiting.size(), kRanksTold); ++i)
    ranks.push_back(finding.waiting[i]);
  return ranks;
}

}  // namespace

struct Bundles::Bundle {
  std::string path;
  // Read by the output thread once it is being written.
  std::shared_ptr<HangBundle> contents = std::make_shared<HangBundle>();
  std::function<void()> then;  // Called once all is collected, or at the limit.
  DumpDone written;
  std::shared_ptr<boost::asio::steady_timer> limit;
  int missing = 0;  // Answers still to come.
  bool is_being_written = false;
};

void Bundles::look_into(const hang::Finding& finding, const HangNews& said,
                        std::function<void()> then) {
  // After a failure the ranks are about to be stopped.
  const bool with_stacks = !finding.is_over;
  if (job_.log_folder().empty()) {
    if (with_stacks) tell(finding, /*quiet=*/false, std::move(then));
    return;
  }
  Bundle bundle;
  bundle.path = fmt::format("{}/hang_{}.json", job_.log_folder(), ++hang_files_);
  bundle.contents->verdict = said.report;
  bundle.contents->text = said.text;
  bundle.written = [this](const Result<control::Dump>& dump) {
    job_.say(dump ? "the whole picture: " + dump->path
                  : dump.error().message + "; the job continues without it");
  };
  if (!with_stacks) return collect(std::move(bundle), nullptr);
  bundle.then = std::move(then);
  collect(std::move(bundle), [this, finding](const Result<control::Stacks>& read) {
    say_where(finding, /*quiet=*/false, read);
  });
}

void Bundles::dump(DumpDone done) {
  if (job_.log_folder().empty()) {
    return done(fail(ExitCode::environment,
                     "the job has no log folder for it: give it one with --log-dir"));
  }
  if (const auto ranks = answers_.wanted({}); !ranks) return done(tl::unexpected(ranks.error()));
  Bundle bundle;
  bundle.path = fmt::format("{}/dump_{}.json", job_.log_folder(), ++dump_files_);
  bundle.written = std::move(done);
  collect(std::move(bundle), [](const Result<control::Stacks>&) {});
}

// `on_stacks` gets the stacks, too; null: stacks are not read.
void Bundles::collect(Bundle bundle, const OnStacks& on_stacks) {
  const uint64_t id = ++last_bundle_;
  HangBundle& contents = *bundle.contents;
  contents.time = std::chrono::system_clock::now();
  contents.run_id = job_.round().run_id;
  contents.world_size = job_.round().world_size;
  contents.ranks = bundle_ranks(contents.verdict, job_.round().world_size);
  bundle.missing = on_stacks ? 3 : 2;
  bundle.limit = std::make_shared<boost::asio::steady_timer>(io_);
  call_after(*bundle.limit, kBundleLimit, [this, id] { write_bundle(id); });
  std::vector<int> ranks = contents.ranks;
  bundles_.emplace(id, std::make_shared<Bundle>(std::move(bundle)));

  std::ranges::sort(ranks);
  const auto records = [](control::RankRanges ranges) {
    return control::RecordsRequest{std::move(ranges), kBundleCalls};
  };
  answers_.ask(ranks, records, kAnswersLimit, [this, id](const std::vector<NodeAnswer>& answers) {
    add_to_bundle(id, [&](HangBundle& all) {
      add_answer(all, joined_records(answers, ""), &HangBundle::records);
    });
  });
  std::vector<int> all_ranks(static_cast<size_t>(job_.round().world_size));
  std::iota(all_ranks.begin(), all_ranks.end(), 0);
  answers_.ask(all_ranks, variables_request, kAnswersLimit,
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
  answers_.ask(
      ranks, stacks, kAnswersLimit, [this, id, on_stacks](const std::vector<NodeAnswer>& answers) {
        const Result<control::Stacks> read = joined_stacks(answers, "");
        on_stacks(read);
        add_to_bundle(id, [&](HangBundle& all) { add_answer(all, read, &HangBundle::stacks); });
      });
}

void Bundles::add_to_bundle(uint64_t id, const std::function<void(HangBundle&)>& add) {
  const auto found = bundles_.find(id);
  if (found == bundles_.end() || found->second->is_being_written) return;
  add(*found->second->contents);
  if (--found->second->missing == 0) write_bundle(id);
}

// Writes what there is, on the output thread, which may wait for the disk; `then` does not.
void Bundles::write_bundle(uint64_t id) {
  const auto found = bundles_.find(id);
  if (found == bundles_.end() || std::exchange(found->second->is_being_written, true)) return;
  const std::shared_ptr<Bundle> bundle = found->second;
  bundle->limit->cancel();
  if (bundle->missing > 0)
    add_lines(*bundle->contents, {"some answers had not come yet when this was written"});
  job_.on_disk([this, id, path = bundle->path, contents = bundle->contents] {
    boost::asio::post(io_, [this, id, failure = replace_file(path, bundle_file(*contents))] {
      on_bundle_written(id, failure);
    });
  });
  if (const auto then = std::exchange(bundle->then, nullptr)) then();
}

void Bundles::on_bundle_written(uint64_t id, const std::optional<std::string>& failure) {
  const auto bundle = bundles_.extract(id).mapped();
  if (failure) return bundle->written(fail(ExitCode::environment, *failure));
  bundle->written(control::Dump{bundle->path, bundle->contents->unanswered});
}

void Bundles::close() {
  std::vector<uint64_t> open;
  for (const auto& [id, bundle] : bundles_) {
    bundle->then = nullptr;
    open.push_back(id);
  }
  for (const uint64_t id : open)
    write_bundle(id);
}

void Bundles::tell(const hang::Finding& finding, bool quiet, std::function<void()> told) {
  std::vector<int> ranks = ranks_told(finding, quiet);
  if (ranks.empty()) return told();
  std::ranges::sort(ranks);
  answers_.stacks(
      {.ranks = ranges_of(ranks), .quiet = quiet, .main_threads = true},
      [this, finding, quiet, told = std::move(told)](const Result<control::Stacks>& read) {
        say_where(finding, quiet, read);
        told();
      });
}

// `read` has the finding's ranks, and perhaps others.
void Bundles::say_where(const hang::Finding& finding, bool quiet,
                        const Result<control::Stacks>& read) {
  std::vector<RankStacks> in_order;
  for (const int rank : ranks_told(finding, quiet)) {
    RankStacks& stacks = in_order.emplace_back();
    stacks.rank = rank;
    stacks.missing = "its node has not answered";
    if (!read) continue;
    const auto found = std::ranges::find(read->ranks, rank, &RankStacks::rank);
    if (found != read->ranks.end()) stacks = *found;
  }
  const auto has_some = [](const RankStacks& one) {
    return !one.threads.empty() || !waits_lines(one).empty();
  };
  // Report stacks that could not be read only if others could.
  if (std::ranges::none_of(in_order, has_some)) return;
  const std::string text = stacks_text(in_order, /*details=*/false);
  job_.say((quiet ? "where it is now:\n" : "where they are now, the late ones first:\n") +
           text.substr(0, text.size() - 1));
}

}  // namespace muster
