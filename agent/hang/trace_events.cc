#include "agent/hang/trace_events.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/report/wire_json.h"

namespace muster::hang {
namespace {

std::string json_text(std::string_view text) {
  return wire::dump(wire::Json(text));
}

// Microseconds.
std::string micros(int64_t ns) {
  const int64_t positive = std::max<int64_t>(ns, 0);
  return fmt::format("{}.{:03}", positive / 1000, positive % 1000);
}

std::string metadata(int rank, int row, std::string_view what, std::string_view value) {
  return fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}},)"
                     "\n",
                     rank, row, what, value);
}

std::string arguments(const TraceCall& traced) {
  const ring::Call& call = traced.call->call;
  std::string text =
      fmt::format(R"("group":{},"ordinal":{})", json_text(traced.group), traced.call->ordinal);
  if (call.type != ring::ElementType::unknown)
    text += fmt::format(R"(,"count":{},"type":"{}")", call.count, name_of(call.type));
  if (call.reduction != ring::Reduction::unknown)
    text += fmt::format(R"(,"reduction":"{}")", name_of(call.reduction));
  if (call.root >= 0)
    text += fmt::format(R"(,"{}":{})", ring::is_message(call.kind) ? "peer" : "root", call.root);
  if (ring::is_message(call.kind)) text += fmt::format(R"(,"tag":{})", traced.call->tag);
  text += fmt::format(R"(,"synchronous":{})", call.is_synchronous);
  if (!traced.call->site.empty()) {
    text += fmt::format(R"(,"site":{})", json_text(traced.call->site));
  } else if (traced.call->site_address != 0) {
    text += fmt::format(R"(,"site":"{:#x}")", traced.call->site_address);
  }
  if (traced.call->failed) text += R"(,"failed":true)";
  if (!traced.over) {
    text += R"(,"end":"unknown")";
  } else if (!traced.is_complete) {
    text += R"(,"end":"not complete")";
  } else if (traced.is_late) {
    text += R"(,"end":"noticed later")";
  }
  return text;
}

}  // namespace

std::string trace_begin() {
  return "[\n";
}

// An event closes the array, since the one before ends with a comma.
std::string trace_end() {
  return R"({"ph":"M","pid":0,"tid":0,"name":"trace_end","args":{}})"
         "\n]\n";
}

std::string trace_rank(int rank, std::string_view name) {
  return metadata(rank, 0, "process_name", fmt::format(R"("name":{})", json_text(name))) +
         metadata(rank, 0, "process_sort_index", fmt::format(R"("sort_index":{})", rank));
}

std::string trace_row(int rank, int row, std::string_view name) {
  return metadata(rank, row, "thread_name", fmt::format(R"("name":{})", json_text(name))) +
         metadata(rank, row, "thread_sort_index", fmt::format(R"("sort_index":{})", row));
}

std::string trace_call(const TraceCall& traced) {
  const std::string ends =
      traced.over ? fmt::format(R"("ph":"X","dur":{})", micros(*traced.over - traced.called))
                  : R"("ph":"i","s":"t")";
  return fmt::format(R"({{{},"pid":{},"tid":{},"ts":{},"cat":"{}","name":"{} #{}","args":{{{}}}}},)"
                     "\n",
                     ends, traced.rank, traced.row, micros(traced.called),
                     ring::is_message(traced.call->call.kind) ? "message" : "collective",
                     name_of(traced.call->call.kind), traced.call->ordinal, arguments(traced));
}

std::string trace_instant(int rank, TraceTime time, std::string_view name) {
  return fmt::format(R"({{"ph":"i","s":"{}","pid":{},"tid":0,"ts":{},"name":{}}},)"
                     "\n",
                     rank < 0 ? "g" : "p", std::max(rank, 0), micros(time), json_text(name));
}

}  // namespace muster::hang
