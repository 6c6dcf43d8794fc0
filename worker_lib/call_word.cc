#include "worker_lib/call_word.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "worker_lib/camps.h"

namespace muster::worker {
namespace {

constexpr uint64_t kIsV = uint64_t{0x4} << 24;
constexpr int kPurposeShift = 28;

// True for operations with unequal counts that no rank knows in full.
bool counts_differ(const CallWord& word) {
  return word.is_v && (word.kind == OpKind::gather || word.kind == OpKind::scatter ||
                       word.kind == OpKind::all_to_all);
}

// Applies splitmix64's finaliser (Steele, Lea, Flood 2014) to each count.
uint64_t hash_counts(const std::vector<size_t>& counts) {
  uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const size_t count : counts) {
    hash += count + 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
    hash ^= hash >> 31;
  }
  return hash;
}

CallWord word_of(const Operation& operation) {
  CallWord word;
  word.kind = operation.kind;
  word.purpose = operation.purpose;
  if (operation.kind == OpKind::barrier) return word;
  word.dtype = operation.dtype;
  word.is_v = operation.is_v;
  word.had_counts = operation.had_counts;
  if (has_reduction(operation.kind)) word.reduce = operation.reduce;
  if (has_root(operation.kind)) word.root = static_cast<uint32_t>(operation.root);
  return word;
}

}  // namespace

uint64_t CallWord::pack() const {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 8 |
         static_cast<uint64_t>(reduce) << 16 | static_cast<uint64_t>(source) << 24 |
         (is_v ? kIsV : 0) | (had_counts ? CallSignature::kHadCounts : 0) |
         static_cast<uint64_t>(purpose) << kPurposeShift | static_cast<uint64_t>(root) << 32;
}

CallWord CallWord::unpack(uint64_t word) {
  CallWord made;
  made.kind = static_cast<OpKind>(word & 0xff);
  made.dtype = static_cast<DType>(word >> 8 & 0xff);
  made.reduce = static_cast<ReduceOp>(word >> 16 & 0xff);
  made.source = static_cast<DataSource>(word >> 24 & 0x3);
  made.is_v = (word & kIsV) != 0;
  made.had_counts = (word & CallSignature::kHadCounts) != 0;
  made.purpose = static_cast<CallPurpose>(word >> kPurposeShift & 0xf);
  made.root = static_cast<uint32_t>(word >> 32);
  return made;
}

CallSignature signature_of(const Operation& operation) {
  const CallWord word = word_of(operation);
  CallSignature signature{.word = word.pack()};
  if (operation.kind == OpKind::barrier || counts_differ(word)) return signature;
  signature.count = operation.count;
  const auto& counts =
      operation.send_counts.empty() ? operation.recv_counts : operation.send_counts;
  if (!counts.empty()) {
    signature.count = std::accumulate(counts.begin(), counts.end(), size_t{0});
    signature.counts_hash = hash_counts(counts);
  }
  return signature;
}

// Returns "all_reduce (sum) of 8 float32", ignoring the purpose of the call.
std::string describe_operation(const CallSignature& signature, const Members& local) {
  const CallWord word = CallWord::unpack(signature.word);
  if (word.kind == OpKind::allocate_shared)
    return fmt::format("allocate_shared of {} bytes", signature.count);
  std::string text = name_of(word.kind);
  if (word.kind == OpKind::barrier) return text;
  if (word.is_v || word.had_counts) text += "_v";
  if (has_reduction(word.kind)) text += fmt::format(" ({})", name_of(word.reduce));
  if (counts_differ(word)) {
    text += fmt::format(" of {}", name_of(word.dtype));
  } else {
    text += fmt::format(" of {} {}{}", signature.count, name_of(word.dtype),
                        signature.counts_hash != 0 ? " in all" : "");
  }
  if (!has_root(word.kind)) return text;
  text += row_of(word.kind).root == ring::RootRole::gives ? " from " : " to ";
  const auto here = static_cast<uint32_t>(local.size());
  return word.root < here ? text + describe(local[static_cast<int>(word.root)])
                          : text + fmt::format("the group's rank {}", word.root - here);
}

std::string describe_call(const CallSignature& signature, const Members& local) {
  const CallPurpose purpose = CallWord::unpack(signature.word).purpose;
  if (purpose == CallPurpose::itself) return describe_operation(signature, local);
  return fmt::format("{}()", name_of(purpose));
}

std::optional<Failure> find_mismatch(const std::vector<CallSignature>& calls,
                                     const Members& members) {
  const Camps camps = camps_of(calls);
  if (camps.blamed.empty()) return std::nullopt;
  const size_t most = camps.index_of_majority;
  const CallPurpose usual = CallWord::unpack(calls[most].word).purpose;
  bool inside = false;  // Some ranks are in different steps of the same call.
  Failure failure{ErrorCode::mismatch, {}, {}};
  for (const size_t rank : camps.blamed) {
    const Peer& peer = members[static_cast<int>(rank)];
    failure.ranks.push_back(peer.rank);
    if (calls[rank] == calls[most]) continue;
    failure.message += fmt::format("{}{} called {}", failure.message.empty() ? "" : ", ",
                                   describe(peer), describe_call(calls[rank], members));
    if (usual != CallPurpose::itself && CallWord::unpack(calls[rank].word).purpose == usual) {
      inside = true;
      failure.message += fmt::format(" (its {})", describe_operation(calls[rank], members));
    }
    if (calls[rank].word == calls[most].word && calls[rank].count == calls[most].count) {
      failure.message += " with other counts";
    }
  }
  std::sort(failure.ranks.begin(), failure.ranks.end());
  std::string usual_call = describe_call(calls[most], members);
  if (inside) usual_call += fmt::format(" (its {})", describe_operation(calls[most], members));
  failure.message +=
      fmt::format(", but {} called {}; all ranks must make the same calls in the same order",
                  describe(members[static_cast<int>(most)]), usual_call);
  return failure;
}

}  // namespace muster::worker
