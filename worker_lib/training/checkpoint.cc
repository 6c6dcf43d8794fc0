#include "muster/checkpoint.h"

#include <exception>
#include <ostream>

#include <fmt/format.h>

#include "muster/init.h"
#include "muster/section.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/group/group_bytes.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/call_site.h"
#include "worker_lib/training/atomic_file.h"
#include "worker_lib/training/helper_error.h"

namespace muster {

namespace {

using worker::AtomicFile;
using worker::Outcome;

// Rank 0's answer to all ranks: one of these letters, followed by the message of an error.
constexpr char kGood = '+';
constexpr char kNoFile = '0';
constexpr char kBad = '-';
constexpr GroupRank kWriter{0};

ProcessGroup group_of(const CheckpointOptions& options) {
  return options.group.valid() ? options.group : world();
}

Outcome<> write_checkpoint(const std::string& path,
                           const std::function<void(std::ostream&)>& write) {
  try {
    auto file = AtomicFile::create(path);
    if (!file) return tl::unexpected(file.error());
    write((*file)->stream());
    return (*file)->commit();
  } catch (const std::exception& error) {
    return worker::failed(ErrorCode::system,
                          fmt::format("cannot write {}: {}", path, error.what()));
  } catch (...) {
    return worker::failed(
        ErrorCode::system,
        fmt::format("cannot write {}: the program threw an exception that is not a std::exception",
                    path));
  }
}

// Also turns an exception (the file does not fit into memory) into a failure.
Outcome<std::optional<std::string>> read_checkpoint(const std::string& path) {
  try {
    return worker::read_file(path);
  } catch (const std::exception& error) {
    return worker::failed(ErrorCode::system, fmt::format("cannot read {}: {}", path, error.what()));
  }
}

// Makes rank 0's bytes those of all ranks, without a second copy of them.
void send_to_all(const ProcessGroup& group, std::string& bytes, const CallOptions& options) {
  worker::Group& members = *group.handle()->group;
  const auto make_room = [&](size_t size) {
    bytes.resize(size);
    return bytes.data();
  };
  c_abi::value_or_raise(worker::broadcast_bytes(members, bytes, kWriter.value, options, make_room),
                        "broadcast_bytes", members);
}

// Leaves the group usable, since all of its ranks have the same answer.
void throw_if_bad(const char* caller, const ProcessGroup& group, const std::string& answer) {
  if (answer.front() != kBad) return;
  const GlobalRank writer = group.ranks().front();
  worker::raise_shared(
      {ErrorCode::system,
       fmt::format("{} of {} on rank {}: {}", caller, worker::group_title(group.name()),
                   writer.value, answer.substr(1)),
       {writer}},
      caller, group.name());
}

}  // namespace

void save_checkpoint(const std::string& path, const std::function<void(std::ostream&)>& write,
                     const CheckpointOptions& options) {
  constexpr worker::CallPurpose kCaller = worker::CallPurpose::save_checkpoint;
  ProcessGroup group = group_of(options);
  worker::in_the_name_of(kCaller, [&] { group.barrier(options.call); });
  std::string answer(1, kGood);
  if (group.rank() == kWriter) {
    const Section section(name_of(kCaller));
    const Outcome<> written = write_checkpoint(path, write);
    if (!written) answer = kBad + written.error().message;
  }
  // Also the second barrier: no rank gets the answer before the writer is done.
  worker::in_the_name_of(kCaller, [&] { send_to_all(group, answer, options.call); });
  throw_if_bad(name_of(kCaller), group, answer);
}

void save_checkpoint(const std::string& path, std::string_view bytes,
                     const CheckpointOptions& options) {
  const worker::CallSite site;
  save_checkpoint(
      path,
      [bytes](std::ostream& out) {
        out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      },
      options);
}

std::optional<std::string> load_checkpoint(const std::string& path,
                                           const CheckpointOptions& options) {
  constexpr worker::CallPurpose kCaller = worker::CallPurpose::load_checkpoint;
  ProcessGroup group = group_of(options);
  std::string answer(1, kGood);
  std::string bytes;
  if (group.rank() == kWriter) {
    const Section section(name_of(kCaller));
    auto read = read_checkpoint(path);
    if (!read) {
      answer = kBad + read.error().message;
    } else if (!*read) {
      answer = kNoFile;
    } else {
      bytes = **std::move(read);
    }
  }
  worker::in_the_name_of(kCaller, [&] {
    send_to_all(group, answer, options.call);
    if (answer.front() == kGood) send_to_all(group, bytes, options.call);
  });
  throw_if_bad(name_of(kCaller), group, answer);
  if (answer.front() == kNoFile) return std::nullopt;
  return bytes;
}

}  // namespace muster
