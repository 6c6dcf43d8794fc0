// The library for C, and for languages that can call C.
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
// The operations, their shapes and their guarantees are those of process_group.h; this header
// states only what differs in C.
//
// - A function with a muster_status result returns MUSTER_OK, or why it failed. Then
//   muster_last_error() and its companions return the details, per thread, until the thread's next
//   failing call. The message begins with the operation ("all_reduce 17 of group world: ..."), or
//   with the C function if there was none. A failed call leaves its output parameters untouched.
//   No exception reaches the caller.
// - A group is a handle; NULL means the group of all ranks. Ranks are plain integers: roots and
//   peers are ranks of the group, the lists of muster_new_group() are ranks of the job.
// - `count` is the number of elements of one block. A buffer with a block for each of the n ranks
//   holds n * count; the _v calls take n counts, and their blocks are contiguous, in rank order. A
//   buffer that only the root needs may be NULL on other ranks, where it is ignored.
// - In place: the same pointer for `in` and `out`; if their sizes differ, the smaller buffer is
//   this rank's block of the larger one.
// - The last argument of an operation, `work`: if NULL, the operation is performed before the call
//   returns; otherwise it is started, and *work becomes a handle to wait on. Its buffers must stay
//   alive until it is complete. Free every handle with its _free function.
// - Structures carry their size. Any size but this version's is refused; a later version that adds
//   members, at the end, will take this one's size as well. Start from the initialiser macros: all
//   zeros are not the defaults.
//
// Any thread may call anything; process_group.h says what that guarantees.
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

// Incremented when a function changes its meaning or is removed, not when functions or members of
// structures are added.
#define MUSTER_ABI_VERSION 1
MUSTER_API int muster_abi_version(void);

// ---- names

