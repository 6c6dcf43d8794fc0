#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/copy_bytes.h"

using namespace muster;
using namespace muster::c_abi;

namespace {

// Makes a copy that C programs can free, unlike a std::string.
void* copied(std::string_view bytes) {
  void* copy = std::malloc(bytes.empty() ? 1 : bytes.size());
  if (copy == nullptr) throw std::bad_alloc();
  worker::copy_bytes(copy, bytes.data(), bytes.size());
  return copy;
}

std::string_view view_of(const void* bytes, size_t length) {
  if (length > 0) require(bytes, "bytes");
  return {static_cast<const char*>(bytes), length};
}

P2POp p2p_of(const muster_p2p& op, const Call& call) {
  const DType dtype = dtype_of_number(op.dtype);
  const Buffer data = call.buffer(op.data, op.count, dtype);
  const GroupRank peer{op.peer};
  return op.is_send != 0 ? P2POp::send(data, peer, op.tag) : P2POp::recv(data, peer, op.tag);
}

}  // namespace

muster_status muster_send(muster_group* group, const void* data, size_t count, int dtype, int to,
                          int tag, const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    ProcessGroup members = group_of(group);
    const Call call(options);
    const ConstBuffer sent = call.buffer(data, count, dtype_of_number(dtype));
    perform(
        work, [&] { members.send(sent, GroupRank{to}, tag, call.options); },
        [&] { return members.isend(sent, GroupRank{to}, tag, call.options); });
  });
}

muster_status muster_recv(muster_group* group, void* data, size_t count, int dtype, int from,
                          int tag, int* source, const muster_call_options* options,
                          muster_work** work) {
  return guarded(__func__, [&] {
    ProcessGroup members = group_of(group);
    const Call call(options);
    const Buffer received = call.buffer(data, count, dtype_of_number(dtype));
    const auto run = [&] {
      int sender = from;
      if (from < 0) {
        sender = members.recv_any(received, tag, call.options).value;
      } else {
        members.recv(received, GroupRank{from}, tag, call.options);
      }
      if (source != nullptr) *source = sender;
    };
    const auto begin = [&] {
      return from < 0 ? members.irecv_any(received, tag, call.options)
                      : members.irecv(received, GroupRank{from}, tag, call.options);
    };
    perform(work, run, begin);
  });
}

muster_status muster_batch(muster_group* group, const muster_p2p* ops, size_t count,
                           const muster_call_options* options, muster_work** works) {
  return guarded(__func__, [&] {
    ProcessGroup members = group_of(group);
    const Call call(options);
    if (count > 0) {
      require(ops, "ops");
      require_out(works, "works");
    }
    std::vector<P2POp> batch;
    std::vector<std::unique_ptr<muster_work>> handles;
    for (size_t i = 0; i < count; ++i) {
      batch.push_back(p2p_of(ops[i], call));
      handles.push_back(std::make_unique<muster_work>());
    }
    const std::vector<Work> begun = members.batch_isend_irecv(batch, call.options);
    for (size_t i = 0; i < count; ++i) {
      handles[i]->work = begun[i];
      works[i] = handles[i].release();
    }
  });
}

muster_status muster_broadcast_bytes(muster_group* group, const void* bytes, size_t length,
                                     int root, void** out, size_t* out_length,
                                     const muster_call_options* options) {
  return guarded(__func__, [&] {
    require_out(out, "out");
    require_out(out_length, "out_length");
    ProcessGroup members = group_of(group);
    const Call call(options);
    std::string text;
    if (is_root(members, root)) text = view_of(bytes, length);
    members.broadcast_bytes(text, GroupRank{root}, call.options);
    *out = copied(text);
    *out_length = text.size();
  });
}

muster_status muster_all_gather_bytes(muster_group* group, const void* bytes, size_t length,
                                      void** out, size_t* lengths,
                                      const muster_call_options* options) {
  return guarded(__func__, [&] {
    require_out(out, "out");
    require_out(lengths, "lengths");
    const Call call(options);
    const std::vector<std::string> texts =
        group_of(group).all_gather_bytes(view_of(bytes, length), call.options);
    std::string together;
    for (const std::string& text : texts)
      together += text;
    *out = copied(together);
    for (size_t r = 0; r < texts.size(); ++r)
      lengths[r] = texts[r].size();
  });
}

void muster_free(void* bytes) {
  std::free(bytes);
}
