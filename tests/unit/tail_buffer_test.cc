#include "agent/output/tail_buffer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {

namespace {

TEST(TailBuffer, KeepsEverythingThatFits) {
  TailBuffer tail;
  EXPECT_EQ(tail.text(), "");
  tail.add("one\n");
  tail.add("two\n");
  EXPECT_EQ(tail.text(), "one\ntwo\n");
}

TEST(TailBuffer, KeepsTheEndOfOneLargeChunk) {
  TailBuffer tail;
  tail.add("before");
  const std::string large = std::string(100, 'a') + std::string(TailBuffer::kBytesMax, 'b');
  tail.add(large);
  EXPECT_EQ(tail.text(), std::string(TailBuffer::kBytesMax, 'b'));
  tail.add("end");
  EXPECT_EQ(tail.text(), std::string(TailBuffer::kBytesMax - 3, 'b') + "end");
}

TEST(TailBuffer, MayBeSmallerAndCountsWhatEverCame) {
  TailBuffer tail(4);
  for (const char* part : {"ab", "cde", "fghijk", "l"})
    tail.add(part);
  EXPECT_EQ(tail.text(), "ijkl");
  EXPECT_EQ(tail.total(), 12u);
}

RC_GTEST_PROP(TailBuffer, IsTheEndOfAllThatWasAdded, ()) {
  TailBuffer tail;
  std::string all;
  const auto count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; i++) {
    const auto size = *rc::gen::element(0, 1, 100, 30000, 65535, 65536, 65537, 90000);
    const std::string chunk(static_cast<size_t>(size), static_cast<char>('a' + i));
    tail.add(chunk);
    all += chunk;
  }
  const size_t skip = all.size() - std::min(all.size(), TailBuffer::kBytesMax);
  RC_ASSERT(tail.text() == all.substr(skip));
}

}  // namespace

}  // namespace muster
