#include "muster/gradient_buckets.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "muster/error.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/camps.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/call_site.h"
#include "worker_lib/training/bucket_plan.h"
#include "worker_lib/training/helper_error.h"

namespace muster {
namespace {

using worker::BucketPlan;
using worker::CallSite;

constexpr const char* kCaller = "GradientBuckets";
// Alignment of each bucket's part of the shared memory: no two buckets share a cache line.
constexpr size_t kAlignment = 64;

[[noreturn]] void refuse(const ProcessGroup& group, const std::string& message) {
  worker::raise({ErrorCode::invalid_argument, fmt::format("{}: {}", kCaller, message)}, kCaller,
                group.name());
}

// Adds its lifetime to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(std::chrono::nanoseconds& total) : total_(total) {}
  Stopwatch(Stopwatch&&) = delete;
  ~Stopwatch() { total_ += std::chrono::steady_clock::now() - start_; }

 private:
  std::chrono::nanoseconds& total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A bucket and its state in the current step.
struct ActiveBucket {
  BucketPlan plan;
  std::vector<Buffer> reduced;  // Buffers of the operations: the pieces, or `staged` alone.
  std::byte* staged = nullptr;  // Copies of the buffers; null: reduced in place.
  size_t missing = 0;           // Buffers that are not ready in this step.
  std::vector<Work> works;
};

bool needs_copies(const BucketPlan& plan) {
  return plan.device.kind == Device::Kind::cpu && plan.pieces.size() > 1;
}

// Returns the bytes of a bucket's copies, including the padding after them.
size_t bytes_of_copies(const BucketPlan& plan) {
  return (plan.bytes() + kAlignment - 1) / kAlignment * kAlignment;
}

// FNV-1a (Fowler, Noll, Vo) over whole numbers; detects accidental differences between lists.
class Digest {
 public:
  void add(size_t number) { value_ = (value_ ^ number) * 0x100000001b3u; }
  int64_t value() const { return static_cast<int64_t>(value_); }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace

namespace worker {

class BucketState {
 public:
  BucketState(ProcessGroup group, std::span<const Buffer> buffers, const BucketOptions& options);
  BucketState(BucketState&&) = delete;
  // Waits for operations in flight.
  ~BucketState() { end_all(); }

  // For a program that must give up the buffers at once.
  void abandon() noexcept;

  void ready(size_t index);
  void ready_all();
  void flush();
  void wait();

  size_t bucket_count() const { return buckets_.size(); }
  size_t bucket_of(size_t index) const;

  std::chrono::nanoseconds last_wait{0};
  std::chrono::nanoseconds last_copy{0};

 private:
  void compare_lists();
  std::string first_difference(size_t other);
  void allocate();
  void mark_ready(size_t index);
  void begin_complete_ones();
  void begin(ActiveBucket& bucket);
  void set_to_zero(size_t index);
  std::byte* staged_at(size_t index);
  void copy_back(const ActiveBucket& bucket);
  void end_all() noexcept;
  void new_step();

