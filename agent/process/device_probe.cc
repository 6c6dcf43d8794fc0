#include "agent/process/device_probe.h"

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/call_after.h"

namespace muster {

DeviceProbe::DeviceProbe(boost::asio::io_context& io, WorkerProcesses& processes)
    : io_(io), processes_(processes), limit_timer_(io) {}

DeviceProbe::~DeviceProbe() {
  cancel();
}

void DeviceProbe::ask(const std::string& flag, Duration limit, Done done) {
  done_ = std::move(done);
  ++question_;
  int fds[2] = {-1, -1};
  const UniqueFd null_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_fd || pipe2(fds, O_CLOEXEC) != 0) {
    return finish(fail(ExitCode::environment,
                       fmt::format("cannot ask the GPU driver: {}", std::strerror(errno))));
  }
  pipe_ = std::make_shared<boost::asio::posix::stream_descriptor>(io_, fds[0]);
  UniqueFd answer(fds[1]);
  SpawnRequest request;
  request.executable = "/proc/self/exe";
  request.argv = {"muster", flag};
  request.environment = environment_strings(current_environment());
  request.stdin_fd = null_fd.get();
  request.stdout_fd = answer.get();
  request.stderr_fd = null_fd.get();
  Result<SpawnedProcess> child = spawn(request);
  answer.reset();
  if (!child) return finish(tl::unexpected<Error>(child.error()));
  child_ = *child;
  processes_.add_helper(child_.pid);
  call_after(limit_timer_, limit, [this, limit, question = question_] {
    if (question != question_) return;
    finish(fail(
        ExitCode::environment,
        fmt::format(
            "the GPU driver did not answer within {:.0f} s (does `nvidia-smi` hang too?); give "
            "--nproc-per-node a number and leave the GPU flags out to start without asking it",
            std::chrono::duration<double>(limit).count())));
  });
  const auto text = std::make_shared<std::string>();
  // It reads piece by piece without asking us in between, so it shares the pipe until it ends.
  boost::asio::async_read(
      *pipe_, boost::asio::dynamic_buffer(*text),
      [this, text, pipe = pipe_, question = question_](boost::system::error_code, size_t) {
        if (question != question_) return;  // A late completion.
        finish(std::move(*text));
      });
}

void DeviceProbe::cancel() {
  ++question_;
  limit_timer_.cancel();
  if (pipe_) {
    boost::system::error_code ignored;
    pipe_->close(ignored);  // Whatever the read does next fails.
    pipe_.reset();
  }
  if (child_.pid < 0) return;
  // Kill it in any case: a child that has answered may still hang in the driver's clean-up.
  syscall(SYS_pidfd_send_signal, child_.pidfd, SIGKILL, nullptr, 0);
  close(child_.pidfd);
  processes_.remove_helper(std::exchange(child_, {}).pid);
}

void DeviceProbe::finish(Result<std::string> result) {
  cancel();
  // Moved out first: the callback may start the next query.
  const Done done = std::move(done_);
  done(std::move(result));
}

}  // namespace muster
