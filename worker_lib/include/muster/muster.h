// The library for C, and for languages that call C.
//
//   #include <stdio.h>
//   #include <muster/muster.h>
//
//   int main(void) {
//     float loss = 0.25f;
//     if (muster_init(NULL) != MUSTER_OK ||
//         muster_all_reduce(NULL, &loss, &loss, 1, MUSTER_FLOAT32, MUSTER_AVERAGE, NULL, NULL)) {
//       fprintf(stderr, "%s\n", muster_last_error());
//       return 1;
//     }
//     printf("rank %d of %d: %g\n", muster_rank(), muster_world_size(), loss);
//     muster_destroy();
//     return 0;
//   }
//
// The operations, their shapes and their promises are those of process_group.h; this says only what
// differs in C.
//
// - Every function that returns a muster_status says MUSTER_OK, or why it failed. Then
//   muster_last_error() and its companions tell the rest, for this thread, until its next failing
//   call. The message begins with the operation ("all_reduce 17 of group world: ..."), or with the
//   C function where none was under way. What a function returns through pointers is untouched when
//   it fails. Nothing is ever thrown into the caller.
// - A group is a handle; NULL means the group of all ranks. Ranks are plain integers: roots and
//   peers are ranks of the group, the lists of muster_new_group() are ranks of the job.
// - `count` is the number of elements of one block. A buffer that holds a block for each of the n
//   ranks holds n * count; the _v calls take n counts, and their blocks lie one after the other.
//   Where a buffer matters on the root only, it may be NULL elsewhere, and is not looked at.
// - In place: the same pointer for `in` and `out`; where their sizes differ, the smaller one is the
//   block of this rank in the larger one.
// - The last argument of an operation, `work`: NULL performs it before the call returns; else it is
//   begun, and *work is a handle to wait on. Its buffers must stay alive until it is complete.
//   Every handle that was given out is to be given back to its _free function.
// - Structures carry their own size, so that later versions can add members at the end. Begin with
//   the initialiser macros: all zeros does not mean "nothing said".
//
// Any thread may call anything; process_group.h says what that promises.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MUSTER_API __attribute__((visibility("default")))
#else
#define MUSTER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Raised when a function changes its meaning or goes; additions do not raise it.
#define MUSTER_ABI_VERSION 1
MUSTER_API int muster_abi_version(void);

// ---- names

typedef enum muster_status {
  MUSTER_IN_PROGRESS = -1,  // No failure: the operation of a muster_work goes on.
  MUSTER_OK = 0,
  MUSTER_ERROR_INVALID_ARGUMENT = 1,  // See error.h for all of these.
  MUSTER_ERROR_NOT_INITIALIZED = 2,
  MUSTER_ERROR_NOT_MEMBER = 3,
  MUSTER_ERROR_FORKED = 4,
  MUSTER_ERROR_ENVIRONMENT = 5,
  MUSTER_ERROR_RENDEZVOUS = 6,
  MUSTER_ERROR_TIMEOUT = 7,
  MUSTER_ERROR_PEER_FAILED = 8,
  MUSTER_ERROR_ABORTED = 9,
  MUSTER_ERROR_STOPPED = 10,
  MUSTER_ERROR_MISMATCH = 11,
  MUSTER_ERROR_BACKEND = 12,
  MUSTER_ERROR_SYSTEM = 13
} muster_status;

typedef enum muster_dtype {
  MUSTER_INT8 = 0,
  MUSTER_UINT8 = 1,
  MUSTER_INT16 = 2,
  MUSTER_INT32 = 3,
  MUSTER_INT64 = 4,
  MUSTER_FLOAT16 = 5,
  MUSTER_BFLOAT16 = 6,
  MUSTER_FLOAT32 = 7,
  MUSTER_FLOAT64 = 8
} muster_dtype;

typedef enum muster_reduce_op {
  MUSTER_SUM = 0,
  MUSTER_AVERAGE = 1,
  MUSTER_PRODUCT = 2,
  MUSTER_MIN = 3,
  MUSTER_MAX = 4,
  MUSTER_BAND = 5,
  MUSTER_BOR = 6,
  MUSTER_BXOR = 7
} muster_reduce_op;

