#include "rendezvous/backends/host_record.h"

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::string_view kLastLine = "end\n";
constexpr std::string_view kJobHead = "muster-job 1\n";

// Host names come from the kernel and may hold anything.
std::string one_line(std::string_view text) {
  return printable(text, text.size());
}

std::string agent_text(const membership::AgentId& agent) {
  return sixteen_digits(agent.high) + sixteen_digits(agent.low);
}

std::optional<membership::AgentId> read_agent(std::string_view text) {
  const auto high = whole_number<uint64_t>(text.substr(0, 16), 16);
  const auto low = whole_number<uint64_t>(text.substr(std::min<size_t>(text.size(), 16)), 16);
  if (text.size() != 32 || !high || !low) return std::nullopt;
  return membership::AgentId{*high, *low};
}

template <typename Number>
bool parse_number(std::string_view text, Number& number, int base = 10) {
  const auto read = whole_number<Number>(text, base);
  number = read.value_or(Number{});
  return read.has_value();
}

// "WHY EXIT_CODE SIGNAL"
bool read_ending(std::string_view text, membership::End& ending) {
  const std::vector<std::string_view> words = split(text, ' ');
  int why = 0;
  if (words.size() != 3 || !parse_number(words[0], why) || why < 0 ||
      why > static_cast<int>(membership::EndWhy::timeout))
    return false;
  ending.why = static_cast<membership::EndWhy>(why);
  return parse_number(words[1], ending.exit_code) && parse_number(words[2], ending.signal);
}

// False if the value is invalid. Unknown keys are ignored.
bool read_field(std::string_view key, std::string_view value, JobRecord& record) {
  if (key == "epoch") return parse_number(value, record.epoch);
  if (key == "instance") return parse_number(value, record.instance, 16);
  if (key == "restarts") return parse_number(value, record.restarts) && record.restarts >= 0;
  if (key == "changes") return parse_number(value, record.changes) && record.changes >= 0;
  if (key == "host" || key == "member") {
    const auto agent = read_agent(value);
    if (agent && key == "host") record.host = *agent;
    if (agent && key == "member") record.members.push_back(*agent);
    return agent.has_value();
  }
  if (key == "ending") {
    return read_ending(value, record.ending.emplace());
  }
  if (!record.ending) return true;
  if (key == "ending-host") record.ending->host_name = value;
  if (key == "ending-text") record.ending->text = value;
  return true;
}

bool read_field(std::string_view key, std::string_view value, HostRecord& record) {
  if (key == "instance") return parse_number(value, record.instance, 16);
  if (key == "entry") return parse_number(value, record.entry, 16);
  if (key == "address") {
    const auto address = SocketAddress::parse(value);
    if (address) record.addresses.push_back(*address);
    return address.has_value();
  }
  if (key == "agent") {
    const auto agent = read_agent(value);
    record.agent = agent.value_or(membership::AgentId{});
    return agent.has_value();
  }
  if (key == "machine") record.machine = value;
  if (key == "claim") record.claim = value;
  if (key == "host") record.host_name = value;
  return true;
}

// Reads the lines "key value" of `text` up to the last one, which has to be "end".
template <typename Record>
bool read_lines(std::string_view text, Record& record) {
  while (text != kLastLine) {
    const size_t end = text.find('\n');
    const size_t space = text.find(' ');
    if (end == std::string_view::npos || space >= end) return false;
    if (!read_field(text.substr(0, space), text.substr(space + 1, end - space - 1), record))
      return false;
    text.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace

std::string sixteen_digits(uint64_t number) {
  return fmt::format("{:016x}", number);
}

std::string encode(const HostRecord& record) {
  std::string text = fmt::format("{}{}\ninstance {}\n", kRecordHead, sixteen_digits(record.beat),
                                 sixteen_digits(record.instance));
  if (record.entry != 0) text += fmt::format("entry {}\n", sixteen_digits(record.entry));
  if (record.agent != membership::AgentId{})
    text += fmt::format("agent {}\n", agent_text(record.agent));
  text += fmt::format("machine {}\nclaim {}\nhost {}\n", one_line(record.machine),
                      one_line(record.claim), one_line(record.host_name));
  for (const SocketAddress& address : record.addresses)
    text += fmt::format("address {}\n", address.to_string());
  text += kLastLine;
  return text;
}

std::optional<HostRecord> decode_record(std::string_view text) {
  if (text.size() > kRecordBytesMax || !text.starts_with(kRecordHead) || !text.ends_with(kLastLine))
    return std::nullopt;
  text.remove_prefix(kRecordHead.size());
  HostRecord record;
  const auto beat = whole_number<uint64_t>(text.substr(0, 16), 16);
  if (!beat || text.size() < 17 || text[16] != '\n') return std::nullopt;
  record.beat = *beat;
  if (!read_lines(text.substr(17), record)) return std::nullopt;
  if (record.instance == 0 || record.addresses.empty()) return std::nullopt;
  return record;
}

std::string encode(const JobRecord& record) {
  std::string text = fmt::format("{}epoch {}\ninstance {}\nhost {}\nrestarts {}\nchanges {}\n",
                                 kJobHead, record.epoch, sixteen_digits(record.instance),
                                 agent_text(record.host), record.restarts, record.changes);
  for (const membership::AgentId& member : record.members)
    text += fmt::format("member {}\n", agent_text(member));
  if (record.ending) {
    text += fmt::format("ending {} {} {}\nending-host {}\nending-text {}\n",
                        static_cast<int>(record.ending->why), record.ending->exit_code,
                        record.ending->signal, one_line(record.ending->host_name),
                        one_line(record.ending->text));
  }
  text += kLastLine;
  return text;
}

std::optional<JobRecord> decode_job_record(std::string_view text) {
  if (text.size() > kJobRecordBytesMax || !text.starts_with(kJobHead) || !text.ends_with(kLastLine))
    return std::nullopt;
  JobRecord record;
  if (!read_lines(text.substr(kJobHead.size()), record)) return std::nullopt;
  return record;
}

}  // namespace muster
