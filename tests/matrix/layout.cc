#include "tests/matrix/layout.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

namespace muster::matrix {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr uint64_t kCoin = 0xc01;

// Builds a layout: first the places of the buffers, then the block before and after.
class LayoutMaker {
 public:
  LayoutMaker(const Case& what, uint64_t seed, int me)
      : what_(what), seed_(seed), me_(me), root_(what.root_rank()), is_root_(me == root_) {
    made_.dtype = what.dtype;
  }

  Layout make() {
    place();
    fill_blocks();
    return std::move(made_);
  }

  size_t bytes() {
    place();
    return bytes_;
  }

 private:
  size_t element() const { return size_of(what_.dtype); }
  size_t n() const { return static_cast<size_t>(what_.members); }
  size_t all() const { return n() * what_.size; }
  bool in_place() const { return what_.place == Place::in_place; }
  bool coin(uint64_t which) const {
    return mixed(seed_, kCoin + which * 64 + static_cast<uint64_t>(me_)) % 2 == 0;
  }

  // Length of the block of `rank`, if lengths depend on one end only.
  size_t v_count(int rank) const { return count_of(what_, seed_, rank, 0); }
  size_t v_offset(int rank) const {
    size_t sum = 0;
    for (int r = 0; r < rank; ++r)
      sum += v_count(r);
    return sum;
  }
  std::vector<size_t> v_counts() const {
    std::vector<size_t> counts;
    for (int r = 0; r < what_.members; ++r)
      counts.push_back(v_count(r));
    return counts;
  }

  // `larger` holds a block per rank, and this rank's begins at element `own`.
  void lay(Piece& larger, size_t larger_count, Piece& smaller, size_t smaller_count, size_t own) {
    larger.at = kGuardBytes;
    larger.count = larger_count;
    smaller.count = smaller_count;
    const size_t end = kGuardBytes + larger_count * element();
    if (in_place() && larger.given) {
      smaller.at = larger.at + own * element();
      bytes_ = end + kGuardBytes;
    } else {
      smaller.at = (end + kGuardBytes + 63) / 64 * 64;
      bytes_ = smaller.at + smaller_count * element() + kGuardBytes;
    }
  }

  void place() {
    Layout& m = made_;
    const size_t count = what_.size;
    const size_t mine = static_cast<size_t>(me_) * count;
    switch (what_.op) {
      case Op::barrier:
      case Op::monitored_barrier:
        lay(m.in, 0, m.out, 0, 0);
        break;
      case Op::broadcast:
        lay(m.out, count, m.in, count, 0);
        break;
      case Op::all_reduce:
        lay(m.in, count, m.out, count, 0);
        break;
      case Op::reduce:
        m.out.given = is_root_ || in_place() || coin(1);
        lay(m.in, count, m.out, count, 0);
        break;
      case Op::gather:
        m.out.given = is_root_ || (!in_place() && coin(1));
        lay(m.out, all(), m.in, count, mine);
        break;
      case Op::all_gather:
        lay(m.out, all(), m.in, count, mine);
        break;
      case Op::scatter:
        m.in.given = is_root_;
        lay(m.in, all(), m.out, count, mine);
        break;
      case Op::reduce_scatter:
        lay(m.in, all(), m.out, count, mine);
        break;
      case Op::all_to_all:
        lay(m.in, all(), m.out, all(), 0);
        break;
      case Op::batch:
        lay(m.in, 2 * count, m.out, 2 * count, 0);
        break;
      case Op::send_recv:
        m.in.given = is_root_;
        m.out.given = !is_root_;
        lay(m.in, all(), m.out, count, 0);
        break;
      case Op::recv_any:
        m.in.given = !is_root_;
        m.out.given = is_root_;
        lay(m.out, all(), m.in, count, 0);
        break;
      default:
        place_unequal();
    }
  }

