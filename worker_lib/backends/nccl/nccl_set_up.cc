// How the members of a group get an NCCL communicator: each writes its NCCL version and GPU into
// the store, and rank 0 adds where to meet. What cannot work is detected here, with a clear
// message: NCCL itself would hang or say "invalid usage".
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/text.h"
#include "worker_lib/backends/nccl/nccl_backend.h"
#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {

namespace {

// NCCL refuses two ranks on one GPU unless this is set; it is meant for tests.
bool may_share_gpus() {
  const char* const value = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return value != nullptr && std::string_view(value) == "1";
}

Outcome<NcclCard> make_card(const GroupSetup& setup, const NcclApi& nccl, const Gpu& gpu) {
  const char* const host_id = std::getenv("NCCL_HOSTID");
  NcclCard card{nccl.version, gpu.uuid(), gpu.name(), {}, host_id != nullptr ? host_id : ""};
  if (setup.members.me != 0) return card;
  NcclUniqueId id{};
  if (const NcclResult result = nccl.get_unique_id(&id); result != NcclResult::success)
    return failed(ErrorCode::backend,
                  fmt::format("ncclGetUniqueId failed: {}; NCCL_SOCKET_IFNAME names the interface "
                              "to use",
                              nccl.describe(result, nullptr)));
  card.unique_id.assign(id.bytes, sizeof id.bytes);
  return card;
}

Outcome<std::vector<NcclCard>> exchange_cards(GroupSetup& setup, const NcclCard& mine) {
  const Outcome<std::vector<std::string>> texts =
      exchange_through_store(setup, "nccl", mine.encode());
  if (!texts) return tl::unexpected(texts.error());
  std::vector<NcclCard> cards;
  for (size_t rank = 0; rank < texts->size(); ++rank) {
    const std::optional<NcclCard> card = NcclCard::decode((*texts)[rank]);
    if (!card || card->unique_id.size() != (rank == 0 ? sizeof(NcclUniqueId) : 0)) {
      const Peer& peer = setup.members[static_cast<int>(rank)];
      return failed(ErrorCode::rendezvous,
                    fmt::format("{} wrote something other than its NCCL version and GPU to the "
                                "store; give every job a store, or a prefix, of its own",
                                describe(peer)),
                    {peer.rank});
    }
    cards.push_back(*card);
  }
  return cards;
}

}  // namespace

std::string NcclCard::encode() const {
  const auto hex = [](const std::string& bytes) {
    return bytes.empty() ? std::string("-") : to_hex(bytes);
  };
  return fmt::format("{} {} {} {} {}", version, gpu_uuid.empty() ? "-" : gpu_uuid,
                     to_hex(gpu_name.empty() ? "GPU" : gpu_name), hex(unique_id), hex(host_id));
}

// What encode() would write in another way is no card.
std::optional<NcclCard> NcclCard::decode(const std::string& text) {
  const std::vector<std::string_view> words = split(text, ' ');
  if (words.size() != 5) return std::nullopt;
  const auto bytes = [](std::string_view word) {
    return from_hex(word == "-" ? "" : word).value_or("");
  };
  const NcclCard card{whole_number<int>(words[0]).value_or(-1),
                      std::string(words[1] == "-" ? "" : words[1]), bytes(words[2]),
                      bytes(words[3]), bytes(words[4])};
  return card.version >= 0 && card.encode() == text ? std::optional(card) : std::nullopt;
}

std::optional<Failure> compare_cards(const Members& members, const std::vector<NcclCard>& cards,
                                     bool may_share) {
  std::map<std::pair<std::string, std::string>, int> users;  // By host and GPU, as NCCL sees them.
  for (int rank = 0; rank < members.size(); ++rank) {
    const NcclCard& card = cards[static_cast<size_t>(rank)];
    if (card.version != cards[0].version)
      return Failure{
          ErrorCode::backend,
          fmt::format("{} has NCCL {}, and {} has {}; all ranks of a group need the same",
                      describe(members[0]), nccl_version_text(cards[0].version),
                      describe(members[rank]), nccl_version_text(card.version)),
          {members[rank].rank}};
    if (may_share || card.gpu_uuid.empty()) continue;
    const auto [user, is_first] = users.try_emplace({card.host_id, card.gpu_uuid}, rank);
    if (!is_first)
      return Failure{ErrorCode::backend,
                     fmt::format("{} and {} use the same GPU ({}, uuid {}); give each rank one of "
                                 "its own (InitOptions::device, LOCAL_RANK, CUDA_VISIBLE_DEVICES), "
                                 "or, for tests, an NCCL_HOSTID of its own",
                                 describe(members[user->second]), describe(members[rank]),
                                 card.gpu_name, card.gpu_uuid),
                     {members[user->second].rank, members[rank].rank}};
  }
  return std::nullopt;
}

// A blocking communicator cannot be waited for with a deadline, and on a non-blocking one every
// operation costs a thread: see nccl_communicator.h.
std::string refuse_nccl_variables(const std::function<const char*(const char*)>& get) {
  const char* const blocking = get("NCCL_COMM_BLOCKING");
  if (blocking == nullptr || *blocking == '\0') return {};
  return fmt::format(
      "NCCL_COMM_BLOCKING is set to {:?}: unset it, the nccl backend needs a "
      "communicator of each kind",
      blocking);
}

Outcome<std::unique_ptr<GroupBackend>> make_nccl_backend(GroupSetup setup) {
  if (const std::string why = refuse_nccl_variables(std::getenv); !why.empty())
    return failed(ErrorCode::environment, why);
  const Outcome<const CudaApi*> cuda = cuda_driver();
  if (!cuda) return tl::unexpected(cuda.error());
  Outcome<std::shared_ptr<Gpu>> gpu = Gpu::open(**cuda, setup.cuda_device);
  if (!gpu) return tl::unexpected(gpu.error());
  const Outcome<const NcclApi*> nccl = nccl_library();
  if (!nccl) return tl::unexpected(nccl.error());

  const Outcome<NcclCard> mine = make_card(setup, **nccl, **gpu);
  if (!mine) return tl::unexpected(mine.error());
  const Outcome<std::vector<NcclCard>> cards = exchange_cards(setup, *mine);
  if (!cards) return tl::unexpected(cards.error());
  if (std::optional<Failure> why = compare_cards(setup.members, *cards, may_share_gpus()))
    return tl::unexpected(*why);

  NcclCommunicator::Options options{.nccl = **nccl,
                                    .gpu = *gpu,
                                    .id = {},
                                    .rank = setup.members.me,
                                    .ranks = setup.members.size(),
                                    .deadline = setup.deadline,
                                    .interrupted = setup.interrupted};
  std::memcpy(options.id.bytes, cards->front().unique_id.data(), sizeof options.id.bytes);
  Outcome<std::unique_ptr<NcclCommunicator>> communicator = NcclCommunicator::join(options);
  if (!communicator) return tl::unexpected(communicator.error());
  Outcome<std::shared_ptr<NcclCore>> core =
      NcclCore::begin({.group = setup.name,
                       .communicator = std::move(*communicator),
                       .name_stragglers = std::move(setup.name_stragglers)});
  if (!core) return tl::unexpected(core.error());
  return std::make_unique<NcclBackend>(std::move(setup.members), std::move(*core));
}

}  // namespace muster::worker
