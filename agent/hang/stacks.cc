#include "agent/hang/stacks.h"

#include <algorithm>
#include <cctype>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "agent/report/quoted_lines.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace muster {
namespace {

constexpr size_t kUserFramesMax = 4;
constexpr size_t kFunctionCharactersMax = 100;
constexpr size_t kStackCharactersMax = 600;
// Told of each rank.
constexpr size_t kThreadsTold = 3;
constexpr size_t kChildrenTold = 4;

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// CPython is compiled in its own folder, so that an unstripped one names its files relative to it.
bool is_interpreter(const StackFrame& frame) {
  std::string_view file = frame.file;
  if (file.starts_with("./")) file.remove_prefix(2);
  return starts_with_any(frame.function, {"_Py", "Py", "cfunction_", "method_vectorcall"}) ||
         starts_with_any(file, {"Modules/", "Objects/", "Python/", "Include/internal/"});
}

// Code that the author of the training program has not written.
bool is_of_a_library(const StackFrame& frame) {
  // Static functions of a stripped interpreter have no name.
  if (is_interpreter(frame) || is_one_of(frame.function, {"", "_start"})) return true;
  if (!library_of(frame.file).empty() || file_name(frame.file) == "_muster_recorder.py" ||
      contains(frame.file, "/include/muster/"))
    return true;
  if (frame.file.empty() || frame.file.starts_with('<')) return frame.line == 0;
  return contains(file_name(frame.file), ".so");
}

std::string frame_text(const StackFrame& frame) {
  const std::string function =
      frame.function.empty() ? "?" : clean_line(frame.function, kFunctionCharactersMax);
  const std::string file = clean_line(file_name(frame.file), kFunctionCharactersMax);
  if (file.empty()) return function;
  if (frame.line > 0) return fmt::format("{} ({}:{})", function, file, frame.line);
  // The name of a function in a system library says enough.
  return is_of_a_library(frame) && !frame.function.empty() ? function
                                                           : fmt::format("{} ({})", function, file);
}

std::string thread_text(const ThreadStack& thread) {
  std::string text = thread.thread == 0 ? "a thread" : fmt::format("thread {}", thread.thread);
  if (!thread.name.empty()) text += fmt::format(" ({})", clean_line(thread.name, 64));
  return text;
}

// Lines and the ranks that share them, in order of appearance.
using Entries = std::vector<std::pair<std::string, std::vector<const RankStacks*>>>;

void add_entry(Entries& entries, const std::string& line, const RankStacks& rank) {
  const auto same = std::ranges::find(entries, line, [](const auto& entry) { return entry.first; });
  if (same == entries.end()) {
    entries.push_back({line, {&rank}});
  } else {
    same->second.push_back(&rank);
  }
}

std::string numbers_of(const std::vector<const RankStacks*>& ranks) {
  if (ranks.size() == 1)
    return fmt::format("rank {} (pid {})", ranks.front()->rank, ranks.front()->process);
  std::vector<int> numbers;
  for (const RankStacks* rank : ranks)
    numbers.push_back(rank->rank);
  std::ranges::sort(numbers);
  return fmt::format("{} ranks ({})", numbers.size(), rank_ranges(numbers));
}

using Frames = std::span<const StackFrame>;

bool has_own_frame(Frames frames) {
  return !std::ranges::all_of(frames, is_of_a_library);
}

// Leaves out the native frames that Python called: the interpreter's own source may be known.
Frames python_part(Frames frames) {
  const auto is_python = [](const StackFrame& frame) { return frame.file.ends_with(".py"); };
  const auto first = std::ranges::find_if(frames, is_python);
  return first == frames.end() ? frames : Frames(first, frames.end());
}

// Leaves out what called multiprocessing: the parent at its fork().
Frames work_of_child(Frames frames) {
  const auto end = std::ranges::find_if(frames, [](const StackFrame& frame) {
    const std::string_view function = frame.function;
    return contains(frame.file, "/multiprocessing/") && is_of_a_library(frame) &&
           (function.ends_with("_bootstrap") || function == "main");
  });
  return {frames.begin(), end};
}

// True if the Python function that the thread is in waits for another thread.
bool waits_for_another(const ThreadStack& thread) {
  const Frames python = python_part(thread.frames);
  return !python.empty() && is_of_a_library(python.front()) &&
         is_one_of(file_name(python.front().file), {"threading.py", "queue.py"});
}

std::string wait_reason(const ProcessStack& process) {
  if (process.is_sole_holder)
    return "no other process holds the other end of the pipe or socket that it reads";
  if (process.lock_holder == 0) return {};
  if (process.lock_holder_name.empty())
    return fmt::format("process {}, which has ended, took its file lock", process.lock_holder);
  return fmt::format(
      "its file lock is held by process {} ({}){}", process.lock_holder,
      clean_line(process.lock_holder_name),
      process.lock_holder_rank < 0 ? "" : fmt::format(", rank {}", process.lock_holder_rank));
}

std::string ended_thread_text(const EndedThread& thread) {
  const std::string site = thread.site.empty() ? "" : fmt::format(" ({})", clean_line(thread.site));
  return fmt::format(
      "thread {}ended {} ago of {}{}", thread.name.empty() ? "" : clean_line(thread.name, 64) + " ",
      duration_text(from_seconds(thread.ended_ago_s)), clean_line(thread.error), site);
}

std::string child_text(const ProcessStack& child) {
  if (!child.ended.empty()) return " " + clean_line(child.ended);
  std::string text = child.doing.empty() ? "" : ": " + clean_line(child.doing);
  if (const Frames work = work_of_child(child.frames); !work.empty())
    text += " at " + stack_line({work.begin(), work.end()});
  const std::string reason = wait_reason(child);
  return reason.empty() ? text : fmt::format("{}; {}", text, reason);
}

// Children that do the same; only one of them was read.
using ChildGroups = std::vector<std::pair<const ProcessStack*, size_t>>;

ChildGroups telling_children(const RankStacks& rank) {
  ChildGroups groups;
  for (size_t i = 1; i < rank.processes.size(); ++i) {
    const ProcessStack& child = rank.processes[i];
    if (child.is_idle) continue;
    const auto same = std::ranges::find_if(groups, [&](const auto& group) {
      const ProcessStack& first = *group.first;
      return std::tie(first.name, first.doing, first.ended) ==
             std::tie(child.name, child.doing, child.ended);
    });
    if (same == groups.end()) {
      groups.emplace_back(&child, 1);
    } else {
      ++same->second;
    }
  }
  return groups;
}

void add_children(const RankStacks& rank, std::string& text) {
  for (size_t i = 1; i < rank.processes.size(); ++i) {
    const ProcessStack& child = rank.processes[i];
    text += fmt::format("    child {} ({}){}\n", child.pid, clean_line(child.name, 64),
                        child_text(child));
    for (const StackFrame& frame : child.frames)
      text += fmt::format("      {}\n", frame_text(frame));
  }
}

void add_threads(const RankStacks& rank, bool with_heading, std::string& text) {
  if (with_heading) text += fmt::format("   rank {} (pid {})\n", rank.rank, rank.process);
  for (const ThreadStack& thread : rank.threads) {
    text += fmt::format("    {}\n", thread_text(thread));
    for (const StackFrame& frame : thread.frames)
      text += fmt::format("      {}\n", frame_text(frame));
  }
  if (rank.ended_thread) text += fmt::format("    {}\n", ended_thread_text(*rank.ended_thread));
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

size_t end_of_brackets(std::string_view name, size_t begin, char open, char close) {
  int depth = 0;
  for (size_t i = begin; i < name.size(); ++i) {
    if (name[i] == open) ++depth;
    if (name[i] == close && --depth == 0) return i + 1;
  }
  return name.size();
}

}  // namespace

std::vector<ThreadStack> merge_stacks(std::vector<ThreadStack> native,
                                      std::vector<ThreadStack> python, pid_t process) {
  for (ThreadStack& thread : python) {
    if (thread.thread == 0 && thread.name == "MainThread") thread.thread = process;
    const auto same = std::ranges::find_if(native, [&](const ThreadStack& one) {
      return thread.thread != 0 && one.thread == thread.thread;
    });
    if (same == native.end()) {
      native.push_back(std::move(thread));
      continue;
    }
    same->frames.erase(std::ranges::find_if(same->frames, is_interpreter), same->frames.end());
    same->frames.insert(same->frames.end(), thread.frames.begin(), thread.frames.end());
    if (!thread.name.empty()) same->name = thread.name;
  }
  const auto main = std::ranges::find(native, process, &ThreadStack::thread);
  if (main != native.end()) std::rotate(native.begin(), main, main + 1);
  return native;
}

std::string short_function_name(std::string_view demangled) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)";
  std::string name;
  bool is_operator = false;
  for (size_t i = 0; i < demangled.size();) {
    const std::string_view rest = demangled.substr(i);
    if (rest.starts_with(kUnnamed)) {
      name += "{anonymous}";
      i += kUnnamed.size();
    } else if (rest.starts_with("operator") && (name.empty() || !is_word(name.back()))) {
      is_operator = true;
      const size_t end =
          rest.starts_with("operator()") ? 10 : std::min(rest.find('('), rest.size());
      name += rest.substr(0, end);
      i += end;
    } else if (rest.front() == '<') {
      i = end_of_brackets(demangled, i, '<', '>');
    } else if (rest.front() == '(') {
      // Arguments of an enclosing function are not the last ones: "f(int)::{lambda()#1}::g()".
      i = end_of_brackets(demangled, i, '(', ')');
      if (!starts_with_any(demangled.substr(i), {"::", "#"})) break;
    } else {
      name += rest.front();
      ++i;
    }
  }
  // A template's return type comes first: "void f<int>(int)".
  return is_operator ? name : name.substr(name.rfind(' ') + 1);
}

