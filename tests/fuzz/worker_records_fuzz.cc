// Records that ranks write for other ranks, in the store, in meeting files and in answers about
// their progress. The first byte selects the kind. Checked: decoded records survive another round
// trip.
#include "tests/fuzz/fuzz_input.h"
#include "worker_lib/fields.h"
#include "worker_lib/joining/file_meeting_point.h"
#include "worker_lib/joining/rank_record.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::fuzz {
namespace {

template <typename Record>
void check_record(std::string_view text) {
  const std::optional<Record> record = Record::decode(text);
  CHECK(!record || Record::decode(record->encode()) == record);
}

void check(std::string_view input) {
  switch (take_byte(input) % 4) {
    case 0: {
      const auto fields = worker::decode_fields(input);
      CHECK(!fields || worker::decode_fields(worker::encode_fields(*fields)) == fields);
      return;
    }
    case 1:
      return check_record<worker::RankRecord>(input);
    case 2:
      return check_record<worker::MeetingRecord>(input);
    default:
      return check_record<worker::RankProgress>(input);
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check(muster::fuzz::as_text(data, size));
  return 0;
}
