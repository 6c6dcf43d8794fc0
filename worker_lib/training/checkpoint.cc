#include "muster/checkpoint.h"

#include <exception>
#include <stdexcept>

#include <fmt/format.h>

#include "muster/section.h"
#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/group/group_bytes.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/raise.h"
#include "worker_lib/recorder/call_site.h"
#include "worker_lib/training/atomic_file.h"
#include "worker_lib/training/helper_error.h"

struct muster_file {
  muster::worker::AtomicFile& file;
};

using namespace muster;

namespace {

using worker::AtomicFile;
using worker::CallPurpose;
using worker::Group;
using worker::Outcome;

// Rank 0's answer to all ranks: one of these letters, followed by the message of an error.
constexpr char kGood = '+';
constexpr char kNoFile = '0';
constexpr char kBad = '-';
constexpr int kWriter = 0;

Outcome<> write_checkpoint(const char* path, muster_write_checkpoint write, void* context) {
  try {
    auto file = AtomicFile::create(path);
    if (!file) return tl::unexpected(file.error());
    muster_file handle{**file};
    const worker::CalledBack program;
    return (*file)->commit(write(context, &handle));
  } catch (const std::exception& error) {
    return worker::failed(ErrorCode::system,
                          fmt::format("cannot write {}: {}", path, error.what()));
  }
}

// Calls the group's operations with the answer and the bytes of rank 0.
class Checkpoint {
 public:
  Checkpoint(CallPurpose purpose, muster_group* group, const c_abi::Call& call)
      : purpose_(purpose), group_(c_abi::group_of(group)), options_(call.options) {}

  bool is_writer() const { return group_->members().me == kWriter; }

  void barrier() {
    worker::in_the_name_of(purpose_, [&] {
      c_abi::perform(*group_, {.kind = worker::OpKind::barrier}, options_, nullptr);
    });
  }

  // Makes rank 0's answer that of all ranks; raises it if it is a failure.
  void tell(std::string& answer) {
    send(answer, [&](size_t size) {
      answer.resize(size);
      return answer.data();
    });
    if (answer.front() != kBad) return;
    // Leaves the group usable, since all of its ranks have the same answer.
    const GlobalRank writer = group_->members().peers.front().rank;
    worker::raise_shared(
        {ErrorCode::system,
         fmt::format("{} of {} on rank {}: {}", name_of(purpose_),
                     worker::group_title(group_->name()), writer.value, answer.substr(1)),
         {writer}},
        name_of(purpose_), group_->name());
  }

  void send(std::string_view bytes, const std::function<void*(size_t)>& make_room) {
    worker::in_the_name_of(purpose_, [&] {
      c_abi::value_or_raise(worker::broadcast_bytes(*group_, bytes, kWriter, options_, make_room),
                            "broadcast_bytes", *group_);
    });
  }

 private:
  const CallPurpose purpose_;
  const std::shared_ptr<Group> group_;
  const CallOptions options_;
};

// The program's memory for a checkpoint. Throws if it has none.
class Room {
 public:
  Room(muster_resize resize, void* context) : resize_(resize), context_(context) {}

  void* operator()(size_t bytes) {
    data_ = resize_(context_, bytes);
    if (data_ == nullptr && bytes > 0)
      throw std::runtime_error(fmt::format("there is no memory for {} bytes", bytes));
    bytes_ = bytes;
    return data_;
  }
  std::string_view bytes() const { return {static_cast<const char*>(data_), bytes_}; }

 private:
  const muster_resize resize_;
  void* const context_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Returns the answer.
std::string read_checkpoint(const char* path, Room& room) {
  const auto bad = [](const std::string& why) { return kBad + why; };
  try {
    const Outcome<bool> read = worker::read_file(path, std::ref(room));
    if (!read) return bad(read.error().message);
    return {*read ? kGood : kNoFile};
  } catch (const std::exception& error) {  // The file does not fit into memory.
    return bad(fmt::format("cannot read {}: {}", path, error.what()));
  }
}

}  // namespace

muster_status muster_file_write(muster_file* file, const void* bytes, size_t length) {
  return c_abi::guarded(__func__, [&] {
    c_abi::require(file, "file");
    const Outcome<> written = file->file.write({static_cast<const char*>(bytes), length});
    if (!written) worker::raise(written.error(), {}, {});
  });
}

muster_status muster_save_checkpoint(muster_group* group, const char* path,
                                     muster_write_checkpoint write, void* context,
                                     const muster_call_options* options) {
  return c_abi::guarded(__func__, [&] {
    Checkpoint checkpoint(CallPurpose::save_checkpoint, group, c_abi::Call(options));
    if (checkpoint.is_writer()) {
      c_abi::require(path, "path");
      c_abi::require(reinterpret_cast<const void*>(write), "write");
    }
    checkpoint.barrier();
    std::string answer(1, kGood);
    if (checkpoint.is_writer()) {
      const Section section(name_of(CallPurpose::save_checkpoint));
      const Outcome<> written = write_checkpoint(path, write, context);
      if (!written) answer = kBad + written.error().message;
    }
    // Also the second barrier: no rank gets the answer before the writer is done.
    checkpoint.tell(answer);
  });
}

muster_status muster_load_checkpoint(muster_group* group, const char* path, int* found,
                                     muster_resize resize, void* context,
                                     const muster_call_options* options) {
  return c_abi::guarded(__func__, [&] {
    c_abi::require_out(found, "found");
    c_abi::require(reinterpret_cast<const void*>(resize), "resize");
    Checkpoint checkpoint(CallPurpose::load_checkpoint, group, c_abi::Call(options));
    if (checkpoint.is_writer()) c_abi::require(path, "path");
    Room room(resize, context);
    std::string answer;
    if (checkpoint.is_writer()) {
      const Section section(name_of(CallPurpose::load_checkpoint));
      answer = read_checkpoint(path, room);
    }
    checkpoint.tell(answer);
    const bool is_there = answer.front() == kGood;
    if (is_there) checkpoint.send(room.bytes(), std::ref(room));
    *found = is_there ? 1 : 0;
  });
}