bool is_at_work(const std::vector<StackFrame>& frames) {
  return has_own_frame(work_of_child(python_part(frames)));
}

void keep_telling_threads(RankStacks& rank) {
  if (rank.threads.size() < 2) return;
  std::vector<ThreadStack> all = std::exchange(rank.threads, {});
  rank.threads.push_back(std::move(all.front()));
  if (rank.processes.empty() || !rank.processes.front().waits_for_thread) return;
  for (const bool at_queue : {false, true}) {
    for (size_t i = 1; i < all.size() && rank.threads.size() <= kThreadsTold; ++i) {
      if (waits_for_another(all[i]) == at_queue && has_own_frame(python_part(all[i].frames)))
        rank.threads.push_back(std::move(all[i]));
    }
  }
}

std::vector<std::string> waits_lines(const RankStacks& rank) {
  if (rank.processes.empty()) return {};
  std::vector<std::string> lines;
  if (std::string reason = wait_reason(rank.processes.front()); !reason.empty())
    lines.push_back(std::move(reason));
  if (rank.ended_thread) lines.push_back(ended_thread_text(*rank.ended_thread));
  RankStacks telling = rank;
  keep_telling_threads(telling);
  for (size_t i = 1; i < telling.threads.size(); ++i)
    lines.push_back(thread_text(telling.threads[i]) + ": " + stack_line(telling.threads[i].frames));
  const ChildGroups groups = telling_children(rank);
  size_t more = groups.empty() ? 0 : static_cast<size_t>(rank.processes_left_out);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& [first, count] = groups[i];
    if (i >= kChildrenTold) {
      more += count;
      continue;
    }
    lines.push_back(fmt::format("child {} ({}){}{}", first->pid, clean_line(first->name, 64),
                                count == 1 ? "" : fmt::format(" and {} alike", count - 1),
                                child_text(*first)));
  }
  if (more > 0) lines.push_back(fmt::format("and {} other children", more));
  return lines;
}

