#include "worker_lib/group/group_bytes.h"

#include <array>
#include <cstdint>
#include <numeric>

#include "worker_lib/group/group.h"
#include "worker_lib/group/shared_time.h"

namespace muster::worker {

Outcome<> broadcast_bytes(Group& group, std::string_view bytes, int root,
                          const CallOptions& options,
                          const std::function<void*(size_t)>& make_room) {
  const SharedTime time(group, options);
  CollectiveCall call{.kind = OpKind::broadcast,
                      .root = root,
                      .is_service = true,
                      .purpose = CallPurpose::broadcast_bytes};
  std::array<int64_t, 1> length{static_cast<int64_t>(bytes.size())};
  call.out = Buffer(length);
  call.in = call.out;
  const Outcome<> told = group.perform(call, options);
  if (!told) return told;
  const auto size = static_cast<size_t>(length[0]);
  void* const data = group.members().me == root ? const_cast<char*>(bytes.data()) : make_room(size);
  call.out = Buffer(data, size, DType::uint8);
  call.in = call.out;
  return group.perform(call, time.left());
}

Outcome<std::vector<std::string>> all_gather_bytes(Group& group, std::string_view bytes,
                                                   const CallOptions& options) {
  const SharedTime time(group, options);
  const std::array<int64_t, 1> length{static_cast<int64_t>(bytes.size())};
  std::vector<int64_t> lengths(static_cast<size_t>(group.members().size()));
  const Outcome<> told = group.perform({.kind = OpKind::all_gather,
                                        .in = ConstBuffer(length),
                                        .out = Buffer(lengths),
                                        .is_service = true,
                                        .purpose = CallPurpose::all_gather_bytes},
                                       options);
  if (!told) return tl::unexpected(told.error());
  const std::vector<size_t> counts(lengths.begin(), lengths.end());
  std::string all(std::accumulate(counts.begin(), counts.end(), size_t{0}), '\0');
  const Outcome<> done = group.perform({.kind = OpKind::all_gather,
                                        .in = {bytes.data(), bytes.size(), DType::uint8},
                                        .out = {all.data(), all.size(), DType::uint8},
                                        .is_v = true,
                                        .recv_counts = counts,
                                        .is_service = true,
                                        .purpose = CallPurpose::all_gather_bytes},
                                       time.left());
  if (!done) return tl::unexpected(done.error());
  std::vector<std::string> texts;
  size_t at = 0;
  for (const size_t count : counts) {
    texts.push_back(all.substr(at, count));
    at += count;
  }
  return texts;
}

}  // namespace muster::worker
