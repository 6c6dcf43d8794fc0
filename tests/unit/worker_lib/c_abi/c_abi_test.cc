// The C functions in a world of one, called from C++: names, refusals, options, handles, and what a
// thread remembers. With several ranks they are in tests/live/programs/c_tour.c.
#include "worker_lib/c_abi/c_abi.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/types.h"
#include "tests/fakes/temp_tree.h"
#include "worker_lib/backends/late_transfer.h"
#include "worker_lib/raise.h"

namespace muster {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

muster_init_options alone() {
  muster_init_options options = MUSTER_INIT_OPTIONS;
  options.backend = MUSTER_BACKEND_CPU;
  options.timeout_ms = 30000;
  return options;
}

class CAbi : public testing::Test {
 protected:
  void SetUp() override {
    const muster_init_options options = alone();
    ASSERT_EQ(muster_init(&options), MUSTER_OK) << muster_last_error();
  }
  void TearDown() override { muster_destroy(); }
};

TEST(CAbiNames, StatusNamesMatchThoseOfErrorCodes) {
  for (int code = MUSTER_ERROR_INVALID_ARGUMENT; code <= MUSTER_ERROR_SYSTEM; ++code) {
    EXPECT_STREQ(muster_status_name(code), name_of(static_cast<ErrorCode>(code)));
  }
  EXPECT_STREQ(muster_status_name(MUSTER_OK), "ok");
  EXPECT_STREQ(muster_status_name(MUSTER_IN_PROGRESS), "in_progress");
  EXPECT_STREQ(muster_status_name(14), "unknown");
  EXPECT_STREQ(muster_status_name(-2), "unknown");
  EXPECT_STREQ(muster_status_name(MUSTER_ERROR_TIMEOUT), "timeout");
}

TEST(CAbiNames, TypeNamesAndSizesMatchThoseOfTheLibrary) {
  const std::array<size_t, 9> sizes{1, 1, 2, 4, 8, 2, 2, 4, 8};
  for (int dtype = MUSTER_INT8; dtype <= MUSTER_FLOAT64; ++dtype) {
    EXPECT_STREQ(muster_dtype_name(dtype), name_of(static_cast<DType>(dtype)));
    EXPECT_EQ(muster_dtype_size(dtype), sizes[static_cast<size_t>(dtype)]);
  }
  EXPECT_EQ(muster_dtype_size(9), 0u);
  EXPECT_EQ(muster_dtype_size(-1), 0u);
  EXPECT_STREQ(muster_dtype_name(9), "unknown");
  EXPECT_STREQ(muster_reduce_op_name(MUSTER_BXOR), "bxor");
  EXPECT_STREQ(muster_reduce_op_name(8), "unknown");
}

TEST(CAbiNames, TheLibraryHasTheVersionOfTheHeader) {
  EXPECT_EQ(muster_abi_version(), MUSTER_ABI_VERSION);
}

void succeed(void*, muster_outcome*) {}
const char* write_nothing(void*, muster_file*) {
  return nullptr;
}
void* no_room(void*, size_t) {
  return nullptr;
}

TEST(CAbiOutside, EveryFunctionReportsThatThereIsNoJob) {
  ASSERT_EQ(muster_is_initialized(), 0);
  int word = 0;
  size_t count = 0;
  muster_group* group = nullptr;
  muster_buckets* buckets = nullptr;
  const std::vector<muster_status> statuses{
      muster_barrier(nullptr, nullptr, nullptr),
      muster_broadcast(nullptr, &word, 1, MUSTER_INT32, 0, nullptr, nullptr),
      muster_send(nullptr, &word, 1, MUSTER_INT32, 0, 0, nullptr, nullptr),
      muster_world(&group),
      muster_split(nullptr, 0, 0, nullptr, &group),
      muster_group_abort(nullptr, nullptr),
      muster_group_failure(nullptr),
      muster_zero_first(0, succeed, nullptr, nullptr),
      muster_buckets_new(nullptr, nullptr, 0, nullptr, nullptr, &buckets),
      muster_save_checkpoint(nullptr, "/nowhere", write_nothing, nullptr, nullptr),
      muster_load_checkpoint(nullptr, "/nowhere", &word, no_room, nullptr, nullptr),
      muster_sample(1, 0, nullptr, nullptr, &count),
  };
  for (const muster_status status : statuses)
    EXPECT_EQ(status, MUSTER_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(group, nullptr);
  for (int (*number)() : {muster_rank, muster_world_size, muster_local_rank, muster_node_rank,
                          muster_local_world_size, muster_restart_count, muster_cuda_device}) {
    EXPECT_EQ(number(), -1);
    EXPECT_EQ(muster_last_error_code(), MUSTER_ERROR_NOT_INITIALIZED);
  }
  EXPECT_EQ(muster_group_size(nullptr), -1);
  EXPECT_EQ(muster_group_is_member(nullptr), 0);
  EXPECT_STREQ(muster_group_name(nullptr), "");
  EXPECT_STREQ(muster_last_error(),
               "muster_group_name: there is no process group: call muster_init() first");
}

TEST(CAbiOutside, LeavingTwiceAndFreeingNothingAreAllowed) {
  muster_destroy();
  muster_group_free(nullptr);
  muster_work_free(nullptr);
  muster_shared_memory_free(nullptr);
  muster_free(nullptr);
  muster_buckets_free(nullptr, 0);
  muster_buckets_free(nullptr, 1);
  EXPECT_EQ(muster_buckets_count(nullptr), 0u);
  EXPECT_EQ(muster_shared_memory_data(nullptr), nullptr);
  EXPECT_EQ(muster_shared_memory_bytes(nullptr), 0u);
}

struct BadInit {
  const char* what;
  void (*change)(muster_init_options&);
  const char* said;
};

TEST(CAbiOutside, InitRefusesUnknownOptions) {
  const std::vector<BadInit> table{
      {"a backend", [](muster_init_options& o) { o.backend = 4; },
       "4 is not a valid muster_backend"},
      {"a negative backend", [](muster_init_options& o) { o.backend = -1; }, "-1 is no"},
      {"a policy", [](muster_init_options& o) { o.on_sigterm = 3; },
       "3 is not a valid muster_stop_policy"},
      {"no size", [](muster_init_options& o) { o.struct_size = 0; }, "struct_size is 0"},
      {"a larger size", [](muster_init_options& o) { o.struct_size += 8; }, "initialiser macro"},
      {"a method", [](muster_init_options& o) { o.init_method = "carrier-pigeon://"; }, "pigeon"},
      {"a rank without a world",
       [](muster_init_options& o) {
         o.init_method = "tcp://127.0.0.1:1";
         o.rank = 0;
       },
       "muster_init_options.world_size must be given"},
  };
  for (const BadInit& bad : table) {
    muster_init_options options = alone();
    bad.change(options);
    EXPECT_EQ(muster_init(&options), MUSTER_ERROR_INVALID_ARGUMENT) << bad.what;
    EXPECT_THAT(muster_last_error(), HasSubstr(bad.said)) << bad.what;
    EXPECT_EQ(muster_is_initialized(), 0);
  }
}

TEST(CAbiOutside, AnUnavailableBackendReportsWhy) {
  for (int (*available)() : {muster_is_nccl_available, muster_is_gloo_available}) {
    if (available() == 1) continue;
    EXPECT_EQ(muster_last_error_code(), MUSTER_ERROR_BACKEND);
    EXPECT_STRNE(muster_last_error(), "");
    std::printf("%s\n", muster_last_error());
  }
}

TEST_F(CAbi, AWorldOfOneReportsItsRankSizeAndName) {
  EXPECT_EQ(muster_is_initialized(), 1);
  EXPECT_EQ(muster_rank(), 0);
  EXPECT_EQ(muster_world_size(), 1);
  EXPECT_EQ(muster_group_rank(nullptr), 0);
  EXPECT_EQ(muster_group_size(nullptr), 1);
  EXPECT_STREQ(muster_group_name(nullptr), "world");
  EXPECT_EQ(muster_init(nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
}

TEST_F(CAbi, ReductionsOfOneRankCopy) {
  const std::array<double, 3> in{1.5, -2.0, 1e300};
  std::array<double, 3> out{};
  EXPECT_EQ(muster_all_reduce(nullptr, in.data(), out.data(), 3, MUSTER_FLOAT64, MUSTER_AVERAGE,
                              nullptr, nullptr),
            MUSTER_OK);
  EXPECT_EQ(in, out);
}

// How the C layer itself refuses a number or a pointer.
struct Refused {
  muster_status status;
  const char* said;
};

TEST_F(CAbi, WrongArgumentsAreNamed) {
  std::array<int32_t, 4> data{};
  std::array<size_t, 1> counts{1};
  const size_t huge = std::numeric_limits<size_t>::max();
  void* bytes = nullptr;
  const auto said = [](muster_status status) { return Refused{status, muster_last_error()}; };
  const auto expect = [&](const char* part, muster_status status) {
    const Refused refused = said(status);
    EXPECT_EQ(refused.status, MUSTER_ERROR_INVALID_ARGUMENT) << part;
    EXPECT_THAT(refused.said, HasSubstr(part));
  };
  int32_t* const p = data.data();
  expect("muster_broadcast: 9 is not a valid muster_dtype",
         muster_broadcast(nullptr, p, 1, 9, 0, nullptr, nullptr));
  expect("muster_all_reduce: 8 is not a valid muster_reduce_op",
         muster_all_reduce(nullptr, p, p, 1, MUSTER_INT32, 8, nullptr, nullptr));
  expect("muster_all_gather_v: counts is NULL",
         muster_all_gather_v(nullptr, p, p, nullptr, MUSTER_INT32, nullptr, nullptr));
  expect("recv_counts is NULL", muster_all_to_all_v(nullptr, p, counts.data(), p, nullptr,
                                                    MUSTER_INT32, nullptr, nullptr));
  expect("out is NULL",
         muster_broadcast_bytes(nullptr, "x", 1, 0, nullptr, counts.data(), nullptr));
  expect("lengths is NULL", muster_all_gather_bytes(nullptr, "x", 1, &bytes, nullptr, nullptr));
  expect("bytes is NULL",
         muster_all_gather_bytes(nullptr, nullptr, 1, &bytes, counts.data(), nullptr));
  // NULL may mean the world, but not here.
  expect("muster_world: group is NULL: it says where the result goes", muster_world(nullptr));
  expect("muster_new_group: group is NULL: it says",
         muster_new_group(nullptr, 0, nullptr, nullptr));
  expect("muster_split: split is NULL: it says", muster_split(nullptr, 0, 0, nullptr, nullptr));
  expect("muster_allocate_shared: memory is NULL: it says",
         muster_allocate_shared(nullptr, 1, nullptr, nullptr));
  expect("muster_work_wait: work is NULL", muster_work_wait(nullptr, 0));
  expect("muster_work_status: work is NULL", muster_work_status(nullptr));
  expect("muster_should_stop: stop is NULL: it says", muster_should_stop(nullptr, nullptr));
  // Errors of the library itself begin with the operation's name.
  expect("all_gather",
         muster_all_gather(nullptr, p, nullptr, huge, MUSTER_INT32, nullptr, nullptr));
  EXPECT_STREQ(muster_last_error_operation(), "all_gather");
  expect("broadcast", muster_broadcast(nullptr, p, 1, MUSTER_INT32, 5, nullptr, nullptr));
  EXPECT_STREQ(muster_last_error_group(), "world");
  EXPECT_EQ(bytes, nullptr);
}

TEST_F(CAbi, WrongArgumentsOfTheHelpersAreNamed) {
  int word = 0;
  muster_buckets* buckets = nullptr;
  muster_bucket_options strategy MUSTER_BUCKET_OPTIONS;
  strategy.strategy = 2;
  muster_sampler_options part MUSTER_SAMPLER_OPTIONS;
  part.rank = part.ranks = 3;
  size_t count = 0;
  muster_rank_exit exit{};
  const char* const no_pair[] = {"NAME", nullptr};
  muster_spawn_options spawning MUSTER_SPAWN_OPTIONS;
  spawning.environment = no_pair;
  const auto function = [](void*, int) { return 0; };
  const auto expect = [](muster_status status, const char* said) {
    EXPECT_EQ(status, MUSTER_ERROR_INVALID_ARGUMENT) << said;
    EXPECT_STREQ(muster_last_error(), said);
  };
  expect(muster_zero_first(0, nullptr, nullptr, nullptr), "muster_zero_first: block is NULL");
  expect(muster_save_checkpoint(nullptr, nullptr, write_nothing, nullptr, nullptr),
         "muster_save_checkpoint: path is NULL");
  expect(muster_load_checkpoint(nullptr, "/nowhere", &word, nullptr, nullptr, nullptr),
         "muster_load_checkpoint: resize is NULL");
  expect(muster_file_write(nullptr, "", 0), "muster_file_write: file is NULL");
  expect(muster_buckets_new(nullptr, nullptr, 1, nullptr, nullptr, &buckets),
         "muster_buckets_new: buffers is NULL");
  expect(muster_buckets_new(nullptr, nullptr, 0, &strategy, nullptr, &buckets),
         "muster_buckets_new: 2 is not a valid muster_bucket_strategy; the values are 0 to 1");
  expect(muster_buckets_wait(nullptr, nullptr), "muster_buckets_wait: buckets is NULL");
  expect(muster_sample(1, 0, &part, nullptr, &count),
         "muster_sample: rank 3 of 3; give 0 <= rank < ranks");
  expect(muster_spawn(1, function, nullptr, &spawning, &exit, &word),
         "muster_spawn: environment has \"NAME\", which is not NAME=value");
  expect(muster_spawn(0, function, nullptr, nullptr, &exit, &word),
         "spawn: 0 ranks were requested: the minimum is 1");
}

// A checkpoint without memory fails on all ranks alike, and so does one whose writer says why.
TEST_F(CAbi, ACheckpointThatItsCallbacksRefuseIsAFailure) {
  const TempTree tree;
  const std::string path = tree.root() / "model";
  const auto refuse = [](void*, muster_file*) -> const char* { return "no data yet"; };
  EXPECT_EQ(muster_save_checkpoint(nullptr, path.c_str(), refuse, nullptr, nullptr),
            MUSTER_ERROR_SYSTEM);
  EXPECT_EQ(muster_last_error(),
            "save_checkpoint of group world on rank 0: cannot write " + path + ": no data yet");
  const auto write = [](void*, muster_file* file) -> const char* {
    return muster_file_write(file, "four", 4) == MUSTER_OK ? nullptr : muster_last_error();
  };
  ASSERT_EQ(muster_save_checkpoint(nullptr, path.c_str(), write, nullptr, nullptr), MUSTER_OK);
  int found = -1;
  EXPECT_EQ(muster_load_checkpoint(nullptr, path.c_str(), &found, no_room, nullptr, nullptr),
            MUSTER_ERROR_SYSTEM);
  EXPECT_EQ(muster_last_error(), "load_checkpoint of group world on rank 0: cannot read " + path +
                                     ": there is no memory for 4 bytes");
  EXPECT_EQ(found, -1);
}

// The launcher learns where a block's failure began: here, or where the block says.
TEST_F(CAbi, ABlockThatFailsSaysHow) {
  const auto fail = [](void*, muster_outcome* outcome) {
    int number = 0;  // A mistake that the block has handled is not its failure.
    muster_send(nullptr, &number, 1, MUSTER_INT32, 7, 0, nullptr, nullptr);
    *outcome = {MUSTER_ERROR_SYSTEM, "the disk is full", nullptr, 0};
  };
  EXPECT_EQ(muster_zero_first(0, fail, nullptr, nullptr), MUSTER_ERROR_SYSTEM);
  EXPECT_STREQ(muster_last_error(), "zero_first: the block failed: the disk is full");
  EXPECT_EQ(worker::failure_reports().last()->origin, std::vector<int>{0});
  const auto lose = [](void* ranks, muster_outcome* outcome) {
    *outcome = {MUSTER_ERROR_TIMEOUT, "rank 5 is late", static_cast<int*>(ranks), 1};
  };
  int late = 5;
  EXPECT_EQ(muster_zero_first(1, lose, &late, nullptr), MUSTER_ERROR_TIMEOUT);
  EXPECT_STREQ(muster_last_error(), "rank 5 is late");
  EXPECT_EQ(worker::failure_reports().last()->origin, std::vector<int>{5});
  EXPECT_EQ(muster_zero_first(0, succeed, nullptr, nullptr), MUSTER_OK);
  EXPECT_FALSE(worker::failure_reports().last());
  const auto wrong = [](void*, muster_outcome* outcome) { outcome->code = 99; };
  EXPECT_EQ(muster_zero_first(0, wrong, nullptr, nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
}

// The C++ names of functions and options would mislead a C programmer.
TEST_F(CAbi, MessagesNameCFunctions) {
  EXPECT_EQ(muster_init(nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(muster_last_error(),
               "muster_init: this process has a process group already; call muster_destroy() "
               "before the next one");
  EXPECT_STREQ(muster_last_error_operation(), "muster_init");
  muster_group* none = nullptr;
  ASSERT_EQ(muster_split(nullptr, -1, 0, nullptr, &none), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_barrier(none, nullptr, nullptr), MUSTER_ERROR_NOT_MEMBER);
  // A message that begins with an operation gets no other prefix.
  EXPECT_THAT(muster_last_error(), StartsWith("barrier of group of another color: "));
  EXPECT_THAT(muster_last_error(), HasSubstr("(see muster_group_is_member())"));
  EXPECT_EQ(muster_group_rank(none), -1);
  EXPECT_THAT(muster_last_error(), HasSubstr("(see muster_group_is_member())"));
  muster_group_free(none);
  EXPECT_EQ(muster_group_abort(nullptr, "over"), MUSTER_OK);
  EXPECT_EQ(muster_group_failure(nullptr), MUSTER_ERROR_ABORTED);
  EXPECT_THAT(muster_last_error(), StartsWith("muster_group_failure: group world: "));
}

TEST_F(CAbi, AnOperationIsDescribedByAValue) {
  float in = 3;
  float out = 0;
  muster_operation sum{};
  sum.kind = MUSTER_ALL_REDUCE;
  sum.in = {&in, 1, MUSTER_FLOAT32, -1};
  sum.out = {&out, 1, MUSTER_FLOAT32, -1};
  EXPECT_EQ(muster_perform(nullptr, &sum, nullptr, nullptr, nullptr), MUSTER_OK);
  EXPECT_EQ(out, 3);
  muster_work* work = nullptr;
  EXPECT_EQ(muster_perform(nullptr, &sum, nullptr, &work, nullptr), MUSTER_OK);
  muster_work* copy = nullptr;
  EXPECT_EQ(muster_work_copy(work, &copy), MUSTER_OK);
  muster_work_free(work);
  EXPECT_EQ(muster_work_wait(copy, -1), MUSTER_OK);
  EXPECT_EQ(muster_work_is_complete(copy), 1);
  muster_work_abandon(copy);
  muster_work_free(copy);

  sum.out.count = 2;
  EXPECT_EQ(muster_perform(nullptr, &sum, nullptr, nullptr, nullptr),
            MUSTER_ERROR_INVALID_ARGUMENT);
  sum.out.dtype = 9;
  EXPECT_EQ(muster_perform(nullptr, &sum, nullptr, nullptr, nullptr),
            MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("9 is not a valid muster_dtype"));
  for (const int kind : {-1, 0, 12}) {
    sum.kind = kind;
    EXPECT_EQ(muster_perform(nullptr, &sum, nullptr, nullptr, nullptr),
              MUSTER_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr(" is not a valid muster_kind"));
  }
  EXPECT_EQ(muster_perform(nullptr, nullptr, nullptr, nullptr, nullptr),
            MUSTER_ERROR_INVALID_ARGUMENT);
  sum.kind = MUSTER_BARRIER;
  EXPECT_EQ(muster_begin_messages(nullptr, &sum, 1, nullptr, &work), MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("is not the kind of a message"));
}

TEST_F(CAbi, AGroupSaysWhatItIs) {
  muster_group* group = nullptr;
  ASSERT_EQ(muster_group_copy(nullptr, &group), MUSTER_OK);
  int rank = -1;
  EXPECT_EQ(muster_group_ranks(group, &rank, 1), 1u);
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(muster_group_ranks(group, nullptr, 0), 1u);
  EXPECT_EQ(muster_group_timeout_ms(group), 30000);
  EXPECT_EQ(muster_group_backend(group, 0), MUSTER_BACKEND_CPU);
  EXPECT_EQ(muster_group_backend(group, 1), -1);
  muster_group* copy = nullptr;
  ASSERT_EQ(muster_group_copy(group, &copy), MUSTER_OK);
  muster_group_free(group);
  EXPECT_STREQ(muster_group_name(copy), "world");
  muster_group_free(copy);
  EXPECT_EQ(muster_group_size(nullptr), 1);
}

TEST_F(CAbi, AFailureIsToldInTheWordsOfBothLanguages) {
  EXPECT_EQ(muster_init(nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(muster_last_error_operation(), "muster_init");
  const char* operation = nullptr;
  EXPECT_THAT(muster_last_error_in_cpp(&operation), StartsWith("init_process_group: "));
  EXPECT_STREQ(operation, "init_process_group");
}

TEST(CAbiNames, ALateSendAdvisesToUseCFunctions) {
  worker::Members pair;
  pair.peers.resize(2);
  const worker::Failure late = worker::late_transfer({.peer = 1}, pair, false);
  try {
    worker::raise(late, "send", "world");
  } catch (const DistributedError&) {
    EXPECT_EQ(c_abi::remember_current_exception("muster_send"), MUSTER_ERROR_TIMEOUT);
  }
  EXPECT_THAT(muster_last_error(), EndsWith("or use muster_send() with a work or muster_batch()"));
}

TEST_F(CAbi, AForkedChildIsAdvisedToUseExec) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused = muster_rank() == -1 && muster_last_error_code() == MUSTER_ERROR_FORKED;
    const std::string said = muster_last_error();
    const bool in_c = said.starts_with("muster_rank: this is a child of fork()") &&
                      said.ends_with("use exec to start ranks");
    _exit(refused && in_c ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CAbi, OptionsOfUnknownSizeAreRefused) {
  muster_call_options options = MUSTER_CALL_OPTIONS;
  EXPECT_EQ(muster_barrier(nullptr, &options, nullptr), MUSTER_OK);
  for (const size_t size : {size_t{0}, sizeof(options) - 8, sizeof(options) + 8}) {
    options.struct_size = size;
    EXPECT_EQ(muster_barrier(nullptr, &options, nullptr), MUSTER_ERROR_INVALID_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("muster_barrier: muster_call_options.struct_size is "));
  }
}

TEST_F(CAbi, WorkCanBeAwaitedAndFreed) {
  std::array<int64_t, 2> data{3, 4};
  muster_work* work = nullptr;
  ASSERT_EQ(muster_all_reduce(nullptr, data.data(), data.data(), 2, MUSTER_INT64, MUSTER_SUM,
                              nullptr, &work),
            MUSTER_OK);
  ASSERT_NE(work, nullptr);
  EXPECT_EQ(muster_work_wait(work, -1), MUSTER_OK);
  EXPECT_EQ(muster_work_wait(work, 0), MUSTER_OK);
  EXPECT_EQ(muster_work_synchronize(work), MUSTER_OK);
  EXPECT_EQ(muster_work_status(work), MUSTER_OK);
  EXPECT_EQ(muster_work_source(work), -1);
  muster_work_free(work);
  EXPECT_EQ(data, (std::array<int64_t, 2>{3, 4}));
}

TEST_F(CAbi, AFailedBeginReturnsNoHandle) {
  int32_t word = 0;
  muster_work* const untouched = reinterpret_cast<muster_work*>(&word);
  muster_work* work = untouched;
  EXPECT_EQ(muster_broadcast(nullptr, &word, 1, MUSTER_INT32, 3, nullptr, &work),
            MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(work, untouched);
}

TEST_F(CAbi, TheLastFailureIsTheThreadsOwn) {
  EXPECT_EQ(muster_barrier(nullptr, nullptr, nullptr), MUSTER_OK);
  EXPECT_EQ(muster_work_wait(nullptr, 0), MUSTER_ERROR_INVALID_ARGUMENT);
  std::string elsewhere = "not asked";
  muster_status code = MUSTER_ERROR_SYSTEM;
  std::thread([&] {
    elsewhere = muster_last_error();
    code = muster_last_error_code();
  }).join();
  EXPECT_EQ(elsewhere, "");
  EXPECT_EQ(code, MUSTER_OK);
  EXPECT_THAT(muster_last_error(), HasSubstr("work is NULL"));
  // A later success keeps the message, so that it can be read late.
  EXPECT_EQ(muster_barrier(nullptr, nullptr, nullptr), MUSTER_OK);
  EXPECT_THAT(muster_last_error(), HasSubstr("work is NULL"));
}

TEST_F(CAbi, AnAbortedGroupKeepsItsReasonAndTheWorldGoesOn) {
  const int ranks[] = {0};
  muster_group_options options = MUSTER_GROUP_OPTIONS;
  options.name = "doomed";
  muster_group* group = nullptr;
  ASSERT_EQ(muster_new_group(ranks, 1, &options, &group), MUSTER_OK) << muster_last_error();
  EXPECT_STREQ(muster_group_name(group), "doomed");
  EXPECT_EQ(muster_group_failure(group), MUSTER_OK);
  EXPECT_EQ(muster_group_abort(group, "no more of this"), MUSTER_OK);
  EXPECT_EQ(muster_barrier(group, nullptr, nullptr), MUSTER_ERROR_ABORTED);
  EXPECT_THAT(muster_last_error(), HasSubstr("no more of this"));
  EXPECT_STREQ(muster_last_error_group(), "doomed");
  EXPECT_EQ(muster_last_error_code(), MUSTER_ERROR_ABORTED);
  EXPECT_EQ(muster_group_failure(group), MUSTER_ERROR_ABORTED);
  muster_group_free(group);
  EXPECT_EQ(muster_barrier(nullptr, nullptr, nullptr), MUSTER_OK);
}

// Default names, given names, and none if the ranks are invalid.
TEST_F(CAbi, TheFailureToMakeAGroupNamesTheGroup) {
  if (muster_is_nccl_available() == 1) GTEST_SKIP() << "the group can be made here";
  const int rank = 0;
  const int nobody = 7;
  muster_group_options options = MUSTER_GROUP_OPTIONS;
  options.backend = MUSTER_BACKEND_NCCL;
  muster_group* group = nullptr;
  EXPECT_EQ(muster_new_group(&rank, 1, &options, &group), MUSTER_ERROR_BACKEND);
  EXPECT_STREQ(muster_last_error_group(), "group of rank 0");
  EXPECT_STREQ(muster_last_error_operation(), "new_group");
  options.name = "pair";
  EXPECT_EQ(muster_new_group(&rank, 1, &options, &group), MUSTER_ERROR_BACKEND);
  EXPECT_STREQ(muster_last_error_group(), "pair");
  EXPECT_EQ(muster_new_group(&nobody, 1, nullptr, &group), MUSTER_ERROR_INVALID_ARGUMENT);
  EXPECT_STREQ(muster_last_error_group(), "");
  EXPECT_EQ(group, nullptr);
}

TEST_F(CAbi, AGroupWithoutThisRankRefusesItsOperations) {
  muster_group* none = nullptr;
  ASSERT_EQ(muster_split(nullptr, -1, 0, nullptr, &none), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_group_is_member(none), 0);
  EXPECT_EQ(muster_group_rank(none), -1);
  EXPECT_EQ(muster_last_error_code(), MUSTER_ERROR_NOT_MEMBER);
  const std::array<size_t, 1> counts{1};
  int32_t word = 0;
  EXPECT_EQ(muster_gather(none, &word, nullptr, 1, MUSTER_INT32, 0, nullptr, nullptr),
            MUSTER_ERROR_NOT_MEMBER);
  EXPECT_EQ(muster_reduce(none, &word, nullptr, 1, MUSTER_INT32, MUSTER_SUM, 0, nullptr, nullptr),
            MUSTER_ERROR_NOT_MEMBER);
  EXPECT_EQ(muster_all_gather_v(none, &word, &word, counts.data(), MUSTER_INT32, nullptr, nullptr),
            MUSTER_ERROR_NOT_MEMBER);
  EXPECT_EQ(
      muster_gather_v(none, &word, 1, &word, counts.data(), MUSTER_INT32, 0, nullptr, nullptr),
      MUSTER_ERROR_NOT_MEMBER);
  muster_group_free(none);
}

TEST_F(CAbi, SharedMemoryLivesUntilItIsFreed) {
  muster_shared_memory* memory = nullptr;
  ASSERT_EQ(muster_allocate_shared(nullptr, 10000, nullptr, &memory), MUSTER_OK)
      << muster_last_error();
  auto* bytes = static_cast<uint8_t*>(muster_shared_memory_data(memory));
  EXPECT_GE(muster_shared_memory_bytes(memory), 10000u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 4096, 0u);
  for (size_t i = 0; i < 10000; ++i)
    ASSERT_EQ(bytes[i], 0) << i;
  std::memset(bytes, 7, 10000);
  EXPECT_EQ(
      muster_all_reduce(nullptr, bytes, bytes, 10000, MUSTER_UINT8, MUSTER_MAX, nullptr, nullptr),
      MUSTER_OK);
  EXPECT_EQ(bytes[9999], 7);
  muster_shared_memory_free(memory);
}

TEST_F(CAbi, ByteStringsComeBackAsCopies) {
  void* out = nullptr;
  size_t length = 0;
  const std::string text("with a \0 inside", 15);
  ASSERT_EQ(muster_broadcast_bytes(nullptr, text.data(), text.size(), 0, &out, &length, nullptr),
            MUSTER_OK);
  EXPECT_EQ(std::string(static_cast<char*>(out), length), text);
  muster_free(out);
  size_t lengths[1] = {99};
  ASSERT_EQ(muster_all_gather_bytes(nullptr, nullptr, 0, &out, lengths, nullptr), MUSTER_OK);
  EXPECT_EQ(lengths[0], 0u);
  EXPECT_NE(out, nullptr);
  muster_free(out);
}

TEST_F(CAbi, AnEmptyBatchSucceeds) {
  EXPECT_EQ(muster_batch(nullptr, nullptr, 0, nullptr, nullptr), MUSTER_OK);
}

TEST(CAbiStop, ARequestToStopIsSeenAtTheNextStep) {
  muster_init_options options = alone();
  options.on_sigterm = MUSTER_STOP_AGREE;
  ASSERT_EQ(muster_init(&options), MUSTER_OK) << muster_last_error();
  int stop = -1;
  EXPECT_EQ(muster_should_stop(&stop, nullptr), MUSTER_OK);
  EXPECT_EQ(stop, 0);
  EXPECT_EQ(muster_request_stop(), MUSTER_OK);
  EXPECT_EQ(muster_should_stop(&stop, nullptr), MUSTER_OK);
  EXPECT_EQ(stop, 1);
  muster_destroy();
}

TEST(CAbiStop, AJobMayBeJoinedAgain) {
  for (int i = 0; i < 3; ++i) {
    const muster_init_options options = alone();
    ASSERT_EQ(muster_init(&options), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_barrier(nullptr, nullptr, nullptr), MUSTER_OK);
    muster_destroy();
    EXPECT_EQ(muster_is_initialized(), 0);
  }
}

}  // namespace
}  // namespace muster
