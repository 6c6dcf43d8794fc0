#include <cstdlib>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/c_abi/c_abi.h"
#include "worker_lib/copy_bytes.h"
#include "worker_lib/group/group_bytes.h"

using namespace muster;
using namespace muster::c_abi;
using muster::worker::Group;
using muster::worker::OpKind;
using muster::worker::Transfer;

namespace {

// Makes room that C programs can free, unlike that of a std::string.
void* room_for(size_t bytes) {
  void* room = std::malloc(bytes == 0 ? 1 : bytes);
  if (room == nullptr) throw std::bad_alloc();
  return room;
}

void* copied(std::string_view bytes) {
  void* copy = room_for(bytes.size());
  worker::copy_bytes(copy, bytes.data(), bytes.size());
  return copy;
}

std::string_view view_of(const void* bytes, size_t length) {
  if (length > 0) require(bytes, "bytes");
  return {static_cast<const char*>(bytes), length};
}

constexpr int kAnySource = -1;
constexpr int kNoRank = -2;  // A Transfer's peer that its checks refuse.

muster_operation operation_of(const muster_p2p& op, const Device& device) {
  muster_operation message{};
  message.kind = op.is_send != 0 ? MUSTER_SEND : MUSTER_RECV;
  message.in = {op.data, op.count, op.dtype, device.kind == Device::Kind::cuda ? device.index : -1};
  message.out = message.in;
  message.root = op.is_send == 0 && op.peer < 0 ? kNoRank : op.peer;
  message.tag = op.tag;
  return message;
}

void begin_all(Group& group, std::span<const muster_operation> messages, const CallOptions& options,
               muster_work** works) {
  if (!messages.empty()) require_out(works, "works");
  std::vector<Transfer> transfers;
  std::vector<std::unique_ptr<muster_work>> handles;
  for (const muster_operation& message : messages) {
    if (!is_message(message))
      refuse(std::to_string(message.kind) + " is not the kind of a message");
    transfers.push_back(transfer_of(message, options));
    handles.push_back(std::make_unique<muster_work>());
  }
  constexpr const char* kName = "batch_isend_irecv";
  const auto begun = value_or_raise(group.begin(std::move(transfers), options), kName, group);
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i]->state = begun[i];
    works[i] = handles[i].release();
  }
}

}  // namespace

namespace muster::c_abi {

Transfer transfer_of(const muster_operation& message, const CallOptions& options) {
  const Buffer data = buffer_of(message.kind == MUSTER_SEND ? message.in : message.out);
  return {.kind = static_cast<OpKind>(message.kind),
          .data = static_cast<std::byte*>(data.data),
          .count = data.count,
          .dtype = data.dtype,
          .peer = message.root,
          .tag = message.tag,
          .device = data.device,
          .stream = options.stream};
}

int perform_transfer(Group& group, const Transfer& transfer, const CallOptions& options,
                     muster_work** work) {
  const char* const name = name_of(transfer.kind);
  if (work == nullptr) return value_or_raise(group.transfer(transfer, options), name, group);
  hand_out(work, "work",
           [&] { return value_or_raise(group.begin({transfer}, options), name, group).front(); });
  return -1;
}

}  // namespace muster::c_abi

muster_status muster_send(muster_group* group, const void* data, size_t count, int dtype, int to,
                          int tag, const muster_call_options* options, muster_work** work) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    const muster_p2p op{1, const_cast<void*>(data), count, dtype, to, tag};
    perform_transfer(*members, transfer_of(operation_of(op, call.device), call.options),
                     call.options, work);
  });
}

muster_status muster_recv(muster_group* group, void* data, size_t count, int dtype, int from,
                          int tag, int* source, const muster_call_options* options,
                          muster_work** work) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    muster_operation message = operation_of({0, data, count, dtype, from, tag}, call.device);
    if (from < 0) message.root = kAnySource;
    const int sender =
        perform_transfer(*members, transfer_of(message, call.options), call.options, work);
    if (work == nullptr && source != nullptr) *source = sender;
  });
}

muster_status muster_batch(muster_group* group, const muster_p2p* ops, size_t count,
                           const muster_call_options* options, muster_work** works) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    if (count > 0) require(ops, "ops");
    std::vector<muster_operation> messages;
    for (size_t i = 0; i < count; ++i)
      messages.push_back(operation_of(ops[i], call.device));
    begin_all(*members, messages, call.options, works);
  });
}

muster_status muster_begin_messages(muster_group* group, const muster_operation* messages,
                                    size_t count, const muster_call_options* options,
                                    muster_work** works) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    if (count > 0) require(messages, "messages");
    begin_all(*members, {messages, count}, call.options, works);
  });
}

muster_status muster_broadcast_bytes(muster_group* group, const void* bytes, size_t length,
                                     int root, void** out, size_t* out_length,
                                     const muster_call_options* options) {
  return guarded(__func__, [&] {
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    const bool is_root = members->members().me == root;
    if (!is_root || out != nullptr || out_length != nullptr) {
      require_out(out, "out");
      require_out(out_length, "out_length");
    }
    const std::string_view own = is_root ? view_of(bytes, length) : std::string_view();
    std::unique_ptr<void, decltype(&std::free)> received(nullptr, &std::free);
    size_t size = own.size();
    const auto make_room = [&](size_t needed) {
      size = needed;
      received.reset(room_for(needed));
      return received.get();
    };
    value_or_raise(worker::broadcast_bytes(*members, own, root, call.options, make_room),
                   "broadcast_bytes", *members);
    if (out == nullptr) return;
    *out = is_root ? copied(own) : received.release();
    *out_length = size;
  });
}

muster_status muster_all_gather_bytes(muster_group* group, const void* bytes, size_t length,
                                      void** out, size_t* lengths,
                                      const muster_call_options* options) {
  return guarded(__func__, [&] {
    require_out(out, "out");
    require_out(lengths, "lengths");
    const std::shared_ptr<Group> members = group_of(group);
    const Call call(options);
    const std::vector<std::string> texts =
        value_or_raise(worker::all_gather_bytes(*members, view_of(bytes, length), call.options),
                       "all_gather_bytes", *members);
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
