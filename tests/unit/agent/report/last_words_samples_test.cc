// The stderr of real programs that failed, and the message that is found in it. The samples, their
// index and the script that makes them are in tests/fixtures/last_words.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/report/last_words.h"
#include "tests/unit/paths.h"

namespace muster {
namespace {

struct Sample {
  std::string file;
  std::string stderr_bytes;
  std::string text;  // "*" matches any text; empty: no message.
  bool uncaught = false;
  std::optional<Blame> blame;
};

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::filesystem::path& folder() {
  static const std::filesystem::path path = paths::kLastWords;
  return path;
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> list = [] {
    std::vector<Sample> read;
    for (const auto& entry : nlohmann::json::parse(content_of(folder() / "index.json"))) {
      Sample sample{entry.at("file"),
                    content_of(folder() / std::string(entry.at("file"))),
                    entry.at("text"),
                    entry.at("uncaught"),
                    {}};
      if (!entry.at("blame").is_null()) {
        sample.blame =
            Blame{entry.at("blame").get<std::vector<int>>(), entry.value("any_connection", false),
                  entry.value("is_hearsay", false),
                  entry.value("is_timeout", false) ? Blame::About::timeout : Blame::About::loss};
      }
      read.push_back(std::move(sample));
    }
    return read;
  }();
  return list;
}

bool matches(std::string_view text, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  pattern.remove_prefix(star + 1);
  for (size_t at = star; at <= text.size(); ++at) {
    if (matches(text.substr(at), pattern)) return true;
  }
  return false;
}

TEST(LastWordsSamples, AreAllInTheIndex) {
  std::set<std::string> indexed;
  for (const Sample& sample : samples())
    EXPECT_TRUE(indexed.insert(sample.file).second) << sample.file;
  std::set<std::string> present;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".stderr") present.insert(entry.path().filename());
  }
  EXPECT_EQ(present, indexed);
  EXPECT_GT(present.size(), 100U);
}

TEST(LastWordsSamples, AreUnderstood) {
  for (const Sample& sample : samples()) {
    const ErrorMessage none;
    const ErrorMessage found = last_message(sample.stderr_bytes).value_or(none);
    EXPECT_TRUE(matches(found.text, sample.text))
        << sample.file << "\n found:    " << found.text << "\n expected: " << sample.text;
    EXPECT_EQ(found.uncaught, sample.uncaught) << sample.file << ": " << found.text;
    EXPECT_EQ(found.blame, sample.blame) << sample.file << ": " << found.text;
    EXPECT_EQ(last_words(sample.stderr_bytes), found.text);
  }
}

// A tail of 64 KiB may begin at any line.
TEST(LastWordsSamples, MeanTheSameIfTheTailBeginsLater) {
  for (const Sample& sample : samples()) {
    const std::optional<ErrorMessage> whole = last_message(sample.stderr_bytes);
    for (size_t cut = 0; whole && cut < whole->begin;
         cut = sample.stderr_bytes.find('\n', cut) + 1) {
      const auto found = last_message(std::string_view(sample.stderr_bytes).substr(cut));
      ASSERT_TRUE(found) << sample.file << " from byte " << cut;
      EXPECT_EQ(found->text, whole->text) << sample.file << " from byte " << cut;
      EXPECT_EQ(found->begin + cut, whole->begin) << sample.file;
    }
  }
}

TEST(LastWordsSamples, YieldWholeLinesInOrder) {
  for (const Sample& sample : samples()) {
    size_t before = 0;
    for (const ErrorMessage& message : error_messages(sample.stderr_bytes)) {
      const std::string& bytes = sample.stderr_bytes;
      EXPECT_GE(message.begin, before) << sample.file;
      EXPECT_LT(message.begin, message.end) << sample.file;
      ASSERT_LE(message.end, bytes.size()) << sample.file;
      EXPECT_TRUE(message.begin == 0 || bytes[message.begin - 1] == '\n') << sample.file;
      EXPECT_TRUE(message.end == bytes.size() || bytes[message.end - 1] == '\n') << sample.file;
      EXPECT_FALSE(message.text.empty()) << sample.file;
      before = message.end;
    }
  }
}

TEST(LastWordsSamples, MeanTheSameBehindTheTagsOfALauncher) {
  for (const Sample& sample : samples()) {
    const std::optional<ErrorMessage> whole = last_message(sample.stderr_bytes);
    std::string tagged;
    for (size_t at = 0; at < sample.stderr_bytes.size();) {
      const size_t end = std::min(sample.stderr_bytes.find('\n', at), sample.stderr_bytes.size());
      tagged += "\x1b[2m[default0]:\x1b[0m" + sample.stderr_bytes.substr(at, end - at) + "\n";
      at = end + 1;
    }
    const std::optional<ErrorMessage> found = last_message(tagged);
    ASSERT_EQ(found.has_value(), whole.has_value()) << sample.file;
    if (!whole) continue;
    EXPECT_EQ(found->text, whole->text) << sample.file;
    EXPECT_EQ(found->uncaught, whole->uncaught) << sample.file;
    EXPECT_EQ(found->blame, whole->blame) << sample.file;
  }
}

}  // namespace
}  // namespace muster
