// A C99 program that runs every operation of muster.h with known results, on up to 16 ranks. It
// exits with 1 at the first wrong result; else rank 0 prints that the tour is done. With the
// argument "forever" no operation has a time limit; another argument is the path of a checkpoint.
#include <muster/muster.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 16, COUNT = 5 };

static int me, n;
static const char* path;

#define EXPECT(condition)                                                                         \
  do {                                                                                            \
    if (!(condition)) {                                                                           \
      fprintf(stderr, "FAULT: rank %d, line %d: %s (last error: %s)\n", me, __LINE__, #condition, \
              muster_last_error());                                                               \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)
#define OK(call) EXPECT((call) == MUSTER_OK)

static int sum_of_ranks(void) {
  return n * (n - 1) / 2;
}

// Waits for an operation and frees its handle.
static void finish(muster_work* work) {
  OK(muster_work_wait(work, -1));
  EXPECT(muster_work_status(work) == MUSTER_OK);
  muster_work_free(work);
}

static void reductions(void) {
  float in[COUNT], out[COUNT];
  int64_t blocks[MAX_RANKS * 2], block[2];
  muster_work* work = NULL;
  int i;
  for (i = 0; i < COUNT; ++i)
    in[i] = (float)(me * 10 + i);
  OK(muster_all_reduce(NULL, in, out, COUNT, MUSTER_FLOAT32, MUSTER_SUM, NULL, NULL));
  for (i = 0; i < COUNT; ++i)
    EXPECT(out[i] == (float)(sum_of_ranks() * 10 + i * n));
  OK(muster_all_reduce(NULL, in, in, COUNT, MUSTER_FLOAT32, MUSTER_MAX, NULL, &work));
  finish(work);
  for (i = 0; i < COUNT; ++i)
    EXPECT(in[i] == (float)((n - 1) * 10 + i));

  for (i = 0; i < 2 * n; ++i)
    blocks[i] = me + i;
  OK(muster_reduce(NULL, blocks, me == n - 1 ? block : NULL, 2, MUSTER_INT64, MUSTER_MIN, n - 1,
                   NULL, NULL));
  if (me == n - 1) EXPECT(block[0] == 0 && block[1] == 1);
  OK(muster_reduce_scatter(NULL, blocks, block, 2, MUSTER_INT64, MUSTER_SUM, NULL, NULL));
  EXPECT(block[0] == sum_of_ranks() + n * 2 * me && block[1] == sum_of_ranks() + n * (2 * me + 1));
}

static void moves(void) {
  int32_t all[MAX_RANKS], turned[MAX_RANKS], one = me * me;
  int i;
  int32_t word = me == n - 1 ? 4711 : 0;
  OK(muster_broadcast(NULL, &word, 1, MUSTER_INT32, n - 1, NULL, NULL));
  EXPECT(word == 4711);
  OK(muster_gather(NULL, &one, me == 0 ? all : NULL, 1, MUSTER_INT32, 0, NULL, NULL));
  for (i = 0; me == 0 && i < n; ++i)
    EXPECT(all[i] == i * i);
  OK(muster_all_gather(NULL, &one, all, 1, MUSTER_INT32, NULL, NULL));
  for (i = 0; i < n; ++i)
    EXPECT(all[i] == i * i);
  OK(muster_scatter(NULL, me == 0 ? all : NULL, &word, 1, MUSTER_INT32, 0, NULL, NULL));
  EXPECT(word == me * me);
  for (i = 0; i < n; ++i)
    all[i] = me * 100 + i;
  OK(muster_all_to_all(NULL, all, turned, 1, MUSTER_INT32, NULL, NULL));
  for (i = 0; i < n; ++i)
    EXPECT(turned[i] == i * 100 + me);
}

// Rank r has r + 1 elements, all equal to r.
static void unequal_blocks(void) {
  size_t counts[MAX_RANKS], back[MAX_RANKS], own = (size_t)me + 1, total = 0, at = 0, i;
  uint8_t mine[MAX_RANKS], all[MAX_RANKS * MAX_RANKS], received[MAX_RANKS * MAX_RANKS];
  int r;
  for (r = 0; r < n; ++r)
    total += counts[r] = (size_t)r + 1;
  memset(mine, me, sizeof(mine));
  OK(muster_all_gather_v(NULL, mine, all, counts, MUSTER_UINT8, NULL, NULL));
  for (r = 0; r < n; ++r) {
    for (i = 0; i < counts[r]; ++i)
      EXPECT(all[at++] == r);
  }
  EXPECT(at == total);
  memset(all, 0xff, sizeof(all));
  OK(muster_gather_v(NULL, mine, own, me == 0 ? all : NULL, me == 0 ? counts : NULL, MUSTER_UINT8,
                     0, NULL, NULL));
  EXPECT(me != 0 || (all[0] == 0 && all[total - 1] == n - 1));
  memset(mine, 0xff, sizeof(mine));
  OK(muster_scatter_v(NULL, me == 0 ? all : NULL, me == 0 ? counts : NULL, mine, own, MUSTER_UINT8,
                      0, NULL, NULL));
  EXPECT(mine[0] == me && mine[own - 1] == me);
  memset(all, 1, sizeof(all));
  OK(muster_reduce_scatter_v(NULL, all, mine, counts, MUSTER_UINT8, MUSTER_SUM, NULL, NULL));
  EXPECT(mine[0] == n && mine[own - 1] == n);
  for (r = 0; r < n; ++r)
    back[r] = own;
  memset(all, me, sizeof(all));
  EXPECT(muster_all_to_all_v(NULL, all, counts, received, NULL, MUSTER_UINT8, NULL, NULL) ==
         MUSTER_ERROR_INVALID_ARGUMENT);
  OK(muster_all_to_all_v(NULL, all, counts, received, back, MUSTER_UINT8, NULL, NULL));
  for (r = 0; r < n; ++r)
    EXPECT(received[(size_t)r * own] == r);
}

static void messages(void) {
  int32_t got[2] = {-1, -1}, word = me;
  const int next = (me + 1) % n, last = (me + n - 1) % n;
  int source = -1, i;
  muster_work* works[2];
  muster_p2p ops[2];
  if (n == 1) return;
  memset(ops, 0, sizeof(ops));
  ops[0].is_send = 1;
  ops[0].data = &word;
  ops[0].peer = next;
  ops[1].data = &got[0];
  ops[1].peer = last;
  for (i = 0; i < 2; ++i) {
    ops[i].count = 1;
    ops[i].dtype = MUSTER_INT32;
    ops[i].tag = 3;
  }
  OK(muster_batch(NULL, ops, 2, NULL, works));
  for (i = 0; i < 2; ++i)
    finish(works[i]);
  EXPECT(got[0] == last);
  if (me == 0) {
    for (i = 1; i < n; ++i) {
      OK(muster_recv(NULL, got, 1, MUSTER_INT32, -1, 7, &source, NULL, NULL));
      EXPECT(source >= 1 && source < n && got[0] == source);
    }
    OK(muster_recv(NULL, got, 1, MUSTER_INT32, -1, 8, NULL, NULL, &works[0]));
    OK(muster_work_synchronize(works[0]));
    EXPECT(muster_work_source(works[0]) == 1 && got[0] == 1);
    muster_work_free(works[0]);
  } else {
    OK(muster_send(NULL, &word, 1, MUSTER_INT32, 0, 7, NULL, NULL));
    if (me == 1) {
      OK(muster_send(NULL, &word, 1, MUSTER_INT32, 0, 8, NULL, &works[0]));
      finish(works[0]);
    }
  }
}

static void byte_strings(void) {
  const char* text = "of unequal lengths";
  void* out = NULL;
  size_t length = 0, lengths[MAX_RANKS], at = 0;
  int r;
  OK(muster_broadcast_bytes(NULL, me == 0 ? text : NULL, me == 0 ? strlen(text) : 0, 0, &out,
                            &length, NULL));
  EXPECT(length == strlen(text) && memcmp(out, text, length) == 0);
  muster_free(out);
  OK(muster_all_gather_bytes(NULL, text, (size_t)me, &out, lengths, NULL));
  for (r = 0; r < n; ++r) {
    EXPECT(lengths[r] == (size_t)r && memcmp((char*)out + at, text, lengths[r]) == 0);
    at += lengths[r];
  }
  muster_free(out);
}

static void sections(void) {
  OK(muster_section_enter("a tour"));
  OK(muster_section_enter("of the barrier"));
  OK(muster_barrier(NULL, NULL, NULL));
  muster_section_leave();
  muster_section_leave();
  muster_section_leave();
}

static void groups(void) {
  muster_group_options options = MUSTER_GROUP_OPTIONS;
  muster_group *half = NULL, *turned = NULL, *all = NULL, *none = NULL;
  muster_group* again = NULL;
  uint64_t bits = 0;
  int ranks[MAX_RANKS], r, sum = 1;
  OK(muster_world(&all));
  EXPECT(muster_group_size(all) == n && muster_group_rank(all) == me);
  EXPECT(strcmp(muster_group_name(NULL), "world") == 0);
  OK(muster_split(NULL, me % 2, -me, NULL, &half));
  EXPECT(muster_group_is_member(half) == 1);
  OK(muster_all_reduce(half, &sum, &sum, 1, MUSTER_INT32, MUSTER_SUM, NULL, NULL));
  EXPECT(sum == (n + 1 - me % 2) / 2 && sum == muster_group_size(half));
  OK(muster_split(NULL, me == 0 ? -1 : 0, 0, NULL, &none));
  EXPECT(muster_group_is_member(none) == (me != 0));
  if (me == 0) {
    EXPECT(muster_barrier(none, NULL, NULL) == MUSTER_ERROR_NOT_MEMBER);
    EXPECT(muster_group_rank(none) == -1);
  }
  for (r = 0; r < n; ++r)
    ranks[r] = n - 1 - r;
  options.name = "turned";
  options.timeout_ms = 30000;
  OK(muster_new_group(ranks, (size_t)n, &options, &turned));
  EXPECT(muster_group_rank(turned) == n - 1 - me &&
         strcmp(muster_group_name(turned), "turned") == 0);
  EXPECT(muster_group_global_rank(turned, 0) == n - 1);
  EXPECT(muster_group_from_global_rank(turned, 0) == n - 1);
  EXPECT(muster_group_global_rank(turned, n) == -1);
  OK(muster_barrier(turned, NULL, NULL));
  OK(muster_monitored_barrier(turned, 1, NULL));
  EXPECT(muster_group_failure(turned) == MUSTER_OK);
  OK(muster_barrier(NULL, NULL, NULL));
  OK(muster_group_abort(turned, "the tour is over"));
  EXPECT(muster_barrier(turned, NULL, NULL) == MUSTER_ERROR_ABORTED);
  EXPECT(strstr(muster_last_error(), "the tour is over") != NULL);
  EXPECT(strcmp(muster_last_error_group(), "turned") == 0);
  EXPECT(muster_group_failure(turned) == MUSTER_ERROR_ABORTED);
  OK(muster_group_agree(turned, me == 0 ? 6 : 7, &bits, NULL));
  EXPECT(bits == 6);
  OK(muster_group_shrink(turned, NULL, &again));
  EXPECT(muster_group_size(again) == n && muster_group_rank(again) == n - 1 - me);
  OK(muster_barrier(again, NULL, NULL));
  OK(muster_group_leave(again));
  EXPECT(muster_barrier(again, NULL, NULL) == MUSTER_ERROR_NOT_INITIALIZED);
  muster_group_free(half);
  muster_group_free(turned);
  muster_group_free(again);
  muster_group_free(none);
  muster_group_free(all);
}

static void shared_memory(void) {
  muster_shared_memory* memory = NULL;
  double* values;
  OK(muster_allocate_shared(NULL, 100 * sizeof(double), NULL, &memory));
  values = muster_shared_memory_data(memory);
  EXPECT(muster_shared_memory_bytes(memory) >= 100 * sizeof(double) && values[99] == 0.0);
  values[99] = 0.5;
  OK(muster_all_reduce(NULL, values, values, 100, MUSTER_FLOAT64, MUSTER_SUM, NULL, NULL));
  EXPECT(values[99] == 0.5 * n && values[0] == 0.0);
  muster_shared_memory_free(memory);
}

// The receive stays in progress until rank 0 lets rank 1 send.
static void begun(void) {
  muster_work* work = NULL;
  int32_t word = 0, got = -1;
  if (n > 1 && me == 0) {
    OK(muster_recv(NULL, &got, 1, MUSTER_INT32, 1, 9, NULL, NULL, &work));
    EXPECT(muster_work_status(work) == MUSTER_IN_PROGRESS);
    EXPECT(muster_work_wait(work, 1) == MUSTER_IN_PROGRESS);
    OK(muster_send(NULL, &word, 1, MUSTER_INT32, 1, 10, NULL, NULL));
    finish(work);
    EXPECT(got == 4711);
  } else if (me == 1) {
    OK(muster_recv(NULL, &word, 1, MUSTER_INT32, 0, 10, NULL, NULL, NULL));
    word = 4711;
    OK(muster_send(NULL, &word, 1, MUSTER_INT32, 0, 9, NULL, NULL));
  }
}

static void count_turns(void* context, muster_outcome* outcome) {
  EXPECT(outcome->code == MUSTER_OK && outcome->message == NULL);
  ++*(int*)context;
}

static void fail_turn(void* context, muster_outcome* outcome) {
  outcome->code = MUSTER_ERROR_SYSTEM;
  outcome->message = context;
}

static const char* write_two_pieces(void* context, muster_file* file) {
  OK(muster_file_write(file, context, 2));
  OK(muster_file_write(file, NULL, 0));
  OK(muster_file_write(file, (const char*)context + 2, 3));
  return NULL;
}

static void* put_in(void* context, size_t length) {
  return length <= 5 ? context : NULL;
}

static void turns(void) {
  char reason[] = "no disk", saved[6] = {0};
  int turn = 0, found = -1;
  OK(muster_zero_first(0, count_turns, &turn, NULL));
  OK(muster_zero_first(1, count_turns, &turn, NULL));
  EXPECT(turn == 2);
  EXPECT(muster_zero_first(0, fail_turn, reason, NULL) ==
         (me == 0 ? MUSTER_ERROR_SYSTEM : MUSTER_ERROR_PEER_FAILED));
  EXPECT(strstr(muster_last_error(), "no disk") != NULL);
  if (path == NULL) return;
  OK(muster_save_checkpoint(NULL, me == 0 ? path : NULL, me == 0 ? write_two_pieces : NULL, "bytes",
                            NULL));
  OK(muster_load_checkpoint(NULL, me == 0 ? path : NULL, &found, put_in, saved, NULL));
  EXPECT(found == 1 && memcmp(saved, "bytes", 6) == 0);
  OK(muster_barrier(NULL, NULL, NULL));
  if (me == 0) EXPECT(remove(path) == 0);
  OK(muster_load_checkpoint(NULL, path, &found, put_in, saved, NULL));
  EXPECT(found == 0);
}

static void gradients(void) {
  float near[2] = {0, 0}, far[3] = {0, 0, 0};
  muster_buffer both[2] = {{0, 2, MUSTER_FLOAT32, -1}, {0, 3, MUSTER_FLOAT32, -1}};
  muster_bucket_options options = MUSTER_BUCKET_OPTIONS;
  muster_buckets* buckets = NULL;
  int64_t waited = -1, copied = -1;
  both[0].data = near;
  both[1].data = far;
  options.op = MUSTER_SUM;
  OK(muster_buckets_new(NULL, both, 2, &options, NULL, &buckets));
  EXPECT(muster_buckets_count(buckets) == 1 && muster_buckets_of(buckets, 1) == 0);
  EXPECT(muster_buckets_of(buckets, 2) == -1);
  far[2] = (float)me;
  OK(muster_buckets_ready(buckets, 1, NULL));
  OK(muster_buckets_ready_all(buckets, NULL));
  OK(muster_buckets_flush(buckets, NULL));
  OK(muster_buckets_wait(buckets, NULL));
  EXPECT(far[2] == (float)sum_of_ranks() && near[0] == 0);
  muster_buckets_times(buckets, &waited, &copied);
  EXPECT(waited >= 0 && copied >= 0);
  muster_buckets_free(buckets, 0);
}

static void samples(void) {
  muster_sampler_options options = MUSTER_SAMPLER_OPTIONS;
  size_t mine[2 * MAX_RANKS], count = 0;
  options.shuffle = 0;
  OK(muster_sample((size_t)(2 * n), 0, &options, NULL, &count));
  EXPECT(count == 2);
  OK(muster_sample((size_t)(2 * n), 0, &options, mine, &count));
  EXPECT(mine[0] == (size_t)me && mine[1] == (size_t)(me + n));
}

static void time_out(void) {
  const int ranks[2] = {0, 1};
  muster_call_options options = MUSTER_CALL_OPTIONS;
  muster_group* pair = NULL;
  int word = 0, origin[2] = {-1, -1};
  if (n > 1 && me < 2) OK(muster_new_group(ranks, 2, NULL, &pair));
  if (n > 1 && me == 0) {
    // By this time-out rank 1 is in the barrier, where it waits for rank 0.
    options.timeout_ms = 1000;
    EXPECT(muster_recv(pair, &word, 1, MUSTER_INT32, 1, 98, NULL, &options, NULL) ==
           MUSTER_ERROR_TIMEOUT);
    EXPECT(muster_last_error_ranks(NULL, 0) == 2 && muster_last_error_ranks(origin, 1) == 2);
    EXPECT(origin[0] == 0 && origin[1] == -1 && muster_last_error_ranks(origin, 2) == 2);
    EXPECT(origin[1] == 1 && strstr(muster_last_error(), "wait for each other") != NULL);
    printf("time-out: %s\n", muster_last_error());
  }
  OK(muster_barrier(NULL, NULL, NULL));
  muster_group_free(pair);
}

static void refusals(void) {
  muster_call_options options = MUSTER_CALL_OPTIONS;
  int word = 0;
  EXPECT(muster_broadcast(NULL, &word, 1, MUSTER_INT32, n, NULL, NULL) ==
         MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT(strcmp(muster_last_error_operation(), "broadcast") == 0);
  EXPECT(muster_all_reduce(NULL, &word, &word, 1, 42, MUSTER_SUM, NULL, NULL) ==
         MUSTER_ERROR_INVALID_ARGUMENT);
  options.struct_size = 1;
  EXPECT(muster_barrier(NULL, &options, NULL) == MUSTER_ERROR_INVALID_ARGUMENT);
}

int main(int argc, char** argv) {
  muster_init_options options = MUSTER_INIT_OPTIONS;
  EXPECT(muster_abi_version() == MUSTER_ABI_VERSION && !muster_is_initialized());
  EXPECT(muster_rank() == -1 && muster_last_error_code() == MUSTER_ERROR_NOT_INITIALIZED);
  options.backend = MUSTER_BACKEND_CPU;
  options.timeout_ms = 60000;
  if (argc > 1 && strcmp(argv[1], "forever") == 0)
    options.timeout_ms = INT64_MAX;
  else if (argc > 1)
    path = argv[1];
  OK(muster_init(&options));
  me = muster_rank();
  n = muster_world_size();
  EXPECT(n <= MAX_RANKS && muster_is_initialized() && muster_restart_count() == 0);
  reductions();
  moves();
  unequal_blocks();
  messages();
  byte_strings();
  sections();
  groups();
  shared_memory();
  begun();
  turns();
  gradients();
  samples();
  refusals();
  time_out();
  muster_destroy();
  EXPECT(!muster_is_initialized());
  if (me == 0) printf("tour of %d ranks: done\n", n);
  return 0;
}
