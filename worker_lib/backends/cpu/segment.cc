#include "worker_lib/backends/cpu/segment.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/cpu/memory_file.h"
#include "worker_lib/copy_bytes.h"

namespace muster::worker {
namespace {

constexpr uint64_t kSegmentMagic = 0x314d48532d54534dULL;  // "MST-SHM1" in little-endian memory.
constexpr uint32_t kSegmentVersion = 1;
constexpr size_t kReasonBytes = 1536;
constexpr size_t kReasonRanks = 256;

}  // namespace

struct Segment::Head {
  uint64_t magic;
  uint32_t version;
  uint32_t ranks;
  uint64_t bytes;
  uint64_t small_bytes;
  uint64_t chunk_bytes;
  uint64_t extra_bytes;

  // Has its own cache line: all waiting threads read it.
  alignas(kCacheLine) std::atomic<uint32_t> abort_word;
  alignas(kCacheLine) Doorbell collective_bell;

  struct Reason {
    uint32_t code;
    uint32_t ranks;
    uint32_t bytes;
    int32_t rank[kReasonRanks];
    char text[kReasonBytes];
  } reason;
};

Segment::Layout Segment::layout_of(const SegmentShape& shape) {
  const auto ranks = static_cast<size_t>(shape.ranks);
  Layout layout{};
  layout.bells = round_to_pages(sizeof(Head));
  layout.lines = layout.bells + ranks * sizeof(Doorbell);
  layout.progress = layout.lines + 2 * ranks * sizeof(CallLine);
  layout.counts = layout.progress + ranks * sizeof(ProgressLine);
  layout.small = round_to_pages(layout.counts + 2 * ranks * ranks * sizeof(uint64_t));
  layout.chunks = round_to_pages(layout.small + 2 * ranks * shape.small_bytes);
  layout.extra = round_to_pages(layout.chunks + ranks * kChunkSlots * shape.chunk_bytes);
  layout.end = round_to_pages(layout.extra + shape.extra_bytes);
  return layout;
}

Segment::Segment(std::byte* base, int fd, const SegmentShape& shape)
    : base_(base), fd_(fd), shape_(shape), layout_(layout_of(shape)) {}

Segment::~Segment() {
  munmap(base_, layout_.end);
  close_fd();
}

void Segment::close_fd() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Outcome<std::shared_ptr<Segment>> Segment::create(const SegmentShape& shape) {
  CHECK(shape.ranks >= 1 && shape.small_bytes % kCacheLine == 0 &&
        shape.chunk_bytes % kCacheLine == 0 && shape.chunk_bytes > 0);
  const size_t bytes = layout_of(shape).end;
  Outcome<UniqueFd> fd = make_memory_file("muster", bytes);
  if (!fd) return tl::unexpected(std::move(fd.error()));
  Outcome<std::byte*> base = map_memory_file(fd->get(), bytes);
  if (!base) return tl::unexpected(std::move(base.error()));
  std::shared_ptr<Segment> made(new Segment(*base, fd->release(), shape));
  Head& head = made->head();
  head.version = kSegmentVersion;
  head.ranks = static_cast<uint32_t>(shape.ranks);
  head.bytes = bytes;
  head.small_bytes = shape.small_bytes;
  head.chunk_bytes = shape.chunk_bytes;
  head.extra_bytes = shape.extra_bytes;
  head.magic = kSegmentMagic;
  return made;
}

Outcome<std::shared_ptr<Segment>> Segment::open(int fd, const SegmentShape& shape) {
  const size_t bytes = layout_of(shape).end;
  struct stat info{};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kMemoryFileSeals) != kMemoryFileSeals || fstat(fd, &info) != 0 ||
      static_cast<size_t>(info.st_size) != bytes) {
    return failed(
        ErrorCode::system,
        fmt::format("the file from the node's first rank is not the group's shared memory ({} "
                    "bytes, sealed); run the same build of the program on all ranks",
                    bytes));
  }
  Outcome<std::byte*> base = map_memory_file(fd, bytes);
  if (!base) return tl::unexpected(std::move(base.error()));
  std::shared_ptr<Segment> opened(new Segment(*base, -1, shape));
  const Head& head = opened->head();
  const SegmentShape theirs{static_cast<int>(head.ranks), head.small_bytes, head.chunk_bytes,
                            head.extra_bytes};
  if (head.magic != kSegmentMagic || head.version != kSegmentVersion || theirs != shape) {
    return failed(ErrorCode::system,
                  "the group's shared memory has a different layout; run the same build of the "
                  "program on all ranks");
  }
  return opened;
}

const std::atomic<uint32_t>& Segment::abort_word() const {
  return head().abort_word;
}

void Segment::abort(const Failure& failure) {
  Head& head = this->head();
  uint32_t expected = 0;
  if (!head.abort_word.compare_exchange_strong(expected, 1)) return;
  Head::Reason& reason = head.reason;
  reason.code = static_cast<uint32_t>(failure.code);
  reason.bytes = static_cast<uint32_t>(std::min(failure.message.size(), kReasonBytes));
  copy_bytes(reason.text, failure.message.data(), reason.bytes);
  reason.ranks = static_cast<uint32_t>(std::min(failure.ranks.size(), kReasonRanks));
  for (uint32_t i = 0; i < reason.ranks; ++i)
    reason.rank[i] = failure.ranks[i].value;
  head.abort_word.store(2);
  detail::wake_all(head.collective_bell);
  for (int rank = 0; rank < ranks(); ++rank)
    detail::wake_all(doorbell(rank));
}

std::optional<Failure> Segment::failure() const {
  const Head& head = this->head();
  if (head.abort_word.load() == 0) return std::nullopt;
  // The rank that writes the reason may have been killed midway.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds{100};
  while (head.abort_word.load() == 1) {
    if (std::chrono::steady_clock::now() > until) {
      return Failure{ErrorCode::aborted, "another rank of this node gave up on the group"};
    }
    std::this_thread::yield();
  }
  const Head::Reason& reason = head.reason;
  Failure failure{static_cast<ErrorCode>(reason.code),
                  std::string(reason.text, std::min<size_t>(reason.bytes, kReasonBytes)),
                  {}};
  for (size_t i = 0; i < std::min<size_t>(reason.ranks, kReasonRanks); ++i) {
    failure.ranks.push_back(GlobalRank{reason.rank[i]});
  }
  return failure;
}

Doorbell& Segment::collective_bell() const {
  return head().collective_bell;
}

Doorbell& Segment::doorbell(int rank) const {
  return reinterpret_cast<Doorbell*>(base_ + layout_.bells)[rank];
}

CallLine& Segment::call_line(int rank, uint64_t sequence) const {
  return reinterpret_cast<CallLine*>(base_ + layout_.lines)[line_index(rank, sequence)];
}

ProgressLine& Segment::progress(int rank) const {
  return reinterpret_cast<ProgressLine*>(base_ + layout_.progress)[rank];
}

std::byte* Segment::small_data(int rank, uint64_t sequence) const {
  return base_ + layout_.small + line_index(rank, sequence) * shape_.small_bytes;
}

std::byte* Segment::chunk(int rank, uint64_t index) const {
  const size_t slot = static_cast<size_t>(rank) * kChunkSlots + index % kChunkSlots;
  return base_ + layout_.chunks + slot * shape_.chunk_bytes;
}

uint64_t* Segment::counts(int rank, uint64_t sequence) const {
  return reinterpret_cast<uint64_t*>(base_ + layout_.counts) +
         line_index(rank, sequence) * static_cast<size_t>(shape_.ranks);
}

}  // namespace muster::worker
