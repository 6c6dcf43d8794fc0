#include "rendezvous/base/failure_record.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::string_view kFailureHead = "muster-failure 1\n";
constexpr std::string_view kFailureEnd = "end\n";
constexpr size_t kCodeBytesMax = 32;

// One line, without control characters, which a terminal might interpret.
std::string plain_text(std::string_view text, size_t bytes_max) {
  std::string plain(text.substr(0, bytes_max));
  std::ranges::replace_if(
      plain, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, ' ');
  return plain;
}

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  number = whole_number<Number>(text).value_or(-1);
  return number >= 0;
}

// "2,5", ascending.
bool read_origin(std::string_view text, std::vector<int>& origin) {
  for (const std::string_view item : split(text, ',')) {
    int rank = -1;
    if (!read_number(item, rank) || (!origin.empty() && rank <= origin.back())) return false;
    origin.push_back(rank);
  }
  return origin.size() <= kFailureOriginMax;
}

// Returns false for an invalid line.
bool read_failure_line(std::string_view name, std::string_view value, FailureRecord& record) {
  if (name == "time_ns") return read_number(value, record.time_ns);
  if (name == "rank") return read_number(value, record.rank);
  if (name == "origin") return read_origin(value, record.origin);
  if (name == "code") record.code = plain_text(value, kCodeBytesMax);
  if (name == "operation") record.operation = plain_text(value, kFailureOperationBytesMax);
  if (name == "message") record.message = plain_text(value, kFailureMessageBytesMax);
  return true;
}

}  // namespace

// Empty or unknown fields get no line.
std::string encode_failure_record(const FailureRecord& record) {
  CHECK(!record.code.empty());
  std::string text =
      fmt::format("{}time_ns {}\ncode {}\n", kFailureHead, std::max<int64_t>(record.time_ns, 0),
                  plain_text(record.code, kCodeBytesMax));
  if (record.rank >= 0) text += fmt::format("rank {}\n", record.rank);
  std::set<int> origin(record.origin.begin(), record.origin.end());
  origin.erase(origin.begin(), origin.lower_bound(0));
  while (origin.size() > kFailureOriginMax)
    origin.erase(std::prev(origin.end()));
  if (!origin.empty()) text += fmt::format("origin {}\n", fmt::join(origin, ","));
  const std::string operation = plain_text(record.operation, kFailureOperationBytesMax);
  if (!operation.empty()) text += fmt::format("operation {}\n", operation);
  const std::string message = plain_text(record.message, kFailureMessageBytesMax);
  if (!message.empty()) text += fmt::format("message {}\n", message);
  return text.append(kFailureEnd);
}

std::optional<FailureRecord> parse_failure_record(std::string_view bytes) {
  if (bytes.size() > kFailureRecordBytesMax || !bytes.starts_with(kFailureHead) ||
      !bytes.ends_with(kFailureEnd))
    return std::nullopt;
  bytes.remove_prefix(kFailureHead.size());
  if (bytes.size() < kFailureEnd.size()) return std::nullopt;
  bytes.remove_suffix(kFailureEnd.size());
  FailureRecord record;
  std::set<std::string_view> seen;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const size_t space = bytes.find(' ');
    if (end == std::string_view::npos || space >= end) return std::nullopt;
    const std::string_view name = bytes.substr(0, space);
    if (!seen.insert(name).second) return std::nullopt;
    if (!read_failure_line(name, bytes.substr(space + 1, end - space - 1), record))
      return std::nullopt;
    bytes.remove_prefix(end + 1);
  }
  return record.code.empty() ? std::nullopt : std::optional(std::move(record));
}

}  // namespace muster