typedef enum muster_backend {
  MUSTER_BACKEND_AUTOMATIC = 0,
  MUSTER_BACKEND_CPU = 1,
  MUSTER_BACKEND_NCCL = 2,
  MUSTER_BACKEND_GLOO = 3
} muster_backend;

typedef enum muster_stop_policy {
  MUSTER_STOP_END_CALLS = 0,  // See StopPolicy in init.h.
  MUSTER_STOP_AGREE = 1,
  MUSTER_STOP_IGNORE = 2
} muster_stop_policy;

// "timeout", "float32", "average". Never NULL: "unknown" for a number that means nothing.
MUSTER_API const char* muster_status_name(int status);
MUSTER_API const char* muster_dtype_name(int dtype);
MUSTER_API const char* muster_reduce_op_name(int op);
// Bytes of one element; 0 for a number that means nothing.
MUSTER_API size_t muster_dtype_size(int dtype);

typedef struct muster_group muster_group;
typedef struct muster_work muster_work;
typedef struct muster_shared_memory muster_shared_memory;

// ---- the last failure of this thread. Valid until its next failing call.

MUSTER_API muster_status muster_last_error_code(void);
// One line; "" before any failure.
MUSTER_API const char* muster_last_error(void);
// "all_reduce", or the call that failed ("muster_init"), and "world"; "" where there was none.
MUSTER_API const char* muster_last_error_operation(void);
MUSTER_API const char* muster_last_error_group(void);
// Where it began: ranks of the job, ascending, the same on all ranks that fail for the same reason;
// see DistributedError::failed_ranks() in error.h. Copies the first `capacity` of them to `ranks`
// (may be NULL with 0) and returns how many there are.
MUSTER_API size_t muster_last_error_ranks(int* ranks, size_t capacity);

// ---- joining and leaving the job; see init.h

typedef struct muster_init_options {
  size_t struct_size;       // sizeof(muster_init_options), as the caller was compiled.
  const char* init_method;  // NULL: "env://".
  int64_t timeout_ms;       // < 0: 30 minutes.
  int backend;              // muster_backend
  int rank;                 // < 0: from the environment. So are the next two.
  int world_size;
  int local_rank;
  int device;      // < 0: LOCAL_RANK.
  int on_sigterm;  // muster_stop_policy
} muster_init_options;

#define MUSTER_INIT_OPTIONS                                                         \
  {sizeof(muster_init_options), NULL, -1, MUSTER_BACKEND_AUTOMATIC, -1, -1, -1, -1, \
   MUSTER_STOP_END_CALLS}

// Blocks until all ranks have joined. NULL: all as the initialiser says.
MUSTER_API muster_status muster_init(const muster_init_options* options);
// Leaves in order. Does nothing when not initialised. Handles stay to be freed.
MUSTER_API void muster_destroy(void);
MUSTER_API int muster_is_initialized(void);

// Each is -1, with MUSTER_ERROR_NOT_INITIALIZED as this thread's last failure, outside a job.
MUSTER_API int muster_rank(void);
MUSTER_API int muster_world_size(void);
MUSTER_API int muster_local_rank(void);
MUSTER_API int muster_local_world_size(void);
MUSTER_API int muster_node_rank(void);
MUSTER_API int muster_restart_count(void);
// The GPU of this rank, or -1 where it has none.
MUSTER_API int muster_cuda_device(void);

// 1, or 0 and the reason as this thread's last failure (MUSTER_ERROR_BACKEND). No job is needed.
MUSTER_API int muster_is_nccl_available(void);
MUSTER_API int muster_is_gloo_available(void);

// ---- groups

typedef struct muster_group_options {
  size_t struct_size;
  const char* name;    // NULL: made of the ranks. Copied.
  int64_t timeout_ms;  // < 0: that of the world.
  int backend;         // < 0: that of the world.
} muster_group_options;

#define MUSTER_GROUP_OPTIONS {sizeof(muster_group_options), NULL, -1, -1}

typedef struct muster_call_options {
  size_t struct_size;
  int64_t timeout_ms;  // < 0: the group's. 0: already over.
  void* stream;        // cudaStream_t, for GPU memory.
  int cuda_device;     // < 0: the buffers are host memory. Else the GPU that they are on.
} muster_call_options;