std::string stack_line(const std::vector<StackFrame>& frames) {
  if (frames.empty()) return "no frames";
  const bool has_own = has_own_frame(frames);
  std::string text = frame_text(frames.front());
  size_t shown = 0;
  for (size_t i = 1; i < frames.size() && shown < kUserFramesMax; ++i) {
    if (frames[i].function.empty() || (has_own && is_of_a_library(frames[i]))) continue;
    text += " ← " + frame_text(frames[i]);
    ++shown;
  }
  return text;
}

std::string main_line(const RankStacks& rank) {
  const ThreadStack& first = rank.threads.front();
  return first.thread == rank.process ? stack_line(first.frames)
                                      : "its main thread could not be looked at";
}

std::string stacks_text(const std::vector<RankStacks>& ranks, bool details) {
  Entries entries;
  Entries missing;
  for (const RankStacks& rank : ranks) {
    const bool is_read = !rank.threads.empty();
    // A program without Python is not read in quiet.
    const bool has_call = rank.missing.empty() && !rank.processes.empty();
    const std::string unread = has_call ? rank.processes.front().doing : rank.missing;
    add_entry(entries, is_read ? main_line(rank) : unread, rank);
    if (is_read && !rank.missing.empty()) add_entry(missing, rank.missing, rank);
  }
  std::string text;
  for (const auto& [line, same] : entries) {
    text += fmt::format("  {}: {}\n", numbers_of(same), clean_line(line, kStackCharactersMax));
    for (const RankStacks* rank : same) {
      if (details) {
        add_threads(*rank, same.size() > 1, text);
        add_children(*rank, text);
        continue;
      }
      const std::string whose = same.size() > 1 ? fmt::format("rank {}: ", rank->rank) : "";
      for (const std::string& wait : waits_lines(*rank))
        text += fmt::format("    {}{}\n", whose, clean_line(wait, kStackCharactersMax));
    }
  }
  for (const auto& [line, same] : missing)
    text += fmt::format("  {}: {}\n", numbers_of(same), clean_line(line));
  return text;
}

}  // namespace muster
