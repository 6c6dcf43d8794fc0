#include "rendezvous/backends/file_finder.h"

#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

constexpr auto kRetirePatience = std::chrono::milliseconds(500);

// The boot and the network namespace: processes that agree on both share 127.0.0.1.
std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat info{};
  const bool known = stat("/proc/self/ns/net", &info) == 0;
  return fmt::format("{}/{}", boot, known ? info.st_ino : 0);
}

std::optional<IpAddress> chosen_address(const FileFinder::Options& options) {
  if (options.local_addr) return IpAddress::parse(*options.local_addr);
  if (options.interface.empty()) return std::nullopt;
  const Result<IpAddress> address = address_of_interface(options.interface, IpAddress::any_v4());
  return address ? std::optional(*address) : std::nullopt;
}

// The addresses at which other nodes may reach us; loopback only if there is no other.
std::vector<IpAddress> reachable_addresses(const FileFinder::Options& options) {
  if (const auto chosen = chosen_address(options)) return {*chosen};
  std::vector<IpAddress> addresses;
  for (const Interface& interface : read_interfaces()) {
    if (!is_candidate(interface)) continue;
    for (const IpAddress& address : interface.addresses) {
      if (!address.is_link_local() && !address.is_loopback()) addresses.push_back(address);
    }
  }
  if (addresses.empty()) addresses.push_back(IpAddress::loopback_v4());
  return addresses;
}

}  // namespace

FileFinder::FileFinder(boost::asio::io_context& io, Options options, OnHost on_host)
    : HostFinder(io, options, std::move(on_host)),
      options_(std::move(options)),
      machine_(machine_identity()),
      file_(std::make_shared<RecordFile>(options_.path)),
      helper_(io),
      beat_timer_(io),
      retire_timer_(io) {}

void FileFinder::find() {
  looked_again_ = false;
  look();
}

void FileFinder::distrust() {
  distrusted_instance_ = called_instance_;
}

void FileFinder::doubt() {
  doubted_instance_ = called_instance_;
}

void FileFinder::on_disk(std::function<void()> work, std::function<void()> done) {
  const std::weak_ptr<int> dial = dial_;
  helper_.run(std::move(work), [dial, done = std::move(done)] {
    if (dial.lock()) done();
  });
}

// ---- somebody else hosts

void FileFinder::look() {
  const auto found = std::make_shared<Result<RecordFound>>();
  on_disk([file = file_, found] { *found = file->look(); }, [this, found] { on_look(*found); });
}

void FileFinder::on_look(const Result<RecordFound>& found) {
  if (!found) return fail_dial(found.error());
  if (found->record) return call(*found);
  if (options_.is_host.value_or(true)) return take(*found);
  fail_dial({ExitCode::rendezvous,
             fmt::format("no host has written its address to {} yet", options_.path)});
}

void FileFinder::call(const RecordFound& found) {
  const HostRecord& record = *found.record;
  called_instance_ = record.instance;
  watch_beat(record);
  const std::string name = fmt::format("the host {} named in {}", record.host_name, options_.path);
  std::vector<SocketAddress> addresses;
  for (const SocketAddress& address : record.addresses) {
    if (!address.ip.is_loopback() || record.machine == machine_) addresses.push_back(address);
  }
  const bool doubted = record.instance == doubted_instance_ && is_dead(record, false);
  if (addresses.empty() || doubted || record.instance == distrusted_instance_) {
    return on_unreachable(found, {{ExitCode::rendezvous, name + " does not answer there"}});
  }
  connecting_ =
      connect_any(io_, name, addresses, dial_deadline(), connect_options_,
                  [this, found](NetResult<TcpSocket> socket) {
                    if (socket)
                      return finish(Dialled{std::move(*socket), found.record->instance, false});
                    const bool refused = socket.error().failure == NetFailure::refused;
                    on_unreachable(found, {socket.error().error(), refused});
                  });
}

void FileFinder::on_unreachable(const RecordFound& found, const member::ConnectionFailed& failed) {
  const HostRecord& record = *found.record;
  const bool nobody = failed.refused || record.instance == distrusted_instance_;
  if (options_.is_host.value_or(true) && is_dead(record, nobody)) return take(found);
  finish(tl::unexpected(failed));
}

// Called before the call: one that is not answered takes as long as several beats.
void FileFinder::watch_beat(const HostRecord& record) {
  if (suspect_.instance != record.instance || suspect_.beat != record.beat)
    suspect_ = {record.instance, record.beat, std::chrono::steady_clock::now()};
}

// REQUIRES: watch_beat() was called for `record`.
bool FileFinder::is_dead(const HostRecord& record, bool refused) const {
  if (refused && record.machine == machine_) return true;
  return std::chrono::steady_clock::now() - suspect_.since >= options_.dead_after;
}

// ---- we may

void FileFinder::take(const RecordFound& found) {
  const std::optional<IpAddress> chosen = chosen_address(options_);
  auto opened = Listener::open(
      io_,
      {SocketAddress{chosen.value_or(IpAddress::any_v6()), static_cast<uint16_t>(options_.port)}},
      options_.listen);
  if (!opened) return fail_dial({ExitCode::environment, opened.error().message});
  const auto listener = std::make_shared<std::unique_ptr<Listener>>(std::move(*opened));
  const auto won = std::make_shared<Result<bool>>();
  on_disk([file = file_, found, record = own_record(**listener),
           won] { *won = file->take(found, record); },
          [this, won, listener] { on_taken(*won, std::move(*listener)); });
}

HostRecord FileFinder::own_record(const Listener& listener) const {
  HostRecord record;
  record.instance = options_.instance.value_or(0);
  record.machine = machine_;
  record.host_name = options_.host_name;
  for (const IpAddress& address : reachable_addresses(options_))
    record.addresses.push_back({address, listener.port()});
  return record;
}

void FileFinder::on_taken(const Result<bool>& won, std::unique_ptr<Listener> listener) {
  if (!won) return fail_dial(won.error());
  if (!*won) {
    // Another node was faster; its record is there now.
    if (!std::exchange(looked_again_, true)) return look();
    return fail_dial(
        {ExitCode::rendezvous,
         fmt::format("other nodes are deciding at {} which of them is the host", options_.path)});
  }
  host(std::move(listener));
  beat();
}

// ---- we do

// Skips a beat while the disk is still busy with an earlier one.
void FileFinder::beat() {
  if (!helper_.is_busy())
    helper_.run([file = file_, beat = ++beats_] { file->write_beat(beat); }, [] {});
  beat_timer_.expires_after(options_.beat_every);
  beat_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) beat();
  });
}

void FileFinder::retire(std::function<void()> done) {
  cancel();
  beat_timer_.cancel();
  const auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto leave = [once] {
    if (const auto callback = std::exchange(*once, nullptr)) callback();
  };
  helper_.run([file = file_] { file->remove(); }, leave);
  retire_timer_.expires_after(kRetirePatience);
  retire_timer_.async_wait([leave](boost::system::error_code error) {
    if (!error) leave();
  });
}

}  // namespace muster
