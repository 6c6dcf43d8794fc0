// The collectives that move blocks between ranks: broadcast, gather, all_gather, scatter,
// all_to_all and reduce_scatter (which adds up what arrives), with equal and unequal counts. Each
// rank offers its data where the others can read it, and takes the parts meant for it. Data is:
//
// - small: in the small area, before the meeting, which is the only wait.
// - larger: piece by piece in the chunk slots; a rank fills the next piece while others still read
//   one (and the first piece before the meeting).
// - in memory from allocate_shared(): read in place; the rank then waits until all have read it.
#include <algorithm>

#include <fmt/format.h>

#include "worker_lib/backends/cpu/shm_copy.h"
#include "worker_lib/backends/cpu/shm_progress.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

uint64_t pieces(size_t bytes, uint64_t piece) {
  return (bytes + piece - 1) / piece;
}

class ShmExchange {
 public:
  explicit ShmExchange(ShmCall& call)
      : call_(call),
        operation_(call.operation),
        routes_(call.routes),
        element_(size_of(call.operation.dtype)),
        me_(static_cast<size_t>(call.me())),
        multicast_(is_multicast(call.operation.kind)),
        reduces_(call.operation.kind == OpKind::reduce_scatter) {}

  bool run();

 private:
  bool offer();
  void fill_small(size_t bytes);
  void fill_chunk(uint64_t k);
  void tell_counts();
  bool check_counts();
  bool fail_counts(size_t rank, size_t theirs, size_t mine);
  void keep_own(uint64_t k, uint64_t parts) const;
  size_t area() const;
  uint64_t choose_piece(size_t largest) const;

  const std::byte* offered(size_t rank) const;
  size_t offset_at(size_t rank) const;
  void take_small();
  bool pipeline();
  bool produce(uint64_t k);
  bool consume(uint64_t k);
  bool await_piece(size_t rank, uint64_t k);
  const std::byte* piece_at(size_t rank, uint64_t k) const;
  bool reduce_piece(uint64_t k);
  void reduce(uint64_t k, size_t start, size_t bytes);
  bool wait_until_taken(uint64_t count);

  uint64_t send_pieces(size_t rank) const {
    return rank == me_ ? 0 : pieces(routes_[rank].send_bytes, piece_);
  }
  uint64_t recv_pieces(size_t rank) const {
    if (rank == me_ || routes_[rank].recv_bytes == 0) return 0;
    const DataSource source = call_.source_of(static_cast<int>(rank));
    if (source != DataSource::chunks && source != DataSource::region) return 0;
    return pieces(routes_[rank].recv_bytes, call_.piece_bytes_of(static_cast<int>(rank)));
  }
  bool is_in_line(size_t bytes) const { return multicast_ && bytes <= sizeof(CallLine::inlined); }
  // Orders peers differently on each rank, so that not all ranks read from the same one at a time.
  size_t peer(size_t step) const { return (me_ + step) % routes_.size(); }

  ShmCall& call_;
  const Operation& operation_;
  std::vector<Route>& routes_;
  const size_t element_;
  const size_t me_;
  const bool multicast_;
  const bool reduces_;
  DataSource source_ = DataSource::nowhere;
  uint64_t piece_ = 1;            // Bytes per piece and receiver.
  uint64_t sent_pieces_ = 0;      // Largest number of pieces to any rank.
  uint64_t received_pieces_ = 0;  // Largest number of pieces from any rank.
  size_t received_ = 0;           // Bytes of the whole result.
};

bool ShmExchange::run() {
  fill_routes(operation_, call_.me(), routes_);
  if (!offer() || !call_.meet(source_, piece_) || !check_counts()) return false;
  take_small();
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    call_.uses_slots =
        call_.uses_slots || call_.source_of(static_cast<int>(rank)) == DataSource::chunks;
    received_pieces_ = std::max(received_pieces_, recv_pieces(rank));
    received_ += routes_[rank].recv_bytes;
  }
  call_.steps = std::max(sent_pieces_, received_pieces_) + 1;
  if (!pipeline()) return false;
  // The caller owns memory that others read in place again once they have read it.
  if (source_ == DataSource::region && !wait_until_taken(sent_pieces_)) return false;
  if (call_.uses_slots) call_.publish_finished();
  return true;
}