#define MUSTER_CALL_OPTIONS {sizeof(muster_call_options), -1, NULL, -1}

// A handle of its own for the group of all ranks: NULL serves as well.
MUSTER_API muster_status muster_world(muster_group** group);
// Called by the members, all with the same ranks of the job in the same order. Others need not call
// it; who does gets, at once, a group in which muster_group_is_member() is 0.
MUSTER_API muster_status muster_new_group(const int* ranks, size_t count,
                                          const muster_group_options* options,
                                          muster_group** group);
// Called by all members. color < 0: in no group; then muster_group_is_member() is 0.
MUSTER_API muster_status muster_split(muster_group* group, int color, int key,
                                      const muster_group_options* options, muster_group** split);
// The handle alone goes. NULL is allowed.
MUSTER_API void muster_group_free(muster_group* group);

MUSTER_API int muster_group_is_member(muster_group* group);
// These are -1, and the last failure says why, where there is none.
MUSTER_API int muster_group_rank(muster_group* group);
MUSTER_API int muster_group_size(muster_group* group);
MUSTER_API int muster_group_global_rank(muster_group* group, int group_rank);
MUSTER_API int muster_group_from_global_rank(muster_group* group, int global_rank);
// Lives as long as the handle; of NULL until muster_destroy(). "" where there is none.
MUSTER_API const char* muster_group_name(muster_group* group);
// Ends every blocked and future call of the group on all ranks. NULL: a reason of ours.
MUSTER_API muster_status muster_group_abort(muster_group* group, const char* reason);
// MUSTER_OK, or what failed the group: then that is this thread's last failure.
MUSTER_API muster_status muster_group_failure(muster_group* group);

// ---- collective operations

MUSTER_API muster_status muster_barrier(muster_group* group, const muster_call_options* options,
                                        muster_work** work);
MUSTER_API muster_status muster_monitored_barrier(muster_group* group, int wait_all_ranks,
                                                  const muster_call_options* options);

MUSTER_API muster_status muster_broadcast(muster_group* group, void* data, size_t count, int dtype,
                                          int root, const muster_call_options* options,
                                          muster_work** work);
// out: the root's.
MUSTER_API muster_status muster_reduce(muster_group* group, const void* in, void* out, size_t count,
                                       int dtype, int op, int root,
                                       const muster_call_options* options, muster_work** work);
MUSTER_API muster_status muster_all_reduce(muster_group* group, const void* in, void* out,
                                           size_t count, int dtype, int op,
                                           const muster_call_options* options, muster_work** work);

// in: count. out: n * count, the root's.
MUSTER_API muster_status muster_gather(muster_group* group, const void* in, void* out, size_t count,
                                       int dtype, int root, const muster_call_options* options,
                                       muster_work** work);
// in: in_count, which is the root's counts[me]. counts: n of them, the root's; else NULL.
MUSTER_API muster_status muster_gather_v(muster_group* group, const void* in, size_t in_count,
                                         void* out, const size_t* counts, int dtype, int root,
                                         const muster_call_options* options, muster_work** work);
MUSTER_API muster_status muster_all_gather(muster_group* group, const void* in, void* out,
                                           size_t count, int dtype,
                                           const muster_call_options* options, muster_work** work);
// in: counts[me]. The same n counts on all.
MUSTER_API muster_status muster_all_gather_v(muster_group* group, const void* in, void* out,
                                             const size_t* counts, int dtype,
                                             const muster_call_options* options,
                                             muster_work** work);

// in: n * count, the root's. out: count.
MUSTER_API muster_status muster_scatter(muster_group* group, const void* in, void* out,
                                        size_t count, int dtype, int root,
                                        const muster_call_options* options, muster_work** work);
// out: out_count, which is the root's counts[me].
MUSTER_API muster_status muster_scatter_v(muster_group* group, const void* in, const size_t* counts,
                                          void* out, size_t out_count, int dtype, int root,
                                          const muster_call_options* options, muster_work** work);

// in: n * count. out: count.
MUSTER_API muster_status muster_reduce_scatter(muster_group* group, const void* in, void* out,
                                               size_t count, int dtype, int op,
                                               const muster_call_options* options,
                                               muster_work** work);
