#include "tests/matrix/perform.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "muster/init.h"
#include "tests/matrix/block.h"
#include "tests/matrix/layout.h"

namespace muster::matrix {
namespace {

// Data of one operation.
struct Trial {
  Layout layout;
  std::unique_ptr<Block> block;
  int tag = 0;

  ConstBuffer in() const { return layout.in_buffer(block->data(), block->device()); }
  Buffer out() const { return layout.out_buffer(block->data(), block->device()); }
  // Part of a buffer, from element `first` on.
  ConstBuffer in(size_t first, size_t count) const {
    const size_t at = layout.in.at + first * size_of(layout.dtype);
    return {block->data() + at, count, layout.dtype, block->device()};
  }
  Buffer out(size_t first, size_t count) const {
    const size_t at = layout.out.at + first * size_of(layout.dtype);
    return {block->data() + at, count, layout.dtype, block->device()};
  }
};

// Makes the calls of one case. If an operation is several calls, run() makes them in turn, begin()
// all at once.
class Caller {
 public:
  Caller(ProcessGroup group, const Case& what)
      : group_(std::move(group)), what_(what), me_(group_.rank().value), root_(what.root_rank()) {}

  void run(const Trial& trial) {
    switch (what_.op) {
      case Op::barrier:
        return group_.barrier();
      case Op::monitored_barrier:
        return group_.monitored_barrier();
      case Op::send_recv:
        return send_or_receive(trial);
      case Op::recv_any:
        return receive_from_any(trial);
      case Op::batch:
        return wait_for_all(batch(trial));
      case Op::broadcast_bytes:
        return broadcast_bytes(trial);
      case Op::all_gather_bytes:
        return all_gather_bytes(trial);
      default:
        run_collective(trial);
    }
  }

  // Returns the works to wait for before finish().
  std::vector<Work> begin(const Trial& trial) {
    switch (what_.op) {
      case Op::barrier:
        return {group_.barrier_async()};
      case Op::send_recv:
        return begin_send_or_receive(trial);
      case Op::recv_any:
        return begin_receive_from_any(trial);
      case Op::batch:
        return batch(trial);
      default:
        return {begin_collective(trial)};
    }
  }

  // REQUIRES: the works of begin() are complete.
  void finish(const Trial& trial, const std::vector<Work>& works) {
    if (what_.op != Op::recv_any || me_ != root_) return;
    auto letters = std::move(letters_.front());
    letters_.erase(letters_.begin());
    for (size_t i = 0; i < letters.size(); ++i) {
      deliver(trial, letters[i], works[i].source().value);
    }
  }

 private:
  GroupRank root() const { return GroupRank{root_}; }

  void run_collective(const Trial& t) {
    const Layout& l = t.layout;
    switch (what_.op) {
      case Op::broadcast:
        return group_.broadcast(t.out(), root());
      case Op::reduce:
        if (what_.place == Place::in_place) return group_.reduce(t.out(), root(), what_.reduce);
        return group_.reduce(t.in(), t.out(), root(), what_.reduce);
      case Op::all_reduce:
        if (what_.place == Place::in_place) return group_.all_reduce(t.out(), what_.reduce);
        return group_.all_reduce(t.in(), t.out(), what_.reduce);
      case Op::gather:
        return group_.gather(t.in(), t.out(), root());
      case Op::gather_v:
        return group_.gather_v(t.in(), t.out(), l.recv_counts, root());
      case Op::all_gather:
        return group_.all_gather(t.in(), t.out());
      case Op::all_gather_v:
        return group_.all_gather_v(t.in(), t.out(), l.recv_counts);
      case Op::scatter:
        return group_.scatter(t.in(), t.out(), root());
      case Op::scatter_v:
        return group_.scatter_v(t.in(), l.send_counts, t.out(), root());
      case Op::reduce_scatter:
        return group_.reduce_scatter(t.in(), t.out(), what_.reduce);
      case Op::reduce_scatter_v:
        return group_.reduce_scatter_v(t.in(), t.out(), l.send_counts, what_.reduce);
      case Op::all_to_all:
        return group_.all_to_all(t.in(), t.out());
      default:
        return group_.all_to_all_v(t.in(), l.send_counts, t.out(), l.recv_counts);
    }
  }