// Decides where the others read this rank's data, and puts the first piece there.
bool ShmExchange::offer() {
  size_t total = 0;
  size_t to_others = 0;
  size_t largest = 0;
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    const size_t bytes = routes_[rank].send_bytes;
    total = multicast_ ? std::max(total, bytes) : total + bytes;
    largest = std::max(largest, bytes);
    if (rank != me_) to_others = std::max(to_others, bytes);
  }
  tell_counts();
  piece_ = choose_piece(largest);
  if (to_others == 0) return true;
  if (total <= call_.segment.shape().small_bytes) {
    source_ = DataSource::small;
    fill_small(total);
    return true;
  }
  sent_pieces_ = pieces(to_others, piece_);
  const RegionOffset place = call_.regions.place_of(operation_.in, total);
  call_.line(call_.me()).place_of_in = place;
  source_ = place != 0 ? DataSource::region : DataSource::chunks;
  if (source_ == DataSource::region) return true;
  if (!call_.wait_for_slots()) return false;
  fill_chunk(0);
  return true;
}

// Returns the bytes of a chunk slot available to one receiver.
size_t ShmExchange::area() const {
  const size_t chunk = call_.segment.shape().chunk_bytes;
  if (multicast_) return std::min(chunk, kCommonPieceBytes);
  return chunk / routes_.size() / kCacheLine * kCacheLine;
}

// Aims at a few pieces at least, so that receivers copy one while the sender fills the next.
uint64_t ShmExchange::choose_piece(size_t largest) const {
  const size_t quarter = round_to_lines(largest / 4);
  const size_t least = multicast_ ? size_t{32} * 1024 : size_t{16} * 1024;
  return std::min(area(), std::max(quarter, least));
}

void ShmExchange::fill_small(size_t bytes) {
  copy_bytes(call_.small_of(call_.me(), is_in_line(bytes)), operation_.in, bytes);
}

void ShmExchange::fill_chunk(uint64_t k) {
  std::byte* slot = call_.segment.chunk(call_.me(), k);
  const size_t start = k * piece_;
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    if (k >= send_pieces(rank)) continue;
    const Route& route = routes_[rank];
    copy_bytes(multicast_ ? slot : slot + rank * area(), operation_.in + route.send_offset + start,
               std::min<size_t>(piece_, route.send_bytes - start));
    if (multicast_) return;
  }
}

// Publishes how much this rank sends to each other one, which receivers may not know.
void ShmExchange::tell_counts() {
  if (!operation_.is_v) return;
  uint64_t* told = call_.segment.counts(call_.me(), call_.sequence);
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    told[rank] = routes_[rank].send_bytes / element_;
  }
}

bool ShmExchange::check_counts() {
  if (!operation_.is_v) return true;
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    const size_t theirs =
        call_.segment.counts(static_cast<int>(rank), call_.sequence)[me_] * element_;
    if (theirs != routes_[rank].recv_bytes) {
      return fail_counts(rank, theirs / element_, routes_[rank].recv_bytes / element_);
    }
  }
  return true;
}

bool ShmExchange::fail_counts(size_t rank, size_t theirs, size_t mine) {
  const Peer& sender = call_.local[static_cast<int>(rank)];
  const Peer& receiver = call_.local.self();
  return call_.fail({ErrorCode::mismatch,
                     fmt::format("{} sends {} elements to {}, which expects {} from it; make the "
                                 "counts of both equal",
                                 describe(sender), theirs, describe(receiver), mine),
                     {std::min(sender.rank, receiver.rank), std::max(sender.rank, receiver.rank)}});
}

// Copies the k-th of `parts` parts of this rank's own block. Interleaved with the others' pieces,
// so that no rank waits for one that is copying its own block.
void ShmExchange::keep_own(uint64_t k, uint64_t parts) const {
  const Route& own = routes_[me_];
  if (reduces_ || own.send_bytes == 0 || own.recv_bytes == 0) return;
  const std::byte* from = operation_.in + own.send_offset;
  std::byte* to = operation_.out + own.recv_offset;
  const size_t part = (own.send_bytes + parts - 1) / parts;
  const size_t start = std::min(own.send_bytes, k * part);
  if (from != to) {
    copy_result(to + start, from + start, std::min(part, own.send_bytes - start), received_);
  }
}

// Returns the offset of this rank's part in the data that `rank` sends.
size_t ShmExchange::offset_at(size_t rank) const {
  if (multicast_) return 0;
  if (!operation_.is_v) return me_ * routes_[rank].recv_bytes;
  const uint64_t* counts = call_.segment.counts(static_cast<int>(rank), call_.sequence);
  size_t before = 0;
  for (size_t i = 0; i < me_; ++i)
    before += counts[i];
  return before * element_;
}

