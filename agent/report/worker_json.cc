#include "agent/report/worker_json.h"

#include <fmt/format.h>

#include "agent/report/error_file.h"
#include "agent/report/last_words.h"
#include "agent/report/quoted_lines.h"
#include "rendezvous/base/text.h"

namespace muster::wire {
namespace {

constexpr size_t kStderrLinesSent = 30;

// Lines as they will be shown: cleaning them again at the receiver changes nothing. A long line is
// cut so that it still fits with the note about the cut.
std::string sent_stderr(std::string_view raw, size_t bytes_max) {
  constexpr size_t kNoteCharacters = 40;
  const std::vector<std::string> lines =
      quoted_lines(raw, kStderrLinesSent, std::numeric_limits<size_t>::max());
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const bool fits = clean_line(*line) == *line;
    const std::string shown =
        fits ? *line : clean_line(*line, kLineCharactersMax - kNoteCharacters);
    if (text.size() + shown.size() + 1 > bytes_max) break;
    text.insert(0, shown + '\n');
  }
  return text;
}

// The verdict needs the message of an error file and the end of its call stack.
std::string sent_error_file(std::string_view raw, size_t bytes_max) {
  const std::string content = valid_utf8(raw);
  if (content.size() <= bytes_max) return content;
  const std::optional<WorkerError> error = parse_error_file(content);
  if (!error || !error->well_formed) return std::string(utf8_suffix(content, bytes_max));
  Json json;
  Json& message = json["message"];
  message["message"] = error->callstack.empty() ? utf8_suffix(error->message, bytes_max / 2)
                                                : utf8_prefix(error->message, bytes_max / 8);
  message["extraInfo"]["py_callstack"] = utf8_suffix(error->callstack, bytes_max / 2);
  if (error->unix_time_s) {
    message["extraInfo"]["timestamp"] = fmt::format("{}", *error->unix_time_s);
  }
  return dump(json);
}

void word_fields(auto& a, Like<WorkerFailure> auto& m) {
  a("role", m.role);
  a("program", m.program);
  a("binary", m.binary);
  a("stdout_log", m.stdout_log_path);
  a("stderr_log", m.stderr_log_path);
  a("error_file", m.error_file_path);
}

}  // namespace

Json words_json(const WorkerFailure& failure, size_t long_max, size_t text_max) {
  JsonWriter writer(text_max);
  word_fields(writer, failure);
  writer.put("stderr", sent_stderr(failure.stderr_tail, long_max));
  // Shown only if stderr has no error.
  if (!failure.stdout_tail.empty() && last_words(failure.stderr_tail).empty())
    writer.put("stdout", sent_stderr(failure.stdout_tail, long_max));
  writer.put("error_file_content",
             failure.error_file_content && long_max > 0
                 ? Json(sent_error_file(*failure.error_file_content, long_max))
                 : Json());
  return writer.take();
}

void read_words(const Json& json, WorkerFailure& failure, std::string& wrong) {
  JsonReader reader(json, wrong);
  word_fields(reader, failure);
  reader("stderr", failure.stderr_tail);
  reader.if_any("stdout", failure.stdout_tail);
  reader("error_file_content", failure.error_file_content);
}

}  // namespace muster::wire
