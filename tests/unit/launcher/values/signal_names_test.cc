#include <csignal>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "launcher/values/values.h"
#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

TEST(SignalNumber, MatchesTheSystemForEverySignalWithAName) {
  for (int number = 1; number < SIGRTMIN; ++number) {
    const char* name = sigabbrev_np(number);
    if (name == nullptr) continue;  // The two that glibc reserves.
    EXPECT_EQ(signal_number(std::string("SIG") + name), number);
    EXPECT_EQ(signal_number(signal_name(number)), number) << "the name in muster's own messages";
  }
}

TEST(SignalNumber, KnowsTheOtherNamesOfPythonsModule) {
  const std::map<std::string_view, int> numbers{{"SIGCLD", SIGCHLD},    {"SIGIO", SIGIO},
                                                {"SIGIOT", SIGABRT},    {"SIGPOLL", SIGIO},
                                                {"SIGRTMAX", SIGRTMAX}, {"SIGRTMIN", SIGRTMIN}};
  for (const auto& [name, number] : numbers)
    EXPECT_EQ(signal_number(name), number) << name;
}

TEST(SignalNumber, IsNoneForAnyOtherSpelling) {
  for (const char* name : {"", "SIG", "TERM", "sigterm", "Sigterm", "SIGTERM ", " SIGTERM",
                           "SIGTER", "SIGTERMS", "15", "SIG15", "SIGUSR", "SIGUSR3", "SIGRTMIN+1",
                           "SIGRTMAX-1", "SIGEMT", "SIGINFO", "SIG_DFL", "SIGTERM,SIGINT"})
    EXPECT_EQ(signal_number(name), std::nullopt) << name;
  EXPECT_EQ(signal_number(std::string_view("SIGTERM\0", 8)), std::nullopt);
}

}  // namespace
}  // namespace muster
