#include "worker_lib/backends/cpu/tcp_listeners.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/net/listening_socket.h"
#include "worker_lib/fields.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

// How long a wait for the store lasts before it is asked whether to give up.
constexpr std::chrono::milliseconds kStoreSlice{100};

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::optional<std::string> from_hex(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    const size_t high = kDigits.find(text[i]);
    const size_t low = kDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::string address_key(const std::string& topic, int rank) {
  return fmt::format("{}/{}", topic, rank);
}

tl::unexpected<Failure> address_store_failure(const Error& error) {
  return failed(ErrorCode::rendezvous,
                fmt::format("the store failed while the group was made: {}", error.message));
}

// Who has not written yet, described.
Failure absent_failure(GroupSetup& setup, const std::string& topic) {
  Failure failure{ErrorCode::timeout, "", {}};
  std::string names;
  for (int rank = 0; rank < setup.members.size(); ++rank) {
    const Result<bool> there = setup.store.check({address_key(topic, rank)});
    if (!there) return address_store_failure(there.error()).value();
    if (*there) continue;
    failure.ranks.push_back(setup.members[rank].rank);
    if (failure.ranks.size() <= 8)
      names += (names.empty() ? "" : ", ") + describe(setup.members[rank]);
  }
  if (failure.ranks.size() > 8) names += fmt::format(" and {} more", failure.ranks.size() - 8);
  std::sort(failure.ranks.begin(), failure.ranks.end());
  failure.message = fmt::format("{} did not come to make the group's connections {}; {}",
                                names.empty() ? "the last rank" : names, within(setup.limit),
                                look_at(failure.ranks.size()));
  return failure;
}

Outcome<> wait_for_keys(GroupSetup& setup, const std::string& topic,
                        const std::vector<std::string>& keys) {
  while (true) {
    if (setup.interrupted) {
      if (const std::optional<Failure> why = setup.interrupted()) return tl::unexpected(*why);
    }
    const Result<Nothing> waited = setup.store.wait(keys, kStoreSlice);
    if (waited) return Done{};
    if (!setup.store.connected()) return address_store_failure(waited.error());
    if (std::chrono::steady_clock::now() >= setup.deadline)
      return tl::unexpected(absent_failure(setup, topic));
  }
}

}  // namespace

std::string ListenAddress::encode() const {
  return fmt::format("{} {} {}", tcp.to_string(), to_hex(local), to_hex(secret));
}

std::optional<ListenAddress> ListenAddress::decode(std::string_view text) {
  const size_t first = text.find(' ');
  const size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto address = SocketAddress::parse(text.substr(0, first));
  const auto name = from_hex(text.substr(first + 1, second - first - 1));
  const auto secret = from_hex(text.substr(second + 1));
  if (!address || !name || !secret || secret->size() != kSecretBytes) return std::nullopt;
  return ListenAddress{*address, *name, *secret};
}

Outcome<Listeners> open_listeners(const Peer& self) {
  const std::optional<IpAddress> ip = IpAddress::parse(self.address);
  if (!ip)
    return failed(ErrorCode::system,
                  fmt::format("{} has no usable address: {:?}", describe(self), self.address));
  auto listening = listen_on({{*ip, 0}});
  if (!listening)
    listening = listen_on({{ip->is_v6() ? IpAddress::any_v6() : IpAddress::any_v4(), 0}});
  if (!listening) return failed(ErrorCode::system, listening.error().message);

  Listeners open;
  for (const ListeningSocket& one : *listening)
    open.listeners.emplace_back(one.fd);
  open.address.tcp = {*ip, listening->front().address.port};
  open.address.secret = random_bytes(kSecretBytes);
  open.address.local = "muster-" + to_hex(random_bytes(8));
  Outcome<Socket> local = listen_local(open.address.local);
  if (!local) return tl::unexpected(local.error());
  open.listeners.push_back(std::move(*local));
  return open;
}

// The first member gathers what all wrote into one value: so that n members cost the store n
// answers and not n squared.
Outcome<std::vector<std::string>> exchange_through_store(GroupSetup& setup,
                                                         const std::string& topic,
                                                         const std::string& value) {
  if (const auto set = setup.store.set(address_key(topic, setup.members.me), value); !set)
    return address_store_failure(set.error());
  const std::string all_key = topic + "/all";
  if (setup.members.me == 0) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < setup.members.size(); ++rank)
      keys.push_back(address_key(topic, rank));
    if (const Outcome<> waited = wait_for_keys(setup, topic, keys); !waited)
      return tl::unexpected(waited.error());
    Result<std::vector<std::string>> values = setup.store.multi_get(keys);
    if (!values) return address_store_failure(values.error());
    if (const auto set = setup.store.set(all_key, encode_fields(*values)); !set)
      return address_store_failure(set.error());
    return std::move(*values);
  }
  if (const Outcome<> waited = wait_for_keys(setup, topic, {all_key}); !waited)
    return tl::unexpected(waited.error());
  const Result<std::string> all = setup.store.get(all_key);
  if (!all) return address_store_failure(all.error());
  std::optional<std::vector<std::string>> values = decode_fields(*all);
  if (!values)
    return failed(ErrorCode::rendezvous,
                  fmt::format("rank 0 of group {} wrote something else than everybody's {} into "
                              "the store; give every job a store, or a prefix, of its own",
                              setup.name, topic));
  return std::move(*values);
}

Outcome<std::vector<ListenAddress>> exchange_addresses(GroupSetup& setup,
                                                       const ListenAddress& mine) {
  const auto texts = exchange_through_store(setup, "address", mine.encode());
  if (!texts) return tl::unexpected(texts.error());
  std::vector<ListenAddress> addresses;
  const bool complete = texts->size() == static_cast<size_t>(setup.members.size());
  for (int rank = 0; rank < setup.members.size(); ++rank) {
    const std::optional<ListenAddress> address =
        complete ? ListenAddress::decode((*texts)[static_cast<size_t>(rank)]) : std::nullopt;
    if (!address)
      return failed(ErrorCode::rendezvous,
                    fmt::format("{} wrote something else than where it is reached into the store; "
                                "give every job a store, or a prefix, of its own",
                                describe(setup.members[rank])),
                    {setup.members[rank].rank});
    addresses.push_back(*address);
  }
  return addresses;
}

}  // namespace muster::worker
