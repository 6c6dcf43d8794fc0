#include "worker_lib/watch/watch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/random.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"
#include "worker_lib/watch/stop_signal.h"
#include "worker_lib/watch/watch_board.h"
#include "worker_lib/watch/watch_loop.h"
#include "worker_lib/watch/watch_questions.h"
#include "worker_lib/watch/watch_sockets.h"
#include "worker_lib/watch/watch_stop.h"
#include "worker_lib/watch/watch_tree.h"

namespace muster::worker {
namespace {

// Interval at which waited-for ranks are checked for having died.
constexpr Duration kUpSlice = std::chrono::milliseconds(500);
// Time for which a process may still seem alive after closing its last socket.
constexpr auto kHostsEnd = std::chrono::milliseconds(200);
constexpr auto kHostsEndLook = std::chrono::milliseconds(5);

// Set when that rank listens; rank 0's holds the watch's id and its port.
std::string up_key(int rank) {
  return fmt::format("up/{}", rank);
}

constexpr size_t kIdBytes = 16;

struct RootRecord {
  std::string id;
  uint16_t port = 0;
};

std::string to_text(const RootRecord& record) {
  return fmt::format("{} {}", to_hex(record.id), record.port);
}

std::optional<RootRecord> root_record_of(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::optional<std::string> id = from_hex(text.substr(0, space));
  const std::optional<uint16_t> port = whole_number<uint16_t>(text.substr(space + 1));
  if (!id || id->size() != kIdBytes || !port) return std::nullopt;
  return RootRecord{*id, *port};
}

bool has_several_nodes(const Members& world) {
  return std::ranges::any_of(world.peers,
                             [&](const Peer& peer) { return peer.node != world.self().node; });
}

tl::unexpected<Failure> watch_store_failure(const Error& error) {
  return failed(ErrorCode::rendezvous,
                "cannot exchange addresses to watch the other ranks: " + error.message);
}

// Returns the ranks that do not listen yet; empty if the store does not answer.
std::vector<GlobalRank> not_up(StoreClient& store, const std::vector<GlobalRank>& ranks) {
  std::vector<GlobalRank> missing;
  for (const GlobalRank rank : ranks) {
    const Result<bool> is_up = store.check({up_key(rank.value)});
    if (!is_up) return {};
    if (!*is_up) missing.push_back(rank);
  }
  return missing;
}

bool has_ended(const std::vector<ProcessLife>& lives, int rank) {
  const auto index = static_cast<size_t>(rank);
  return index < lives.size() && !may_still_live(lives[index]);
}

// Returns the death of the lowest of `ranks` that has ended: others may have ended because of it.
std::optional<Failure> death_among(const Watch::Options& options,
                                   const std::vector<GlobalRank>& ranks) {
  for (const GlobalRank rank : ranks) {
    if (has_ended(options.lives, rank.value)) return WatchTree::death_of(options.world[rank.value]);
  }
  return std::nullopt;
}

// Returns rank 0's death after the loss of its store, which the kernel reports a moment later.
std::optional<Failure> death_of_host(const Watch::Options& options) {
  const Deadline until = std::chrono::steady_clock::now() + kHostsEnd;
  for (;;) {
    if (auto death = death_among(options, {{0}})) return death;
    if (options.lives.empty() || std::chrono::steady_clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(kHostsEndLook);
  }
}

// Waits until these ranks listen; fails if one dies (checked every kUpSlice).
Outcome<> wait_for_ranks(Watch::Options& options, const std::vector<int>& ranks) {
  if (ranks.empty()) return {};
  StoreClient& store = *options.store;
  std::vector<std::string> keys;
  std::vector<GlobalRank> all;
  for (const int rank : ranks) {
    keys.push_back(up_key(rank));
    all.push_back({rank});
  }
  for (;;) {
    const Duration left = options.deadline - std::chrono::steady_clock::now();
    const Duration most = options.interrupted ? kInterruptSlice : kUpSlice;
    const Duration slice = std::clamp<Duration>(left, std::chrono::milliseconds(1), most);
    const Result<Nothing> waited = store.wait(keys, slice);
    if (waited) return {};
    if (!store.connected()) {
      if (auto death = death_of_host(options)) return tl::unexpected(*death);
      return watch_store_failure(waited.error());
    }
    const std::vector<GlobalRank> missing = not_up(store, all);
    if (auto death = death_among(options, missing)) return tl::unexpected(*death);
    if (auto why = options.interrupted ? options.interrupted() : std::nullopt)
      return tl::unexpected(std::move(*why));
    if (left > slice) continue;
    if (missing.empty()) return watch_store_failure(waited.error());
    return tl::unexpected(watch::absence(options.world, missing, "join the failure watch"));
  }
}

// Blames only ranks that do not listen: the others may merely have waited for them.
Failure with_culprits(Failure failure, Watch::Options& options) {
  if (failure.code != ErrorCode::timeout || !options.store) return failure;
  const std::vector<GlobalRank> missing = not_up(*options.store, failure.ranks);
  return missing.empty() ? failure
                         : watch::absence(options.world, missing, "join the failure watch");
}

// Listens, publishes that, and waits for the ranks that this one will dial.
Outcome<> meet(Watch::Options& options, WatchLoop::Options& loop) {
  const Members& world = options.world;
  StoreClient& store = *options.store;
  RootRecord root;
  if (world.me == 0) {
    root.id = random_bytes(kIdBytes);
  } else {
    if (Outcome<> up = wait_for_ranks(options, {0}); !up) return up;
    const Result<std::string> text = store.get(up_key(0));
    if (!text) return watch_store_failure(text.error());
    const std::optional<RootRecord> read = root_record_of(*text);
    if (!read) return failed(ErrorCode::rendezvous, "the store holds an unreadable watch record");
    root = *read;
  }
  loop.keys = {options.secret, root.id};
  Outcome<watch::GuardedFd> local = watch::listen_unix(watch::unix_name(loop.keys, world.me));
  if (!local) return tl::unexpected(local.error());
  loop.unix_listener = std::move(*local);
  if (has_several_nodes(world)) {
    Outcome<watch::GuardedFd> remote = watch::listen_tcp(world.self().address, loop.port);
    if (!remote) return tl::unexpected(remote.error());
    loop.tcp_listener = std::move(*remote);
  }
  loop.root_port = root.port;
  root.port = loop.port;
  const Result<Nothing> set =
      store.set(up_key(world.me), world.me == 0 ? to_text(root) : std::string("1"));
  if (!set) return watch_store_failure(set.error());
  const WatchTree plan(world, 0, Instant());
  return wait_for_ranks(options, plan.first_dials());
}

class RealWatch final : public Watch {
 public:
  RealWatch(const Options& options, std::unique_ptr<StopSignal> signal)
      : me_{options.world.me},
        world_(options.world),
        lives_(options.lives),
        stop_(stop_options(options), std::move(signal)) {}

  ~RealWatch() override {
    if (loop_) loop_->stop();
  }

  Outcome<> begin(const Options& options, WatchLoop::Options loop) {
    loop.world = options.world;
    loop.deadline = options.deadline;
    if (!options.lives.empty())
      loop.is_over = [lives = options.lives](int rank) { return has_ended(lives, rank); };
    loop.announce = [this](const watch::Announce& told) { announce(told); };
    loop.progress = [this] { return progress(); };
    loop.decided = [this](const watch::Decision& decision) {
      const std::lock_guard lock(agreeing_);
      agreements_[decision.group_id].decision = decision;
      agreed_.notify_all();
    };
    loop.missing = [this](const watch::Missing& missing) {
      const std::lock_guard lock(agreeing_);
      agreements_[missing.group_id].missing = missing;
    };
    loop.extra_fd = stop_.signal().event_fd();
    loop.extra_deadline = [this] { return std::min(stop_.deadline(), next_reminder()); };
    loop.on_extra = [this](Instant now) {
      stop_.on_extra(now);
      while (next_reminder() <= now)
        board_.publish(take_reminder());
    };
    Outcome<std::unique_ptr<WatchLoop>> made = WatchLoop::make(std::move(loop));
    if (!made) return tl::unexpected(made.error());
    loop_ = std::move(*made);
    return loop_->start();
  }

  int subscribe(Listener listener) override { return board_.subscribe(std::move(listener)); }
  void unsubscribe(int id) override { board_.unsubscribe(id); }
  void tell(News news) override {
    news.rank = me_;
    loop_->tell(news);
  }
  // Each message to a rank that leaves asks for a reminder: of equal ones, the first and the last
  // are kept.
  void remind(News news) override {
    const std::lock_guard lock(reminding_);
    const auto is_same = [&](const auto& one) { return one.second == news; };
    if (std::ranges::count_if(reminders_, is_same) > 1) {
      const auto last = std::find_if(reminders_.rbegin(), reminders_.rend(), is_same);
      reminders_.erase(std::prev(last.base()));
    }
    reminders_.emplace_back(steady_now() + kLastMessage, std::move(news));
    if (reminders_.size() == 1) loop_->wake();
  }
  void leave() override { loop_->leave(); }
  void answer_with(std::function<std::string()> progress) override {
    const std::lock_guard lock(answering_);
    progress_ = std::move(progress);
  }
  std::unique_ptr<Questions> questions() override {
    if (world_.size() == 1) return nullptr;
    return std::make_unique<watch::SocketQuestions>(watch::SocketQuestions::Directory{
        .world = world_, .lives = lives_, .keys = loop_->keys(), .ports = loop_->ports()});
  }
  Outcome<Verdict> agree(const Ballot& ballot, Deadline deadline) override;
  std::optional<Failure> deafness() const override { return loop_->deafness(); }
  bool stop_requested() const override { return stop_.signal().came(); }
  void request_stop() override { stop_.signal().pretend(); }

 private:
  WatchStop::Options stop_options(const Options& options) {
    WatchStop::Options stop{me_, options.on_sigterm, options.ask_cause, {}, {}, {}};
    stop.wake = [this] { loop_->wake(); };
    stop.tell = [this](const News& news) { loop_->tell(news); };
    stop.publish = [this](const News& news) {
      loop_->settle(tl::unexpected(news.failure));
      board_.publish(news);
    };
    return stop;
  }

  // Returns an empty text before answer_with().
  std::string progress() {
    const std::lock_guard lock(answering_);
    return progress_ ? progress_() : std::string();
  }

  Instant next_reminder() {
    const std::lock_guard lock(reminding_);
    return reminders_.empty() ? kNever : reminders_.front().first;
  }

  News take_reminder() {
    const std::lock_guard lock(reminding_);
    News news = std::move(reminders_.front().second);
    reminders_.pop_front();
    return news;
  }

  void announce(const watch::Announce& told) {
    const News& news = told.news;
    const bool died = news.kind == News::Kind::died;
    const Instant now = steady_now();
    if (told.told) stop_.on_expected_death(now, *told.told);
    board_.publish(news);
    if (died && !told.told) stop_.on_death(now);
  }

  const GlobalRank me_;
  const Members world_;
  const std::vector<ProcessLife> lives_;
  WatchBoard board_;
  std::mutex answering_;
  std::function<std::string()> progress_;
  std::mutex reminding_;
  std::deque<std::pair<Instant, News>> reminders_;  // Earliest first.
  struct Agreement {
    watch::Decision decision;  // The last one that this process waited for.
    watch::Missing missing;
  };
  std::mutex agreeing_;
  std::condition_variable agreed_;
  std::map<std::string, Agreement> agreements_;  // By group id.
  std::unique_ptr<WatchLoop> loop_;
  WatchStop stop_;  // Destroyed before loop_: its query wakes that.
};

Outcome<Verdict> RealWatch::agree(const Ballot& ballot, Deadline deadline) {
  std::optional<Failure> failure;  // Guarded by agreeing_.
  const int id = board_.subscribe([&](const News& news) {
    const std::lock_guard lock(agreeing_);
    if (news.kind == News::Kind::stopped && !failure) failure = news.failure;
    agreed_.notify_all();
  });
  loop_->post(watch::Cast{{.group_id = ballot.group_id,
                           .members = ballot.members,
                           .number = ballot.number,
                           .rank = me_.value,
                           .kind = ballot.kind,
                           .value = ballot.value,
                           .text = ballot.text,
                           .verdict = {}}});
  Outcome<Verdict> outcome;
  {
    std::unique_lock lock(agreeing_);
    const Agreement& agreement = agreements_[ballot.group_id];
    const auto is_over = [&] { return agreement.decision.number >= ballot.number || failure; };
    while (!is_over() && std::chrono::steady_clock::now() < deadline) {
      agreed_.wait_until(lock, std::min(deadline, std::chrono::steady_clock::now() + kUpSlice));
      if (auto deaf = loop_->deafness(); deaf && !failure) failure = std::move(deaf);
    }
    if (agreement.decision.number >= ballot.number) {
      outcome = agreement.decision.verdict;
    } else if (failure) {
      outcome = tl::unexpected(std::move(*failure));
    } else {
      std::vector<GlobalRank> ranks;
      if (agreement.missing.number == ballot.number) {
        for (const int rank : agreement.missing.ranks)
          ranks.push_back({rank});
      }
      outcome = failed(ErrorCode::timeout, "", std::move(ranks));
    }
  }
  board_.unsubscribe(id);
  return outcome;
}

}  // namespace

Outcome<std::unique_ptr<Watch>> Watch::start(Options options) {
  WatchLoop::Options loop;
  if (options.world.size() > 1) {
    CHECK(options.store.has_value());
    if (Outcome<> met = meet(options, loop); !met) return tl::unexpected(met.error());
  }
  Outcome<std::unique_ptr<StopSignal>> signal = StopSignal::install(options.on_sigterm);
  if (!signal) return tl::unexpected(signal.error());
  auto made = std::make_unique<RealWatch>(options, std::move(*signal));
  const Outcome<> begun = made->begin(options, std::move(loop));
  if (!begun) return tl::unexpected(with_culprits(begun.error(), options));
  return made;
}

}  // namespace muster::worker
