#include <numeric>

#include <gtest/gtest.h>

#include "agent/report/event_log.h"

namespace muster {
namespace {

HangNews verdict() {
  HangNews news{JobEventKind::hang, 3, {}, "rank 5 never entered all_reduce #17\n  what to do"};
  news.report.ranks = {5};
  news.report.what = "never_entered";
  news.report.by = "time";
  news.report.group = "world";
  news.report.operation = "all_reduce (sum) of 8 float32";
  news.report.ordinal = 17;
  news.report.waiting = {0, 1, 2};
  news.report.seconds = 12.5;
  news.report.confidence = "high";
  news.report.text = "rank 5 never entered all_reduce #17";
  return news;
}

TEST(HangNews, ComesBackOnAnotherNode) {
  EXPECT_EQ(decode_hang_news(encode_hang_news(verdict())), verdict());
  const HangNews note{JobEventKind::note, 0, {}, "rank 5 came after 31.0 s"};
  EXPECT_EQ(decode_hang_news(encode_hang_news(note)), note);
  HangNews straggler{JobEventKind::straggler, 0, {}, "rank 5 made 7 others wait"};
  straggler.report.ranks = {5};
  EXPECT_EQ(decode_hang_news(encode_hang_news(straggler)), straggler);
  HangNews order;
  order.failed_rank = 5;
  order.is_final = true;
  EXPECT_EQ(decode_hang_news(encode_hang_news(order)), order);
}

TEST(HangNews, FitsIntoOneMessageHoweverMuchItSays) {
  HangNews news = verdict();
  news.text = news.report.text = news.report.group = std::string(100'000, '"');
  news.report.operation = news.report.what = std::string(100'000, '\x01');
  news.report.waiting.resize(8000);
  std::iota(news.report.waiting.begin(), news.report.waiting.end(), 100'000'000);
  news.report.ranks = news.report.waiting;
  const std::string bytes = encode_hang_news(news);
  EXPECT_LE(bytes.size(), kHangNewsBytesMax);
  const auto read = decode_hang_news(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->report.waiting.front(), 100'000'000);
  EXPECT_EQ(read->number, 3U);
}

TEST(HangNews, RefusesWhatNoNodeEncodes) {
  const std::string bytes = encode_hang_news(verdict());
  EXPECT_FALSE(decode_hang_news(bytes.substr(1)));
  EXPECT_FALSE(decode_hang_news(""));
  HangNews other = verdict();
  other.kind = JobEventKind::job_ended;
  EXPECT_FALSE(decode_hang_news(encode_hang_news(other)))
      << "only kinds about hangs may come from another node";
}

}  // namespace
}  // namespace muster
