#include "rendezvous/ring/record_fd.h"

#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/ring/memory_file.h"
#include "tests/unit/rendezvous/ring/ring_harness.h"

namespace muster::ring {
namespace {

RC_GTEST_PROP(RecordFd, SurvivesItsTextForm, ()) {
  const RecordFd record_fd{*rc::gen::nonNegative<int>(), *rc::gen::arbitrary<uint64_t>()};
  RC_ASSERT(parse_record_fd(to_text(record_fd)) == record_fd);
}

TEST(RecordFd, ConsistsOfADescriptorAndANonce) {
  EXPECT_EQ(to_text({100, 0x1f00c3a29b7e4d51}), "100:1f00c3a29b7e4d51");
  EXPECT_EQ(to_text({101, 1}), "101:0000000000000001");
  for (const char* text : {"", ":", "100", "100:", ":1", "-1:1", "100:1 ", " 100:1", "100:+1",
                           "100:0x1", "100:g", "100:1:1", "2147483648:1", "1:10000000000000000"})
    EXPECT_EQ(parse_record_fd(text), std::nullopt) << text;
}

TEST(RecordFd, RingsGetHighDescriptorNumbers) {
  const Result<UniqueFd> first = make_ring(7);
  const Result<UniqueFd> second = make_ring(8);
  ASSERT_TRUE(first && second);
  EXPECT_GE(first->get(), kLowestRecordFd);
  EXPECT_NE(first->get(), second->get());
  EXPECT_EQ(fcntl(first->get(), F_GETFD), FD_CLOEXEC);
  std::string why;
  Ring* const ring = map_ring({first->get(), 7}, /*writable=*/false, why);
  ASSERT_NE(ring, nullptr) << why;
  EXPECT_EQ(ring->head.magic, kMagic);
  EXPECT_EQ(ring->head.version, kVersion);
  EXPECT_EQ(ring->head.bytes, kRingBytes);
  EXPECT_EQ(ring->head.nonce, 7U);
  EXPECT_EQ(ring->head.owner, 0U);
  unmap_ring(ring);
}

TEST(RecordFd, MakingARingFailsIfTheDescriptorLimitIsTooLow) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit tight{kLowestRecordFd, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Result<UniqueFd> made = make_ring(7);
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ExitCode::environment);
  EXPECT_EQ(
      made.error().message,
      "cannot make a ring of records: it needs a descriptor from number 100 on, and the limit "
      "on open files (RLIMIT_NOFILE) is 100 (hard limit " +
          std::to_string(before.rlim_max) + "); raise it, with `ulimit -n 1024` say");
}

// Returns map_ring()'s reason for refusing `fd`.
std::string refusal_of(int fd, uint64_t nonce = kTestNonce) {
  std::string why;
  EXPECT_EQ(map_ring({fd, nonce}, /*writable=*/false, why), nullptr);
  const std::string start = "descriptor " + std::to_string(fd) + " cannot be used for records: ";
  EXPECT_TRUE(why.starts_with(start)) << why;
  return why.substr(start.size());
}

TEST(RecordFd, FilesThatAreNoRingAreNotMapped) {
  EXPECT_EQ(refusal_of(999'999), "the program has closed it");
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueFd unsealed(memfd_create("muster-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kRingBytes), 0);
  for (const int fd : {null.get(), unsealed.get()}) {
    EXPECT_EQ(refusal_of(fd), "it is no sealed memory file; has the program reused the number?");
  }
  EXPECT_EQ(refusal_of(make_memory_file("muster-test", 4096)->get()),
            "it has 4096 bytes instead of 524288");
  const Result<UniqueFd> empty = make_memory_file("muster-test", kRingBytes);
  EXPECT_EQ(refusal_of(empty->get()), "it is not a ring of records");
}

TEST(RecordFd, AnotherRingIsNotMapped) {
  const TestRing ring;
  EXPECT_EQ(refusal_of(ring.fd(), kTestNonce + 1), "its nonce is another one");
  ring->head.version = 2;
  EXPECT_EQ(refusal_of(ring.fd()),
            "its layout has version 2, not 1; use one release of muster for the launcher and the "
            "program");
  ring->head.version = 1;
  ring->head.bytes = 4096;
  EXPECT_TRUE(refusal_of(ring.fd()).starts_with("its layout has version 1"));
}

}  // namespace
}  // namespace muster::ring
