#include "worker_lib/backends/arrivals.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "worker_lib/quiet_thread.h"

namespace muster::worker {

namespace {

constexpr Duration kForEver = std::chrono::hours{24 * 365};

std::string ask_key(int rank) {
  return fmt::format("ask/{}", rank);
}
std::string answer_key(int rank) {
  return fmt::format("at/{}", rank);
}

Duration time_until(Deadline until) {
  return std::max<Duration>(until - std::chrono::steady_clock::now(), Duration::zero());
}

Failure unexplained(const Error& why) {
  return {ErrorCode::timeout,
          fmt::format("which rank did not come cannot be said, because the store does not answer "
                      "({}): look at the process that serves it first",
                      why.message),
          {}};
}

std::string listed(const Members& members, const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks)
    text += (text.empty() ? "" : ", ") + describe(members[rank]);
  return text;
}

}  // namespace

Outcome<std::unique_ptr<Arrivals>> Arrivals::start(Members members, Connect connect,
                                                   Deadline deadline) {
  Outcome<StoreClient> store = connect(deadline);
  if (!store) return tl::unexpected(store.error());
  std::unique_ptr<Arrivals> made(
      new Arrivals(std::move(members), std::move(connect), std::move(*store)));
  Outcome<std::thread> thread = start_quiet_thread([arrivals = made.get()] { arrivals->listen(); });
  if (!thread) return tl::unexpected(std::move(thread.error()));
  made->thread_ = std::move(*thread);
  return made;
}

Arrivals::Arrivals(Members members, Connect connect, StoreClient store)
    : members_(std::move(members)), connect_(std::move(connect)), store_(std::move(store)) {}

Arrivals::~Arrivals() {
  store_.hang_up();
  if (thread_.joinable()) thread_.join();
}

void Arrivals::listen() {
  if (!store_.wait({ask_key(members_.me)}, kForEver)) return;
  // Whoever asked finds out that there is no answer.
  static_cast<void>(
      store_.set(answer_key(members_.me), std::to_string(begun_.load(std::memory_order_relaxed))));
}

Failure Arrivals::explain(uint64_t sequence, Deadline until) {
  Outcome<StoreClient> store = connect_(until);
  if (!store) return {ErrorCode::timeout, store.error().message, {}};
  return explain(*store, sequence, until);
}

Failure Arrivals::explain(StoreClient& store, uint64_t sequence, Deadline until) {
  calls::Pairs questions;
  std::vector<std::string> answers;
  for (int rank = 0; rank < members_.size(); ++rank) {
    questions.emplace_back(ask_key(rank), "");
    answers.push_back(answer_key(rank));
  }
  if (const auto asked = store.multi_set(questions); !asked) return unexplained(asked.error());
  static_cast<void>(store.wait(answers, time_until(until)));  // What has come by then counts.

  std::vector<int> behind, silent;
  for (int rank = 0; rank < members_.size(); ++rank) {
    const std::string& key = answers[static_cast<size_t>(rank)];
    const auto is_there = store.check({key});
    if (!is_there) return unexplained(is_there.error());
    const auto text = *is_there ? store.get(key) : Result<std::string>("");
    if (!text) return unexplained(text.error());
    uint64_t begun = 0;
    std::from_chars(text->data(), text->data() + text->size(), begun);
    if (!*is_there) silent.push_back(rank);
    if (*is_there && begun < sequence) behind.push_back(rank);
  }

  Failure failure{ErrorCode::timeout, "", {}};
  if (!behind.empty()) failure.message = listed(members_, behind) + " did not come to it";
  if (!silent.empty()) {
    failure.message += (behind.empty() ? "" : "; ") + listed(members_, silent) +
                       (silent.size() == 1 ? " does" : " do") +
                       " not answer: stopped, or out of reach";
  }
  if (failure.message.empty()) {
    failure.message =
        "all ranks have come to it: their GPUs are busy with something else, or the network "
        "between them is stuck";
  }
  for (const std::vector<int>* const ranks : {&behind, &silent})
    for (const int rank : *ranks)
      failure.ranks.push_back(members_[rank].rank);
  std::sort(failure.ranks.begin(), failure.ranks.end());
  return failure;
}

}  // namespace muster::worker
