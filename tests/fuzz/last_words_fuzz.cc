// A failed worker's stderr may contain anything. Checked: messages are whole lines of it, in order,
// with one short line of text each; a Blame lists ranks in order; and the finders read each line a
// bounded number of times, so that no tail keeps the agent busy.
#include <algorithm>
#include <string>
#include <vector>

#include "agent/report/finding.h"
#include "agent/report/last_words.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

constexpr size_t kLooksPerLine = 100;
constexpr size_t kTextBytesMax = 4 * 400 + 100;  // clean_line()'s characters and its note.

void check_ranks(const std::optional<Blame>& blame) {
  if (!blame) return;
  CHECK(std::ranges::is_sorted(blame->ranks));
  CHECK(std::ranges::all_of(blame->ranks, [](int rank) { return rank >= 0; }));
}

void check_message(std::string_view input, const ErrorMessage& message) {
  CHECK(message.begin < message.end && message.end <= input.size());
  CHECK(message.begin == 0 || input[message.begin - 1] == '\n');
  CHECK(message.end == input.size() || input[message.end - 1] == '\n');
  CHECK(message.text.find('\n') == std::string::npos && message.text.size() <= kTextBytesMax);
  check_ranks(message.blame);
}

void run(std::string_view input) {
  const std::vector<ErrorMessage> messages = error_messages(input);
  size_t before = 0;
  for (const ErrorMessage& message : messages) {
    check_message(input, message);
    CHECK(message.begin >= before);
    before = message.end;
  }
  const std::optional<ErrorMessage> last = last_message(input);
  CHECK(last.has_value() == !messages.empty());
  CHECK(!last || std::ranges::find(messages, *last) != messages.end());
  check_ranks(blame_in(input));
  const MessageLines lines(input);
  find_all(lines);
  CHECK(lines.looks() <= kLooksPerLine * (lines.size() + 1));
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}
