#include <string>

#include <nlohmann/json.hpp>

#include "agent/stacks/stack_sources.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

using PySpyJson = nlohmann::json;

std::string field_text(const PySpyJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

int field_number(const PySpyJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
}

const PySpyJson& field_list(const PySpyJson& object, const char* key) {
  static const PySpyJson kNone = PySpyJson::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

ThreadStack thread_of(const PySpyJson& object) {
  ThreadStack thread;
  thread.thread = field_number(object, "os_thread_id");
  thread.name = field_text(object, "thread_name");
  for (const PySpyJson& frame : field_list(object, "frames")) {
    if (!frame.is_object() || thread.frames.size() == kStackFramesMax) continue;
    thread.frames.push_back(
        {field_text(frame, "name"), field_text(frame, "filename"), field_number(frame, "line")});
  }
  return thread;
}

// '  File "train.py", line 88 in step'
std::optional<StackFrame> frame_of(std::string_view line) {
  const std::optional<std::string_view> rest = text_after(line, "  File \"");
  const size_t quote = rest ? rest->rfind("\", line ") : std::string_view::npos;
  if (quote == std::string_view::npos) return std::nullopt;
  std::string_view behind = rest->substr(quote + 8);
  const std::optional<int> number = take_number<int>(behind);
  if (!number || !behind.starts_with(" in ")) return std::nullopt;
  return StackFrame{std::string(behind.substr(4)), std::string(rest->substr(0, quote)), *number};
}

}  // namespace

std::optional<std::vector<ThreadStack>> stacks_of_py_spy(std::string_view text) {
  const PySpyJson list = PySpyJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return std::nullopt;
  std::vector<ThreadStack> threads;
  for (const PySpyJson& object : list) {
    if (object.is_object() && threads.size() < kStackThreadsMax)
      threads.push_back(thread_of(object));
  }
  return threads;
}

std::vector<ThreadStack> stacks_of_faulthandler(std::string_view text, pid_t thread) {
  std::vector<ThreadStack> threads;
  for (const std::string_view line : split(text, '\n')) {
    const bool is_current = starts_with_any(line, {"Current thread 0x", "Stack (most recent"});
    if (is_current || line.starts_with("Thread 0x")) {
      if (threads.size() == kStackThreadsMax) break;
      threads.push_back({is_current ? thread : 0, "", {}});
    } else if (!threads.empty() && threads.back().frames.size() < kStackFramesMax) {
      if (const std::optional<StackFrame> frame = frame_of(line))
        threads.back().frames.push_back(*frame);
    }
  }
  return threads;
}

}  // namespace muster