typedef enum muster_status {
  MUSTER_IN_PROGRESS = -1,  // The operation of a muster_work is in progress; not a failure.
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

// "timeout", "float32", "average"; "unknown" for an undefined number, never NULL.
MUSTER_API const char* muster_status_name(int status);
MUSTER_API const char* muster_dtype_name(int dtype);
MUSTER_API const char* muster_reduce_op_name(int op);
// Bytes of one element; 0 for an undefined number.
MUSTER_API size_t muster_dtype_size(int dtype);

typedef struct muster_group muster_group;
typedef struct muster_work muster_work;
typedef struct muster_shared_memory muster_shared_memory;

// ---- the last failure of this thread. Valid until its next failing call.

MUSTER_API muster_status muster_last_error_code(void);
// One line; "" before any failure.
MUSTER_API const char* muster_last_error(void);
// "all_reduce", or another call that failed ("muster_init"), and "world"; "" if there was none.
MUSTER_API const char* muster_last_error_operation(void);
MUSTER_API const char* muster_last_error_group(void);
// The ranks of the job where the failure began, ascending, equal on all ranks that fail for the
// same reason; see DistributedError::failed_ranks() in error.h. Copies the first `capacity` of them
// to `ranks` (may be NULL if `capacity` is 0) and returns how many there are.
MUSTER_API size_t muster_last_error_ranks(int* ranks, size_t capacity);
// The message, and in *operation (may be NULL) the operation, in the words of the C++ headers:
// "init_process_group" for "muster_init".
MUSTER_API const char* muster_last_error_in_cpp(const char** operation);

// ---- joining and leaving the job; see init.h

typedef struct muster_init_options {
  size_t struct_size;       // sizeof(muster_init_options) in the caller.
  const char* init_method;  // NULL: "env://".
  int64_t timeout_ms;       // < 0: 30 minutes.
  int backend;              // muster_backend
  int rank;                 // < 0: from the environment; so for the next two.
  int world_size;
  int local_rank;
  int device;      // < 0: LOCAL_RANK.
  int on_sigterm;  // muster_stop_policy
} muster_init_options;

#define MUSTER_INIT_OPTIONS                                                         \
  {sizeof(muster_init_options), NULL, -1, MUSTER_BACKEND_AUTOMATIC, -1, -1, -1, -1, \
   MUSTER_STOP_END_CALLS}

// Blocks until all ranks have joined. NULL: the initialiser's values.
MUSTER_API muster_status muster_init(const muster_init_options* options);
// Leaves the job in order. Does nothing when not initialised. Handles must still be freed.
MUSTER_API void muster_destroy(void);
MUSTER_API int muster_is_initialized(void);

// These return -1 outside a job, with MUSTER_ERROR_NOT_INITIALIZED as this thread's last failure.
MUSTER_API int muster_rank(void);
MUSTER_API int muster_world_size(void);
MUSTER_API int muster_local_rank(void);
MUSTER_API int muster_local_world_size(void);
MUSTER_API int muster_node_rank(void);
MUSTER_API int muster_restart_count(void);
// This rank's GPU, or -1 if it has none.
MUSTER_API int muster_cuda_device(void);

// 1; or 0, with the reason as this thread's last failure (MUSTER_ERROR_BACKEND). Needs no job.
MUSTER_API int muster_is_nccl_available(void);
MUSTER_API int muster_is_gloo_available(void);

// ---- groups

typedef struct muster_group_options {
  size_t struct_size;
  const char* name;    // NULL: made from the ranks. Copied.
  int64_t timeout_ms;  // < 0: the world's.
  int backend;         // < 0: the world's.
  const void* site;    // See muster_call_options.
} muster_group_options;

#define MUSTER_GROUP_OPTIONS {sizeof(muster_group_options), NULL, -1, -1, NULL}

typedef struct muster_call_options {
  size_t struct_size;
  int64_t timeout_ms;  // < 0: the group's. 0: the deadline has already passed.
  void* stream;        // cudaStream_t, for GPU memory.
  int cuda_device;     // The GPU that the buffers are on; < 0: host memory.
  const void* site;    // Where the program made the call, for the report of a hang (see
                       // muster_name_site()). NULL: the caller's address.
} muster_call_options;

#define MUSTER_CALL_OPTIONS {sizeof(muster_call_options), -1, NULL, -1, NULL}

// Makes a handle for the group of all ranks; NULL stands for that group as well.
MUSTER_API muster_status muster_world(muster_group** group);
// The members call it, all with the same ranks of the job in the same order. Other ranks need not;
// one that does gets, at once, a group in which muster_group_is_member() is 0.
MUSTER_API muster_status muster_new_group(const int* ranks, size_t count,
                                          const muster_group_options* options,
                                          muster_group** group);
// All members call it. color < 0: in no group; then muster_group_is_member() is 0.
MUSTER_API muster_status muster_split(muster_group* group, int color, int key,
                                      const muster_group_options* options, muster_group** split);
// Makes another handle for the same group, to be freed by itself; it may be the same pointer.
MUSTER_API muster_status muster_group_copy(muster_group* group, muster_group** copy);
// Frees only the handle. NULL is allowed.
MUSTER_API void muster_group_free(muster_group* group);

MUSTER_API int muster_group_is_member(muster_group* group);
// These return -1 on failure, with the reason as this thread's last failure.
MUSTER_API int muster_group_rank(muster_group* group);
MUSTER_API int muster_group_size(muster_group* group);
MUSTER_API int muster_group_global_rank(muster_group* group, int group_rank);
MUSTER_API int muster_group_from_global_rank(muster_group* group, int global_rank);
// Copies the members' ranks in the job, the first `capacity` of them, by group rank to `ranks` (may
// be NULL if `capacity` is 0); returns how many there are. 0 on failure.
MUSTER_API size_t muster_group_ranks(muster_group* group, int* ranks, size_t capacity);
// The limit for each operation; -1 on failure.
MUSTER_API int64_t muster_group_timeout_ms(muster_group* group);
// The muster_backend for host memory (on_gpu = 0) or for GPU memory; -1: none, it is refused.
MUSTER_API int muster_group_backend(muster_group* group, int on_gpu);
// Valid as long as the handle, or until muster_destroy() for NULL. "" on failure.
MUSTER_API const char* muster_group_name(muster_group* group);
// Ends every blocked and future call of the group on all ranks. reason may be NULL.
MUSTER_API muster_status muster_group_abort(muster_group* group, const char* reason);
// Returns MUSTER_OK, or the group's failure, which is then this thread's last failure.
MUSTER_API muster_status muster_group_failure(muster_group* group);

// ---- after a death; see shrink() and agree() in process_group.h

// *shrunk becomes the group of the members that are there; all of them call it.
// muster_group_leave() leaves it, and so does leaving the group from which it was made.
MUSTER_API muster_status muster_group_shrink(muster_group* group,
                                             const muster_group_options* options,
                                             muster_group** shrunk);
// *agreed becomes, on all members that get an answer, the bits that are set in all their values.
MUSTER_API muster_status muster_group_agree(muster_group* group, uint64_t value, uint64_t* agreed,
                                            const muster_call_options* options);

// ---- groups that meet at a store of the program's: beside muster_init(), or without it

// A key-value store shared by the future members of a group. One key is set and read,
// "muster/meet", so each group needs its own prefix or store. The functions are called on the
// thread that makes the group, before that call returns.
typedef struct muster_store {
  size_t struct_size;
  void* context;  // Passed to the functions.
  // Returns 0; anything else is a failure.
  int (*set)(void* context, const char* key, const void* value, size_t length);
  // Waits at most timeout_ms until the key is set. Returns 0; 1 if it is not set; anything else is
  // a failure. Sets *length to the value's length and copies its first `capacity` bytes.
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* value, size_t capacity,
             size_t* length);
  // Returns why the last call failed, in one line, or NULL. May be NULL.
  const char* (*error)(void* context);
} muster_store;

