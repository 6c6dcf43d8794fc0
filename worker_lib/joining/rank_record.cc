#include "worker_lib/joining/rank_record.h"

#include <vector>

#include "rendezvous/base/text.h"
#include "worker_lib/fields.h"

namespace muster::worker {
namespace {

// First field: ranks of another version get an error that says so.
constexpr std::string_view kRecordVersion = "muster 5";

}  // namespace

std::string RankRecord::encode() const {
  return encode_fields({std::string(kRecordVersion), std::to_string(peer.rank.value), peer.node,
                        peer.host, std::to_string(peer.pid), peer.address, life.to_string(),
                        secret_claim});
}

std::optional<RankRecord> RankRecord::decode(std::string_view text) {
  const std::optional<std::vector<std::string>> fields = decode_fields(text);
  if (!fields || fields->size() != 8 || fields->front() != kRecordVersion) return std::nullopt;
  const std::vector<std::string>& all = *fields;
  const std::optional<int> rank = whole_number<int>(all[1]);
  const std::optional<int> pid = whole_number<int>(all[4]);
  const std::optional<ProcessLife> life = ProcessLife::parse(all[6]);
  if (!rank || !pid || !life) return std::nullopt;
  return RankRecord{{GlobalRank{*rank}, all[2], all[3], *pid, all[5]}, *life, all[7]};
}

}  // namespace muster::worker
