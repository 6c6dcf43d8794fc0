// Finding and checking NCCL and the CUDA driver, and our declarations against the real headers if
// this machine has them. The libraries are the fake's, except in tests that say so.
#include "worker_lib/backends/nccl/nccl_library.h"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muster/init.h"
#include "tests/unit/worker_lib/backends/nccl/nccl_fake.h"
#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/backends/opened_library.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAS_CUDA_HEADER 1
#endif
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define HAS_NCCL_HEADER 1
#endif

namespace muster::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

// ---- declarations

// True if two parameters have the same size and kind. Handles are pointers to different types, and
// enums are ints.
template <typename Mine, typename Real>
constexpr bool passes_alike() {
  return sizeof(Mine) == sizeof(Real) && std::is_pointer_v<Mine> == std::is_pointer_v<Real> &&
         std::is_class_v<Mine> == std::is_class_v<Real>;
}

template <typename Mine, typename Real>
struct SameAbi : std::false_type {};

template <typename R, typename... A, typename S, typename... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameAbi<R (*)(A...), S (*)(B...)>
    : std::bool_constant<passes_alike<R, S>() && (passes_alike<A, B>() && ...)> {};

#ifdef HAS_CUDA_HEADER
#define SAME_AS_CUDA(member, function) \
  static_assert(SameAbi<decltype(CudaApi::member), decltype(&function)>::value, #function)
SAME_AS_CUDA(init, cuInit);
SAME_AS_CUDA(device_get_count, cuDeviceGetCount);
SAME_AS_CUDA(device_get, cuDeviceGet);
SAME_AS_CUDA(device_get_name, cuDeviceGetName);
SAME_AS_CUDA(device_get_uuid, cuDeviceGetUuid);
SAME_AS_CUDA(device_primary_ctx_retain, cuDevicePrimaryCtxRetain);
SAME_AS_CUDA(device_primary_ctx_release, cuDevicePrimaryCtxRelease);
SAME_AS_CUDA(ctx_get_current, cuCtxGetCurrent);
SAME_AS_CUDA(ctx_push_current, cuCtxPushCurrent);
SAME_AS_CUDA(ctx_pop_current, cuCtxPopCurrent);
SAME_AS_CUDA(get_error_name, cuGetErrorName);
SAME_AS_CUDA(get_error_string, cuGetErrorString);
SAME_AS_CUDA(stream_create, cuStreamCreate);
SAME_AS_CUDA(stream_destroy, cuStreamDestroy);
SAME_AS_CUDA(stream_wait_event, cuStreamWaitEvent);
SAME_AS_CUDA(stream_is_capturing, cuStreamIsCapturing);
SAME_AS_CUDA(event_create, cuEventCreate);
SAME_AS_CUDA(event_destroy, cuEventDestroy);
SAME_AS_CUDA(event_record, cuEventRecord);
SAME_AS_CUDA(event_query, cuEventQuery);
SAME_AS_CUDA(mem_alloc, cuMemAlloc);
SAME_AS_CUDA(mem_free, cuMemFree);
SAME_AS_CUDA(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode);
static_assert(kCudaSuccess == CUDA_SUCCESS);
static_assert(kCudaNotReady == CUDA_ERROR_NOT_READY);
static_assert(kCudaCapturedEvent == CUDA_ERROR_CAPTURED_EVENT);
static_assert(kCudaStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(kCudaEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kCudaCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(kCudaCaptureModeRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(sizeof(CudaUuid) == sizeof(CUuuid));
static_assert(std::is_same_v<CudaPointer, CUdeviceptr>);

// The header maps the plain names to the versions that we look up at run time.
#define TEXT_OF_TEXT(text) #text
#define TEXT_OF(text) TEXT_OF_TEXT(text)
TEST(CudaHeader, MapsNamesToTheVersionsThatWeLookUp) {
  EXPECT_STREQ(TEXT_OF(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2");
  EXPECT_STREQ(TEXT_OF(cuCtxPushCurrent), "cuCtxPushCurrent_v2");
  EXPECT_STREQ(TEXT_OF(cuCtxPopCurrent), "cuCtxPopCurrent_v2");
  EXPECT_STREQ(TEXT_OF(cuStreamDestroy), "cuStreamDestroy_v2");
  EXPECT_STREQ(TEXT_OF(cuEventDestroy), "cuEventDestroy_v2");
  EXPECT_STREQ(TEXT_OF(cuMemAlloc), "cuMemAlloc_v2");
  EXPECT_STREQ(TEXT_OF(cuMemFree), "cuMemFree_v2");
  fmt::print("compared with cuda.h of CUDA {}\n", CUDA_VERSION);
}
#else
TEST(CudaHeader, MapsNamesToTheVersionsThatWeLookUp) {
  GTEST_SKIP() << "no cuda.h here: the declarations are not compared";
}
#endif

#ifdef HAS_NCCL_HEADER
#define SAME_AS_NCCL(member, function) \
  static_assert(SameAbi<decltype(NcclApi::member), decltype(&function)>::value, #function)
SAME_AS_NCCL(get_version, ncclGetVersion);
SAME_AS_NCCL(get_unique_id, ncclGetUniqueId);
SAME_AS_NCCL(comm_init_rank_config, ncclCommInitRankConfig);
SAME_AS_NCCL(comm_split, ncclCommSplit);
SAME_AS_NCCL(comm_destroy, ncclCommDestroy);
SAME_AS_NCCL(comm_abort, ncclCommAbort);
SAME_AS_NCCL(comm_get_async_error, ncclCommGetAsyncError);
SAME_AS_NCCL(get_error_string, ncclGetErrorString);
SAME_AS_NCCL(get_last_error, ncclGetLastError);
SAME_AS_NCCL(all_reduce, ncclAllReduce);
SAME_AS_NCCL(broadcast, ncclBroadcast);
SAME_AS_NCCL(reduce, ncclReduce);
SAME_AS_NCCL(all_gather, ncclAllGather);
SAME_AS_NCCL(reduce_scatter, ncclReduceScatter);
SAME_AS_NCCL(send, ncclSend);
SAME_AS_NCCL(recv, ncclRecv);
SAME_AS_NCCL(group_start, ncclGroupStart);
SAME_AS_NCCL(group_end, ncclGroupEnd);
#if NCCL_VERSION_CODE >= 22807
SAME_AS_NCCL(comm_revoke, ncclCommRevoke);
#endif
static_assert(static_cast<int>(NcclResult::in_progress) == ncclInProgress);
static_assert(static_cast<int>(NcclResult::remote_error) == ncclRemoteError);
static_assert(static_cast<int>(NcclType::int8) == ncclInt8);
static_assert(static_cast<int>(NcclType::uint8) == ncclUint8);
static_assert(static_cast<int>(NcclType::int32) == ncclInt32);
static_assert(static_cast<int>(NcclType::int64) == ncclInt64);
static_assert(static_cast<int>(NcclType::float16) == ncclFloat16);
static_assert(static_cast<int>(NcclType::float32) == ncclFloat32);
static_assert(static_cast<int>(NcclType::float64) == ncclFloat64);
static_assert(static_cast<int>(NcclType::bfloat16) == ncclBfloat16);
static_assert(static_cast<int>(NcclReduction::sum) == ncclSum);
static_assert(static_cast<int>(NcclReduction::product) == ncclProd);
static_assert(static_cast<int>(NcclReduction::max) == ncclMax);
static_assert(static_cast<int>(NcclReduction::min) == ncclMin);
static_assert(static_cast<int>(NcclReduction::average) == ncclAvg);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
#if NCCL_VERSION_CODE >= 22600
static_assert(offsetof(NcclConfig, traffic_class) == offsetof(ncclConfig_t, trafficClass));
#endif

TEST(NcclHeader, HasTheSameMagicAndUnsetValues) {
  const ncclConfig_t real = NCCL_CONFIG_INITIALIZER;
  const NcclConfig mine;
  EXPECT_EQ(mine.magic, real.magic);
  EXPECT_EQ(mine.blocking, real.blocking);
  EXPECT_EQ(mine.min_ctas, real.minCTAs);
  EXPECT_EQ(mine.net_name, real.netName);
  EXPECT_EQ(mine.split_share, real.splitShare);
  fmt::print("compared with nccl.h of NCCL {}\n", nccl_version_text(NCCL_VERSION_CODE));
}
#else
TEST(NcclHeader, HasTheSameMagicAndUnsetValues) {
  GTEST_SKIP() << "no nccl.h here: the declarations are not compared";
}
#endif

// ---- finding

class LibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    use_fake_gpu();
  }
  void TearDown() override {
    use_fake_gpu();
    fake_machine().nccl_version = 23007;
    fake_machine().init_error = 0;
    fake_machine().gpus = 8;
  }
};

TEST_F(LibraryTest, OpensTheLibraryThatTheVariableNames) {
  const Outcome<NcclApi> nccl = open_nccl_library();
  ASSERT_TRUE(nccl) << nccl.error().message;
  EXPECT_EQ(nccl->version, 23007);
  EXPECT_EQ(std::filesystem::canonical(nccl->library.path()),
            std::filesystem::canonical(MUSTER_FAKE_GPU));
  EXPECT_NE(nccl->comm_revoke, nullptr);
  EXPECT_TRUE(open_cuda_driver());
}

TEST_F(LibraryTest, NamesThePlacesSearchedIfNcclIsMissing) {
  ::setenv("MUSTER_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  const Outcome<NcclApi> nccl = open_nccl_library();
  ASSERT_FALSE(nccl);
  EXPECT_EQ(nccl.error().code, ErrorCode::backend);
  EXPECT_THAT(nccl.error().message, HasSubstr("NCCL was not found (MUSTER_NCCL_LIBRARY: "));
  EXPECT_THAT(nccl.error().message, HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(nccl.error().message, HasSubstr("LD_LIBRARY_PATH"));
  EXPECT_THAT(nccl.error().message, Not(HasSubstr("\n")));
}

TEST_F(LibraryTest, RefusesAnotherLibraryInPlaceOfNccl) {
  ::setenv("MUSTER_NCCL_LIBRARY", "libm.so.6", 1);
  const Outcome<NcclApi> nccl = open_nccl_library();
  ASSERT_FALSE(nccl);
  EXPECT_THAT(nccl.error().message, HasSubstr("libm.so.6 has no ncclGetVersion"));
}

TEST_F(LibraryTest, RefusesAnOldNcclAndNamesBothVersions) {
  struct Old {
    int version;
    const char* text;
  };
  for (const Old& old :
       {Old{21801, "NCCL 2.18.1 ("}, Old{21700, "NCCL 2.17.0 ("}, Old{2804, "NCCL 2.8.4 ("}}) {
    fake_machine().nccl_version = old.version;
    const Outcome<NcclApi> nccl = open_nccl_library();
    ASSERT_FALSE(nccl);
    EXPECT_EQ(nccl.error().code, ErrorCode::backend);
    EXPECT_THAT(nccl.error().message, HasSubstr(old.text));
    EXPECT_THAT(nccl.error().message, HasSubstr("is too old: 2.18.3 or later is needed"));
  }
  fake_machine().nccl_version = kNcclOldest;
  EXPECT_TRUE(open_nccl_library());
}

TEST_F(LibraryTest, NamesWhatIsNeededIfTheDriverIsMissing) {
  ::setenv("MUSTER_CUDA_LIBRARY", "/nowhere/libcuda.so.1", 1);
  const Outcome<CudaApi> cuda = open_cuda_driver();
  ASSERT_FALSE(cuda);
  EXPECT_EQ(cuda.error().code, ErrorCode::backend);
  EXPECT_THAT(cuda.error().message, HasSubstr("no CUDA driver was found"));
  EXPECT_THAT(cuda.error().message, HasSubstr("NVIDIA GPU"));
  EXPECT_THAT(cuda.error().message, Not(HasSubstr("\n")));
}

TEST_F(LibraryTest, NamesTheVisibleDevicesIfTheDriverFindsNoGpu) {
  ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
  fake_machine().init_error = 100;
  const Outcome<CudaApi> cuda = open_cuda_driver();
  ASSERT_FALSE(cuda);
  EXPECT_THAT(cuda.error().message,
              HasSubstr("CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device"));
  EXPECT_THAT(cuda.error().message, HasSubstr("(CUDA_VISIBLE_DEVICES=)"));

  fake_machine().init_error = 0;
  fake_machine().gpus = 0;
  const Outcome<CudaApi> opened = open_cuda_driver();
  ASSERT_TRUE(opened);
  const Outcome<int> gpus = count_gpus(*opened);
  ASSERT_FALSE(gpus);
  EXPECT_EQ(gpus.error().message, "this process sees no GPU (CUDA_VISIBLE_DEVICES=)");
}

TEST_F(LibraryTest, RefusesADeviceThatDoesNotExistAndNamesTheCount) {
  fake_machine().gpus = 2;
  const Outcome<CudaApi> cuda = open_cuda_driver();
  ASSERT_TRUE(cuda);
  for (const int index : {2, 7, -1}) {
    const auto gpu = Gpu::open(*cuda, index);
    ASSERT_FALSE(gpu);
    EXPECT_EQ(gpu.error().code, ErrorCode::backend);
    EXPECT_THAT(gpu.error().message, HasSubstr(fmt::format("GPU {} was requested", index)));
    EXPECT_THAT(gpu.error().message, HasSubstr("sees 2 (CUDA_VISIBLE_DEVICES is not set)"));
  }
  const auto gpu = Gpu::open(*cuda, 1);
  ASSERT_TRUE(gpu);
  EXPECT_EQ((*gpu)->name(), "Fake GPU 1");
  EXPECT_EQ((*gpu)->uuid(), "00000000000000000000000000000002");
}

TEST_F(LibraryTest, IsAvailableWithTheFake) {
  std::string why = "untouched";
  EXPECT_TRUE(is_nccl_available(&why));
  EXPECT_EQ(why, "untouched");
  EXPECT_TRUE(is_nccl_available());
}

// ---- the real libraries, each in a process of its own, since an opened library stays

std::optional<std::filesystem::path> real_nccl() {
  namespace fs = std::filesystem;
  const char* const named = std::getenv("MUSTER_TORCH_VENV");
  const char* const home = std::getenv("HOME");
  const fs::path venv =
      named != nullptr ? fs::path(named)
                       : fs::path(home != nullptr ? home : "/") / ".cache" / "muster" / "torch";
  std::error_code error;
  for (const auto& python : fs::directory_iterator(venv / "lib", error)) {
    const fs::path file = python.path() / "site-packages/nvidia/nccl/lib/libnccl.so.2";
    if (fs::exists(file, error)) return file;
  }
  return std::nullopt;
}

TEST_F(LibraryTest, FindsAllFunctionsInTheRealNccl) {
  const auto file = real_nccl();
  if (!file) GTEST_SKIP() << "no libnccl.so.2 in MUSTER_TORCH_VENV";
  EXPECT_EXIT(
      {
        ::setenv("MUSTER_NCCL_LIBRARY", file->c_str(), 1);
        const Outcome<NcclApi> nccl = open_nccl_library();
        fmt::print(stderr, "{}\n",
                   nccl ? "opened NCCL " + nccl_version_text(nccl->version) : nccl.error().message);
        std::exit(nccl && nccl->comm_get_async_error != nullptr ? 0 : 1);
      },
      testing::ExitedWithCode(0), "opened NCCL 2\\.");
}

TEST_F(LibraryTest, ReportsAMissingDriverWithTheRealNccl) {
  const auto file = real_nccl();
  if (!file) GTEST_SKIP() << "no libnccl.so.2 in MUSTER_TORCH_VENV";
  if (::dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "this host has a driver";
  EXPECT_EXIT(
      {
        ::unsetenv("MUSTER_CUDA_LIBRARY");
        ::setenv("MUSTER_NCCL_LIBRARY", file->c_str(), 1);
        std::string why;
        const bool is_available = is_nccl_available(&why);
        fmt::print(stderr, "{}\n", why);
        std::exit(is_available ? 1 : 0);
      },
      testing::ExitedWithCode(0), "no CUDA driver was found \\(libcuda.so.1");
}

}  // namespace
}  // namespace muster::worker
