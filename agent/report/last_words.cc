#include "agent/report/last_words.h"

#include <algorithm>

#include "agent/output/tail_buffer.h"
#include "agent/report/finding.h"
#include "agent/report/text.h"
#include "agent/report/traceback_lines.h"

namespace muster {
namespace {

ErrorMessage as_message(const MessageLines& lines, const Finding& finding) {
  return {clean_line(finding.text), lines[finding.first].begin, lines[finding.end - 1].end,
          finding.uncaught, finding.blame};
}

template <typename Wanted>
const Finding* last_of(const std::vector<Finding>& list, const Wanted& wanted) {
  const auto at = std::find_if(list.rbegin(), list.rend(), wanted);
  return at == list.rend() ? nullptr : &*at;
}

// True if there are only log entries between them.
bool stands_directly_before(const MessageLines& lines, const Finding& one, const Finding& next) {
  for (size_t at = one.end; at < next.first; ++at) {
    const MessageLine& line = lines[at];
    if (!line.is_blank() && !opens_log_entry(line.text)) return false;
  }
  return true;
}

const Finding* best_of(const MessageLines& lines, const std::vector<Finding>& list) {
  const auto strong = [](const Finding& one) { return one.standing > Standing::minor; };
  const auto own = [&](const Finding& one) { return !one.blame && strong(one); };
  const auto hooked = [](const Finding& one) { return one.standing == Standing::by_excepthook; };
  const auto certain = [&](const Finding& one) { return own(one) && one.uncaught; };
  const auto no_echo = [](const Finding& one) { return one.standing > Standing::echo; };

  const Finding* last = last_of(list, [&](const Finding& one) { return own(one) && hooked(one); });
  if (last == nullptr) last = last_of(list, hooked);
  if (last == nullptr) last = last_of(list, strong);
  if (last == nullptr) last = last_of(list, no_echo);
  if (last == nullptr) return list.empty() ? nullptr : &list.back();
  if (!last->blame && !last->tells_of_child) return last;
  const Finding* ended = last->blame ? last_of(list, certain) : nullptr;
  if (ended != nullptr) return ended;
  if (last->uncaught || last == list.data()) return last;
  const Finding* before = last - 1;
  return own(*before) && stands_directly_before(lines, *before, *last) ? before : last;
}

}  // namespace

std::vector<Finding> find_all(const MessageLines& lines) {
  std::vector<Finding> list;
  for (size_t at = 0; at < lines.size();) {
    std::optional<TracebackScan> scan = at == 0 && lines[lines.size() - 1].end >= kOutQuotedBytesMax
                                            ? scan_cut_traceback(lines)
                                            : std::optional<TracebackScan>();
    if (!scan) scan = scan_traceback(lines, at);
    if (scan) {
      if (scan->finding) {
        // The line that introduces a traceback may already belong to another message.
        const size_t free_from = list.empty() ? 0 : list.back().end;
        scan->finding->first = std::max(scan->finding->first, free_from);
        list.push_back(std::move(*scan->finding));
      }
      at = scan->end;
    } else if (std::optional<Finding> finding = find_native(lines, at)) {
      at = finding->end;
      list.push_back(std::move(*finding));
    } else {
      ++at;
    }
  }
  return list;
}

std::vector<ErrorMessage> error_messages(std::string_view stderr_tail) {
  const MessageLines lines(stderr_tail);
  std::vector<ErrorMessage> messages;
  for (const Finding& finding : find_all(lines))
    messages.push_back(as_message(lines, finding));
  return messages;
}

std::optional<ErrorMessage> last_message(std::string_view stderr_tail) {
  const MessageLines lines(stderr_tail);
  const std::vector<Finding> list = find_all(lines);
  const Finding* best = best_of(lines, list);
  return best == nullptr ? std::nullopt : std::optional(as_message(lines, *best));
}

std::string last_words(std::string_view stderr_tail) {
  std::optional<ErrorMessage> message = last_message(stderr_tail);
  return message ? std::move(message->text) : std::string();
}

std::optional<Blame> blame_in(std::string_view text) {
  if (const std::optional<ErrorMessage> message = last_message(text)) return message->blame;
  const std::optional<ExceptionLine> line = parse_exception_line(text.substr(0, text.find('\n')));
  if (!line) return blame_of({}, text);
  return blame_of(line->type, trimmed(text.substr(std::min(text.size(), line->type.size() + 1))));
}

}  // namespace muster
