#include "muster/checkpoint.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <ostream>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muster/error.h"
#include "tests/fakes/temp_tree.h"
#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using worker::group_test::FakeJob;
using Log = std::vector<std::string>;

constexpr int kRanks = 3;

class Checkpoint : public testing::Test {
 protected:
  std::string content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  // Runs `call` on all ranks, which must all throw the same error; returns it.
  std::string error_of_all(const std::function<void(ProcessGroup)>& call) {
    std::mutex mutex;
    std::multiset<std::string> errors;
    job_.each_world([&](ProcessGroup group) {
      try {
        call(group);
      } catch (const DistributedError& error) {
        const std::lock_guard lock(mutex);
        EXPECT_EQ(error.code(), ErrorCode::system);
        EXPECT_EQ(error.group(), "world");
        errors.insert(error.operation() + " / " + error.what());
      }
      group.barrier();  // The group goes on.
    });
    if (errors.size() != kRanks || errors.count(*errors.begin()) != kRanks) {
      ADD_FAILURE() << errors.size() << " ranks threw, or not the same";
    }
    return errors.empty() ? "" : *errors.begin();
  }

  const TempTree tree_;
  const fs::path& folder_ = tree_.root();
  std::string path_ = folder_ / "model.ckpt";
  FakeJob job_{kRanks, worker::group_test::without_news};
};

TEST_F(Checkpoint, IsWrittenByRankZeroAlone) {
  std::atomic<int> writers{0};
  job_.each_world([&](ProcessGroup group) {
    save_checkpoint(path_,
                    [&](std::ostream& out) {
                      ++writers;
                      out << "of rank " << group.rank().value;
                    },
                    {.group = group});
    EXPECT_EQ(content(), "of rank 0");  // On every rank, as soon as it returns.
  });
  EXPECT_EQ(writers, 1);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Checkpoint, SavesBetweenABarrierAndABroadcastOfTheOutcome) {
  job_.each_world([&](ProcessGroup group) { save_checkpoint(path_, "x", {.group = group}); });
  const Log log = job_.tables().named("world").performed();
  ASSERT_FALSE(log.empty());
  EXPECT_EQ(log.front(), "barrier 0 uint8");
  EXPECT_NE(log.back().find("broadcast"), std::string::npos) << log.back();
}

TEST_F(Checkpoint, IsNotBegunBeforeAllRanksArrive) {
  std::atomic<int> here{0};
  job_.each_world([&](ProcessGroup group) {
    ++here;
    save_checkpoint(path_, [&](std::ostream&) { EXPECT_EQ(here, kRanks); }, {.group = group});
  });
}

TEST_F(Checkpoint, HoldsTheBytesAndNothingElse) {
  const std::string bytes("a\0b\n\xff", 5);
  job_.each_world([&](ProcessGroup group) { save_checkpoint(path_, bytes, {.group = group}); });
  EXPECT_EQ(content(), bytes);
}

// Small and large pieces in turn: through the stream's buffer, filling it exactly, and past it.
TEST_F(Checkpoint, TakesPiecesOfAnySize) {
  std::string all;
  const auto write = [&](std::ostream& out) {
    std::mt19937 random(4);
    for (const size_t size :
         {0u, 1u, 262143u, 1u, 262144u, 262145u, 7u, 1000000u, 131072u, 131072u}) {
      std::string piece(size, '\0');
      for (char& c : piece)
        c = static_cast<char>(random());
      out << piece;
      if (size % 2 == 1) out.put('!');
      all += size % 2 == 1 ? piece + '!' : piece;
    }
    for (int i = 0; i < 600000; ++i) {
      out.put(static_cast<char>('a' + i % 26));
      all += static_cast<char>('a' + i % 26);
    }
  };
  job_.each_world([&](ProcessGroup group) { save_checkpoint(path_, write, {.group = group}); });
  EXPECT_TRUE(content() == all);
}

TEST_F(Checkpoint, RefusesAPathWithAZeroByte) {
  const std::string path = path_ + std::string("\0.part", 6);
  for (const auto& call : {std::function([&] { save_checkpoint(path, "x"); }),
                           std::function([&] { (void)load_checkpoint(path); })}) {
    try {
      call();
      ADD_FAILURE() << "taken";
    } catch (const DistributedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.what(), error.operation() + ": a path has no zero byte in it");
    }
  }
  EXPECT_EQ(files(), 0u);
}

TEST_F(Checkpoint, IsReadByRankZeroForAllRanks) {
  put(std::string("saved\0bytes", 11));
  std::atomic<int> good{0};
  job_.each_world([&](ProcessGroup group) {
    // Only rank 0 needs the path.
    const std::string path = group.rank().value == 0 ? path_ : "/nowhere";
    if (load_checkpoint(path, {.group = group}) == std::string("saved\0bytes", 11)) ++good;
  });
  EXPECT_EQ(good, kRanks);
}

