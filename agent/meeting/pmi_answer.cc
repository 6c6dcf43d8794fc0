#include "agent/meeting/pmi_answer.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "agent/report/wire_json.h"
#include "rendezvous/base/hex.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr size_t kPmiUniqueDigits = 16;
constexpr size_t kPmiRecordBytesMax = kPmiUniqueDigits + kPmiHostBytesMax;
constexpr size_t kPmiNameBytesMax = 255;  // The limit of PMI-1 and PMIx.
constexpr size_t kPmiErrorBytesMax = 1000;
constexpr char kPmiMore = '+';
constexpr char kPmiLast = '.';

constexpr auto kPmiAnswerFields = [](auto& a, auto& answer) {
  a("host", answer.host);
  a("job", answer.job);
  a.number("rank", answer.rank, 0, kPmiSizeMax - 1);
  a.number("size", answer.size, 1, kPmiSizeMax);
};

bool is_pmi_host_text(std::string_view text) {
  return !text.empty() && text.size() <= kPmiHostBytesMax && valid_utf8(text) == text;
}

tl::unexpected<Error> not_of_muster() {
  return fail(ExitCode::rendezvous,
              "what rank 0 has published through PMI is no address of a muster: every process of "
              "the launch must be a muster of this version");
}

// A request must fit into the 1,024 bytes that some servers read at once, with the KVS's name.
constexpr int kPmi1ValueBytesMax = 512;
constexpr int kPmi1ValueBytesMin = 64;
constexpr size_t kPmi1ShownBytesMax = 200;

// The answer to one request: "cmd=get_result rc=0 msg=success value=v".
class Pmi1Answer {
 public:
  explicit Pmi1Answer(std::string line) : line_(std::move(line)) {}

  std::optional<std::string> value(std::string_view name) const {
    for (const std::string_view word : split(line_, ' ')) {
      if (word.starts_with(name) && word.substr(name.size()).starts_with('='))
        return std::string(word.substr(name.size() + 1));
    }
    return std::nullopt;
  }
  bool is(std::string_view command) const {
    return line_.starts_with("cmd=") && value("cmd") == command && value("rc").value_or("0") == "0";
  }
  std::string shown() const { return printable(line_, kPmi1ShownBytesMax); }

 private:
  std::string line_;
};

class Pmi1Conversation {
 public:
  explicit Pmi1Conversation(const Pmi1Exchange& exchange) : exchange_(exchange) {}

  // Returns `value`'s value in the answer, which must be a `command`.
  Result<std::string> ask(const std::string& request, std::string_view command,
                          std::string_view value) {
    const Result<std::string> line = exchange_(request);
    if (!line) return line;
    const Pmi1Answer answer(*line);
    const auto found = answer.value(value);
    if (answer.is(command) && found) return *found;
    const std::string asked(request.substr(0, request.find(' ')));
    return fail(ExitCode::rendezvous,
                fmt::format("PMI's answer to {} is \"{}\"", asked, answer.shown()));
  }

 private:
  const Pmi1Exchange& exchange_;
};

Result<size_t> pmi1_value_bytes_max(std::string_view vallen_max) {
  const auto number = whole_number<int>(vallen_max);
  if (number && *number >= kPmi1ValueBytesMin)
    return static_cast<size_t>(std::min(*number - 1, kPmi1ValueBytesMax));  // Less its NUL.
  return fail(ExitCode::rendezvous, fmt::format("PMI takes only values of {} bytes",
                                                printable(vallen_max, kPmi1ShownBytesMax)));
}

}  // namespace

Result<std::string> pmi_record(std::string_view host, uint64_t unique) {
  if (!is_pmi_host_text(host)) {
    return fail(ExitCode::internal, fmt::format("the text for PMI is empty, longer than {} bytes "
                                                "or not UTF-8",
                                                kPmiHostBytesMax));
  }
  return fmt::format("{:0{}x}{}", unique, kPmiUniqueDigits, host);
}

std::string pmi_key(size_t number) {
  return fmt::format("muster-{}", number);
}

std::vector<std::string> pmi_values(std::string_view record, size_t bytes_max) {
  CHECK(bytes_max >= 3);
  const size_t bytes_each = (bytes_max - 1) / 2;
  std::vector<std::string> values;
  do {
    const std::string_view piece = record.substr(0, bytes_each);
    record.remove_prefix(piece.size());
    values.push_back(to_hex(piece) + (record.empty() ? kPmiLast : kPmiMore));
  } while (!record.empty());
  return values;
}