// out: counts[me]. The same n counts on all.
MUSTER_API muster_status muster_reduce_scatter_v(muster_group* group, const void* in, void* out,
                                                 const size_t* counts, int dtype, int op,
                                                 const muster_call_options* options,
                                                 muster_work** work);

// in, out: n * count, apart from each other.
MUSTER_API muster_status muster_all_to_all(muster_group* group, const void* in, void* out,
                                           size_t count, int dtype,
                                           const muster_call_options* options, muster_work** work);
MUSTER_API muster_status muster_all_to_all_v(muster_group* group, const void* in,
                                             const size_t* send_counts, void* out,
                                             const size_t* recv_counts, int dtype,
                                             const muster_call_options* options,
                                             muster_work** work);

// ---- point to point

MUSTER_API muster_status muster_send(muster_group* group, const void* data, size_t count, int dtype,
                                     int to, int tag, const muster_call_options* options,
                                     muster_work** work);
// from < 0: from whoever sends first with that tag. *source (may be NULL) becomes who sent; with
// `work` it is not set: ask muster_work_source() when the receive is complete.
MUSTER_API muster_status muster_recv(muster_group* group, void* data, size_t count, int dtype,
                                     int from, int tag, int* source,
                                     const muster_call_options* options, muster_work** work);

// One of a batch. Has no size of its own: it never grows.
typedef struct muster_p2p {
  int is_send;
  void* data;  // Only read by a send.
  size_t count;
  int dtype;
  int peer;
  int tag;
} muster_p2p;

// All of them at the same time. works: `count` handles, one for each in the order of `ops`.
MUSTER_API muster_status muster_batch(muster_group* group, const muster_p2p* ops, size_t count,
                                      const muster_call_options* options, muster_work** works);

// ---- byte strings of unequal lengths. What comes back is to be given to muster_free().

// bytes, length: the root's. *out and *out_length become a copy of them on all ranks, the root too.
MUSTER_API muster_status muster_broadcast_bytes(muster_group* group, const void* bytes,
                                                size_t length, int root, void** out,
                                                size_t* out_length,
                                                const muster_call_options* options);
// *out becomes all strings one after the other by group rank, and lengths[r] (n of them) their
// lengths.
MUSTER_API muster_status muster_all_gather_bytes(muster_group* group, const void* bytes,
                                                 size_t length, void** out, size_t* lengths,
                                                 const muster_call_options* options);
MUSTER_API void muster_free(void* bytes);

// ---- memory that all members on this node share

MUSTER_API muster_status muster_allocate_shared(muster_group* group, size_t bytes,
                                                const muster_call_options* options,
                                                muster_shared_memory** memory);
// Zeroed, and aligned to a page; lives until the handle is freed.
MUSTER_API void* muster_shared_memory_data(muster_shared_memory* memory);
MUSTER_API size_t muster_shared_memory_bytes(muster_shared_memory* memory);
MUSTER_API void muster_shared_memory_free(muster_shared_memory* memory);

// ---- the end of the job; see training.h

// Collective over the world: *stop becomes 1 on all ranks, or 0 on all. Needs MUSTER_STOP_AGREE.
MUSTER_API muster_status muster_should_stop(int* stop, const muster_call_options* options);
// As if SIGTERM had come to this process. Never blocks.
MUSTER_API muster_status muster_request_stop(void);

// ---- operations that were begun

// Waits until it is complete, at most timeout_ms (< 0: until its own deadline): MUSTER_OK,
// MUSTER_IN_PROGRESS, or what it failed with. On GPU memory it makes the call's stream wait.
MUSTER_API muster_status muster_work_wait(muster_work* work, int64_t timeout_ms);
// Waits until the results are in memory, on GPUs too.
MUSTER_API muster_status muster_work_synchronize(muster_work* work);
// The same three answers at once.
MUSTER_API muster_status muster_work_status(muster_work* work);
// Of a complete receive: the group rank of who sent it; -1 else.
MUSTER_API int muster_work_source(muster_work* work);
// Cancels nothing. NULL is allowed.
MUSTER_API void muster_work_free(muster_work* work);

#ifdef __cplusplus
}  // extern "C"
#endif