#define MUSTER_STORE {sizeof(muster_store), NULL, NULL, NULL, NULL}

typedef struct muster_join_options {
  size_t struct_size;
  const char* name;    // NULL: "world". Copied.
  int64_t timeout_ms;  // Limit for joining, and for each operation. < 0: 30 minutes.
  int backend;         // muster_backend
  int device;          // < 0: LOCAL_RANK.
  int on_sigterm;      // muster_stop_policy; only the first group's value has an effect.
  int server_port;     // See server_host.
  // known_as[r]: the number that messages and failed ranks use for rank r of the group. `size`
  // numbers, equal on all members. NULL: the ranks themselves.
  const int* known_as;
  // Address at which this rank reaches the store, if that is a server that speaks TCPStore's
  // protocol (PyTorch's, or the launcher's). All members give it, or none. The group then keeps its
  // own keys there. NULL: rank 0 serves a store for the group, on a free port of its node.
  const char* server_host;
} muster_join_options;

#define MUSTER_JOIN_OPTIONS     \
  {sizeof(muster_join_options), \
   NULL,                        \
   -1,                          \
   MUSTER_BACKEND_AUTOMATIC,    \
   -1,                          \
   MUSTER_STOP_IGNORE,          \
   0,                           \
   NULL,                        \
   NULL}

// Makes a group of `size` processes, this one as `rank`; blocks until all have joined. A process
// may join several, concurrently from several threads. No muster_init() is needed, and the ranks
// are not ranks of the job, whatever known_as says. Fails as muster_init() does.
MUSTER_API muster_status muster_group_join(const muster_store* store, int rank, int size,
                                           const muster_join_options* options,
                                           muster_group** group);
// Leaves the group in order, as muster_destroy() leaves the job. Later calls on the group fail. If
// the handle is freed, or the process ends, without it, this member counts as dead for the others.
MUSTER_API muster_status muster_group_leave(muster_group* group);

// ---- collective operations

MUSTER_API muster_status muster_barrier(muster_group* group, const muster_call_options* options,
                                        muster_work** work);
MUSTER_API muster_status muster_monitored_barrier(muster_group* group, int wait_all_ranks,
                                                  const muster_call_options* options);

MUSTER_API muster_status muster_broadcast(muster_group* group, void* data, size_t count, int dtype,
                                          int root, const muster_call_options* options,
                                          muster_work** work);
// out: used on the root only.
MUSTER_API muster_status muster_reduce(muster_group* group, const void* in, void* out, size_t count,
                                       int dtype, int op, int root,
                                       const muster_call_options* options, muster_work** work);
MUSTER_API muster_status muster_all_reduce(muster_group* group, const void* in, void* out,
                                           size_t count, int dtype, int op,
                                           const muster_call_options* options, muster_work** work);

// in: count. out: n * count, on the root.
MUSTER_API muster_status muster_gather(muster_group* group, const void* in, void* out, size_t count,
                                       int dtype, int root, const muster_call_options* options,
                                       muster_work** work);
// in: in_count, which is the root's counts[me]. counts: n of them, on the root; elsewhere NULL.
MUSTER_API muster_status muster_gather_v(muster_group* group, const void* in, size_t in_count,
                                         void* out, const size_t* counts, int dtype, int root,
                                         const muster_call_options* options, muster_work** work);
MUSTER_API muster_status muster_all_gather(muster_group* group, const void* in, void* out,
                                           size_t count, int dtype,
                                           const muster_call_options* options, muster_work** work);
// in: counts[me]. All ranks pass the same n counts.
MUSTER_API muster_status muster_all_gather_v(muster_group* group, const void* in, void* out,
                                             const size_t* counts, int dtype,
                                             const muster_call_options* options,
                                             muster_work** work);

