#include "worker_lib/backends/opened_library.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

constexpr const char* kPathVariable = "MUSTER_TEST_OPENED_LIBRARY";
// A library of glibc, which loads it only to read passwords as NIS did.
constexpr OpenedLibrary::Names kPasswords{"_nss_compat_getpwnam_r", kPathVariable,
                                          "libnss_compat.so.2"};

class PathVariable {
 public:
  explicit PathVariable(const char* path) { setenv(kPathVariable, path, 1); }
  ~PathVariable() { unsetenv(kPathVariable); }
  PathVariable(const PathVariable&) = delete;
  PathVariable& operator=(const PathVariable&) = delete;
};

Failure failure_of_opening(const OpenedLibrary::Names& names) {
  const auto library = OpenedLibrary::open(names);
  return library ? Failure{ErrorCode::system, library->path()} : library.error();
}

TEST(OpenedLibrary, PrefersALoadedCopyToTheOneTheVariableNames) {
  const PathVariable wrong("/no/such/library.so");
  const auto library = OpenedLibrary::open({"fopen", kPathVariable, "libmuster-none.so.1"});
  ASSERT_TRUE(library.has_value()) << library.error().message;
  EXPECT_NE(library->path(), "");
  EXPECT_NE(library->find("fclose").address, nullptr);
}

// Python loads the libraries of its modules so: outside the program's global scope.
TEST(OpenedLibrary, FindsACopyLoadedOutsideTheGlobalScope) {
  const auto loaded = OpenedLibrary::open(kPasswords);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  const PathVariable wrong("/no/such/library.so");
  const auto found = OpenedLibrary::open(kPasswords);
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->path(), loaded->path());
  EXPECT_TRUE(found->path().ends_with("/libnss_compat.so.2")) << found->path();
  EXPECT_EQ(found->find(kPasswords.symbol).address, loaded->find(kPasswords.symbol).address);
}

TEST(OpenedLibrary, ReportsAMissingLibraryInTheLoadersWords) {
  const OpenedLibrary::Names names{"muster_no_such", kPathVariable, "libmuster-none.so.1"};
  const std::string reason = ": cannot open shared object file: No such file or directory";
  const Failure unnamed{ErrorCode::backend, "libmuster-none.so.1" + reason};
  EXPECT_EQ(failure_of_opening(names), unnamed);
  {
    const PathVariable empty("");
    EXPECT_EQ(failure_of_opening(names), unnamed) << "an empty variable names nothing";
  }
  const PathVariable wrong("/no/such/library.so");
  EXPECT_EQ(
      failure_of_opening(names),
      (Failure{ErrorCode::backend, std::string(kPathVariable) + ": /no/such/library.so" + reason}));
}

TEST(OpenedLibrary, RefusesAnotherLibrary) {
  const PathVariable other("libnss_compat.so.2");
  EXPECT_EQ(failure_of_opening({"muster_no_such", kPathVariable, "libmuster-none.so.1"}),
            (Failure{ErrorCode::backend,
                     "libnss_compat.so.2 has no muster_no_such: it is another "
                     "library"}));
}

TEST(OpenedLibrary, NamesTheFirstMissingFunction) {
  auto library = OpenedLibrary::open({"strlen", kPathVariable, "libmuster-none.so.1"});
  ASSERT_TRUE(library.has_value()) << library.error().message;
  using Function = size_t(const char*);
  Function* const length = (*library)["strlen"];
  ASSERT_NE(length, nullptr);
  EXPECT_EQ(library->missing(), "");
  EXPECT_EQ(length("four"), 4U);
  Function* absent = library->find("muster_optional");
  EXPECT_EQ(absent, nullptr);
  EXPECT_EQ(library->missing(), "");
  absent = (*library)["muster_no_such"];
  EXPECT_EQ(absent, nullptr);
  absent = (*library)["muster_nor_this"];
  absent = (*library)["strlen"];
  EXPECT_EQ(absent, length);
  EXPECT_EQ(library->missing(), "muster_no_such");
}

}  // namespace
}  // namespace muster::worker
