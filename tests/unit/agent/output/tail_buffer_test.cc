#include "agent/output/tail_buffer.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {

namespace {

constexpr size_t kBytes = size_t{64} << 10;

TEST(TailBuffer, CountsAllBytesThatWereAdded) {
  TailBuffer tail(4);
  for (const char* part : {"ab", "cde", "fghijk", "l"})
    tail.add(part);
  EXPECT_EQ(tail.text(), "ijkl");
  EXPECT_EQ(tail.total(), 12u);
}

TEST(TailBuffer, GivesWholeLines) {
  TailBuffer tail(kBytes);
  tail.add("one\ntwo\nthree\nfo");
  EXPECT_EQ(tail.last_lines(1), "fo");
  EXPECT_EQ(tail.last_lines(2), "three\nfo");
  EXPECT_EQ(tail.last_lines(4), "one\ntwo\nthree\nfo");
  EXPECT_EQ(tail.last_lines(9), "one\ntwo\nthree\nfo");
  tail.add("ur\n");
  EXPECT_EQ(tail.last_lines(1), "four\n");
  EXPECT_EQ(tail.last_lines(2), "three\nfour\n");
}

TEST(TailBuffer, DropsALineWhoseStartIsLost) {
  TailBuffer tail(10);
  tail.add("first\nsecond\nlast\n");
  EXPECT_EQ(tail.text(), "cond\nlast\n");
  EXPECT_EQ(tail.last_lines(9), "last\n");
  tail.add("one line that has no end");
  EXPECT_EQ(tail.last_lines(9), "has no end");
}

TEST(TailBuffer, OnlyCountsIfItsSizeIsZero) {
  TailBuffer tail(0);
  tail.add("text");
  EXPECT_EQ(tail.text(), "");
  EXPECT_EQ(tail.last_lines(9), "");
  EXPECT_EQ(tail.total(), 4U);
}

RC_GTEST_PROP(TailBuffer, IsTheEndOfAllThatWasAdded, ()) {
  TailBuffer tail(kBytes);
  std::string all;
  const auto count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; i++) {
    const auto size = *rc::gen::element(0, 1, 100, 30000, 65535, 65536, 65537, 90000);
    const std::string chunk(static_cast<size_t>(size), static_cast<char>('a' + i));
    tail.add(chunk);
    all += chunk;
  }
  const size_t skip = all.size() - std::min(all.size(), kBytes);
  RC_ASSERT(tail.text() == all.substr(skip));
  const auto wanted = *rc::gen::inRange<size_t>(0, kBytes + 10);
  RC_ASSERT(tail.last(wanted) == all.substr(all.size() - std::min({all.size(), kBytes, wanted})));
}

}  // namespace

}  // namespace muster