  ProcessGroup group_;
  std::vector<Buffer> buffers_;
  BucketOptions options_;
  std::vector<ActiveBucket> buckets_;
  std::vector<size_t> bucket_of_;  // By buffer.
  std::vector<size_t> place_of_;   // By buffer: index in its bucket's lists.
  std::vector<bool> ready_;        // By buffer.
  size_t begun_ = 0;               // Buckets before this one have begun.
  bool in_step_ = false;           // Between the first ready() and the end of wait().
  int64_t shared_bytes_ = 0;       // Requested from allocate_shared(); equal on all ranks.
  SharedMemory memory_;
};

BucketState::BucketState(ProcessGroup group, std::span<const Buffer> buffers,
                         const BucketOptions& options)
    : group_(std::move(group)),
      buffers_(buffers.begin(), buffers.end()),
      options_(options),
      bucket_of_(buffers.size()),
      place_of_(buffers.size()),
      ready_(buffers.size()) {
  for (BucketPlan& plan : worker::plan_buckets(
           buffers_, {.bytes = options.bucket_bytes, .first_bytes = options.first_bucket_bytes})) {
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      bucket_of_[plan.buffers[i]] = buckets_.size();
      place_of_[plan.buffers[i]] = i;
    }
    ActiveBucket& made = buckets_.emplace_back();
    made.reduced = plan.pieces;
    made.plan = std::move(plan);
  }
  worker::in_the_name_of(worker::CallPurpose::gradient_buckets, [&] {
    compare_lists();
    allocate();
  });
  new_step();
}

// Reports a difference between the ranks' lists here, by name: their operations must be the same.
void BucketState::compare_lists() {
  Digest digest;
  for (const ActiveBucket& bucket : buckets_) {
    digest.add(bucket.plan.count);
    digest.add(static_cast<size_t>(bucket.plan.dtype));
    // On GPUs each piece is an operation, so their number must agree; on CPUs each bucket is one.
    if (bucket.plan.device.kind == Device::Kind::cuda) digest.add(bucket.plan.pieces.size());
    for (const size_t index : bucket.plan.buffers) {
      digest.add(index);
      digest.add(buffers_[index].count);
    }
    if (needs_copies(bucket.plan))
      shared_bytes_ += static_cast<int64_t>(bytes_of_copies(bucket.plan));
  }
  digest.add(static_cast<size_t>(options_.op));
  digest.add(static_cast<size_t>(options_.strategy));
  if (!group_.cpu_backend()) return;  // The group cannot exchange lists in host memory.
  const std::array<int64_t, 4> mine{digest.value(), static_cast<int64_t>(buffers_.size()),
                                    static_cast<int64_t>(buckets_.size()), shared_bytes_};
  std::vector<std::array<int64_t, 4>> lists(static_cast<size_t>(group_.size()));
  group_.all_gather(mine, Buffer(lists.data(), mine.size() * lists.size(), DType::int64),
                    options_.call);
  // Ranks may need different amounts of memory: takes the maximum, and compares the other fields.
  for (auto& list : lists)
    shared_bytes_ = std::max(shared_bytes_, std::exchange(list[3], 0));
  const worker::Camps camps = worker::camps_of(lists);
  if (camps.blamed.empty()) return;
  std::vector<GlobalRank> blamed;
  for (const size_t rank : camps.blamed)
    blamed.push_back(group_.ranks()[rank]);
  std::ranges::sort(blamed);
  // Group rank of the first list that differs from rank 0's.
  const auto example = static_cast<size_t>(
      std::ranges::find_if(lists, [&](const auto& one) { return one != lists[0]; }) -
      lists.begin());
  const GlobalRank first = group_.ranks()[0];
  const GlobalRank other = group_.ranks()[example];
  // Collective: all ranks have found the difference.
  std::string how = first_difference(example);
  const auto& theirs = lists[example];
  if (lists[0][1] != theirs[1] || lists[0][2] != theirs[2]) {
    how = fmt::format("rank {} has {} buffers in {} buckets, rank {} has {} in {}{}{}", first.value,
                      lists[0][1], lists[0][2], other.value, theirs[1], theirs[2],
                      how.empty() ? "" : "; ", how);
  } else if (how.empty()) {
    how = fmt::format("the options (op, strategy, sizes of buckets) of rank {} and rank {}",
                      first.value, other.value);
  }
  worker::raise_shared(
      {ErrorCode::mismatch,
       fmt::format("the lists differ: {}; give all ranks the same counts, dtypes and options in "
                   "the same order",
                   how),
       blamed},
      kCaller, group_.name());
}

// Returns "buffer 0: rank 0 has 6 float32, rank 1 has 5 float32", the same on all ranks, since all
// compare the same two lists; empty if the buffers are equal.
std::string BucketState::first_difference(size_t other) {
  std::string mine;
  for (const Buffer& buffer : buffers_)
    mine += fmt::format("{} {},", buffer.count, name_of(buffer.dtype));
  const std::vector<std::string> lists = group_.all_gather_bytes(mine, options_.call);
  std::string_view a = lists[0];
  std::string_view b = lists[other];
  const auto take = [](std::string_view& list) {
    const std::string_view one = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), one.size() + 1));
    return one.empty() ? std::string_view("none") : one;
  };
  for (size_t index = 0; !a.empty() || !b.empty(); ++index) {
    const std::string_view ours = take(a);
    const std::string_view theirs = take(b);
    if (ours == theirs) continue;
    return fmt::format("buffer {}: rank {} has {}, rank {} has {}", index, group_.ranks()[0].value,
                       ours, group_.ranks()[other].value, theirs);
  }
  return {};
}

