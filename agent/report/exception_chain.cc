#include "agent/report/exception_chain.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

// Exceptions for control flow, not errors: a failure while handling one is unrelated to it.
bool is_control_flow(std::string_view type) {
  return is_one_of(
      type.substr(type.rfind('.') + 1),
      {"StopIteration", "StopAsyncIteration", "GeneratorExit", "CancelledError", "Empty", "Full"});
}

size_t root_of(const std::vector<RaisedException>& chain) {
  size_t root = 0;
  while (root + 1 < chain.size() && is_control_flow(chain[root].type))
    ++root;
  return root;
}

std::string with_origin(const RaisedException& last, const char* how,
                        const RaisedException& origin) {
  constexpr size_t kLastMax = 240;
  constexpr size_t kOriginMax = 140;
  // A wrapper that only repeats what it wraps adds nothing.
  if (origin.text.starts_with(last.text)) return origin.text;
  return fmt::format("{} ({} {})", clean_line(last.text, kLastMax), how,
                     clean_line(origin.text, kOriginMax));
}

std::string text_up_to(const std::vector<RaisedException>& chain, size_t root, size_t last) {
  using After = RaisedException::After;
  if (last == root) return chain[last].text;
  if (chain[last].after == After::context) {
    return with_origin(chain[last], "while handling", chain[last - 1]);
  }
  size_t origin = last;
  while (origin > root && chain[origin].after == After::cause)
    --origin;
  return with_origin(chain[last], "caused by", chain[origin]);
}

}  // namespace

RaisedException told_of_chain(const std::vector<RaisedException>& chain) {
  CHECK(!chain.empty());
  const size_t root = root_of(chain);
  RaisedException told = chain.back();
  told.blame = chain[root].blame;
  size_t last = chain.size() - 1;
  if (told.blame) {
    for (const RaisedException& link : chain) {
      if (link.blame) told.blame = merged(*told.blame, *link.blame);
    }
  } else {
    // From the first lost connection on, the exceptions come from a program that had failed before.
    const auto begin = chain.begin() + static_cast<std::ptrdiff_t>(root);
    const auto lost =
        std::find_if(begin, chain.end(), [](const RaisedException& link) { return !!link.blame; });
    last = static_cast<size_t>(lost - chain.begin()) - 1;
  }
  told.text = text_up_to(chain, root, last);
  told.type = chain[last].type;
  return told;
}

RaisedException told_of_group(const std::vector<RaisedException>& leaves) {
  constexpr size_t kToldMax = 3;
  CHECK(!leaves.empty());
  RaisedException told = leaves.front();
  for (size_t i = 1; i < leaves.size(); ++i) {
    if (i < kToldMax) told.text += "; " + leaves[i].text;
    told.blame = told.blame && leaves[i].blame
                     ? std::optional(merged(*told.blame, *leaves[i].blame))
                     : std::nullopt;
  }
  if (leaves.size() > kToldMax) told.text += fmt::format("; {} more", leaves.size() - kToldMax);
  return told;
}

}  // namespace muster
