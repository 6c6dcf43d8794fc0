#include "agent/stacks/stack_reader.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "agent/control/control_protocol.h"
#include "agent/report/text.h"
#include "agent/stacks/stack_child.h"
#include "rendezvous/base/enum_name.h"

namespace muster {
namespace {

constexpr auto kChildPatience = std::chrono::seconds(5);

// The last complete line of what a child printed.
RankStacks stacks_in(const std::string& printed) {
  const size_t end = printed.rfind('\n');
  const size_t before = end == std::string::npos || end == 0 ? end : printed.rfind('\n', end - 1);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string line = printed.substr(begin, end == std::string::npos ? 0 : end - begin);
  const Result<control::Reply> reply = control::decode_reply(line);
  const auto* const list = reply ? std::get_if<control::Stacks>(&*reply) : nullptr;
  if (list != nullptr && list->ranks.size() == 1) return list->ranks.front();
  RankStacks none;
  none.missing = "its stacks could not be read: the process that reads them has failed";
  return none;
}

}  // namespace

StackReader::StackReader(boost::asio::io_context& io, WorkerProcesses& processes,
                         std::function<void(int rank)> released)
    : released_(std::move(released)),
      children_{HelperProcess(io, processes), HelperProcess(io, processes),
                HelperProcess(io, processes), HelperProcess(io, processes)} {}

void StackReader::read(const std::vector<StackTarget>& targets, StackLook look, Duration patience,
                       Done done) {
  const auto question = std::make_shared<Question>();
  question->stacks.resize(targets.size());
  question->missing = targets.size();
  question->look = look;
  question->patience = patience;
  question->limit = std::chrono::steady_clock::now() + patience;
  question->done = std::move(done);
  if (targets.empty()) return question->done({});
  for (size_t i = 0; i < targets.size(); ++i)
    waiting_.push_back({question, i, targets[i]});
  start_next();
}

bool StackReader::holds(pid_t worker) const {
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].is_busy() && held_[i] == worker) return true;
  }
  return false;
}

void StackReader::cancel() {
  waiting_.clear();
  for (HelperProcess& child : children_)
    child.cancel();
}

void StackReader::start_next() {
  for (size_t i = 0; i < children_.size(); ++i) {
    HelperProcess& child = children_[i];
    if (waiting_.empty()) return;
    if (child.is_busy()) continue;
    Wanted wanted = std::move(waiting_.front());
    waiting_.pop_front();
    if (wanted.target.process == 0) {
      take(wanted, fail(ExitCode::environment, wanted.target.pid == 0 ? "the worker has not started"
                                                                      : "the worker has ended"));
      return start_next();
    }
    const auto left = wanted.question->limit - std::chrono::steady_clock::now();
    const std::string late =
        fmt::format("its stacks could not be read within {}",
                    duration_text(left < kChildPatience ? wanted.question->patience
                                                        : Duration(kChildPatience)));
    if (left <= Duration{0}) {
      take(wanted, fail(ExitCode::environment, late));
      return start_next();
    }
    HelperProcess::Question question{
        .arguments = {kStacksFlag,
                      name_in<StackLook::thorough>({"quiet", "brief", "thorough"},
                                                   wanted.question->look),
                      std::to_string(wanted.target.process), wanted.target.file},
        .limit = std::min<Duration>(left, kChildPatience),
        .what = fmt::format("read the stacks of rank {}", wanted.target.rank),
        .late = late,
        .takes_part = true};
    const size_t children = wanted.question->look == StackLook::quiet ? 4 : 8;
    for (const pid_t pid : wanted.target.tree.worth_reading(children))
      question.arguments.push_back(std::to_string(pid));
    held_[i] = wanted.question->look == StackLook::quiet ? 0 : wanted.target.pid;
    child.ask(std::move(question), [this, wanted](Result<std::string> answer) mutable {
      take(wanted, std::move(answer));
      start_next();
    });
  }
}

void StackReader::take(Wanted& wanted, Result<std::string> answer) {
  RankStacks stacks;
  if (answer) {
    stacks = stacks_in(*answer);
  } else {
    stacks.missing = answer.error().message;
  }
  wanted.target.tree.add_to(stacks);
  stacks.rank = wanted.target.rank;
  stacks.pid = wanted.target.pid;
  stacks.process = wanted.target.process;
  Question& question = *wanted.question;
  if (question.look != StackLook::quiet) released_(wanted.target.rank);
  question.stacks[wanted.index] = std::move(stacks);
  if (--question.missing == 0) question.done(std::move(question.stacks));
}

}  // namespace muster
