// Set-up of a group's NCCL communicator: each member writes its NCCL version and GPU into the
// store, and rank 0 adds the unique id by which they meet. Set-ups that cannot work are refused
// here with a clear message: NCCL itself would hang or say "invalid usage".
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/net/field_codec.h"
#include "worker_lib/backends/nccl/nccl_backend.h"
#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {
namespace {

// NCCL refuses two ranks on one GPU unless this variable is set; it is meant for tests.
bool may_share_gpus() {
  const char* const value = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return value != nullptr && std::string_view(value) == "1";
}

Outcome<NcclCard> make_card(const GroupSetup& setup, const NcclApi& nccl, const Gpu& gpu) {
  const char* const host_id = std::getenv("NCCL_HOSTID");
  const std::string& name = gpu.name();
  NcclCard card{
      nccl.version, gpu.uuid(), name.empty() ? "GPU" : name, {}, host_id != nullptr ? host_id : ""};
  if (setup.members.me != 0) return card;
  NcclUniqueId id{};
  if (const NcclResult result = nccl.get_unique_id(&id); result != NcclResult::success)
    return failed(ErrorCode::backend,
                  fmt::format("ncclGetUniqueId failed: {}; NCCL_SOCKET_IFNAME names the interface "
                              "to use",
                              nccl.describe(result, nullptr)));
  std::memcpy(card.unique_id.data(), id.bytes, sizeof id.bytes);
  return card;
}

void card_fields(auto& a, Like<NcclCard> auto& m) {
  constexpr size_t kTextMax = 4096;
  a.number(m.version, 0, std::numeric_limits<int>::max());
  a.text(m.gpu_uuid, kTextMax);
  a.text(m.gpu_name, kTextMax);
  a.raw(m.unique_id);
  a.text(m.host_id, kTextMax);
}

}  // namespace

std::string NcclCard::encode() const {
  std::string bytes;
  FieldWriter writer(bytes);
  card_fields(writer, *this);
  return bytes;
}

std::optional<NcclCard> NcclCard::decode(std::string_view bytes) {
  NcclCard card;
  FieldReader reader(bytes);
  card_fields(reader, card);
  return reader.end() == nullptr ? std::optional(card) : std::nullopt;
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

// Refuses a variable that would make both communicators of nccl_communicator.h the same kind.
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
  const Outcome<std::vector<NcclCard>> cards =
      exchange_records(setup, "nccl", *mine, "its NCCL version and GPU");
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
