#include "agent/meeting/pmi1.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

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
