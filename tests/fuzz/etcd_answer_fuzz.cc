// The server at etcd's address may answer anything. Checked: text for headers and for people is
// printable, and decoded values are no longer than the answer.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"
#include "rendezvous/etcd/etcd_codec.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

void check_values(const std::optional<EtcdValues>& answer, size_t size_max) {
  if (!answer) return;
  size_t size = 0;
  for (const EtcdValue& value : answer->values)
    size += value.key.size() + value.value.size();
  CHECK(size <= size_max);
}

void run(std::string_view input) {
  check_values(decode_etcd_range(input), input.size());
  check_values(decode_etcd_txn(input), input.size());
  if (const auto lease = decode_etcd_lease(input)) CHECK(lease->id != 0 && lease->ttl_s >= 0);
  decode_etcd_watch(input);
  if (const auto token = decode_etcd_token(input))
    CHECK(!token->empty() && printable(*token, token->size()) == *token);
  if (const auto failure = decode_etcd_failure(input))
    CHECK(printable(failure->message, failure->message.size()) == failure->message);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}
