#include "worker_lib/watch/watch_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rendezvous/base/event_fd.h"
#include "rendezvous/base/steady_now.h"
#include "worker_lib/quiet_thread.h"

namespace muster::worker {

using namespace watch;  // NOLINT: names of the state machine

namespace {

// Limit for tell() to wait until its update is sent.
constexpr auto kTellMax = std::chrono::milliseconds(100);
// Interval at which ranks that are not linked yet are checked for having ended.
constexpr Duration kEndedLook = std::chrono::milliseconds(500);

constexpr uint64_t kWakeTag = 1;
constexpr uint64_t kExtraTag = 2;

// Interval at which the loop notices that the program has closed its descriptors.
constexpr Duration kDefectLook = std::chrono::seconds(1);

}  // namespace

WatchLoop::WatchLoop(Options options, GuardedFd epoll, GuardedFd wake)
    : options_(std::move(options)),
      tree_(options_.world, options_.port, to_instant(options_.deadline)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      lifeline_(options_.unix_listener.is_open() ? Lifeline::make() : std::nullopt) {
  if (!lifeline_) return;
  lifelines_.emplace([this](LinkId id) {
    const std::lock_guard lock(mutex_);
    cut_.push_back(id);
    this->wake();
  });
}

Outcome<std::unique_ptr<WatchLoop>> WatchLoop::make(Options options) {
  GuardedFd epoll{UniqueFd(::epoll_create1(EPOLL_CLOEXEC))};
  if (!epoll.is_open()) return watch_system_failure("make an epoll set");
  GuardedFd wake(open_event_fd());
  if (!wake.is_open()) return watch_system_failure("make an eventfd");
  std::unique_ptr<WatchLoop> loop(
      new WatchLoop(std::move(options), std::move(epoll), std::move(wake)));
  if (Outcome<> looking = loop->look_for_input(); !looking) return tl::unexpected(looking.error());
  return loop;
}

Outcome<> WatchLoop::look_for_input() {
  const auto look = [&](int fd, uint64_t tag) {
    return fd < 0 || control(EPOLL_CTL_ADD, fd, tag, EPOLLIN);
  };
  const bool done = look(wake_.fd(), kWakeTag) && look(options_.unix_listener.fd(), kUnixTag) &&
                    look(options_.tcp_listener.fd(), kTcpTag) && look(options_.extra_fd, kExtraTag);
  if (!done) return watch_system_failure("add to an epoll set");
  return Done{};
}

bool WatchLoop::control(int operation, int fd, uint64_t tag, uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  return ::epoll_ctl(epoll_.fd(), operation, fd, &event) == 0;
}

WatchLoop::~WatchLoop() {
  stop();
}

void WatchLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    quit_wanted_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

Outcome<> WatchLoop::start() {
  posted_.emplace_back(std::in_place_type<Begin>);
  Outcome<std::thread> thread = start_quiet_thread([this] { run(); });
  if (!thread) return tl::unexpected(std::move(thread.error()));
  thread_ = std::move(*thread);
  wake();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_.has_value(); });
  return *started_;
}

void WatchLoop::settle(Outcome<> outcome) {
  const std::lock_guard lock(mutex_);
  if (!started_) started_ = std::move(outcome);
  changed_.notify_all();
}

void WatchLoop::tell(const Watch::News& news) {
  if (std::this_thread::get_id() == thread_.get_id()) return step(Tell{news});
  const uint64_t ticket = post(Tell{news});
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kTellMax, [&] { return done_ >= ticket; });
}

void WatchLoop::leave() {
  post(WatchTree::Event(std::in_place_type<Leave>));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return parted_; });
}

void WatchLoop::wake() {
  raise_event(wake_.fd());
}

uint64_t WatchLoop::post(WatchTree::Event event) {
  uint64_t ticket;
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(event));
    ticket = done_ + in_hand_ + posted_.size();
  }
  wake();
  return ticket;
}

// ---- the thread

void WatchLoop::run() {
  pthread_setname_np(pthread_self(), "muster-watch");
  if (options_.is_over) next_look_ = instant_after(steady_now(), kEndedLook);
  if (lifeline_) lifeline_->hold();
  while (!quit_)
    wait_once();
  lifelines_.reset();
  links_.clear();
  if (lifeline_) lifeline_->release();
}

void WatchLoop::wait_once() {
  std::array<epoll_event, 64> events;
  const int count =
      ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()),
                   poll_timeout(std::min(next_deadline(), steady_now() + kDefectLook)));
  if (count <= 0) {
    if (const std::optional<Failure> failure = deafness(count < 0 && errno != EINTR)) {
      settle(tl::unexpected(*failure));
      options_.announce({{.kind = Watch::News::Kind::stopped,
                          .rank = options_.world.self().rank,
                          .failure = *failure},
                         {}});
      perform(Parted{});
      quit_ = true;
      return;
    }
  }
  for (int i = 0; i < count; ++i)
    on_event(events[static_cast<size_t>(i)].data.u64, events[static_cast<size_t>(i)].events);
  on_time();
}

