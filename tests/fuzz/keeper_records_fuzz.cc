// The records of a job in a keeper, which is a shared file or etcd. Checked: decoded records
// survive another round trip.
#include <string>

#include "rendezvous/backends/host_record.h"
#include "tests/fuzz/fuzz_input.h"

namespace muster::fuzz {
namespace {

void run(std::string_view input) {
  if (const auto host = decode_record(input)) {
    const auto again = decode_record(encode(*host));
    CHECK(again && again->instance == host->instance && again->addresses == host->addresses);
    CHECK(again->beat == host->beat && again->entry == host->entry && again->agent == host->agent);
    CHECK(encode(*again) == encode(*host));
  }
  if (const auto job = decode_job_record(input)) {
    const auto again = decode_job_record(encode(*job));
    CHECK(again && again->epoch == job->epoch && again->members == job->members);
    CHECK(encode(*again) == encode(*job));
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::run(muster::fuzz::as_text(data, size));
  return 0;
}
