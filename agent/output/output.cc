#include "agent/output/output.h"

#include <system_error>
#include <utility>

#include <pthread.h>

#include "agent/output/output_loop.h"
#include "rendezvous/base/quiet_thread.h"

namespace muster {

namespace {

constexpr Duration kDestructorWait = std::chrono::seconds(2);
constexpr Duration kAbandonedWait = std::chrono::milliseconds(200);

// Signals are handled by the control loop. Also, with SIGPIPE, SIGXFSZ and SIGTTOU blocked, a write
// to a closed pipe, to a file over its limit or to the terminal from the background fails or
// succeeds like any other.
void output_thread(const std::shared_ptr<OutputLoop>& loop) {
  ::pthread_setname_np(::pthread_self(), "muster-output");
  loop->run();
}

}  // namespace

Output::Output(std::shared_ptr<OutputLoop> loop) : loop_(std::move(loop)) {}

Result<std::unique_ptr<Output>> Output::start(OutputOptions options) {
  auto loop = OutputLoop::create(std::move(options));
  if (!loop) return tl::unexpected(loop.error());
  std::unique_ptr<Output> output(new Output(std::move(*loop)));
  try {
    output->thread_ = quiet_thread([loop = output->loop_] { output_thread(loop); });
  } catch (const std::system_error& error) {
    return fail(ExitCode::environment, std::string("cannot start the output thread: ") +
                                           error.what() +
                                           "; raise the limit of processes (ulimit -u)");
  }
  return output;
}

Output::~Output() {
  if (!thread_.joinable()) return;
  loop_->requests().push([loop = loop_.get()] { loop->stop(); });
  if (loop_->wait_ended(abandoned_ ? kAbandonedWait : kDestructorWait)) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void Output::open_run(RunDone done) {
  loop_->requests().push([loop = loop_.get(), done = std::move(done)] { loop->open_run(done); });
}

void Output::open_attempt(AttemptPlan plan, AttemptDone done) {
  loop_->requests().push([loop = loop_.get(), plan = std::move(plan), done = std::move(done)] {
    loop->open_attempt(plan, done);
  });
}

void Output::mark_stop() {
  loop_->mark_stop();
  loop_->requests().push([loop = loop_.get()] { loop->mark_files(); });
}

void Output::drain(bool keep, DrainDone done) {
  loop_->requests().push(
      [loop = loop_.get(), keep, done = std::move(done)] { loop->drain(keep, done); });
}

void Output::tails(TailsDone done) {
  loop_->requests().push([loop = loop_.get(), done = std::move(done)] { done(loop->tails()); });
}

void Output::say(std::string text) {
  const size_t bytes = text.size();
  loop_->requests().push_text(bytes, [loop = loop_.get(), text = std::move(text)]() mutable {
    loop->say(std::move(text));
  });
}

void Output::append(std::string name, std::string text) {
  const size_t bytes = text.size();
  loop_->requests().push_text(bytes, [loop = loop_.get(), name = std::move(name),
                                      text = std::move(text)] { loop->append(name, text); });
}

void Output::write_file(std::string name, std::string content) {
  loop_->requests().push([loop = loop_.get(), name = std::move(name),
                          content = std::move(content)] { loop->write_file(name, content); });
}

void Output::perform(std::function<void()> work) {
  loop_->requests().push(std::move(work));
}

void Output::resize() {
  loop_->requests().push([loop = loop_.get()] { loop->resize(); });
}

void Output::finish(bool succeeded, Done done) {
  loop_->requests().push(
      [loop = loop_.get(), succeeded, done = std::move(done)] { loop->finish(succeeded, done); });
}

void Output::abandon() {
  abandoned_ = true;
}

}  // namespace muster
