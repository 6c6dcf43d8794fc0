// Decides which bytes of many streams reach one console, and when, so that every line arrives
// whole: pure, no clock, no I/O. The caller reads, feeds, and writes the pieces it is given, in
// order.
//
// Whole lines pass at once, as they are. A partial line waits, until
//   - its line ends, or
//   - it was quiet for 100 ms (a prompt), or
//   - 100 ms passed since its first unshown byte, if it holds a '\r' (a bar that never pauses), or
//   - it is longer than 1 MiB, or its stream has ended.
// Then it is shown, and its stream owns the console: what others say is held, and their streams
// are no longer read when 64 KiB are held, until the owner's line ends. An owner gives way to
// others that wait when it was quiet for one second, and at once when its stream has ended. A bar,
// which may redraw for hours without a newline, gives way after 20 ms of quiet or one second. The
// mux then writes one '\n' of its own, so that the next line stands whole; between two bars it
// writes none where a '\r' separates them, so that they redraw in place.
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

  // Views into the fed bytes or into the mux; valid until the next call that takes a `Pieces`, and
  // no longer than the fed bytes.
  using Pieces = std::vector<std::string_view>;

  int open();
  void feed(int stream, std::string_view bytes, Instant now, Pieces& out);

  // The stream will not be fed again. Its rest is shown as soon as nobody owns the console.
  void close(int stream, Instant now, Pieces& out);

  // REQUIRES: every byte that was there to be read at `now` has been fed. Else a stream looks quiet
  // because its reader was late.
  void tick(Instant now, Pieces& out);

  // When tick would show something or take the console away; kNever if only new bytes can.
  Instant next_deadline() const;

  // False: its bytes could not be shown now; leave them where they are.
  bool wants(int stream) const;
  int owner() const { return owner_; }  // -1: nobody.

 private:
  struct Stream {
    std::string held;         // Fed and not shown.
    size_t whole = 0;         // The first `whole` bytes of held are whole lines.
    bool bar = false;         // The unfinished line holds a '\r'.
    bool closed = false;      // No more bytes will come.
    size_t shown = 0;         // Bytes of the unfinished line that are on the console.
    Instant partial_since{};  // First byte of the unfinished line that is not shown.
    Instant fed{};            // Last byte.
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
  std::set<int> holding_;          // Streams with held bytes, the owner never among them.
  std::deque<std::string> spent_;  // What the last pieces point into.
  int owner_ = -1;
  int next_id_ = 0;
  char last_byte_ = '\n';  // The last that was put on the console.
};

}  // namespace muster
