// The agent's reader of a worker's failure record, which the worker itself may have written.
// Checked: a parsed record is within its bounds and can be written again with the same meaning.
#include <algorithm>

#include "rendezvous/base/failure_record.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

bool is_plain(const std::string& text, size_t bytes_max) {
  return text.size() <= bytes_max && std::ranges::none_of(text, [](char c) {
           return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
         });
}

void check(std::string_view input) {
  const std::optional<FailureRecord> record = parse_failure_record(input);
  if (!record) return;
  CHECK(!record->code.empty() && record->time_ns >= 0 && record->rank >= -1);
  CHECK(std::ranges::is_sorted(record->origin) && record->origin.size() <= kFailureOriginMax);
  CHECK(is_plain(record->operation, kFailureOperationBytesMax));
  CHECK(is_plain(record->message, kFailureMessageBytesMax) && is_plain(record->code, 32));
  const std::string again = encode_failure_record(*record);
  CHECK(again.size() <= kFailureRecordBytesMax && parse_failure_record(again) == record);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check(muster::fuzz::as_text(data, size));
  return 0;
}
