#include "agent/process/helper_process.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"

namespace muster {

HelperProcess::HelperProcess(boost::asio::io_context& io, WorkerProcesses& processes)
    : io_(io), processes_(processes), limit_timer_(io) {}

HelperProcess::~HelperProcess() {
  cancel();
}

void HelperProcess::ask(Question question, Done done) {
  done_ = std::move(done);
  ++question_;
  start(question);
}

void HelperProcess::start(const Question& question) {
  int fds[2] = {-1, -1};
  const UniqueFd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd || pipe2(fds, O_CLOEXEC) != 0) {
    return finish(fail(ExitCode::environment,
                       fmt::format("cannot {}: {}", question.what, std::strerror(errno))));
  }
  pipe_ = std::make_shared<boost::asio::posix::stream_descriptor>(io_, fds[0]);
  UniqueFd answer(fds[1]);
  SpawnRequest request;
  request.executable = "/proc/self/exe";
  request.argv = {"muster"};
  request.argv.insert(request.argv.end(), question.arguments.begin(), question.arguments.end());
  request.environment = environment_strings(current_environment());
  request.stdin_fd = null_fd.get();
  request.stdout_fd = answer.get();
  request.stderr_fd = null_fd.get();
  request.kept_fd = question.kept_fd;
  request.ignored_signals = kSignalsToAll;
  Result<SpawnedProcess> child = spawn(request);
  answer.reset();
  if (!child) return finish(tl::unexpected<Error>(child.error()));
  child_ = std::move(*child);
  processes_.add_helper(child_.pid);
  text_ = std::make_shared<std::string>();
  call_after(limit_timer_, question.limit, [this, question, number = question_] {
    if (number != question_) return;
    if (question.takes_part && text_->find('\n') != std::string::npos) return finish(*text_);
    finish(fail(ExitCode::environment, question.late));
  });
  // The composed read goes on between our handlers, so it shares ownership of the pipe.
  boost::asio::async_read(
      *pipe_, boost::asio::dynamic_buffer(*text_),
      [this, text = text_, pipe = pipe_, number = question_](boost::system::error_code, size_t) {
        if (number != question_) return;
        finish(std::move(*text));
      });
}

void HelperProcess::cancel() {
  done_ = nullptr;
  end_child();
}

void HelperProcess::end_child() {
  ++question_;
  limit_timer_.cancel();
  if (pipe_) {
    boost::system::error_code ignored;
    pipe_->close(ignored);  // Whatever the read does next fails.
    pipe_.reset();
  }
  if (child_.pid < 0) return;
  // Always kill it: a child that has answered may still hang in the driver's clean-up.
  kill(child_.pid, SIGKILL);
  processes_.remove_helper(std::exchange(child_, {}).pid);
}

void HelperProcess::finish(Result<std::string> result) {
  end_child();
  // Moved out because the callback may ask the next question.
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

}  // namespace muster
