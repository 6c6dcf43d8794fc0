#include "launcher/values/signal_names.h"

#include <array>
#include <csignal>
#include <utility>

namespace muster {
namespace {

constexpr std::array<std::pair<std::string_view, int>, 34> kSignalNames{{
    {"SIGHUP", SIGHUP},       {"SIGINT", SIGINT},       {"SIGQUIT", SIGQUIT},
    {"SIGILL", SIGILL},       {"SIGTRAP", SIGTRAP},     {"SIGABRT", SIGABRT},
    {"SIGIOT", SIGABRT},      {"SIGBUS", SIGBUS},       {"SIGFPE", SIGFPE},
    {"SIGKILL", SIGKILL},     {"SIGUSR1", SIGUSR1},     {"SIGSEGV", SIGSEGV},
    {"SIGUSR2", SIGUSR2},     {"SIGPIPE", SIGPIPE},     {"SIGALRM", SIGALRM},
    {"SIGTERM", SIGTERM},     {"SIGSTKFLT", SIGSTKFLT}, {"SIGCHLD", SIGCHLD},
    {"SIGCLD", SIGCHLD},      {"SIGCONT", SIGCONT},     {"SIGSTOP", SIGSTOP},
    {"SIGTSTP", SIGTSTP},     {"SIGTTIN", SIGTTIN},     {"SIGTTOU", SIGTTOU},
    {"SIGURG", SIGURG},       {"SIGXCPU", SIGXCPU},     {"SIGXFSZ", SIGXFSZ},
    {"SIGVTALRM", SIGVTALRM}, {"SIGPROF", SIGPROF},     {"SIGWINCH", SIGWINCH},
    {"SIGIO", SIGIO},         {"SIGPOLL", SIGIO},       {"SIGPWR", SIGPWR},
    {"SIGSYS", SIGSYS},
}};

}  // namespace

std::optional<int> signal_number(std::string_view name) {
  for (const auto& [known, number] : kSignalNames) {
    if (known == name) return number;
  }
  if (name == "SIGRTMIN") return SIGRTMIN;
  if (name == "SIGRTMAX") return SIGRTMAX;
  return std::nullopt;
}

}  // namespace muster
