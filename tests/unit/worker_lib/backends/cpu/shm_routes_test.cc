#include "worker_lib/backends/cpu/shm_routes.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

// Each route: offset and bytes to send, offset and bytes to receive.
using Routes = std::vector<std::array<size_t, 4>>;

Routes routes_of(const Operation& operation, int me, int ranks) {
  // Values of an earlier call must not remain.
  std::vector<Route> routes(static_cast<size_t>(ranks), Route{1, 2, 3, 4});
  fill_routes(operation, me, routes);
  Routes numbers;
  for (const Route& one : routes)
    numbers.push_back({one.send_offset, one.send_bytes, one.recv_offset, one.recv_bytes});
  return numbers;
}

TEST(ShmRoutes, ReductionsAndBarriersUseNoRoutes) {
  for (const OpKind kind : {OpKind::reduce, OpKind::all_reduce, OpKind::barrier})
    EXPECT_EQ(routes_of({.kind = kind, .count = 5}, 1, 2), Routes(2)) << name_of(kind);
}

TEST(ShmRoutes, ABroadcastGoesFromItsRootToEveryRankItselfIncluded) {
  const Operation operation{
      .kind = OpKind::broadcast, .count = 3, .dtype = DType::int16, .root = 1};
  EXPECT_EQ(routes_of(operation, 1, 3), (Routes{{0, 6, 0, 0}, {0, 6, 0, 6}, {0, 6, 0, 0}}));
  EXPECT_EQ(routes_of(operation, 2, 3), (Routes{{}, {0, 0, 0, 6}, {}}));
}

TEST(ShmRoutes, AGatherPlacesBlocksInRankOrder) {
  const Operation at_root{
      .kind = OpKind::gather, .dtype = DType::int16, .is_v = true, .recv_counts = {1, 0, 2}};
  EXPECT_EQ(routes_of(at_root, 0, 3), (Routes{{0, 2, 0, 2}, {0, 0, 2, 0}, {0, 0, 2, 4}}));
  const Operation elsewhere{
      .kind = OpKind::gather, .count = 2, .dtype = DType::int16, .is_v = true};
  EXPECT_EQ(routes_of(elsewhere, 2, 3), (Routes{{0, 4, 0, 0}, {}, {}}));
}

TEST(ShmRoutes, AScatterTakesBlocksInRankOrder) {
  const Operation at_root{.kind = OpKind::scatter, .count = 2, .dtype = DType::float64, .root = 1};
  EXPECT_EQ(routes_of(at_root, 1, 3), (Routes{{0, 16, 0, 0}, {16, 16, 0, 16}, {32, 16, 0, 0}}));
  EXPECT_EQ(routes_of(at_root, 0, 3), (Routes{{}, {0, 0, 0, 16}, {}}));
}

TEST(ShmRoutes, OnlyCallsThatSendEqualDataToAllRanksAreMulticast) {
  std::string kinds;
  for (const OpKind kind : ring::kCollectives) {
    if (is_multicast(kind)) kinds.append(name_of(kind)).append(" ");
  }
  EXPECT_EQ(kinds, "broadcast gather all_gather ");
}

// ---- any operation

// The operation as each rank calls it; counts[a][b]: elements that a sends to b.
std::vector<Operation> calls_of(OpKind kind, const std::vector<std::vector<size_t>>& counts,
                                size_t root) {
  const size_t ranks = counts.size();
  std::vector<Operation> calls(ranks);
  for (size_t me = 0; me < ranks; ++me) {
    Operation& call = calls[me];
    call = {.kind = kind, .dtype = DType::int32, .root = static_cast<int>(root), .is_v = true};
    std::vector<size_t> column(ranks);
    for (size_t from = 0; from < ranks; ++from)
      column[from] = counts[from][me];
    if (kind == OpKind::all_to_all) call.send_counts = counts[me], call.recv_counts = column;
    if (kind == OpKind::all_gather) call.recv_counts = counts[0];
    if (kind == OpKind::reduce_scatter) call.send_counts = counts[0];
    if (kind == OpKind::gather || kind == OpKind::scatter) call.count = counts[0][me];
    if (kind == OpKind::gather && me == root) call.count = 77, call.recv_counts = counts[0];
    if (kind == OpKind::scatter && me == root) call.count = 77, call.send_counts = counts[0];
    if (kind == OpKind::broadcast) call.count = counts[0][0];
  }
  return calls;
}

bool lie_one_behind_the_other(std::vector<std::pair<size_t, size_t>> blocks) {
  std::erase_if(blocks, [](const auto& block) { return block.second == 0; });
  size_t end = 0;
  return std::ranges::all_of(blocks, [&](const auto& block) {
    return block.first == std::exchange(end, end + block.second);
  });
}

RC_GTEST_PROP(ShmRoutes, EachRouteSendsWhatItsPeerReceives, ()) {
  const auto ranks = *rc::gen::inRange<size_t>(1, 7);
  const OpKind kind =
      *rc::gen::element(OpKind::broadcast, OpKind::gather, OpKind::all_gather, OpKind::scatter,
                        OpKind::reduce_scatter, OpKind::all_to_all);
  const auto row = rc::gen::container<std::vector<size_t>>(ranks, rc::gen::inRange<size_t>(0, 4));
  const auto counts = *rc::gen::container<std::vector<std::vector<size_t>>>(ranks, row);
  const std::vector<Operation> calls = calls_of(kind, counts, *rc::gen::inRange<size_t>(0, ranks));
  std::vector<Routes> routes;
  for (size_t me = 0; me < ranks; ++me)
    routes.push_back(routes_of(calls[me], static_cast<int>(me), static_cast<int>(ranks)));
  for (size_t me = 0; me < ranks; ++me) {
    std::vector<std::pair<size_t, size_t>> received, sent;
    for (size_t other = 0; other < ranks; ++other) {
      const auto& [send_offset, send_bytes, recv_offset, recv_bytes] = routes[me][other];
      RC_ASSERT(send_bytes == routes[other][me][3]);
      received.emplace_back(recv_offset, recv_bytes);
      sent.emplace_back(send_offset, send_bytes);
    }
    RC_ASSERT(kind == OpKind::reduce_scatter || lie_one_behind_the_other(received));
    RC_ASSERT(is_multicast(kind) || lie_one_behind_the_other(sent));
  }
}

}  // namespace
}  // namespace muster::worker
