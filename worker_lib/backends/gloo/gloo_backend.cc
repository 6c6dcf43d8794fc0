// The Gloo backend's table. Gloo has no asynchronous collectives and no abort (but see
// gloo_mesh.h). It reports that a message is complete only to a thread that waits for it, and a
// wait that times out makes the whole group unusable.
#include <mutex>
#include <set>
#include <utility>

#include <gloo/transport/unbound_buffer.h>

#include "muster/types.h"
#include "worker_lib/backends/gloo/gloo_mesh.h"

struct muster_module_message {
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  bool is_send = false;
  int peer = 0;
};

struct muster_module_group {
  const muster_module_setup& setup;
  const std::shared_ptr<muster::worker::GlooMesh> mesh;

  std::mutex mutex = {};
  bool is_aborted = false;
  std::set<gloo::transport::UnboundBuffer*> receiving_from_any = {};
};

namespace muster::worker {
namespace {

// Names the peers whose connections broke: each died, or left the group after an error or an abort.
int explain_gloo(muster_module_group& group, muster_module_call& call, const char* what) {
  const std::string reason = gloo_reason(what);
  {
    const std::lock_guard lock(group.mutex);
    if (group.is_aborted) return MUSTER_ERROR_ABORTED;
  }
  const auto now = std::chrono::steady_clock::now();
  if (is_gloo_timeout(reason) && now + std::chrono::milliseconds{1} >= deadline_of(call))
    return gloo_fail(call, MUSTER_ERROR_TIMEOUT);
  std::string names;
  const std::vector<int> lost = group.mesh->lost_peers();
  for (const int peer : lost)
    names += (names.empty() ? "" : ", ") + std::string(group.setup.peers[peer].text);
  if (lost.empty()) return gloo_fail(call, MUSTER_ERROR_BACKEND, "Gloo failed: " + reason);
  return gloo_fail(call, MUSTER_ERROR_PEER_FAILED,
                   "Gloo lost its connection to " + names + " (" + reason + ")", lost);
}

template <typename Act>
int explained(muster_module_group* group, muster_module_call* call, const Act& act) noexcept {
  try {
    return act();
  } catch (const std::exception& error) {
    return explain_gloo(*group, *call, error.what());
  }
}

int connect_gloo(const muster_module_setup* setup, muster_module_call* call,
                 muster_module_group** group) noexcept {
  try {
    std::shared_ptr<GlooMesh> mesh = GlooMesh::connect(*setup, *call);
    if (mesh == nullptr) return MUSTER_ERROR_BACKEND;
    *group = new muster_module_group{*setup, std::move(mesh)};
    return MUSTER_OK;
  } catch (const std::exception& error) {
    return gloo_fail(*call, MUSTER_ERROR_BACKEND, "Gloo failed: " + gloo_reason(error.what()));
  }
}

int exchange_on_gloo(muster_module_group* group, const void* mine, void* theirs, size_t bytes,
                     muster_module_call* call) noexcept {
  return explained(group, call, [&] {
    return group->mesh->exchange(static_cast<const std::byte*>(mine),
                                 static_cast<std::byte*>(theirs), bytes, *call);
  });
}

int perform_on_gloo(muster_module_group* group, const muster_operation* operation,
                    muster_module_call* call) noexcept {
  return explained(group, call, [&] {
    run_on_gloo(group->setup, group->mesh, *operation, *call);
    return MUSTER_OK;
  });
}

// Mixes size and dtype into the slot, so that unequal ends never match and time out: a message
// larger than its receive would end the process (Gloo throws on its own thread).
uint64_t message_slot(const muster_operation& message) {
  const uint64_t form = message.in.count * 16 + static_cast<uint64_t>(message.in.dtype);
  const uint64_t mixed = form * 0x9e3779b97f4a7c15ULL;
  return gloo_slot(GlooSlots::messages, static_cast<uint32_t>(message.tag)) | mixed >> 56 |
         (mixed >> 40 & 0xffff) << 48;
}

int post_on_gloo(muster_module_group* group, const muster_operation* operation,
                 muster_module_call* call, muster_module_message** message) noexcept {
  return explained(group, call, [&] {
    // Gloo completes an empty receive from any rank only if the buffer itself is not empty.
    static std::byte nothing;
    GlooMesh& mesh = *group->mesh;
    const muster_buffer& data = operation->in;
    const int peer = operation->root;
    const uint64_t slot = message_slot(*operation);
    const size_t bytes = data.count * size_of(static_cast<DType>(data.dtype));
    auto posted = std::make_unique<muster_module_message>();
    posted->buffer =
        mesh.createUnboundBuffer(bytes == 0 ? &nothing : data.data, std::max<size_t>(bytes, 1));
    posted->is_send = operation->kind == MUSTER_SEND;
    posted->peer = peer;
    if (posted->is_send) {
      posted->buffer->send(peer, slot, 0, bytes);
    } else if (peer >= 0) {
      posted->buffer->recv(peer, slot, 0, bytes);
    } else {
      std::vector<int> peers;
      for (int other = 0; other < mesh.size; ++other)
        if (other != mesh.rank) peers.push_back(other);
      posted->buffer->recv(peers, slot, 0, bytes);
    }
    *message = posted.release();
    return MUSTER_OK;
  });
}

// A receive from any rank has no connection that interrupt() could end: abort() cancels it itself.
int wait_on_gloo(muster_module_group* group, muster_module_message* message,
                 muster_module_call* call, int* source) noexcept {
  const std::unique_ptr<muster_module_message> owned(message);
  ::gloo::transport::UnboundBuffer& buffer = *message->buffer;
  const bool is_from_any = message->peer < 0;
  const int status = explained(group, call, [&] {
    {
      const std::lock_guard lock(group->mutex);
      if (group->is_aborted) return MUSTER_ERROR_ABORTED;
      if (is_from_any) group->receiving_from_any.insert(&buffer);
    }
    const auto timeout = gloo_timeout(*call);
    *source = message->peer;
    const bool is_done =
        message->is_send ? buffer.waitSend(timeout) : buffer.waitRecv(source, timeout);
    return is_done ? MUSTER_OK : MUSTER_ERROR_ABORTED;
  });
  if (is_from_any) {
    const std::lock_guard lock(group->mutex);
    group->receiving_from_any.erase(&buffer);
  }
  return status;
}

void abort_gloo(muster_module_group* group) noexcept {
  {
    const std::lock_guard lock(group->mutex);
    group->is_aborted = true;
    for (::gloo::transport::UnboundBuffer* buffer : group->receiving_from_any)
      buffer->abortWaitRecv();
  }
  group->mesh->interrupt();
}

void destroy_gloo(muster_module_group* group) noexcept {
  delete group;
}

}  // namespace

}  // namespace muster::worker

const muster_module* muster_gloo_module(void) {
  using namespace muster::worker;
  static constexpr muster_module kModule{.head = MUSTER_MODULE_HEAD,
                                         .connect = &connect_gloo,
                                         .exchange = &exchange_on_gloo,
                                         .perform = &perform_on_gloo,
                                         .post = &post_on_gloo,
                                         .wait = &wait_on_gloo,
                                         .abort = &abort_gloo,
                                         .destroy = &destroy_gloo};
  return &kModule;
}
