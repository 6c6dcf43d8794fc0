// Decides which bytes of many streams go to one console, and when, so that every line arrives
// whole. The caller reads, feeds, and writes the returned pieces in order. Pure: no clock, no I/O.
//
// Complete lines are shown at once, unchanged. A partial line is held until
//   - its line ends, or
//   - its stream was quiet for 100 ms (a prompt), or
//   - 100 ms passed since its first unshown byte, if it holds a '\r' (a bar that never pauses), or
//   - it is longer than 1 MiB, or its stream has ended.
// Then it is shown, and its stream owns the console until the line ends: other streams' output is
// held, and a stream with 64 KiB held is no longer read. If others wait, an owner loses the console
// after one second of quiet, or at once if its stream has ended; a bar, which may redraw for hours
// without a newline, after 20 ms of quiet or one second. The mux then writes a '\n' of its own, for
// the next line to start at the left, but not between bars with a '\r', which redraw in place.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster {

class LineMux {
 public:
  static constexpr Duration kPartialQuiet = std::chrono::milliseconds(100);
  static constexpr Duration kOwnerQuiet = std::chrono::seconds(1);
  static constexpr Duration kBarQuiet = std::chrono::milliseconds(20);
  static constexpr size_t kLineMax = size_t{1} << 20;
  static constexpr size_t kHeldMax = size_t{64} << 10;

  // Views into the fed bytes or the mux; valid until the next call with `Pieces`, like those bytes.
  using Pieces = std::vector<std::string_view>;

  int open();
  void feed(int stream, std::string_view bytes, Instant now, Pieces& out);

  // The stream ends. What it still holds is shown once no stream owns the console.
  void close(int stream, Instant now, Pieces& out);

  // REQUIRES: every byte that was readable at `now` has been fed; otherwise a stream would look
  // quiet only because its reader was late.
  void tick(Instant now, Pieces& out);

  // The time at which tick() would show something or take the console from its owner; or kNever.
  Instant next_deadline() const;

  // False if the stream is not to be read yet, since its bytes could not be shown.
  bool wants(int stream) const;
  int owner() const { return owner_; }  // -1: none.

 private:
  struct Stream {
    std::string held;         // Fed but not shown yet.
    size_t whole = 0;         // The first `whole` bytes of `held` are complete lines.
    bool bar = false;         // True if the unfinished line holds a '\r'.
    bool closed = false;      // True if no more bytes will come.
    size_t shown = 0;         // Bytes of the unfinished line that are on the console.
    Instant partial_since{};  // Arrival of the first unshown byte of the unfinished line.
    Instant fed{};            // Arrival of the last byte.
    Instant owner_since{};
  };

  void emit(std::string_view bytes, Pieces& out);
  void emit_held(Stream& stream, size_t bytes, Pieces& out);
  void hold(int id, std::string_view bytes, Instant now);
  void feed_free(int id, std::string_view bytes, Instant now, Pieces& out);
  void feed_owner(std::string_view bytes, Instant now, Pieces& out);
  void show_partial(int id, Instant now, Pieces& out);
  void separate(const Stream& next, Pieces& out);
  void settle(Instant now, Pieces& out);
  void flush_waiting(Instant now, Pieces& out);
  Instant due(const Stream& stream) const;
  Instant gives_way(const Stream& owner) const;
  bool somebody_waits(Instant now) const;

  std::map<int, Stream> streams_;
  std::set<int> holding_;          // Streams with held bytes; never the owner.
  std::deque<std::string> spent_;  // Storage that the last pieces point into.
  int owner_ = -1;
  int next_id_ = 0;
  char last_byte_ = '\n';  // The last byte shown on the console.
};

}  // namespace muster