  Work begin_collective(const Trial& t) {
    const Layout& l = t.layout;
    switch (what_.op) {
      case Op::broadcast:
        return group_.broadcast_async(t.out(), root());
      case Op::reduce:
        return group_.reduce_async(t.in(), t.out(), root(), what_.reduce);
      case Op::all_reduce:
        if (what_.place == Place::in_place) return group_.all_reduce_async(t.out(), what_.reduce);
        return group_.all_reduce_async(t.in(), t.out(), what_.reduce);
      case Op::gather:
        return group_.gather_async(t.in(), t.out(), root());
      case Op::gather_v:
        return group_.gather_v_async(t.in(), t.out(), l.recv_counts, root());
      case Op::all_gather:
        return group_.all_gather_async(t.in(), t.out());
      case Op::all_gather_v:
        return group_.all_gather_v_async(t.in(), t.out(), l.recv_counts);
      case Op::scatter:
        return group_.scatter_async(t.in(), t.out(), root());
      case Op::scatter_v:
        return group_.scatter_v_async(t.in(), l.send_counts, t.out(), root());
      case Op::reduce_scatter:
        return group_.reduce_scatter_async(t.in(), t.out(), what_.reduce);
      case Op::reduce_scatter_v:
        return group_.reduce_scatter_v_async(t.in(), t.out(), l.send_counts, what_.reduce);
      case Op::all_to_all:
        return group_.all_to_all_async(t.in(), t.out());
      default:
        return group_.all_to_all_v_async(t.in(), l.send_counts, t.out(), l.recv_counts);
    }
  }

  std::vector<int> others() const {
    std::vector<int> others;
    for (int r = 0; r < what_.members; ++r) {
      if (r != me_) others.push_back(r);
    }
    return others;
  }

  ConstBuffer block_for(const Trial& t, int rank) const {
    return t.in(static_cast<size_t>(rank) * what_.size, what_.size);
  }

  void send_or_receive(const Trial& t) {
    if (me_ != root_) return group_.recv(t.out(), root(), t.tag);
    for (const int r : others())
      group_.send(block_for(t, r), GroupRank{r}, t.tag);
  }

  std::vector<Work> begin_send_or_receive(const Trial& t) {
    if (me_ != root_) return {group_.irecv(t.out(), root(), t.tag)};
    std::vector<Work> works;
    for (const int r : others())
      works.push_back(group_.isend(block_for(t, r), GroupRank{r}, t.tag));
    return works;
  }

  // A receive from any rank has memory of its own: the source decides where the data belongs.
  using Letter = std::vector<std::byte>;
  Letter letter() const { return Letter(what_.size * size_of(what_.dtype)); }
  Buffer buffer_of(Letter& letter) const { return {letter.data(), what_.size, what_.dtype}; }

  void deliver(const Trial& t, const Letter& letter, int source) {
    if (source < 0 || source >= what_.members) return;  // The block stays unchanged: a fault.
    const Buffer to = t.out(static_cast<size_t>(source) * what_.size, what_.size);
    if (what_.size > 0) std::memcpy(to.data, letter.data(), letter.size());
  }

  void receive_from_any(const Trial& t) {
    if (me_ != root_) return group_.send(t.in(), root(), t.tag);
    for (size_t i = 0; i < others().size(); ++i) {
      Letter received = letter();
      const GroupRank source = group_.recv_any(buffer_of(received), t.tag);
      deliver(t, received, source.value);
    }
  }

  std::vector<Work> begin_receive_from_any(const Trial& t) {
    if (me_ != root_) return {group_.isend(t.in(), root(), t.tag)};
    std::vector<Work> works;
    std::vector<Letter>& letters = letters_.emplace_back(others().size(), letter());
    for (Letter& each : letters)
      works.push_back(group_.irecv_any(buffer_of(each), t.tag));
    return works;
  }

  std::vector<Work> batch(const Trial& t) {
    const size_t count = what_.size;
    const GroupRank behind{(me_ + 1) % what_.members};
    const GroupRank before{(me_ + what_.members - 1) % what_.members};
    const P2POp ops[] = {
        P2POp::send(t.in(0, count), behind, t.tag),
        P2POp::send(t.in(count, count), before, t.tag),
        P2POp::recv(t.out(0, count), before, t.tag),
        P2POp::recv(t.out(count, count), behind, t.tag),
    };
    return group_.batch_isend_irecv(ops);
  }

  static void wait_for_all(const std::vector<Work>& works) {
    for (Work work : works)
      work.wait();
  }

  static std::string_view text_of(const ConstBuffer& bytes) {
    return {static_cast<const char*>(bytes.data), bytes.count};
  }

  void broadcast_bytes(const Trial& t) {
    std::string bytes = me_ == root_ ? std::string(text_of(t.in())) : "not the root's";
    group_.broadcast_bytes(bytes, root());
    store(t, bytes);
  }

  void all_gather_bytes(const Trial& t) {
    std::string together;
    for (const std::string& part : group_.all_gather_bytes(text_of(t.in())))
      together += part;
    store(t, together);
  }