// Returns the data from `rank` to this rank if it is readable as a whole; null: it comes in pieces.
const std::byte* ShmExchange::offered(size_t rank_index) const {
  const int rank = static_cast<int>(rank_index);
  const size_t bytes = routes_[rank_index].recv_bytes;
  switch (call_.source_of(rank)) {
    case DataSource::small:
      if (is_in_line(bytes)) return call_.line(rank).inlined;
      return call_.segment.small_data(rank, call_.sequence) + offset_at(rank_index);
    case DataSource::region: {
      const size_t offset = offset_at(rank_index);
      return call_.shared_at(rank, call_.line(rank).place_of_in, offset + bytes) + offset;
    }
    default:
      return nullptr;
  }
}

void ShmExchange::take_small() {
  for (size_t step = 1; step < routes_.size(); ++step) {
    const size_t rank = peer(step);
    const Route& route = routes_[rank];
    if (route.recv_bytes == 0 || call_.source_of(static_cast<int>(rank)) != DataSource::small)
      continue;
    if (reduces_) return reduce(0, 0, route.recv_bytes);
    copy_bytes(operation_.out + route.recv_offset, offered(rank), route.recv_bytes);
  }
}

bool ShmExchange::pipeline() {
  const uint64_t filled = source_ == DataSource::chunks ? sent_pieces_ : 0;
  const uint64_t rounds = std::max<uint64_t>(1, std::max(filled, received_pieces_));
  for (uint64_t k = 0; k < rounds; ++k) {
    if (k + 1 < filled && !produce(k + 1)) return false;
    keep_own(k, rounds);
    if (k < received_pieces_ && !consume(k)) return false;
  }
  return true;
}

// Waits until every receiver has taken that many pieces, or all of its own.
bool ShmExchange::wait_until_taken(uint64_t count) {
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    const uint64_t taken = std::min(count, send_pieces(rank));
    if (taken > 0 && !call_.wait_consumed(static_cast<int>(rank), taken)) return false;
  }
  return true;
}

// Fills a slot with piece k, once all receivers have taken its previous one, k - kChunkSlots.
bool ShmExchange::produce(uint64_t k) {
  if (k >= kChunkSlots && !wait_until_taken(k + 1 - kChunkSlots)) return false;
  fill_chunk(k);
  call_.publish_produced(k + 1);
  return true;
}

bool ShmExchange::await_piece(size_t rank_index, uint64_t k) {
  const int rank = static_cast<int>(rank_index);
  if (k == 0 || call_.source_of(rank) != DataSource::chunks) return !call_.interrupted();
  return call_.wait_produced(rank, k + 1);
}

const std::byte* ShmExchange::piece_at(size_t rank_index, uint64_t k) const {
  const int rank = static_cast<int>(rank_index);
  if (const std::byte* whole = offered(rank_index))
    return k == 0 ? whole : whole + k * call_.piece_bytes_of(rank);
  return call_.segment.chunk(rank, k) + (multicast_ ? 0 : me_ * area());
}

bool ShmExchange::consume(uint64_t k) {
  if (reduces_) return reduce_piece(k);
  for (size_t step = 1; step < routes_.size(); ++step) {
    const size_t rank = peer(step);
    if (k >= recv_pieces(rank)) continue;
    if (!await_piece(rank, k)) return false;
    const Route& route = routes_[rank];
    const size_t piece = call_.piece_bytes_of(static_cast<int>(rank));
    const size_t start = k * piece;
    copy_result(operation_.out + route.recv_offset + start, piece_at(rank, k),
                std::min(piece, route.recv_bytes - start), received_);
  }
  call_.publish_consumed(k + 1);
  return true;
}

// All senders use the same piece size here, since all know all counts.
bool ShmExchange::reduce_piece(uint64_t k) {
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    if (rank != me_ && !await_piece(rank, k)) return false;
  }
  const size_t start = k * piece_;
  reduce(k, start, std::min<size_t>(piece_, routes_[me_].recv_bytes - start));
  call_.publish_consumed(k + 1);
  return true;
}

// Reduces the k-th piece of all ranks, which begins at `start` of the result.
void ShmExchange::reduce(uint64_t k, size_t start, size_t bytes) {
  for (size_t rank = 0; rank < routes_.size(); ++rank) {
    call_.inputs[rank] =
        rank == me_ ? operation_.in + routes_[me_].send_offset + start : piece_at(rank, k);
  }
  reduce_buffers(operation_.dtype, operation_.reduce, operation_.out + start, call_.inputs.data(),
                 call_.inputs.size(), bytes / element_);
}

}  // namespace

bool exchange(ShmCall& call) {
  return ShmExchange(call).run();
}

}  // namespace muster::worker
