// Requests from any thread to the output thread: closures, performed in order. A push blocks at
// most for another push. Text (messages, events) is bounded, since it may arrive while the console
// or disk is stuck; other requests are few, since callers wait for one before they make the next.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "rendezvous/base/unique_fd.h"

namespace muster {

class RequestQueue {
 public:
  static constexpr size_t kTextMax = size_t{1} << 20;
  using Request = std::function<void()>;

  explicit RequestQueue(UniqueFd event) : event_(std::move(event)) {}

  // False if more than kTextMax bytes of text would be waiting; the refusal is counted.
  bool push(Request request, size_t text_bytes = 0);

  // Readable while requests wait.
  int event_fd() const { return event_.get(); }

  // Output thread. Performs all waiting requests; returns how many texts were refused meanwhile.
  uint64_t perform_all();

 private:
  struct Entry {
    size_t text_bytes = 0;
    Request request;
  };

  UniqueFd event_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  // mutex_ guards these three.
  size_t text_bytes_ = 0;       // Text of entries that are not yet performed.
  uint64_t refused_ = 0;
};

}  // namespace muster