// in: n * count, on the root. out: count.
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
// out: counts[me]. All ranks pass the same n counts.
MUSTER_API muster_status muster_reduce_scatter_v(muster_group* group, const void* in, void* out,
                                                 const size_t* counts, int dtype, int op,
                                                 const muster_call_options* options,
                                                 muster_work** work);

// in, out: n * count; they must not overlap.
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
// Receives from any rank if from < 0: the first message with that tag. *source (may be NULL)
// becomes the sender; with `work` it is not set: call muster_work_source() once complete.
MUSTER_API muster_status muster_recv(muster_group* group, void* data, size_t count, int dtype,
                                     int from, int tag, int* source,
                                     const muster_call_options* options, muster_work** work);

// One operation of a batch. No struct_size: it never grows.
typedef struct muster_p2p {
  int is_send;
  void* data;  // A send only reads it.
  size_t count;
  int dtype;
  int peer;
  int tag;
} muster_p2p;

// Performs all of them at the same time. works: `count` handles, in the order of `ops`.
MUSTER_API muster_status muster_batch(muster_group* group, const muster_p2p* ops, size_t count,
                                      const muster_call_options* options, muster_work** works);

// ---- any operation, described by a value: for bindings of other languages, and the C++ headers

typedef enum muster_kind {
  MUSTER_BARRIER = 1,
  MUSTER_BROADCAST = 2,
  MUSTER_REDUCE = 3,
  MUSTER_ALL_REDUCE = 4,
  MUSTER_GATHER = 5,
  MUSTER_ALL_GATHER = 6,
  MUSTER_SCATTER = 7,
  MUSTER_REDUCE_SCATTER = 8,
  MUSTER_ALL_TO_ALL = 9,
  MUSTER_SEND = 10,
  MUSTER_RECV = 11
} muster_kind;

// `count`: all elements of the buffer, not those of one block.
typedef struct muster_buffer {
  void* data;  // An operation only reads its `in`.
  size_t count;
  int dtype;
  int cuda_device;  // < 0: host memory.
} muster_buffer;

// No struct_size: it never grows. What its kind does not use is ignored.
typedef struct muster_operation {
  int kind;           // muster_kind
  muster_buffer in;   // What a broadcast or a message transfers is both its `in` and its `out`.
  muster_buffer out;  // Both also on ranks other than the root, where what is not used is ignored.
  int reduce_op;
  int root;  // In a message the other rank; in a receive -1: any.
  int tag;
  int is_v;  // The counts of its ranks may differ, and are listed here as far as they are needed.
  const size_t* send_counts;  // NULL if there are none.
  size_t send_counts_length;
  const size_t* recv_counts;
  size_t recv_counts_length;
} muster_operation;

// Performs or, if `work` is not NULL, begins the operation. Every size that the operation needs is
// checked. The cuda_device of `options` is ignored. *source (may be NULL): see muster_recv().
MUSTER_API muster_status muster_perform(muster_group* group, const muster_operation* operation,
                                        const muster_call_options* options, muster_work** work,
                                        int* source);
// Begins all of them, which are messages, at the same time. works: `count` handles, in their order.
MUSTER_API muster_status muster_begin_messages(muster_group* group,
                                               const muster_operation* messages, size_t count,
                                               const muster_call_options* options,
                                               muster_work** works);

// ---- byte strings of unequal lengths. Free the results with muster_free().

// bytes, length: used on the root only. *out and *out_length become a copy on all ranks; on the
// root both may be NULL.
MUSTER_API muster_status muster_broadcast_bytes(muster_group* group, const void* bytes,
                                                size_t length, int root, void** out,
                                                size_t* out_length,
                                                const muster_call_options* options);
// *out becomes all strings, concatenated by group rank; lengths[r] (n of them) their lengths.
MUSTER_API muster_status muster_all_gather_bytes(muster_group* group, const void* bytes,
                                                 size_t length, void** out, size_t* lengths,
                                                 const muster_call_options* options);
MUSTER_API void muster_free(void* bytes);

// ---- memory shared by all members on this node

MUSTER_API muster_status muster_allocate_shared(muster_group* group, size_t bytes,
                                                const muster_call_options* options,
                                                muster_shared_memory** memory);
// Zeroed and page-aligned; lives until the handle is freed.
MUSTER_API void* muster_shared_memory_data(muster_shared_memory* memory);
MUSTER_API size_t muster_shared_memory_bytes(muster_shared_memory* memory);
MUSTER_API void muster_shared_memory_free(muster_shared_memory* memory);

