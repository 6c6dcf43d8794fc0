#include "worker_lib/watch/watch_wire.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "rendezvous/base/prng.h"

namespace muster::worker::watch {
namespace {

using Kind = Watch::News::Kind;

std::vector<Message> all_kinds() {
  const Failure failure{ErrorCode::peer_failed, "rank 2 (node7, pid 4711) died", {{2}, {5}}};
  return {Hello{{1, 2, 3, 255}, 7, 16},
          Watch::News{Kind::died, {2}, {}, failure},
          Watch::News{Kind::left, {0}, {}, failure},
          Watch::News{Kind::aborted, {3}, "group 5", {ErrorCode::aborted, "enough"}},
          Watch::News{.kind = Kind::performed,
                      .rank = {3},
                      .performed = {{"world", {1, UINT64_MAX}}, {"3-00.1", {}}}},
          Watch::News{.kind = Kind::pending,
                      .rank = {3},
                      .number = 5,
                      .pending = {{"world", {{OpKind::send, 1, 0}, {OpKind::recv, -1, 7}}}, {}}},
          Watch::News{Kind::stopped, {1}, {}, {ErrorCode::stopped, "the job was told to end"}},
          Ready{{{4, 0}, {5, 65535}}},
          Ready{},
          Go{{{0, 1234}}},
          GiveUp{failure},
          Heard{},
          Hello{{9, 8, 7}, 3, 16, true},
          Answer{std::string(3 * kTextBytesMax, 'w')},
          Answer{},
          Challenge{{5, 6, 7}, {8, 9}},
          Proof{{255, 1}},
          Admitted{},
          Vote{"g", {0, 2, 5}, 3, 2, BallotKind::meet, 6, "record", 1, 0, {6, 4, "text", {0, 2}}},
          Vote{},
          Proposal{"g", 3, 1, {6, 4, "text", {0, 2}}},
          Decision{"g", ~uint64_t{0}, {}},
          Missing{"g", 3, {0, 5}}};
}

TEST(WatchWire, EveryMessageSurvivesEncoding) {
  for (const Message& message : all_kinds()) {
    Decoder decoder;
    decoder.trust();
    decoder.feed(encode(message));
    EXPECT_EQ(decoder.next(), message) << "kind " << message.index();
    EXPECT_EQ(decoder.next(), std::nullopt);
    EXPECT_FALSE(decoder.broken());
  }
}

TEST(WatchWire, MessagesAreDecodedWhereverTheStreamIsCut) {
  std::string stream;
  for (const Message& message : all_kinds())
    stream += encode(message);
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    Decoder decoder;
    decoder.trust();
    std::vector<Message> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(stream.substr(at, piece));
      while (std::optional<Message> message = decoder.next())
        got.push_back(*message);
    }
    EXPECT_EQ(got, all_kinds()) << "in pieces of " << piece;
  }
}

TEST(WatchWire, AnUnauthenticatedPeerMaySendOnlyGreetings) {
  Decoder stranger;
  stranger.feed(encode(Hello{{}, 1, 2}));
  EXPECT_TRUE(stranger.next().has_value());
  stranger.feed(encode(Hello{{}, 1, 2, true}));
  EXPECT_TRUE(stranger.next().has_value());
  stranger.feed(encode(Challenge{}));
  EXPECT_TRUE(stranger.next().has_value());
  stranger.feed(encode(Proof{}));
  EXPECT_TRUE(stranger.next().has_value());
  Decoder long_frame;
  long_frame.feed(std::string("\x00\x00\x40\x00\x01", 5));
  EXPECT_EQ(long_frame.next(), std::nullopt);
  EXPECT_TRUE(long_frame.broken()) << "an unauthenticated peer may not send 4 MiB";
}

TEST(WatchWire, ALongTextIsTruncated) {
  Decoder decoder;
  decoder.trust();
  decoder.feed(encode(GiveUp{{ErrorCode::backend, std::string(100'000, 'x')}}));
  const std::optional<Message> message = decoder.next();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(std::get<GiveUp>(*message).failure.message, std::string(kTextBytesMax, 'x'));
}

// Wrong lengths and numbers are refused, and nothing is read beyond the frame.
TEST(WatchWire, CorruptFramesAreRefusedOrReadAsOtherMessages) {
  Prng prng(20);
  int refused = 0, read = 0, unfinished = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::vector<Message> kinds = all_kinds();
    std::string frame = encode(kinds[prng.below(kinds.size())]);
    const size_t changes = 1 + prng.below(3);
    for (size_t change = 0; change < changes; ++change)
      frame[prng.below(frame.size())] = static_cast<char>(prng.below(256));
    Decoder decoder;
    if (prng.chance(1, 2)) decoder.trust();
    decoder.feed(frame);
    const bool got = decoder.next().has_value();
    ++(got ? read : decoder.broken() ? refused : unfinished);
    EXPECT_FALSE(got && decoder.broken());
  }
  std::printf("20000 spoiled frames: %d refused, %d read, %d unfinished\n", refused, read,
              unfinished);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace muster::worker::watch