std::optional<Failure> WatchLoop::deafness(bool is_known) const {
  if (!is_known && may_be_event(epoll_.fd()) && may_be_event(wake_.fd())) return std::nullopt;
  const Peer& self = options_.world.self();
  return Failure{ErrorCode::system,
                 describe(self) +
                     " has closed descriptors that it had not opened, muster's among them; close "
                     "its own ones only, or all of them before it joins",
                 {self.rank}};
}

Instant WatchLoop::next_deadline() const {
  Instant next = std::min({tree_.next_deadline(), accept_again_, next_look_});
  if (options_.extra_deadline) next = std::min(next, options_.extra_deadline());
  for (const auto& [id, link] : links_)
    next = std::min(next, link.until);
  for (const auto& [rank, retry] : retries_)
    next = std::min(next, retry.at);
  for (const auto& [id, ending] : endings_)
    next = std::min(next, ending.until);
  return next;
}

void WatchLoop::on_time() {
  const Instant now = steady_now();
  if (options_.extra_deadline && options_.extra_deadline() <= now) options_.on_extra(now);
  expire_links(now);
  if (next_look_ <= now) look_for_ended(now);
  if (tree_.next_deadline() <= now) step(Tick{});
}

void WatchLoop::look_for_ended(Instant now) {
  next_look_ = kNever;
  if (!tree_.is_setting_up()) return;
  next_look_ = instant_after(now, kEndedLook);
  // Lowest first: others may have ended because of it.
  for (const int rank : tree_.unlinked()) {
    if (options_.is_over(rank)) return step(Ended{rank});
  }
}

void WatchLoop::on_event(uint64_t tag, uint32_t events) {
  switch (tag) {
    case kWakeTag:
      return take_posted();
    case kUnixTag:
    case kTcpTag:
      return accept(tag == kUnixTag);
    case kExtraTag:
      // Stays readable for ever: once is enough.
      control(EPOLL_CTL_DEL, options_.extra_fd, tag, 0);
      return options_.on_extra(steady_now());
    default:
      return on_link(tag, events);
  }
}

void WatchLoop::take_posted() {
  drain_event(wake_.fd());
  std::vector<WatchTree::Event> posted;
  std::vector<LinkId> cut;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
    cut.swap(cut_);
    in_hand_ = posted.size();
    quit_ = quit_wanted_;
  }
  for (const WatchTree::Event& event : posted)
    step(event);
  for (const LinkId id : cut)
    on_cut(id);
  {
    const std::lock_guard lock(mutex_);
    done_ += std::exchange(in_hand_, 0);
  }
  changed_.notify_all();
  if (options_.on_extra) options_.on_extra(steady_now());
}

// Queues events that an effect causes at once: the WatchTree never gets an event during a step.
void WatchLoop::step(const WatchTree::Event& event) {
  inbox_.push_back(event);
  if (!pumping_) pump();
}

void WatchLoop::pump() {
  pumping_ = true;
  for (size_t i = 0; i < inbox_.size(); ++i) {
    const WatchTree::Event event = std::move(inbox_[i]);
    std::vector<WatchTree::Effect> effects;
    tree_.step(steady_now(), event, effects);
    for (const WatchTree::Effect& effect : effects)
      perform(effect);
  }
  inbox_.clear();
  pumping_ = false;
}

void WatchLoop::perform(const WatchTree::Effect& effect) {
  struct Perform {
    WatchLoop& self;

    void operator()(const Dial& e) const { self.begin_dial(e); }
    void operator()(const Send& e) const {
      const auto link = self.links_.find(e.link);
      if (link != self.links_.end()) self.send(link->second, e.message);
      if (link != self.links_.end()) self.flush(e.link, link->second);
    }
    void operator()(const Hangup& e) const { self.drop(e.link); }
    void operator()(const Announce& e) const { self.options_.announce(e); }
    void operator()(const Decision& e) const { self.options_.decided(e); }
    void operator()(const Missing& e) const { self.options_.missing(e); }
    void operator()(const Started&) const {
      self.ports_ = self.tree_.ports();
      self.settle({});
    }
    void operator()(const Failed& e) const { self.settle(tl::unexpected(e.failure)); }
    void operator()(const Parted&) const {
      self.lifelines_.reset();
      self.links_.clear();
      self.retries_.clear();
      self.endings_.clear();
      self.options_.unix_listener = GuardedFd();
      self.options_.tcp_listener = GuardedFd();
      const std::lock_guard lock(self.mutex_);
      self.parted_ = true;
      self.changed_.notify_all();
    }
  };
  std::visit(Perform{*this}, effect);
}

}  // namespace muster::worker
