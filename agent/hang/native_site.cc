#include "agent/hang/native_site.h"

#include <optional>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t offset = 0;
  std::string_view name;  // File name; empty: anonymous memory.
};

std::string_view take_field(std::string_view& line) {
  line = trim(line);
  const std::string_view field = line.substr(0, line.find(' '));
  line.remove_prefix(field.size());
  return field;
}

// "7f31a9c28000-7f31a9dbd000 r-xp 00028000 fd:01 393  /usr/lib/libc.so.6"
std::optional<Mapping> mapping_of(std::string_view line) {
  const std::string_view range = take_field(line);
  const size_t dash = range.find('-');
  if (dash == range.npos) return std::nullopt;
  const auto begin = whole_number<uint64_t>(range.substr(0, dash), 16);
  const auto end = whole_number<uint64_t>(range.substr(dash + 1), 16);
  take_field(line);  // Permissions.
  const auto offset = whole_number<uint64_t>(take_field(line), 16);
  take_field(line);  // Device.
  take_field(line);  // Inode.
  if (!begin || !end || !offset) return std::nullopt;
  constexpr std::string_view kDeleted = " (deleted)";
  std::string_view path = trim(line);
  if (path.ends_with(kDeleted)) path.remove_suffix(kDeleted.size());
  return Mapping{*begin, *end, *offset, path.substr(path.rfind('/') + 1)};
}

}  // namespace

std::map<uint64_t, std::string> native_sites(const std::set<uint64_t>& addresses,
                                             std::string_view maps) {
  std::map<uint64_t, std::string> sites;
  for (const std::string_view line : split(maps, '\n')) {
    const std::optional<Mapping> mapping = mapping_of(line);
    if (!mapping || mapping->name.empty()) continue;
    for (auto address = addresses.lower_bound(mapping->begin);
         address != addresses.end() && *address < mapping->end; ++address) {
      sites[*address] = fmt::format("{}+{:#x}", clean_line(mapping->name),
                                    *address - mapping->begin + mapping->offset);
    }
  }
  return sites;
}

void name_native_sites(std::vector<RecordedCall>& calls, std::string_view maps) {
  std::set<uint64_t> addresses;
  for (const RecordedCall& call : calls) {
    if (call.site_address != 0) addresses.insert(call.site_address);
  }
  const std::map<uint64_t, std::string> sites = native_sites(addresses, maps);
  for (RecordedCall& call : calls) {
    const auto site = sites.find(call.site_address);
    if (site != sites.end()) call.site = site->second;
  }
}

}  // namespace muster
