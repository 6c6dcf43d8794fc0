#include "rendezvous/backends/threaded_rendezvous.h"

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <pthread.h>

#include "rendezvous/base/process_limit.h"
#include "rendezvous/base/quiet_thread.h"

namespace muster {
namespace {

constexpr auto kStatusPatience = std::chrono::milliseconds(100);
constexpr auto kJoinPatience = std::chrono::seconds(1);
constexpr size_t kUndeliveredBytesMax = size_t{16} << 20;

}  // namespace

struct ThreadedRendezvous::Thread {
  Thread() : io(1), work(io.get_executor()) {}

  void main() {
    pthread_setname_np(pthread_self(), "muster-rdzv");
    io.run();
    inner.reset();
    ended.set_value();
  }

  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  std::unique_ptr<Rendezvous> inner;
  std::promise<void> ended;
};

// Members that the mutex does not guard are used on the agent's thread only. The mutex is for a
// detached thread, which may try to deliver when the agent's loop no longer exists.
struct ThreadedRendezvous::Mailbox : std::enable_shared_from_this<Mailbox> {
  Mailbox(boost::asio::io_context& io, Rendezvous::Handlers given)
      : agent_loop(&io), handlers(std::move(given)) {}

  // Called on the rendezvous' thread.
  void deliver(std::function<void(const Rendezvous::Handlers&)> call) {
    const std::lock_guard held(mutex);
    if (agent_loop == nullptr) return;
    boost::asio::post(*agent_loop, [self = shared_from_this(), call = std::move(call)] {
      if (self->alive) call(self->handlers);
    });
  }

  // Returns a function that posts a call of `handler` to the agent.
  template <typename... Arguments>
  auto posting(std::function<void(Arguments...)> Rendezvous::Handlers::* handler) {
    return [self = shared_from_this(), handler](Arguments... arguments) {
      self->deliver(
          [handler, arguments...](const Rendezvous::Handlers& to) { (to.*handler)(arguments...); });
    };
  }

  // Returns handlers for the Rendezvous that `thread` owns.
  Rendezvous::Handlers forwarding(const Thread* thread) {
    const auto self = shared_from_this();
    Rendezvous::Handlers on;
    on.round = [self, thread](const membership::Round& round) {
      self->deliver(
          [self, round, address = thread->inner->address_towards_peers()](const Handlers& to) {
            self->address_towards_peers = address;
            to.round(round);
          });
    };
    on.stop = posting(&Handlers::stop);
    on.leave_announced = posting(&Handlers::leave_announced);
    on.ended = posting(&Handlers::ended);
    on.failed = posting(&Handlers::failed);
    if (handlers.refused) on.refused = posting(&Handlers::refused);
    on.say = posting(&Handlers::say);
    if (handlers.store_full) on.store_full = posting(&Handlers::store_full);
    if (handlers.keys_awaited) on.keys_awaited = posting(&Handlers::keys_awaited);
    if (handlers.datagram) {
      on.datagram = [self](const membership::Delivered& one) { self->deliver_datagram(one); };
    }
    return on;
  }

  // Drops it while the agent's loop is stuck: those of many nodes would soon fill the memory.
  void deliver_datagram(const membership::Delivered& datagram) {
    const size_t bytes = datagram.payload.size() + sizeof datagram;
    if (undelivered_bytes > kUndeliveredBytesMax) return;
    undelivered_bytes += bytes;
    deliver([self = shared_from_this(), datagram, bytes](const Handlers& to) {
      self->undelivered_bytes -= bytes;
      to.datagram(datagram);
    });
  }

  void close() {
    alive = false;
    const std::lock_guard held(mutex);
    agent_loop = nullptr;
  }

  std::mutex mutex;
  boost::asio::io_context* agent_loop;
  Rendezvous::Handlers handlers;
  std::string address_towards_peers;
  std::atomic<size_t> undelivered_bytes = 0;  // The datagrams'.
  bool alive = true;
};

Result<std::unique_ptr<Rendezvous>> ThreadedRendezvous::start(boost::asio::io_context& agent_loop,
                                                              Rendezvous::Handlers handlers,
                                                              const MakeInner& make_inner) {
  const auto mailbox = std::make_shared<Mailbox>(agent_loop, std::move(handlers));
  const auto shared = std::make_shared<Thread>();
  Result<std::unique_ptr<Rendezvous>> inner =
      make_inner(shared->io, mailbox->forwarding(shared.get()));
  if (!inner) return inner;
  shared->inner = std::move(*inner);
  try {
    return std::unique_ptr<Rendezvous>(new ThreadedRendezvous(mailbox, shared));
  } catch (const std::system_error& error) {
    return fail(ExitCode::environment, call_failed("starting a thread", error.code().value()));
  }
}

ThreadedRendezvous::ThreadedRendezvous(std::shared_ptr<Mailbox> mailbox,
                                       std::shared_ptr<Thread> shared)
    : mailbox_(std::move(mailbox)),
      shared_(std::move(shared)),
      thread_(quiet_thread([shared = shared_] { shared->main(); })) {}

ThreadedRendezvous::~ThreadedRendezvous() {
  mailbox_->close();
  shared_->io.stop();
  if (shared_->ended.get_future().wait_for(kJoinPatience) == std::future_status::ready) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void ThreadedRendezvous::run(std::function<void(Rendezvous&)> action) {
  Thread* shared = shared_.get();
  boost::asio::post(shared->io, [shared, action = std::move(action)] { action(*shared->inner); });
}

void ThreadedRendezvous::tell(News news) {
  run([news = std::move(news)](Rendezvous& inner) { inner.tell(news); });
}

void ThreadedRendezvous::send(membership::Datagram datagram) {
  run([datagram = std::move(datagram)](Rendezvous& inner) { inner.send(datagram); });
}

// The thread answers within microseconds; if it ever does not, the last status is returned.
std::string ThreadedRendezvous::status() {
  const auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> future = answer->get_future();
  run([answer](Rendezvous& inner) { answer->set_value(inner.status()); });
  if (future.wait_for(kStatusPatience) == std::future_status::ready) last_status_ = future.get();
  return last_status_;
}

void ThreadedRendezvous::nodes(std::function<void(std::vector<membership::NodeLine>)> done) {
  using Lines = std::vector<membership::NodeLine>;
  const auto callback = std::make_shared<std::function<void(Lines)>>(std::move(done));
  run([mailbox = mailbox_, callback](Rendezvous& inner) {
    inner.nodes([mailbox, callback](const Lines& lines) {
      mailbox->deliver([callback, lines](const Handlers&) { (*callback)(lines); });
    });
  });
}

std::string ThreadedRendezvous::address_towards_peers() {
  return mailbox_->address_towards_peers;
}

void ThreadedRendezvous::close(std::function<void()> closed) {
  // The callback belongs to the agent's thread and is called there.
  const auto callback = std::make_shared<std::function<void()>>(std::move(closed));
  run([mailbox = mailbox_, callback](Rendezvous& inner) {
    inner.close(
        [mailbox, callback] { mailbox->deliver([callback](const Handlers&) { (*callback)(); }); });
  });
}

}  // namespace muster