TEST_F(Checkpoint, MayBeEmptyAndStillExists) {
  put("");
  job_.each_world([&](ProcessGroup group) {
    EXPECT_EQ(load_checkpoint(path_, {.group = group}), std::string());
  });
}

TEST_F(Checkpoint, LoadsNothingOnAllRanksIfThereIsNone) {
  job_.each_world([&](ProcessGroup group) {
    EXPECT_EQ(load_checkpoint(path_, {.group = group}), std::nullopt);
  });
}

TEST_F(Checkpoint, CanBeLoadedByTheNextJob) {
  const std::string large(3 << 20, 'm');
  job_.each_world([&](ProcessGroup group) {
    save_checkpoint(path_, "first", {.group = group});
    save_checkpoint(path_, large, {.group = group});
  });
  FakeJob(kRanks).each_world(
      [&](ProcessGroup group) { EXPECT_TRUE(load_checkpoint(path_, {.group = group}) == large); });
}

// ---- failures: the same on all ranks

TEST_F(Checkpoint, FailsWithOneErrorOnAllRanksIfItCannotBeCreated) {
  path_ = (folder_ / "none" / "model.ckpt").string();
  const std::string error =
      error_of_all([&](ProcessGroup group) { save_checkpoint(path_, "x", {.group = group}); });
  EXPECT_TRUE(error.starts_with(
      "save_checkpoint / save_checkpoint of group world on rank 0: cannot create " + path_))
      << error;
  EXPECT_TRUE(error.ends_with(": No such file or directory; make its folder first")) << error;
}

TEST_F(Checkpoint, FailsWithOneErrorOnAllRanksIfItsWriterThrows) {
  put("old");
  const std::string error = error_of_all([&](ProcessGroup group) {
    save_checkpoint(path_,
                    [](std::ostream& out) {
                      out << "half";
                      throw std::runtime_error("the model is on fire");
                    },
                    {.group = group});
  });
  EXPECT_EQ(error, "save_checkpoint / save_checkpoint of group world on rank 0: cannot write " +
                       path_ + ": the model is on fire");
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Checkpoint, FailsIfItsWriterThrowsAnythingElse) {
  const std::string error = error_of_all([&](ProcessGroup group) {
    save_checkpoint(path_, [](std::ostream&) { throw 7; }, {.group = group});
  });
  EXPECT_TRUE(error.ends_with("the program threw an exception that is not a std::exception"))
      << error;
  EXPECT_EQ(files(), 0u);
}

TEST_F(Checkpoint, FailsWithOneErrorOnAllRanksIfItsStreamHasFailed) {
  const std::string error = error_of_all([&](ProcessGroup group) {
    save_checkpoint(path_, [](std::ostream& out) { out.setstate(std::ios::badbit); },
                    {.group = group});
  });
  EXPECT_TRUE(error.ends_with("the stream was left in a failed state")) << error;
  EXPECT_EQ(files(), 0u);
}

TEST_F(Checkpoint, FailsWithOneErrorOnAllRanksIfItCannotBeRead) {
  fs::create_directory(path_);
  const std::string error =
      error_of_all([&](ProcessGroup group) { (void)load_checkpoint(path_, {.group = group}); });
  EXPECT_EQ(error, "load_checkpoint / load_checkpoint of group world on rank 0: cannot read " +
                       path_ + ": Is a directory");
}

TEST_F(Checkpoint, IsNotReplacedIfARankIsLost) {
  put("old");
  job_.tables().named("world").fail_at(
      1, {ErrorCode::peer_failed, "rank 2 (testhost, pid 7) died", {GlobalRank{2}}});
  job_.each_world([&](ProcessGroup group) {
    try {
      save_checkpoint(path_, "new", {.group = group});
      ADD_FAILURE() << "saved";
    } catch (const DistributedError& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_failed);
      EXPECT_EQ(error.operation(), "save_checkpoint");
      EXPECT_EQ(error.failed_ranks(), (std::vector<GlobalRank>{{2}}));
      EXPECT_TRUE(std::string(error.what()).starts_with("save_checkpoint 1 of group"))
          << error.what();
    }
  });
  EXPECT_EQ(content(), "old");
}

TEST(CheckpointOfNoJob, IsRefused) {
  EXPECT_THROW(save_checkpoint("/tmp/never", "x"), DistributedError);
  EXPECT_THROW((void)load_checkpoint("/tmp/never"), DistributedError);
  EXPECT_FALSE(fs::exists("/tmp/never"));
}

}  // namespace
}  // namespace muster
