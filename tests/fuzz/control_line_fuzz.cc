// Arbitrary input at either end of a running job's control socket. Checked: decoded values survive
// another round trip; stacks have a harmless text; a refusal is one line.
#include <string>
#include <vector>

#include "agent/control/control_protocol.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

// The wire form without its newline, which must be the only one and the last byte.
std::string line_of(std::string encoded) {
  CHECK(!encoded.empty() && encoded.find('\n') == encoded.size() - 1);
  encoded.pop_back();
  return encoded;
}

void check_refusal(const Error& error) {
  CHECK(!error.message.empty() && error.message.find('\n') == std::string::npos);
}

void run(std::string_view input) {
  if (const Result<control::Request> request = control::decode_request(input)) {
    CHECK(control::decode_request(line_of(control::encode(*request))) == request);
  } else {
    check_refusal(request.error());
  }
  if (const Result<control::Reply> reply = control::decode_reply(input)) {
    const std::string said = line_of(control::encode(*reply));
    const Result<control::Reply> again = control::decode_reply(said);
    CHECK(again && line_of(control::encode(*again)) == said);
    if (const auto* const stacks = std::get_if<control::Stacks>(&*reply))
      CHECK(stacks_text(stacks->ranks, /*details=*/true).find('\x1b') == std::string::npos);
  } else {
    check_refusal(reply.error());
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}
