/* A module of libmuster.so (worker_lib/backends/backend_module.h) in C, named by MUSTER_GLOO_LIBRARY: two ranks on one TCP
 * connection, which perform all_reduce and messages. A group named "refused" is refused. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker_lib/backends/backend_module.h"

struct muster_module_group {
  const muster_module_setup* setup;
  int socket;
};

struct muster_module_message {
  muster_operation operation;
};

static int fail(muster_module_call* call, int code, const char* message, int is_suspicion) {
  static const int other[] = {1, 0};
  const muster_module_failure failure = {code, is_suspicion, message, other, 2};
  call->fail(call, &failure);
  return code;
}

static int lost(muster_module_call* call) {
  return fail(call, MUSTER_ERROR_PEER_FAILED, "the connection is lost", 0);
}

static int connect_ranks(const muster_module_setup* setup, muster_module_call* call,
                         muster_module_group** group) {
  struct sockaddr_in own = {0}, other;
  socklen_t length = sizeof own;
  muster_module_bytes all[2];
  int made = socket(AF_INET, SOCK_STREAM, 0), connected = made;
  if (strcmp(setup->name, "refused") == 0) {
    close(made);
    return fail(call, MUSTER_ERROR_ENVIRONMENT, "a module in C does not like the name", 1);
  }
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = inet_addr(setup->peers[setup->rank].address);
  if (setup->rank == 0 && (bind(made, (struct sockaddr*)&own, length) != 0 || listen(made, 1) != 0))
    return lost(call);
  getsockname(made, (struct sockaddr*)&own, &length);
  if (setup->exchange(call, &own, sizeof own, all) != 0) return 1;
  memcpy(&other, all[0].data, sizeof other);
  if (setup->rank == 0) {
    connected = accept(made, NULL, NULL);
    close(made);
  } else if (connect(made, (struct sockaddr*)&other, length) != 0) {
    return lost(call);
  }
  *group = malloc(sizeof **group);
  (*group)->setup = setup;
  (*group)->socket = connected;
  return setup->interrupted(call);
}

static int exchange(muster_module_group* group, const void* mine, void* theirs, size_t bytes,
                    muster_module_call* call) {
  const size_t at = (size_t)(1 - group->setup->rank) * bytes;
  if (send(group->socket, (const char*)mine + at, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
      recv(group->socket, (char*)theirs + at, bytes, MSG_WAITALL) != (ssize_t)bytes)
    return lost(call);
  return MUSTER_OK;
}

static size_t width_of(int dtype) {
  static const size_t widths[] = {1, 1, 2, 4, 8, 2, 2, 4, 8};
  return widths[dtype];
}

static int perform(muster_module_group* group, const muster_operation* operation,
                   muster_module_call* call) {
  const size_t bytes = operation->in.count * width_of(operation->in.dtype);
  void* theirs = malloc(bytes);
  int status = MUSTER_OK;
  if (operation->kind != MUSTER_ALL_REDUCE)
    status = fail(call, MUSTER_ERROR_BACKEND, "this module performs all_reduce only", 0);
  else if (send(group->socket, operation->in.data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
           recv(group->socket, theirs, bytes, MSG_WAITALL) != (ssize_t)bytes)
    status = lost(call);
  else
    group->setup->reduce(operation->in.dtype, operation->reduce_op, operation->out.data,
                         operation->in.data, theirs, operation->in.count);
  free(theirs);
  return status;
}

static int post(muster_module_group* group, const muster_operation* operation,
                muster_module_call* call, muster_module_message** message) {
  (void)group, (void)call;
  *message = malloc(sizeof **message);
  (*message)->operation = *operation;
  return MUSTER_OK;
}

static int wait_for(muster_module_group* group, muster_module_message* message,
                    muster_module_call* call, int* source) {
  const muster_buffer data = message->operation.in;
  const size_t bytes = data.count * width_of(data.dtype);
  const int is_send = message->operation.kind == MUSTER_SEND;
  const ssize_t moved = is_send ? send(group->socket, data.data, bytes, MSG_NOSIGNAL)
                                : recv(group->socket, data.data, bytes, MSG_WAITALL);
  free(message);
  *source = 1 - group->setup->rank;
  return moved == (ssize_t)bytes ? MUSTER_OK : lost(call);
}

static void abort_group(muster_module_group* group) {
  shutdown(group->socket, SHUT_RDWR);
}

static void destroy(muster_module_group* group) {
  close(group->socket);
  free(group);
}

#ifdef PLUG_IN_WITHOUT_ENTRY
#define muster_gloo_module another_entry
const muster_module* muster_gloo_module(void);
#endif

const muster_module* muster_gloo_module(void) {
  static muster_module module = {MUSTER_MODULE_HEAD, connect_ranks, exchange, perform, post,
                                 wait_for,           abort_group,   destroy};
#ifdef PLUG_IN_VERSION
  module.head.version += 6;
#endif
#ifdef PLUG_IN_SIZE
  module.head.sizes[0] = 8;
#endif
  return &module;
}