  void place_unequal() {
    Layout& m = made_;
    const std::vector<size_t> counts = v_counts();
    const size_t sum = v_offset(what_.members);
    const size_t own = v_count(me_);
    switch (what_.op) {
      case Op::gather_v:
        m.out.given = is_root_;
        if (is_root_ || coin(2)) m.recv_counts = counts;
        lay(m.out, sum, m.in, own, v_offset(me_));
        break;
      case Op::all_gather_v:
        m.recv_counts = counts;
        lay(m.out, sum, m.in, own, v_offset(me_));
        break;
      case Op::scatter_v:
        m.in.given = is_root_;
        if (is_root_ || coin(2)) m.send_counts = counts;
        lay(m.in, sum, m.out, own, v_offset(me_));
        break;
      case Op::reduce_scatter_v:
        m.send_counts = counts;
        lay(m.in, sum, m.out, own, v_offset(me_));
        break;
      case Op::all_to_all_v:
        place_all_to_all_v();
        break;
      case Op::broadcast_bytes:
        lay(m.in, what_.size, m.out, what_.size, 0);
        break;
      case Op::all_gather_bytes:
        lay(m.out, sum, m.in, own, 0);
        break;
      default:
        break;
    }
  }

  void place_all_to_all_v() {
    for (int r = 0; r < what_.members; ++r) {
      made_.send_counts.push_back(count_of(what_, seed_, me_, r));
      made_.recv_counts.push_back(count_of(what_, seed_, r, me_));
    }
    const auto sum = [](const auto& c) { return std::accumulate(c.begin(), c.end(), size_t{0}); };
    lay(made_.in, sum(made_.send_counts), made_.out, sum(made_.recv_counts), 0);
  }

  std::byte* at(std::vector<std::byte>& block, const Piece& piece, size_t element_index = 0) {
    return block.data() + piece.at + element_index * element();
  }

  // Writes the input of `rank` from element `first` on to `piece`, `to` elements after its start.
  void put(std::vector<std::byte>& block, const Piece& piece, size_t to, int rank, size_t first,
           size_t count) {
    fill(what_, seed_, rank, first, count, at(block, piece, to));
  }

  void fill_blocks() {
    made_.before.resize(bytes_);
    for (size_t i = 0; i < bytes_; ++i) {
      made_.before[i] = static_cast<std::byte>(mixed(~seed_, i) & 0xff);
    }
    if (what_.op == Op::broadcast) {
      if (is_root_) put(made_.before, made_.out, 0, root_, 0, what_.size);
    } else {
      put(made_.before, made_.in, 0, me_, 0, made_.in.count);
    }
    made_.after = made_.before;
    if (made_.out.given) fill_result();
  }

  void fill_result() {
    Layout& m = made_;
    const size_t count = what_.size;
    const size_t mine = static_cast<size_t>(me_) * count;
    switch (what_.op) {
      case Op::broadcast:
      case Op::broadcast_bytes:
        put(m.after, m.out, 0, root_, 0, count);
        break;
      case Op::reduce:
        if (is_root_) reduce(0);
        break;
      case Op::all_reduce:
        reduce(0);
        break;
      case Op::reduce_scatter:
        reduce(mine);
        break;
      case Op::reduce_scatter_v:
        reduce(v_offset(me_));
        break;
      case Op::gather:
        if (is_root_) put_all();
        break;
      case Op::all_gather:
      case Op::gather_v:
      case Op::all_gather_v:
      case Op::all_gather_bytes:
        put_all();
        break;
      case Op::scatter:
      case Op::send_recv:
        put(m.after, m.out, 0, root_, mine, count);
        break;
      case Op::scatter_v:
        put(m.after, m.out, 0, root_, v_offset(me_), m.out.count);
        break;
      case Op::recv_any:
        put_all_but_mine();
        break;
      case Op::all_to_all:
      case Op::all_to_all_v:
        put_transposed();
        break;
      case Op::batch:
        put_neighbours();
        break;
      default:
        break;
    }
  }

  bool is_v() const { return made_.recv_counts.size() == n() || what_.op == Op::all_gather_bytes; }

  void put_all() {
    size_t to = 0;
    for (int r = 0; r < what_.members; ++r) {
      const size_t count = is_v() ? v_count(r) : what_.size;
      put(made_.after, made_.out, to, r, 0, count);
      to += count;
    }
  }

  void put_all_but_mine() {
    for (int r = 0; r < what_.members; ++r) {
      if (r != me_) {
        put(made_.after, made_.out, static_cast<size_t>(r) * what_.size, r, 0, what_.size);
      }
    }
  }

