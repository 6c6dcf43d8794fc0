// Every header of C++ in one program, which standard libraries and standards from C++17 on compile.
#include <array>
#include <cstdio>
#include <deque>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <muster/distributed.h>

namespace {

using muster::Buffer;
using muster::ConstBuffer;
using muster::span;

template <typename From, typename To>
constexpr bool becomes = std::is_convertible_v<From, To>;
using Floats = std::vector<float>;
static_assert(becomes<Floats&, Buffer> && becomes<const Floats&, ConstBuffer>);
static_assert(!becomes<const Floats&, Buffer> && !becomes<Floats, ConstBuffer>);
static_assert(becomes<span<float>, Buffer> && becomes<const span<const float>, ConstBuffer>);
static_assert(becomes<float (&)[3], Buffer> && becomes<std::array<float, 3>&, Buffer>);
static_assert(becomes<std::string&, Buffer> && becomes<std::string_view, ConstBuffer>);
static_assert(!becomes<std::deque<float>&, Buffer> && !becomes<std::vector<bool>&, Buffer>);
static_assert(!becomes<std::vector<unsigned>&, Buffer> && !becomes<float*, Buffer>);
static_assert(becomes<Floats&, span<float>> && becomes<Floats, span<const float>>);
static_assert(!becomes<Floats, span<float>> && !becomes<const Floats&, span<float>>);

// Rows of two numbers: data() and size() are not those of one block of elements.
struct Rows {
  struct Row {
    float* at;
    float* operator*() const { return at; }
    Row& operator++() { return at += 2, *this; }
    bool operator!=(Row other) const { return at != other.at; }
  };
  float* data() { return numbers; }
  std::size_t size() const { return 3; }
  Row begin() { return {numbers}; }
  Row end() { return {numbers + 6}; }
  float numbers[6];
};
static_assert(!becomes<Rows&, Buffer>);

int broken = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("broken: %s\n", what);
  broken = 1;
}

void collectives(muster::ProcessGroup world) {
  const int n = world.size();
  const auto ranks = static_cast<size_t>(n);
  const std::vector<double> mine(3, world.rank().value);
  std::vector<double> sum(3);
  world.all_reduce(mine, sum);
  expect(sum[2] == n * (n - 1) / 2.0, "all_reduce");
  std::array<muster::bfloat16, 1> half{muster::bfloat16(0.5F)};
  world.all_reduce(half, muster::ReduceOp::average);
  expect(static_cast<float>(half[0]) == 0.5F, "bfloat16");
  std::vector<double> all(3 * ranks);
  world.all_gather_v(mine, all, std::vector<size_t>(ranks, 3));
  expect(all.back() == n - 1, "all_gather_v");
  muster::Work work = world.broadcast_async(all, muster::GroupRank{0});
  work.wait();
  expect(work.is_completed(), "broadcast_async");
  muster::SharedMemory memory = world.allocate_shared(64);
  world.all_reduce(memory.as<int64_t>());
  expect(memory.as<int64_t>().size() == 8, "allocate_shared");
  const muster::ProcessGroup copy = muster::new_group(world.ranks());
  expect(copy.global_rank(muster::GroupRank{0}) == muster::GlobalRank{0}, "new_group");
  expect(world.all_gather_bytes(std::string(1, 'a')).size() == ranks, "all_gather_bytes");
}

void training(const std::string& path) {
  const muster::Section section("tour");
  expect(muster::zero_first([] { return std::string("made"); }) == "made", "zero_first");
  muster::save_checkpoint(path, [](std::ostream& out) { out << "step " << 7; });
  expect(muster::load_checkpoint(path) == std::string("step 7"), "load_checkpoint");
  std::vector<float> first(4, 1.0F);
  std::vector<float> second(2, 2.0F);
  muster::GradientBuckets buckets(muster::world(), {first, second});
  buckets.ready_all();
  buckets.wait();
  expect(second[1] == 2.0F && buckets.bucket_count() == 1, "GradientBuckets");
  const muster::DistributedSampler sampler(10);
  expect(sampler.batch(0, 1).size() == 1, "DistributedSampler");
  expect(!muster::should_stop(), "should_stop");
}

// Exceptions of the header and of the program, none of which passes the library.
void failures() {
  try {
    const std::vector<int> nothing;
    muster::world().send(nothing, muster::GroupRank{99});
    expect(false, "send to no rank");
  } catch (const muster::DistributedError& error) {
    expect(error.code() == muster::ErrorCode::invalid_argument, error.what());
  }
  try {
    muster::local_zero_first([] { throw std::string("of the program"); });
    expect(false, "a block that throws");
  } catch (const std::string& own) {
    expect(own == "of the program", own.c_str());
  } catch (const muster::DistributedError& error) {
    expect(error.code() == muster::ErrorCode::peer_failed, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const muster::SpawnResult passed = muster::spawn(2, [&](int) {
    muster::init_process_group();
    collectives(muster::world());
    training(argv[1]);
    failures();
    muster::destroy_process_group();
    return broken;
  });
  std::printf("tour: %s\n", passed.message().c_str());
  return passed.exit_code();
}
