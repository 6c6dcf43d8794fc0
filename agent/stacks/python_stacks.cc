#include <string>

#include "agent/report/wire_json.h"
#include "agent/stacks/stack_sources.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

ThreadStack thread_of(const wire::Json& object) {
  ThreadStack thread;
  thread.thread = wire::number_at(object, "os_thread_id");
  thread.name = wire::text_at(object, "thread_name");
  for (const wire::Json& frame : wire::list_at(object, "frames")) {
    if (!frame.is_object() || thread.frames.size() == kStackFramesMax) continue;
    thread.frames.push_back({wire::text_at(frame, "name"), wire::text_at(frame, "filename"),
                             wire::number_at(frame, "line")});
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
  const wire::Json list = wire::Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return std::nullopt;
  std::vector<ThreadStack> threads;
  for (const wire::Json& object : list) {
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