  void put_transposed() {
    size_t to = 0;
    for (int s = 0; s < what_.members; ++s) {
      const bool v = what_.op == Op::all_to_all_v;
      size_t first = v ? 0 : static_cast<size_t>(me_) * what_.size;
      for (int r = 0; v && r < me_; ++r)
        first += count_of(what_, seed_, s, r);
      const size_t count = v ? count_of(what_, seed_, s, me_) : what_.size;
      put(made_.after, made_.out, to, s, first, count);
      to += count;
    }
  }

  // The block that the previous rank sent forward, then the one that the next rank sent back.
  void put_neighbours() {
    const int before = (me_ + what_.members - 1) % what_.members;
    const int behind = (me_ + 1) % what_.members;
    put(made_.after, made_.out, 0, before, 0, what_.size);
    put(made_.after, made_.out, what_.size, behind, what_.size, what_.size);
  }

  void reduce(size_t first) {
    Layout& m = made_;
    if (what_.values == Values::exact) {
      reduce_exactly(what_, seed_, first, m.out.count, at(m.after, m.out));
    } else {
      m.rough = reduce_roughly(what_, seed_, first, m.out.count);
    }
  }

  const Case& what_;
  uint64_t seed_;
  int me_;
  int root_;
  bool is_root_;
  size_t bytes_ = 0;
  Layout made_;
};

// The value as a number and as bytes, since a double does not hold every int64.
std::string value_text(DType dtype, const std::byte* at) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.17g (", as_double(dtype, at));
  std::string whole = text;
  for (size_t i = size_of(dtype); i-- > 0;) {
    std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned>(at[i]));
    whole += text;
  }
  return whole + ")";
}

std::string fault_text(const char* where, size_t index, const std::string& is,
                       const std::string& should) {
  return std::string(where) + " " + std::to_string(index) + " is " + is + " and should be " +
         should;
}

bool contains(const Piece& piece, size_t element, size_t at) {
  return at >= piece.at && at < piece.at + piece.count * element;
}

}  // namespace

ConstBuffer Layout::in_buffer(std::byte* block, Device device) const {
  if (!in.given || in.count == 0) return {nullptr, 0, dtype, device};
  return {block + in.at, in.count, dtype, device};
}

Buffer Layout::out_buffer(std::byte* block, Device device) const {
  if (!out.given || out.count == 0) return {nullptr, 0, dtype, device};
  return {block + out.at, out.count, dtype, device};
}

std::optional<std::string> Layout::fault_of(const std::vector<std::byte>& block) const {
  const size_t element = size_of(dtype);
  for (size_t i = 0; i < rough.size(); ++i) {
    const double is = as_double(dtype, block.data() + out.at + i * element);
    if (!(std::abs(is - rough[i].value) <= rough[i].slack)) {
      return fault_text("output element", i, std::to_string(is), std::to_string(rough[i].value));
    }
  }
  // The rough part was checked above: copy it, so that it compares equal.
  std::vector<std::byte> expected = after;
  if (!rough.empty()) std::memcpy(&expected[out.at], &block[out.at], rough.size() * element);
  const auto differs = std::ranges::mismatch(block, expected);
  if (differs.in1 == block.end()) return std::nullopt;
  const size_t at = static_cast<size_t>(differs.in1 - block.begin());
  for (const Piece* piece : {&out, &in}) {
    if (!contains(*piece, element, at)) continue;
    const size_t index = (at - piece->at) / element;
    const size_t start = piece->at + index * element;
    return fault_text(piece == &out ? "output element" : "input element", index,
                      value_text(dtype, &block[start]), value_text(dtype, &expected[start]));
  }
  return fault_text("outside the buffers, byte", at, value_text(DType::uint8, &block[at]),
                    value_text(DType::uint8, &expected[at]));
}

Layout layout_of(const Case& what, uint64_t seed, int me) {
  return LayoutMaker(what, seed, me).make();
}

size_t block_bytes_max(const Case& what, uint64_t seed) {
  size_t most = 0;
  for (int me = 0; me < what.members; ++me) {
    most = std::max(most, LayoutMaker(what, seed, me).bytes());
  }
  return most;
}

size_t count_of(const Case& what, uint64_t seed, int from, int to) {
  if (what.size == 0) return 0;
  const uint64_t random =
      mixed(seed, 0xc0de + static_cast<uint64_t>(from) * 1000 + static_cast<uint64_t>(to));
  if (random % 4 == 0) return 0;
  return what.size - (random >> 8) % (what.size / 2 + 1);
}

}  // namespace muster::matrix