Result<std::string> gather_pmi_record(
    const std::function<Result<std::string>(const std::string& key)>& get) {
  std::string record;
  for (size_t number = 0;; ++number) {
    const Result<std::string> value = get(pmi_key(number));
    if (!value) return value;
    const char end = value->empty() ? '\0' : value->back();
    if (end != kPmiMore && end != kPmiLast) return not_of_muster();
    const auto piece = from_hex(std::string_view(*value).substr(0, value->size() - 1));
    // An empty piece would allow a record without an end.
    if (!piece || piece->empty() || piece->size() > kPmiRecordBytesMax - record.size())
      return not_of_muster();
    record += *piece;
    if (end == kPmiLast) return record;
  }
}

Result<PmiAnswer> pmi_answer(const PmiPlace& place, std::string_view record) {
  const bool sound_name =
      !place.name.empty() && place.name.size() <= kPmiNameBytesMax &&
      std::ranges::all_of(place.name, [](char c) { return c > 0x20 && c < 0x7f; });
  if (!sound_name) {
    return fail(ExitCode::rendezvous, fmt::format("PMI's name for this launch is \"{}\"",
                                                  printable(place.name, kPmiNameBytesMax)));
  }
  if (place.size < 1 || place.size > kPmiSizeMax || place.rank < 0 || place.rank >= place.size) {
    return fail(ExitCode::rendezvous, fmt::format("PMI says that this process has rank {} of {}",
                                                  place.rank, place.size));
  }
  const std::string_view unique = record.substr(0, kPmiUniqueDigits);
  const std::string_view host = record.substr(unique.size());
  if (unique.size() != kPmiUniqueDigits || !from_hex(unique) || !is_pmi_host_text(host))
    return not_of_muster();
  return PmiAnswer{std::string(host), fmt::format("{}-{}", place.name, unique),
                   static_cast<int>(place.rank), static_cast<int>(place.size)};
}

std::string encode_pmi(const Result<PmiAnswer>& answer) {
  wire::JsonWriter writer(kPmiErrorBytesMax);
  if (answer) {
    kPmiAnswerFields(writer, *answer);
  } else {
    writer("error", answer.error().message);
  }
  return wire::dump(writer.take()) + "\n";
}

Result<PmiAnswer> decode_pmi(std::string_view printed) {
  const wire::Json json = wire::parse(last_line(printed));
  std::string wrong;
  wire::JsonReader reader(json, wrong);
  std::string error;
  reader.if_any("error", error);
  if (!error.empty()) return fail(ExitCode::rendezvous, printable(error, kPmiErrorBytesMax));
  PmiAnswer answer;
  kPmiAnswerFields(reader, answer);
  if (wrong.empty() && is_pmi_host_text(answer.host) && !answer.job.empty() &&
      answer.rank < answer.size)
    return answer;
  return fail(ExitCode::rendezvous,
              "the process that asks PMI for rank 0's address has ended without an answer; "
              "libpmix may have crashed there");
}

Result<PmiAnswer> ask_pmi1(const Pmi1Question& question, const Pmi1Exchange& exchange) {
  Pmi1Conversation pmi(exchange);
  const auto hello =
      pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", "pmi_version");
  if (!hello) return tl::unexpected<Error>(hello.error());
  const auto bytes_max =
      pmi.ask("cmd=get_maxes", "maxes", "vallen_max").and_then(pmi1_value_bytes_max);
  if (!bytes_max) return tl::unexpected<Error>(bytes_max.error());
  const auto kvs = pmi.ask("cmd=get_my_kvsname", "my_kvsname", "kvsname");
  if (!kvs) return tl::unexpected<Error>(kvs.error());

  const auto values = pmi_values(question.record, *bytes_max);
  for (size_t i = 0; question.rank == 0 && i < values.size(); ++i) {
    const auto put =
        pmi.ask(fmt::format("cmd=put kvsname={} key={} value={}", *kvs, pmi_key(i), values[i]),
                "put_result", "rc");
    if (!put) return tl::unexpected<Error>(put.error());
  }
  const auto all_here = pmi.ask("cmd=barrier_in", "barrier_out", "cmd");
  if (!all_here) return tl::unexpected<Error>(all_here.error());
  const auto record = gather_pmi_record([&](const std::string& key) {
    return pmi.ask(fmt::format("cmd=get kvsname={} key={}", *kvs, key), "get_result", "value");
  });
  if (!record) return tl::unexpected<Error>(record.error());
  // Otherwise process managers take the end of this process for a crash. The answer is of no use.
  exchange("cmd=finalize");
  return pmi_answer({*kvs, question.rank, question.size}, *record);
}

}  // namespace muster