  // A wrong length shows as damaged guards or as missing data.
  static void store(const Trial& t, const std::string& bytes) {
    const size_t room = t.layout.before.size() - t.layout.out.at;
    if (!bytes.empty()) {
      std::memcpy(t.block->data() + t.layout.out.at, bytes.data(), std::min(room, bytes.size()));
    }
  }

  ProcessGroup group_;
  const Case& what_;
  int me_;
  int root_;
  std::vector<std::vector<Letter>> letters_;
};

std::unique_ptr<Block> block_of(ProcessGroup group, const Case& what, uint64_t seed,
                                const Setting& setting, size_t bytes) {
  const size_t shift = size_of(what.dtype);
  const bool unaligned = what.memory == MemoryKind::unaligned;
  if (setting.backend == Backend::nccl) {
    return make_cuda_block(device().index, bytes, unaligned ? shift : 0);
  }
  if (what.memory == MemoryKind::plain || unaligned) {
    return make_heap_block(bytes, unaligned ? shift : 0);
  }
  const uint64_t drawn = mixed(seed, 0xd1e + static_cast<uint64_t>(group.rank().value)) % 3;
  auto shared = make_shared_block(std::move(group), bytes, block_bytes_max(what, seed));
  if (what.memory == MemoryKind::shared || drawn == 0) return shared;
  return make_heap_block(bytes, drawn == 1 ? 0 : shift);
}

// Concurrent trials have different tags: a receive from any rank takes any message with its tag.
int tag_of(uint64_t case_seed, size_t copy, const Setting& setting) {
  return setting.backend == Backend::nccl ? 0 : static_cast<int>(case_seed % 1000 * 3 + copy);
}

Trial trial_of(ProcessGroup group, const Case& what, uint64_t seed, const Setting& setting) {
  Trial trial;
  trial.layout = layout_of(what, seed, group.rank().value);
  trial.block = block_of(std::move(group), what, seed, setting, trial.layout.before.size());
  std::vector<std::byte> before = trial.layout.before;
  if (rank() == setting.planted_rank && trial.layout.in.count > 0) {
    before[trial.layout.in.at] ^= std::byte{0x01};
  }
  trial.block->write(before);
  return trial;
}

void perform(Caller& caller, const Case& what, const std::vector<Trial>& trials) {
  if (what.call == CallKind::sync) {
    caller.run(trials.front());
    return;
  }
  std::vector<std::vector<Work>> begun;
  for (const Trial& trial : trials)
    begun.push_back(caller.begin(trial));
  for (size_t i = begun.size(); i-- > 0;) {
    for (Work& work : begun[i])
      work.wait();
  }
  for (size_t i = 0; i < begun.size(); ++i)
    caller.finish(trials[i], begun[i]);
}

bool agrees_bit_by_bit(const Case& what) {
  return what.op == Op::all_reduce && what.values == Values::reals;
}

// Names a rank whose result differs in any bit, whatever the order of additions.
std::optional<std::string> disagreement(ProcessGroup group, const Trial& trial,
                                        const std::vector<std::byte>& block) {
  const char* out = reinterpret_cast<const char*>(block.data()) + trial.layout.out.at;
  const std::string_view result(out, trial.layout.out.count * size_of(trial.layout.dtype));
  const uint64_t hash = std::hash<std::string_view>()(result);
  const std::string own(reinterpret_cast<const char*>(&hash), sizeof(hash));
  const std::vector<std::string> hashes = group.all_gather_bytes(own);
  const auto other = std::ranges::find_if(hashes, [&](const auto& each) { return each != own; });
  if (other == hashes.end()) return std::nullopt;
  return "the result differs from that of rank " + std::to_string(other - hashes.begin());
}

}  // namespace

std::optional<std::string> fault_of(ProcessGroup group, const Case& what, uint64_t seed,
                                    const Setting& setting) {
  const size_t copies = what.call == CallKind::overlapped ? 3 : 1;
  std::vector<Trial> trials;
  for (size_t i = 0; i < copies; ++i) {
    trials.push_back(trial_of(group, what, mixed(seed, i), setting));
    trials.back().tag = tag_of(seed, i, setting);
  }
  Caller caller(group, what);
  perform(caller, what, trials);
  std::optional<std::string> fault;
  for (const Trial& trial : trials) {
    const std::vector<std::byte> block = trial.block->read();
    if (const auto found = trial.layout.fault_of(block); found && !fault) fault = found;
    if (agrees_bit_by_bit(what) && setting.backend != Backend::nccl) {
      if (const auto found = disagreement(group, trial, block); found && !fault) fault = found;
    }
  }
  return fault;
}

}  // namespace muster::matrix
