#include "agent/job/own_interface.h"

#include <chrono>
#include <utility>
#include <vector>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/net/interfaces.h"

namespace muster {
namespace {

// A silent name server delays nothing longer: naming the interface is correct in any case.
constexpr auto kOwnNamePatience = std::chrono::seconds(1);

}  // namespace

void OwnInterface::look_up_own_name() {
  if (!spec_.export_iface || is_set(env::kGlooSocketIfname)) return;
  is_known_ = false;
  names_.resolve(own_hostname(), 0, std::chrono::steady_clock::now() + kOwnNamePatience,
                 [this](const NetResult<std::vector<SocketAddress>>& answer) {
                   std::vector<IpAddress> leads_to;
                   for (const SocketAddress& one : answer ? *answer : std::vector<SocketAddress>())
                     leads_to.push_back(one.ip);
                   own_name_fault_ = own_name_fault(own_hostname(), leads_to, read_interfaces());
                   is_known_ = true;
                   if (const auto next = std::exchange(next_, nullptr)) next();
                 });
}

void OwnInterface::when_own_name_is_known(std::function<void()> next) {
  if (is_known_) return next();
  next_ = std::move(next);
}

std::string OwnInterface::choose(const std::string& towards_peers) {
  const auto address = IpAddress::parse(towards_peers);
  if (!spec_.export_iface || choice_ || !address) return "";
  InterfaceQuestion question;
  question.interfaces = read_interfaces();
  question.towards_peers = *address;
  question.wanted = spec_.iface;
  question.gloo_is_set = is_set(env::kGlooSocketIfname);
  question.nccl_is_set = is_set(env::kNcclSocketIfname);
  question.own_name_fault = own_name_fault_;
  choice_ = choose_interface_export(question);
  return choice_ ? choice_->note : "";
}

}  // namespace muster
