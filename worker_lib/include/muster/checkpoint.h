// A checkpoint that is either the old one or the new one, never a partial one.
//
//   // The same bytes on all ranks, or none.
//   std::optional<std::string> saved = muster::load_checkpoint("run7.ckpt");
//   int epoch = saved ? restore(model, *saved) : 0;
//   for (; epoch < epochs; ++epoch) {
//     train(epoch, model);
//     muster::save_checkpoint("run7.ckpt", [&](std::ostream& out) { write(model, out); });
//   }
//
// The parameters are equal on all ranks after each step of data-parallel training, so rank 0 alone
// writes; if each rank has its own part, give each its own path and group. The file holds exactly
// the bytes that were written. Both functions are collective: all members of the group call them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/process_group.h"
#include "muster/training.h"
#include "muster/types.h"

namespace muster {

struct CheckpointOptions {
  ProcessGroup group = {};  // Empty: the world.
  CallOptions call = {};    // The time-out must suffice for rank 0 to write everything.
};

namespace detail {

// Puts a stream's bytes into a checkpoint.
class CheckpointBuffer final : public std::streambuf {
 public:
  explicit CheckpointBuffer(muster_file* file) : file_(file), buffer_(size_t{256} << 10) {
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) sputc(traits_type::to_char_type(c));
    return traits_type::not_eof(c);
  }
  std::streamsize xsputn(const char* data, std::streamsize size) override {
    if (size < epptr() - pptr()) return std::streambuf::xsputn(data, size);
    // Large writes bypass the buffer.
    return sync() == 0 && put(data, size) ? size : 0;
  }
  int sync() override {
    const bool is_put = put(pbase(), pptr() - pbase());
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return is_put ? 0 : -1;
  }

 private:
  bool put(const char* data, std::streamsize size) {
    return size == 0 || muster_file_write(file_, data, static_cast<size_t>(size)) == MUSTER_OK;
  }

  muster_file* const file_;
  std::vector<char> buffer_;
};

// The path for a C function, which would take a zero byte for its end.
inline const char* c_path(const std::string& path, const char* call) {
  if (path.find('\0') == std::string::npos) return path.c_str();
  refuse(call, "a path has no zero byte in it");
}

// `write`: takes a muster_file*; throws, or returns why it failed.
template <typename Write>
void save_checkpoint(const std::string& path, const Write& write, const CheckpointOptions& options,
                     const void* site) {
  struct Writer {
    const Write& write;
    Caught caught;
  } writer{write, {}};
  const muster_write_checkpoint run = [](void* context, muster_file* file) {
    Writer& own = *static_cast<Writer*>(context);
    const char* why = nullptr;
    const char* const thrown = own.caught.call([&] { why = own.write(file); });
    return thrown != nullptr ? thrown : why;
  };
  const muster_call_options given = c_options(options.call, site);
  throw_unless_ok(muster_save_checkpoint(options.group.handle(), c_path(path, "save_checkpoint"),
                                         run, &writer, &given));
}

}  // namespace detail

// Rank 0 of the group writes; all members return when the file is safely on disk.
//
// All members first pass a barrier, so that the checkpoint is of a step that every rank has
// completed and no rank still reads the old one. Rank 0 then calls `write` with a binary stream, on
// this thread, writes to a new file beside `path` (its name, ".tmp-" and a random suffix; leftovers
// of killed processes are removed), fsyncs it, renames it to `path` and fsyncs the folder
// (rename(2), fsync(2)): after a crash at any moment, even of the machine, `path` is the old or the
// new checkpoint. Then the others get the outcome; they neither call `write` nor use `path`.
//
// If it cannot be written (no space, no folder, no permission; `write` threw or left the stream in
// a failed state), all members throw the same DistributedError, code system, with the reason and
// with the writer as failed_ranks(); the old checkpoint is kept and the group stays usable. A new
// file gets the mode of the one it replaces, else 0666 less the umask. A symbolic link at `path` is
// replaced, not followed; a device, pipe or socket is refused. Each rank refuses for itself a path
// with a zero byte in it (invalid_argument).
MUSTER_CALL inline void save_checkpoint(const std::string& path,
                                        const std::function<void(std::ostream&)>& write,
                                        const CheckpointOptions& options = {}) {
  const auto put = [&](muster_file* file) {
    detail::CheckpointBuffer buffer(file);
    std::ostream stream(&buffer);
    write(stream);
    return stream.flush() ? nullptr : "the stream was left in a failed state";
  };
  detail::save_checkpoint(path, put, options, MUSTER_CALLER);
}
MUSTER_CALL inline void save_checkpoint(const std::string& path, std::string_view bytes,
                                        const CheckpointOptions& options = {}) {
  const auto put = [&](muster_file* file) {
    const muster_status status = muster_file_write(file, bytes.data(), bytes.size());
    return status == MUSTER_OK ? nullptr : muster_last_error();
  };
  detail::save_checkpoint(path, put, options, MUSTER_CALLER);
}

// Returns on all members what rank 0 of the group reads at `path` (the others need not see the
// file); nullopt if there is no such file. If it exists but cannot be read, all throw the same
// DistributedError, code system, with rank 0 of the group as failed_ranks().
MUSTER_CALL inline std::optional<std::string> load_checkpoint(
    const std::string& path, const CheckpointOptions& options = {}) {
  std::string bytes;
  const muster_resize resize = [](void* context, size_t length) -> void* {
    auto& own = *static_cast<std::string*>(context);
    try {
      own.resize(length);
      return own.data();
    } catch (const std::exception&) {
      return nullptr;
    }
  };
  const muster_call_options given = detail::c_options(options.call, MUSTER_CALLER);
  int found = 0;
  detail::throw_unless_ok(muster_load_checkpoint(options.group.handle(),
                                                 detail::c_path(path, "load_checkpoint"), &found,
                                                 resize, &bytes, &given));
  return found != 0 ? std::optional<std::string>(std::move(bytes)) : std::nullopt;
}

}  // namespace muster
