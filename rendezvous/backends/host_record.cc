#include "rendezvous/backends/host_record.h"

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::string_view kLastLine = "end\n";

// Host names come from the kernel and may hold anything.
std::string one_line(std::string_view text) {
  return printable(text, text.size());
}

// Reads one line "key value"; false if it is invalid. Unknown keys are ignored.
bool read_line(std::string_view line, HostRecord& record) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view key = line.substr(0, space);
  const std::string_view value = line.substr(space + 1);
  if (key == "instance") {
    const auto number = whole_number<uint64_t>(value, 16);
    record.instance = number.value_or(0);
    return number.has_value();
  }
  if (key == "address") {
    const auto address = SocketAddress::parse(value);
    if (address) record.addresses.push_back(*address);
    return address.has_value();
  }
  if (key == "machine") record.machine = value;
  if (key == "claim") record.claim = value;
  if (key == "host") record.host_name = value;
  return true;
}

}  // namespace

std::string sixteen_digits(uint64_t number) {
  return fmt::format("{:016x}", number);
}

std::string encode(const HostRecord& record) {
  std::string text =
      fmt::format("{}{}\ninstance {}\nmachine {}\nclaim {}\nhost {}\n", kRecordHead,
                  sixteen_digits(record.beat), sixteen_digits(record.instance),
                  one_line(record.machine), one_line(record.claim), one_line(record.host_name));
  for (const SocketAddress& address : record.addresses)
    text += fmt::format("address {}\n", address.to_string());
  text += kLastLine;
  return text;
}

std::optional<HostRecord> decode_record(std::string_view text) {
  if (text.size() > kRecordBytesMax || !text.starts_with(kRecordHead) || !text.ends_with(kLastLine))
    return std::nullopt;
  text.remove_prefix(kRecordHead.size());
  text.remove_suffix(kLastLine.size());
  HostRecord record;
  const auto beat = whole_number<uint64_t>(text.substr(0, 16), 16);
  if (!beat || text.size() < 17 || text[16] != '\n') return std::nullopt;
  record.beat = *beat;
  text.remove_prefix(17);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos || !read_line(text.substr(0, end), record))
      return std::nullopt;
    text.remove_prefix(end + 1);
  }
  if (record.instance == 0 || record.addresses.empty()) return std::nullopt;
  return record;
}

}  // namespace muster