// ---- functions of the program, which those below call on the calling thread. They must return:
// no exception, longjmp() or end of the thread may leave them. What they give must stay valid until
// the function that called them has returned.

// ---- points at which all ranks agree; see training.h. Collective over the world.

// How a block went. All zeros at first: it succeeded.
typedef struct muster_outcome {
  int code;             // MUSTER_ERROR_SYSTEM, or the code of a failure of this library.
  const char* message;  // One line.
  const int* ranks;     // Ranks of the job where a failure of this library began, if known.
  size_t ranks_length;
} muster_outcome;

// Must not call operations of the world.
typedef void (*muster_block)(void* context, muster_outcome* outcome);
// Rank 0 of the job, or with is_local local rank 0 of every node, runs the block while the others
// wait; then the others run it. Where it fails, the result is its outcome. If it fails on one of
// the first ranks, the others do not run it and get MUSTER_ERROR_PEER_FAILED.
MUSTER_API muster_status muster_zero_first(int is_local, muster_block block, void* context,
                                           const muster_call_options* options);
// *stop becomes 1 on all ranks, or 0 on all. Needs MUSTER_STOP_AGREE.
MUSTER_API muster_status muster_should_stop(int* stop, const muster_call_options* options);
// Acts as if this process had received SIGTERM. Never blocks; not collective.
MUSTER_API muster_status muster_request_stop(void);

// ---- checkpoints; see checkpoint.h. Collective over the group.

typedef struct muster_file muster_file;
// Called on rank 0 of the group, and must not call the group's operations. Returns NULL, or why it
// failed, in one line.
typedef const char* (*muster_write_checkpoint)(void* context, muster_file* file);
// Appends to the new checkpoint, on the thread of the muster_write_checkpoint and only there. After
// one failure all fail.
MUSTER_API muster_status muster_file_write(muster_file* file, const void* bytes, size_t length);
// path, write: used on rank 0 only; elsewhere they may be NULL.
MUSTER_API muster_status muster_save_checkpoint(muster_group* group, const char* path,
                                                muster_write_checkpoint write, void* context,
                                                const muster_call_options* options);
// Sets the length of the memory for a checkpoint, keeps what is in it, and returns where it is, or
// NULL if there is no memory (or length is 0). Called if there is a file, perhaps several times:
// the last length is the checkpoint's, and earlier ones are larger only if the file shrinks. After
// a failure the memory holds anything.
typedef void* (*muster_resize)(void* context, size_t length);
// *found becomes 1 on all ranks, or 0 if there is no file. path: used on rank 0 only; elsewhere it
// may be NULL. resize: used on all ranks.
MUSTER_API muster_status muster_load_checkpoint(muster_group* group, const char* path, int* found,
                                                muster_resize resize, void* context,
                                                const muster_call_options* options);

// ---- gradients that are averaged while others are computed; see gradient_buckets.h

typedef struct muster_buckets muster_buckets;

typedef enum muster_bucket_strategy {
  MUSTER_BUCKETS_ALL_REDUCE = 0,
  MUSTER_BUCKETS_REDUCE_BROADCAST = 1
} muster_bucket_strategy;

typedef struct muster_bucket_options {
  size_t struct_size;
  size_t bucket_bytes;
  size_t first_bucket_bytes;
  int strategy;
  int op;
} muster_bucket_options;

#define MUSTER_BUCKET_OPTIONS \
  {sizeof(muster_bucket_options), 25u << 20, 1u << 20, MUSTER_BUCKETS_ALL_REDUCE, MUSTER_AVERAGE}

// One thread at a time may use a handle.

// Collective. buffers: `count` of them; their memory must stay in place until the handle is freed.
// The time-out and the stream of `call` are those of each operation.
MUSTER_API muster_status muster_buckets_new(muster_group* group, const muster_buffer* buffers,
                                            size_t count, const muster_bucket_options* options,
                                            const muster_call_options* call,
                                            muster_buckets** buckets);
// site: as in muster_call_options.
MUSTER_API muster_status muster_buckets_ready(muster_buckets* buckets, size_t index,
                                              const void* site);
MUSTER_API muster_status muster_buckets_ready_all(muster_buckets* buckets, const void* site);
MUSTER_API muster_status muster_buckets_flush(muster_buckets* buckets, const void* site);
MUSTER_API muster_status muster_buckets_wait(muster_buckets* buckets, const void* site);
// The number of buckets.
MUSTER_API size_t muster_buckets_count(const muster_buckets* buckets);
// The bucket of a buffer; -1 on failure.
MUSTER_API int muster_buckets_of(muster_buckets* buckets, size_t index);
// Nanoseconds of the last step: blocked in muster_buckets_wait(), and spent copying.
MUSTER_API void muster_buckets_times(const muster_buckets* buckets, int64_t* wait_ns,
                                     int64_t* copy_ns);