void BucketState::allocate() {
  if (shared_bytes_ == 0) return;
  memory_ = group_.allocate_shared(static_cast<size_t>(shared_bytes_), options_.call);
  auto* next = static_cast<std::byte*>(memory_.data());
  for (ActiveBucket& bucket : buckets_) {
    if (!needs_copies(bucket.plan)) continue;
    bucket.staged = next;
    bucket.reduced = {Buffer(next, bucket.plan.count, bucket.plan.dtype)};
    next += bytes_of_copies(bucket.plan);
  }
}

size_t BucketState::bucket_of(size_t index) const {
  if (index >= buffers_.size()) {
    refuse(group_, fmt::format("buffer {} of a list of {}", index, buffers_.size()));
  }
  return bucket_of_[index];
}

std::byte* BucketState::staged_at(size_t index) {
  const ActiveBucket& bucket = buckets_[bucket_of_[index]];
  return bucket.staged + bucket.plan.offsets[place_of_[index]];
}

void BucketState::mark_ready(size_t index) {
  ready_[index] = true;
  --buckets_[bucket_of_[index]].missing;
}

void BucketState::ready(size_t index) {
  const ActiveBucket& bucket = buckets_[bucket_of(index)];
  if (ready_[index]) {
    refuse(group_, fmt::format("buffer {} is ready for the second time in this step; call wait() "
                               "between two steps",
                               index));
  }
  if (!in_step_) {
    in_step_ = true;
    last_wait = last_copy = std::chrono::nanoseconds{0};
  }
  const Buffer& buffer = buffers_[index];
  if (bucket.staged != nullptr && buffer.count > 0) {
    const Stopwatch watch(last_copy);
    copy_bytes(staged_at(index), buffer.data, buffer.bytes());
  }
  mark_ready(index);
  begin_complete_ones();
}

void BucketState::ready_all() {
  for (size_t i = buffers_.size(); i-- > 0;) {
    if (!ready_[i]) ready(i);
  }
}

// Begins buckets in the same order on every rank, whatever the order of completion here.
void BucketState::begin_complete_ones() {
  while (begun_ < buckets_.size() && buckets_[begun_].missing == 0)
    begin(buckets_[begun_++]);
}

void BucketState::begin(ActiveBucket& bucket) {
  for (const Buffer& part : bucket.reduced) {
    if (options_.strategy == BucketStrategy::all_reduce) {
      bucket.works.push_back(group_.all_reduce_async(part, options_.op, options_.call));
      continue;
    }
    const GroupRank root{0};
    const Buffer result = group_.rank() == root ? part : Buffer();
    bucket.works.push_back(group_.reduce_async(part, result, root, options_.op, options_.call));
    bucket.works.push_back(group_.broadcast_async(part, root, options_.call));
  }
}

// Leaves a buffer on a GPU as it is: this code cannot write there.
void BucketState::set_to_zero(size_t index) {
  const Buffer& buffer = buffers_[index];
  if (buffer.device.kind != Device::Kind::cpu || buffer.count == 0) return;
  const bool staged = buckets_[bucket_of_[index]].staged != nullptr;
  std::memset(staged ? staged_at(index) : buffer.data, 0, buffer.bytes());
}

void BucketState::flush() {
  for (size_t i = buffers_.size(); i-- > 0;) {
    if (ready_[i]) continue;
    set_to_zero(i);
    mark_ready(i);
  }
  begin_complete_ones();
}

void BucketState::copy_back(const ActiveBucket& bucket) {
  if (bucket.staged == nullptr) return;
  const Stopwatch watch(last_copy);
  for (size_t i = 0; i < bucket.plan.buffers.size(); ++i) {
    const Buffer& buffer = buffers_[bucket.plan.buffers[i]];
    if (buffer.count == 0) continue;
    copy_bytes(buffer.data, bucket.staged + bucket.plan.offsets[i], buffer.bytes());
  }
}

void BucketState::wait() {
  if (!in_step_) last_wait = last_copy = std::chrono::nanoseconds{0};
  try {
    flush();
    for (const ActiveBucket& bucket : buckets_) {
      {
        const Stopwatch watch(last_wait);
        for (Work work : bucket.works)
          work.wait();
      }
      copy_back(bucket);
    }
  } catch (const DistributedError&) {
    end_all();
    new_step();
    throw;
  }
  new_step();
}

