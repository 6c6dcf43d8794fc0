// The table of C functions by which libmuster.so uses a backend's own library, a module:
// libmuster_gloo.so. Each may have its own compiler and C++ library; a module may be written in C.
// When a group asks for the backend, libmuster.so opens the module, calls its entry,
// muster_<backend>_module(), and refuses a table whose head is not MUSTER_MODULE_HEAD.
//
// A module moves bytes between the ranks of one group. All else is libmuster's: it compares the
// ranks' calls before each collective, forms averages, reduces what a reduce_scatter has moved,
// makes threads, and words time-outs.
//
// - No exception and no ownership crosses the border. What a function is given is valid until it
//   returns, unless stated otherwise.
// - A function with an int result returns 0, or anything else after it has called call->fail().
// - Ranks are those of the group. All memory is host memory.
// - A group has more than one rank. It makes one collective at a time; messages are posted and
//   awaited by any thread at any time, and so is abort() called.
#pragma once

#include "muster/muster.h"

#ifdef __cplusplus
extern "C" {
#endif

// Incremented with every change of this file or of muster_operation.
#define MUSTER_MODULE_VERSION 1

// Defined by the module: its side of a group, and a message that has been posted.
typedef struct muster_module_group muster_module_group;
typedef struct muster_module_message muster_module_message;

typedef struct muster_module_failure {
  int code;             // A muster_status.
  int is_suspicion;     // True if only this rank's view is known; see Failure.
  const char* message;  // One line, no full stop. NULL: a time-out, in libmuster's words.
  const int* ranks;     // Ranks where it began, or that this one waited for.
  size_t ranks_length;
} muster_module_failure;

// One call of a function of the table.
typedef struct muster_module_call {
  int64_t deadline_ns;  // CLOCK_MONOTONIC; INT64_MAX: none.
  uint64_t sequence;    // Number of the collective, equal on all ranks; 0 outside of one.
  // Says why the call fails. Copies; the last failure counts. After abort(), an interruption or a
  // failed exchange libmuster knows the reason: then it need not be called, and has no effect.
  void (*fail)(struct muster_module_call* call, const muster_module_failure* failure);
} muster_module_call;

typedef struct muster_module_peer {
  const char* text;     // "rank 2 (node7, pid 4711)", for messages.
  const char* address;  // An IP address at which other nodes reach it.
} muster_module_peer;

typedef struct muster_module_bytes {
  const void* data;
  size_t length;
} muster_module_bytes;

// Valid until destroy() returns; the functions that take a call, during connect() on its thread.
typedef struct muster_module_setup {
  const char* name;  // The group's, for messages.
  int rank;
  int size;
  const muster_module_peer* peers;  // By rank.
  // Writes any bytes to the group's store and sets all[r], for each rank, to what that rank wrote,
  // valid until connect() returns. Blocks; call it once. Returns 0, or connect() must fail.
  int (*exchange)(muster_module_call* call, const void* value, size_t length,
                  muster_module_bytes* all);
  // Returns 1 if connect() must fail: a rank died, or the group was aborted. A wait asks often.
  int (*interrupted)(muster_module_call* call);
  // out[i] = a[i] op b[i], for a muster_dtype and a muster_reduce_op but MUSTER_AVERAGE. `out` may
  // be `a` or `b`. Any thread.
  void (*reduce)(int dtype, int op, void* out, const void* a, const void* b, size_t count);
} muster_module_setup;

// Never changes: it is read before the version is known.
typedef struct muster_module_head {
  size_t version;
  size_t sizes[5];  // The structures', in bytes.
} muster_module_head;

typedef struct muster_module {
  muster_module_head head;
  // Blocks until this rank can reach all others.
  int (*connect)(const muster_module_setup* setup, muster_module_call* call,
                 muster_module_group** group);
  // Sends, to each other rank r, `bytes` from mine + r * bytes, and receives as many from it at
  // theirs + r * bytes. Returns when all have arrived. At the deadline it fails with
  // MUSTER_ERROR_TIMEOUT, no message, and the ranks whose bytes are missing.
  int (*exchange)(muster_module_group* group, const void* mine, void* theirs, size_t bytes,
                  muster_module_call* call);
  // Performs a collective that moves data, after all ranks have arrived with alike operations. Its
  // kind is neither barrier nor reduce_scatter. Differs from muster_perform() in that a buffer with
  // a block for each rank always has counts, where it is used.
  int (*perform)(muster_module_group* group, const muster_operation* operation,
                 muster_module_call* call);
  // Begins a message to or from another rank; *message must be given to wait() once. Messages of
  // two ranks with one tag arrive in the order in which they were posted.
  int (*post)(muster_module_group* group, const muster_operation* operation,
              muster_module_call* call, muster_module_message** message);
  // Waits until the message is complete and frees it, on failure too. *source: its sender.
  int (*wait)(muster_module_group* group, muster_module_message* message, muster_module_call* call,
              int* source);
  // Ends every blocked and later call on the group, within milliseconds. Called once at most.
  void (*abort)(muster_module_group* group);
  // After abort(), when no call is left.
  void (*destroy)(muster_module_group* group);
} muster_module;

#define MUSTER_MODULE_HEAD                                                            \
  {                                                                                   \
    MUSTER_MODULE_VERSION, {                                                          \
      sizeof(muster_module), sizeof(muster_module_setup), sizeof(muster_module_call), \
          sizeof(muster_module_failure), sizeof(muster_operation)                     \
    }                                                                                 \
  }

#define MUSTER_GLOO_ENTRY "muster_gloo_module"
// The only symbol that libmuster_gloo.so exports.
MUSTER_API const muster_module* muster_gloo_module(void);

#ifdef __cplusplus
}  // extern "C"
#endif
