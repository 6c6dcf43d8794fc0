#include "rendezvous/net/drive.h"

#include <chrono>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "tests/wait_for.h"

namespace muster {
namespace {

struct Count {
  int value = 0;
};
struct TickNow {};
struct Done {
  std::string text;
};

// Emits an effect for every Count and asks for a tick 1 ms later.
class Toy {
 public:
  using Event = std::variant<Count, TickNow>;
  using Effect = Done;

  void step(Instant now, const Event& event, std::vector<Effect>& out) {
    EXPECT_FALSE(stepping_);  // Never entered twice.
    stepping_ = true;
    EXPECT_GE(now, last_);  // Time does not run backwards.
    last_ = now;
    if (const auto* count = std::get_if<Count>(&event)) {
      out.push_back({"count " + std::to_string(count->value)});
      deadline_ = now + std::chrono::milliseconds(1);
    } else if (now >= deadline_) {
      out.push_back({"tick"});
      deadline_ = kNever;
    }
    stepping_ = false;
  }
  Instant next_deadline() const { return deadline_; }

 private:
  Instant last_{};
  Instant deadline_ = kNever;
  bool stepping_ = false;
};

TEST(Drive, QueuesEventsThatAnEffectPostsAndKeepsTheEffectsInOrder) {
  boost::asio::io_context io;
  Toy toy;
  std::vector<std::string> seen;
  Drive<Toy, TickNow>* drive_pointer = nullptr;
  Drive<Toy, TickNow> drive(io, toy, [&](const Done& effect) {
    seen.push_back(effect.text);
    if (effect.text == "count 1") {
      drive_pointer->post(Count{2});
      seen.push_back("posted from an effect");
    }
  });
  drive_pointer = &drive;
  drive.post(Count{1});
  EXPECT_EQ(seen, (std::vector<std::string>{"count 1", "posted from an effect", "count 2"}));
}

TEST(Drive, TicksAtTheDeadlineAndLetsTheLoopEndWithoutOne) {
  boost::asio::io_context io;
  Toy toy;
  std::vector<std::string> seen;
  Drive<Toy, TickNow> drive(io, toy, [&](const Done& effect) { seen.push_back(effect.text); });
  boost::asio::post(io, [&] { drive.post(Count{1}); });
  io.run();  // Returns, since no deadline is left after the tick.
  EXPECT_EQ(seen, (std::vector<std::string>{"count 1", "tick"}));
}

// An expired timer's handler is in the loop's queue, where it cannot be cancelled.
TEST(Drive, IgnoresATimerThatExpiredBeforeItsDestruction) {
  boost::asio::io_context io;
  Toy toy;
  std::vector<std::string> seen;
  auto drive = std::make_unique<Drive<Toy, TickNow>>(
      io, toy, [&](const Done& effect) { seen.push_back(effect.text); });
  drive->post(Count{1});
  boost::asio::post(io, [&] {
    test::pause_for(std::chrono::milliseconds(5), "the deadline passes");
    // This runs before the timer's handler, since the loop has not polled the timer yet.
    boost::asio::post(io, [&] { drive.reset(); });
  });
  io.run();
  EXPECT_EQ(seen, std::vector<std::string>{"count 1"});
}

}  // namespace
}  // namespace muster