// Waits until no operation is in flight on the buffers, which may be freed next. Each ends at its
// deadline at the latest, and at once if the group has failed.
void BucketState::end_all() noexcept {
  for (const ActiveBucket& bucket : buckets_) {
    for (Work work : bucket.works) {
      try {
        work.synchronize();                // On GPU memory, wait() would only make a stream wait.
      } catch (const DistributedError&) {  // NOLINT: failures are reported by wait().
      }
    }
  }
}

void BucketState::abandon() noexcept {
  for (const ActiveBucket& bucket : buckets_) {
    for (const Work& work : bucket.works)
      muster_work_abandon(work.handle());
  }
}

void BucketState::new_step() {
  for (ActiveBucket& bucket : buckets_) {
    bucket.missing = bucket.plan.buffers.size();
    bucket.works.clear();
  }
  ready_.assign(buffers_.size(), false);
  begun_ = 0;
  in_step_ = false;
}

}  // namespace worker

}  // namespace muster

struct muster_buckets {
  muster::worker::BucketState state;
};

using namespace muster;
using namespace muster::c_abi;

namespace {

BucketOptions bucket_options_of(const muster_bucket_options* given) {
  const muster_bucket_options initial MUSTER_BUCKET_OPTIONS;
  const muster_bucket_options& buckets = options_or(given, initial, "muster_bucket_options");
  BucketOptions options;
  options.bucket_bytes = buckets.bucket_bytes;
  options.first_bucket_bytes = buckets.first_bucket_bytes;
  options.strategy = bucket_strategy_of_number(buckets.strategy);
  options.op = reduce_op_of_number(buckets.op);
  return options;
}

// Calls `body` with the state.
template <typename Body>
[[gnu::always_inline]] inline muster_status with_state(const char* function,
                                                       muster_buckets* buckets, const void* site,
                                                       const Body& body) {
  return guarded(function, [&] {
    if (site != nullptr) CallSite::replace(site);
    require(buckets, "buckets");
    body(buckets->state);
  });
}

}  // namespace

muster_status muster_buckets_new(muster_group* group, const muster_buffer* buffers, size_t count,
                                 const muster_bucket_options* options,
                                 const muster_call_options* call, muster_buckets** buckets) {
  return guarded(__func__, [&] {
    require_out(buckets, "buckets");
    if (count > 0) require(buffers, "buffers");
    BucketOptions all = bucket_options_of(options);
    all.call = Call(call).options;
    std::vector<Buffer> list;
    for (size_t i = 0; i < count; ++i)
      list.push_back(buffer_of(buffers[i]));
    ProcessGroup members(handle_of(group_of(group)));
    *buckets = new muster_buckets{{std::move(members), list, all}};
  });
}

muster_status muster_buckets_ready(muster_buckets* buckets, size_t index, const void* site) {
  return with_state(__func__, buckets, site, [&](auto& state) { state.ready(index); });
}

muster_status muster_buckets_ready_all(muster_buckets* buckets, const void* site) {
  return with_state(__func__, buckets, site, [](auto& state) { state.ready_all(); });
}

muster_status muster_buckets_flush(muster_buckets* buckets, const void* site) {
  return with_state(__func__, buckets, site, [](auto& state) { state.flush(); });
}

muster_status muster_buckets_wait(muster_buckets* buckets, const void* site) {
  return with_state(__func__, buckets, site, [](auto& state) { state.wait(); });
}

size_t muster_buckets_count(const muster_buckets* buckets) {
  return buckets == nullptr ? 0 : buckets->state.bucket_count();
}

int muster_buckets_of(muster_buckets* buckets, size_t index) {
  return guarded_number(__func__, [&] {
    require(buckets, "buckets");
    return static_cast<int>(buckets->state.bucket_of(index));
  });
}

void muster_buckets_times(const muster_buckets* buckets, int64_t* wait_ns, int64_t* copy_ns) {
  if (buckets == nullptr) return;
  *wait_ns = buckets->state.last_wait.count();
  *copy_ns = buckets->state.last_copy.count();
}

void muster_buckets_free(muster_buckets* buckets, int abandon) {
  if (buckets != nullptr && abandon != 0) buckets->state.abandon();
  delete buckets;
}
