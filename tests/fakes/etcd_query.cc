// The keeper of a node in etcd, alone: obeys the commands on its standard input, and answers each
// with one line, or with "error EXIT_CODE MESSAGE".
//
//   etcd_query ENDPOINT CONF JOB_ID LEASE_S     (CONF: as --rdzv-conf)
//
//   look             seen VERSION host INSTANCE epoch N [ending EXIT_CODE]
//   wait MS          woke
//   take INSTANCE    yes | no    (since the last look; later writes and beats are that host's)
//   write EPOCH      yes | no    (replaces the job's record that was last seen or written)
//   end CODE S       yes | no    (as write, with an ending that is kept for S seconds)
//   beat             kept | gone | replaced
//   leave            left
//   cancel           (no answer; ends the command in progress)
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/backends/etcd_keeper.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

class EtcdQuery {
 public:
  EtcdQuery(const EtcdOptions& options, const std::string& id, int lease_s)
      : keeper_(options, id, lease_s) {
    own_.addresses.push_back({IpAddress::loopback_v4(), 29400});
  }

  std::string answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    if (verb == "look") return look();
    if (verb == "wait") {
      int milliseconds = 0;
      words >> milliseconds;
      keeper_.wait(seen_, std::chrono::milliseconds(milliseconds));
      return "woke";
    }
    if (verb == "take") {
      words >> own_.instance;
      own_.host_name = fmt::format("node{}", own_.instance);
      return said(keeper_.take(seen_, own_));
    }
    if (verb == "write" || verb == "end") return write(verb, words);
    if (verb == "beat") return beat();
    keeper_.leave(own_);
    return "left";
  }

  void cancel() { keeper_.cancel(); }

 private:
  static std::string wrong(const Error& error) {
    return fmt::format("error {} {}", static_cast<int>(error.code), error.message);
  }
  static std::string said(const Result<bool>& done) {
    return done ? *done ? "yes" : "no" : wrong(done.error());
  }

  std::string look() {
    const Result<Keeper::Seen> seen = keeper_.look();
    if (!seen) return wrong(seen.error());
    seen_ = *seen;
    before_ = seen->job;
    std::string text = fmt::format("seen {} host {} epoch {}", seen->version,
                                   seen->host ? seen->host->instance : 0, seen->job.epoch);
    if (seen->job.ending) text += fmt::format(" ending {}", seen->job.ending->exit_code);
    return text;
  }

  std::string write(const std::string& verb, std::istringstream& words) {
    JobRecord now = before_;
    Duration remember{};
    if (verb == "write") {
      words >> now.epoch;
      now.instance = own_.instance;
    } else {
      int64_t seconds = 0;
      membership::End ending;
      words >> ending.exit_code >> seconds;
      ending.text = "it ended";
      now.ending = ending;
      remember = std::chrono::seconds(seconds);
    }
    const Result<bool> done = keeper_.write(own_, before_, now, remember);
    if (done && *done) before_ = now;
    return said(done);
  }

  std::string beat() {
    const Result<Keeper::Beat> beat = keeper_.beat(own_);
    if (!beat) return wrong(beat.error());
    switch (*beat) {
      case Keeper::Beat::kept:
        return "kept";
      case Keeper::Beat::gone:
        return "gone";
      case Keeper::Beat::replaced:
        break;
    }
    return "replaced";
  }

  EtcdKeeper keeper_;
  HostRecord own_;
  Keeper::Seen seen_;
  JobRecord before_;
};

// Queue of the lines that are still to be handled.
class Lines {
 public:
  void push(std::optional<std::string> line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    changed_.notify_one();
  }
  std::optional<std::string> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !lines_.empty(); });
    auto line = std::move(lines_.front());
    lines_.pop_front();
    return line;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::optional<std::string>> lines_;
};

int run(const std::vector<std::string>& args) {
  std::vector<std::pair<std::string, std::string>> conf;
  for (const std::string_view item : split(args[1], ',')) {
    if (const size_t equals = item.find('='); equals != std::string_view::npos)
      conf.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  const auto options =
      read_etcd_options(args[0], conf, [](std::string_view name) -> std::optional<std::string> {
        const char* const value = std::getenv(std::string(name).c_str());
        return value ? std::optional<std::string>(value) : std::nullopt;
      });
  if (!options) {
    std::cout << options.error().message << std::endl;
    return static_cast<int>(options.error().code);
  }
  EtcdQuery query(*options, args[2], std::atoi(args[3].c_str()));
  Lines lines;
  std::thread worker([&] {
    while (const auto line = lines.pop())
      std::cout << query.answer(*line) << std::endl;
  });
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "cancel") {
      query.cancel();
    } else {
      lines.push(line);
    }
  }
  lines.push(std::nullopt);
  worker.join();
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  return args.size() == 4 ? muster::run(args) : 2;
}
