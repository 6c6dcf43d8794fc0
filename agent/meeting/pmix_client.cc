#include "agent/meeting/pmix_client.h"

#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include "agent/meeting/pmix_abi.h"

namespace muster {
namespace {

// The last one is Debian's own folder, which its links on the search path lead to.
constexpr const char* kPmixLibraries[] = {"libpmix.so.2", "libpmix.so",
#if defined(__x86_64__)
                                          "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"
#else
                                          "/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2"
#endif
};

constexpr size_t kPmixValueBytesMax = 4096;  // Of a value that we publish or read.

tl::unexpected<Error> pmix_failed(std::string why) {
  return fail(ExitCode::rendezvous, "asking PMIx for rank 0's address failed: " + std::move(why));
}

// Stays open: unloading a library that has threads gains nothing.
class Pmix {
 public:
  static Result<Pmix> open() {
    void* library = nullptr;
    for (const char* const name : kPmixLibraries) {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library != nullptr) break;
    }
    if (library == nullptr) {
      return pmix_failed(
          "there is no libpmix.so.2; install it (Debian: libpmix2), or name its folder in "
          "LD_LIBRARY_PATH");
    }
    Pmix pmix{pmix::Api{Symbols(library)}};
    if (pmix.api_.symbols.missing().empty()) return pmix;
    return pmix_failed("libpmix.so.2 lacks functions of PMIx 2");
  }

  Result<PmiAnswer> ask(const std::string& record) const {
    pmix::Proc self{};
    pmix::Info collect{};
    std::strncpy(collect.key, pmix::kCollectData, sizeof collect.key - 1);
    collect.value.type = pmix::kBool;
    collect.value.data.flag = true;
    pmix::Status status = api_.init(&self, nullptr, 0);
    if (status != pmix::kSuccess) return failed("PMIx_Init", status);
    if (self.rank == 0) {
      std::string text = pmi_values(record, kPmixValueBytesMax).front();
      pmix::Value value{};
      value.type = pmix::kString;
      value.data.string = text.data();
      status = api_.put(pmix::kGlobalScope, pmi_key(0).c_str(), &value);
      if (status != pmix::kSuccess) return failed("PMIx_Put", status);
      status = api_.commit();
      if (status != pmix::kSuccess) return failed("PMIx_Commit", status);
    }
    // Without collecting, the others would ask rank 0's node for the value, and some servers then
    // never answer.
    status = api_.fence(nullptr, 0, &collect, 1);
    if (status != pmix::kSuccess) return failed("PMIx_Fence", status);

    const auto published =
        gather_pmi_record([&](const std::string& key) { return text(self, key); });
    if (!published) return tl::unexpected<Error>(published.error());
    const Result<uint32_t> size = job_size(self);
    if (!size) return tl::unexpected<Error>(size.error());
    // Without this, mpirun takes the end of this process for a crash.
    api_.finalize(nullptr, 0);
    return pmi_answer({name_of(self), self.rank, *size}, *published);
  }

 private:
  explicit Pmix(pmix::Api api) : api_(std::move(api)) {}

  tl::unexpected<Error> failed(const char* call, pmix::Status status) const {
    const char* const why = api_.error_string(status);
    return pmix_failed(
        fmt::format("{}: {} ({})", call, why == nullptr ? "unknown error" : why, status));
  }

  static std::string name_of(const pmix::Proc& proc) {
    return {proc.name_space, strnlen(proc.name_space, std::size(proc.name_space))};
  }

  Result<const pmix::Value*> value(const pmix::Proc& self, uint32_t rank, const std::string& key,
                                   uint16_t type) const {
    pmix::Proc proc = self;
    proc.rank = rank;
    pmix::Value* value = nullptr;
    const pmix::Status status = api_.get(&proc, key.c_str(), nullptr, 0, &value);
    if (status != pmix::kSuccess || value == nullptr)
      return failed(fmt::format("PMIx_Get of {}", key).c_str(), status);
    if (value->type != type) {
      return pmix_failed(fmt::format("{} has type {} instead of {}", key, value->type, type));
    }
    return value;
  }

  // What rank 0 has put.
  Result<std::string> text(const pmix::Proc& self, const std::string& key) const {
    const auto found = value(self, 0, key, pmix::kString);
    if (!found) return tl::unexpected<Error>(found.error());
    const char* const string = (*found)->data.string;
    return string == nullptr ? std::string()
                             : std::string(string, strnlen(string, kPmixValueBytesMax));
  }

  Result<uint32_t> job_size(const pmix::Proc& self) const {
    const auto found = value(self, pmix::kAnyRank, pmix::kJobSize, pmix::kUint32);
    if (!found) return tl::unexpected<Error>(found.error());
    return (*found)->data.uint32;
  }

  pmix::Api api_;
};

}  // namespace

Result<PmiAnswer> ask_pmix(const std::string& record) {
  return Pmix::open().and_then([&](const Pmix& pmix) { return pmix.ask(record); });
}

}  // namespace muster
