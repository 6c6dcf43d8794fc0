// A rank of first_cause.py without a language runtime: it dies at once and prints nothing unless it
// throws. For a role of rank.py it executes that script.
//
//   rank spin                     uses up a core until its parent ends
//   rank FOLDER [RANK=ROLE]...    RANK "*" means all others
//
//   py.ROLE    as rank.py
//   sleep      waits for ever
//   victim     exits with 3 as soon as a connection closes
//   exit[@MS]  exits with 4, MS milliseconds after the start
//   throw      ends by an uncaught exception
//
// With $FIRST_CAUSE_MESH every rank is connected to every other; rank.py describes how.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;

std::string folder;
int own_rank = 0;
int world = 0;

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(bool fine, const char* what) {
  if (fine) return;
  std::fprintf(stderr, "first_cause: %s: %s\n", what, std::strerror(errno));
  _exit(99);
}

std::string file_of(const char* what, int rank) {
  return folder + "/" + what + "." + std::to_string(rank);
}

void leave_file(const std::string& path, const std::string& content) {
  std::ofstream(path + ".new") << content;
  check(std::rename((path + ".new").c_str(), path.c_str()) == 0, "rename");
}

// Records when this rank fails; nothing else happens between this and the failure.
void stamp() {
  const int fd = open(file_of("stamp", own_rank).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  const std::string text = std::to_string(now_ns());
  check(fd >= 0 && write(fd, text.data(), text.size()) > 0, "stamp");
  close(fd);
}

int64_t await_number(const std::string& path) {
  int64_t number = 0;
  while (!(std::ifstream(path) >> number))
    std::this_thread::sleep_for(2ms);
  return number;
}

void await_start(int64_t delay_ms) {
  const int64_t at = await_number(folder + "/go") + delay_ms * 1'000'000;
  while (now_ns() < at)
    std::this_thread::sleep_for(std::chrono::nanoseconds(at - now_ns()));
}

std::vector<pollfd> mesh(bool reads_greetings) {
  std::vector<pollfd> peers;
  sockaddr_in address{};
  socklen_t size = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(bind(listener, any, size) == 0 && listen(listener, 64) == 0, "listen");
  check(getsockname(listener, any, &size) == 0, "getsockname");
  leave_file(file_of("port", own_rank), std::to_string(ntohs(address.sin_port)));
  for (int rank = 0; rank < own_rank; ++rank) {
    address.sin_port = htons(static_cast<uint16_t>(await_number(file_of("port", rank))));
    peers.push_back({socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), POLLIN, 0});
    check(connect(peers.back().fd, any, size) == 0, "connect");
  }
  while (static_cast<int>(peers.size()) < world - 1) {
    peers.push_back({accept(listener, nullptr, nullptr), POLLIN, 0});
    check(peers.back().fd >= 0, "accept");
  }
  close(listener);
  for (const pollfd& peer : peers)
    check(write(peer.fd, "x", 1) == 1, "greet");
  char greeting = 0;
  for (const pollfd& peer : peers)
    check(!reads_greetings || read(peer.fd, &greeting, 1) == 1, "read a greeting");
  return peers;
}

[[noreturn]] void become_python(char** argv, const std::string& role) {
  const std::string script = std::string(std::getenv("FIRST_CAUSE_PROGRAMS")) + "/rank.py";
  execlp("python3", "python3", "-u", script.c_str(), argv[1], role.c_str(), nullptr);
  check(false, "python3");
  std::abort();
}

void play(const std::string& role) {
  const size_t at = role.find('@');
  const std::string name = role.substr(0, at);
  std::vector<pollfd> peers;
  if (std::getenv("FIRST_CAUSE_MESH") != nullptr) peers = mesh(name == "victim");
  leave_file(file_of("ready", own_rank), "");
  if (name == "victim") {
    while (poll(peers.data(), peers.size(), -1) < 1)
      continue;
    stamp();
    _exit(3);
  }
  if (name == "sleep") {
    for (;;)
      pause();
  }
  signal(SIGTERM, SIG_IGN);
  await_start(at == std::string::npos ? 0 : std::stol(role.substr(at + 1)));
  stamp();
  if (name == "throw") throw std::runtime_error("the mesh has a hole at cell 17");
  _exit(4);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "spin") {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile unsigned turns = 0;;)
      turns = turns + 1;
  }
  if (argc < 3) return 2;
  folder = argv[1];
  own_rank = std::atoi(std::getenv("RANK"));
  world = std::atoi(std::getenv("WORLD_SIZE"));
  std::string role;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string whom = word.substr(0, word.find('='));
    if (whom == std::to_string(own_rank) || (whom == "*" && role.empty()))
      role = word.substr(word.find('=') + 1);
  }
  if (role.starts_with("py.")) become_python(argv, role.substr(3));
  play(role);
}
