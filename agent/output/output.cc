#include "agent/output/output.h"

#include <system_error>
#include <utility>

#include "agent/output/output_loop.h"
#include "rendezvous/base/process_limit.h"
#include "rendezvous/base/quiet_thread.h"

namespace muster {
namespace {

constexpr Duration kDestructorWait = std::chrono::seconds(2);
constexpr Duration kAbandonedWait = std::chrono::milliseconds(200);

}  // namespace

Output::Output(std::shared_ptr<OutputLoop> loop) : loop_(std::move(loop)) {}

Result<std::unique_ptr<Output>> Output::start(OutputOptions options) {
  auto loop = OutputLoop::create(std::move(options));
  if (!loop) return tl::unexpected(loop.error());
  std::unique_ptr<Output> output(new Output(std::move(*loop)));
  try {
    // SIGPIPE, SIGXFSZ and SIGTTOU are blocked, so a write to a closed pipe, a file over its limit
    // or the terminal from the background fails or succeeds like any other.
    output->thread_ = quiet_thread([loop = output->loop_] { loop->run(); });
  } catch (const std::system_error& error) {
    return fail(ExitCode::environment, call_failed("starting a thread", error.code().value()));
  }
  return output;
}

Output::~Output() {
  if (!thread_.joinable()) return;
  loop_->requests().push(std::bind_front(&OutputLoop::stop, loop_.get()));
  if (loop_->wait_ended(abandoned_ ? kAbandonedWait : kDestructorWait)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Output::open_run(RunDone done) {
  loop_->requests().push(std::bind_front(&OutputLoop::open_run, loop_.get(), std::move(done)));
}

void Output::open_attempt(AttemptPlan plan, AttemptDone done) {
  loop_->requests().push(
      std::bind_front(&OutputLoop::open_attempt, loop_.get(), std::move(plan), std::move(done)));
}

void Output::read_to_the_end() {
  loop_->requests().push(std::bind_front(&OutputLoop::read_to_the_end, loop_.get()));
}

void Output::mark_stop() {
  loop_->mark_stop();
  loop_->requests().push(std::bind_front(&OutputLoop::mark_files, loop_.get()));
}

void Output::drain(bool keep, DrainDone done) {
  loop_->requests().push(std::bind_front(&OutputLoop::drain, loop_.get(), keep, std::move(done)));
}

void Output::tails(TailsDone done) {
  loop_->requests().push([loop = loop_.get(), done = std::move(done)] { done(loop->tails()); });
}

void Output::say(std::string text) {
  const size_t bytes = text.size();
  loop_->requests().push(
      [loop = loop_.get(), text = std::move(text)]() mutable { loop->say(std::move(text)); },
      bytes);
}

void Output::append(std::string name, std::string text) {
  const size_t bytes = text.size();
  loop_->requests().push(
      std::bind_front(&OutputLoop::append, loop_.get(), std::move(name), std::move(text)), bytes);
}

void Output::write_file(std::string name, std::string content) {
  loop_->requests().push(
      std::bind_front(&OutputLoop::write_file, loop_.get(), std::move(name), std::move(content)));
}

void Output::perform(std::function<void()> work) {
  loop_->requests().push(std::move(work));
}

void Output::resize() {
  loop_->requests().push(std::bind_front(&OutputLoop::resize, loop_.get()));
}

void Output::remove_temporary(bool succeeded) {
  loop_->requests().push(std::bind_front(&OutputLoop::remove_temporary, loop_.get(), succeeded));
}

void Output::finish(Done done) {
  loop_->requests().push(std::bind_front(&OutputLoop::finish, loop_.get(), std::move(done)));
}

void Output::abandon() {
  abandoned_ = true;
}

}  // namespace muster
