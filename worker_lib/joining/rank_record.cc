#include "worker_lib/joining/rank_record.h"

#include <charconv>
#include <utility>
#include <vector>

#include "worker_lib/fields.h"

namespace muster::worker {
namespace {

// The first field: ranks with another version get an error that says so.
constexpr std::string_view kRecordVersion = "muster 1";

bool read_record_number(const std::string& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string RankRecord::encode() const {
  return encode_fields({std::string(kRecordVersion), std::to_string(peer.rank.value), peer.node,
                        peer.host, std::to_string(peer.pid), peer.address, life.to_string()});
}

std::optional<RankRecord> RankRecord::decode(std::string_view text) {
  const std::optional<std::vector<std::string>> fields = decode_fields(text);
  if (!fields || fields->size() != 7 || fields->front() != kRecordVersion) return std::nullopt;
  const std::optional<ProcessLife> life = ProcessLife::parse((*fields)[6]);
  RankRecord record;
  const bool valid = life && read_record_number((*fields)[1], record.peer.rank.value) &&
                     read_record_number((*fields)[4], record.peer.pid);
  if (!valid) return std::nullopt;
  record.peer.node = (*fields)[2];
  record.peer.host = (*fields)[3];
  record.peer.address = (*fields)[5];
  record.life = *life;
  return record;
}

}  // namespace muster::worker
