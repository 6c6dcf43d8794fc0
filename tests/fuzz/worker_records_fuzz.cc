// What ranks read that other ranks have written: records in the store and in meeting files, what a
// leaving rank waits for, and the progress of a rank that was asked. The first byte selects one of
// them. Checked: what was decoded can be encoded again with the same meaning.
#include "tests/fuzz/fuzz_input.h"
#include "worker_lib/fields.h"
#include "worker_lib/group/pending_at_shutdown.h"
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

void check_leaving(std::string_view text) {
  const auto said = worker::decode_pending(text, "g");
  if (!said) return;
  const std::string again = worker::encode_pending(said->number, {{"g", said->transfers}}, 1 << 20);
  const auto meant = worker::decode_pending(again, "g");
  CHECK(meant && meant->number == said->number);
  CHECK(meant->transfers.size() <= said->transfers.size());  // Duplicates are encoded once.
}

void check(std::string_view input) {
  switch (take_byte(input) % 5) {
    case 0: {
      const auto fields = worker::decode_fields(input);
      CHECK(!fields || worker::decode_fields(worker::encode_fields(*fields)) == fields);
      return;
    }
    case 1:
      return check_record<worker::RankRecord>(input);
    case 2:
      return check_record<worker::MeetingRecord>(input);
    case 3:
      return check_record<worker::RankProgress>(input);
    default:
      return check_leaving(input);
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::check(muster::fuzz::as_text(data, size));
  return 0;
}