// Waits for operations in flight; with `abandon` as muster_work_abandon(). NULL is allowed.
MUSTER_API void muster_buckets_free(muster_buckets* buckets, int abandon);

// ---- the samples of a rank; see sampler.h

typedef struct muster_sampler_options {
  size_t struct_size;
  uint64_t seed;
  int rank;   // < 0: that of the job.
  int ranks;  // < 0: those of the job.
  int shuffle;
  int drop_last;
} muster_sampler_options;

#define MUSTER_SAMPLER_OPTIONS {sizeof(muster_sampler_options), 0, -1, -1, 1, 0}

// *count becomes the number of samples of each rank of a data set of `size`; fills `indices` (NULL:
// only the number is wanted) with this rank's samples of the epoch, in order. Local.
MUSTER_API muster_status muster_sample(size_t size, uint64_t epoch,
                                       const muster_sampler_options* options, size_t* indices,
                                       size_t* count);

// ---- ranks that are started from inside a program; see spawn.h

typedef struct muster_spawn_options {
  size_t struct_size;
  const char* name;                // NULL: the call's number.
  const char* const* environment;  // "NAME=value", until NULL. NULL: none.
  const char* const* arguments;    // Those after the program, until NULL. NULL: this process's.
  int64_t stop_timeout_ms;         // < 0: 0.
  int64_t timeout_ms;              // < 0: none.
} muster_spawn_options;

#define MUSTER_SPAWN_OPTIONS {sizeof(muster_spawn_options), NULL, NULL, NULL, 5000, -1}

// No struct_size: it never grows. See RankExit in spawn.h.
typedef struct muster_rank_exit {
  int pid;
  int code;
  int signal;
  int stopped;
} muster_rank_exit;

// Starts this program again as `nprocs` ranks and waits for them. A process that is such a rank
// calls the function here, and exits with its result. ranks: nprocs of them; all zeros if this
// process is a rank of a later call and passes through this one. *failed becomes the rank that
// failed first, or -1. Any thread, one at a time.
MUSTER_API muster_status muster_spawn(int nprocs, int (*function)(void* context, int rank),
                                      void* context, const muster_spawn_options* options,
                                      muster_rank_exit* ranks, int* failed);

// ---- what a rank does while it is not in an operation; see section.h

// The rank is in a section until muster_section_leave(). Sections nest; surplus leaves do nothing.
// Without a launcher that listens, neither has an effect.
MUSTER_API muster_status muster_section_enter(const char* name);
MUSTER_API void muster_section_leave(void);

// Names a place in a program of another language, "train.py:12 in step()", for `site` of
// muster_call_options. Equal texts give the same place, which is never freed. NULL: no launcher
// listens, or no room.
MUSTER_API const void* muster_name_site(const char* text);

// ---- operations in flight

// Waits at most timeout_ms (< 0: until the operation's deadline) until it is complete. Returns
// MUSTER_OK, MUSTER_IN_PROGRESS, or its failure. On GPU memory, makes the call's stream wait.
MUSTER_API muster_status muster_work_wait(muster_work* work, int64_t timeout_ms);
// Waits until the results are in memory, on GPUs too.
MUSTER_API muster_status muster_work_synchronize(muster_work* work);
// Returns the same three answers without waiting for the operation. After a time-out, the first
// call may search for up to a second for the rank that held up all others.
MUSTER_API muster_status muster_work_status(muster_work* work);
// Returns 1 if it is complete, successfully or not, else 0; -1 on failure. Never blocks.
MUSTER_API int muster_work_is_complete(muster_work* work);
// Returns the group rank of a completed receive's sender; otherwise -1.
MUSTER_API int muster_work_source(muster_work* work);
// Makes another handle for the same operation.
MUSTER_API muster_status muster_work_copy(muster_work* work, muster_work** copy);
// For a program that must give up the buffers at once: waits for the operation for a second, and
// after that aborts its group and waits until no thread uses them. Never fails.
MUSTER_API void muster_work_abandon(muster_work* work);
// Frees only the handle: the operation continues. NULL is allowed.
MUSTER_API void muster_work_free(muster_work* work);

#ifdef __cplusplus
}  // extern "C"
#endif
