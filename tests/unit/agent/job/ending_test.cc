#include "agent/job/ending.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string end_text(const Ending::CutDrain&) {
  return "cut drain";
}
std::string end_text(const Ending::Say& say) {
  constexpr const char* kNotices[] = {"disk is silent", "files are lost", "output is unread",
                                      "files are missing"};
  return kNotices[static_cast<int>(say.what)];
}
std::string end_text(const Ending::FinishOutput&) {
  return "finish output";
}
std::string end_text(const Ending::Leave& leave) {
  return leave.abandons_output ? "leave the output" : "leave";
}

class EndingAgent {
 public:
  std::string hear(const Ending::Event& event) {
    std::vector<Ending::Effect> effects;
    machine_.step(now_, event, effects);
    std::vector<std::string> texts;
    for (const auto& effect : effects)
      texts.push_back(std::visit([](const auto& one) { return end_text(one); }, effect));
    return fmt::format("{}", fmt::join(texts, ", "));
  }
  // The effects at the next deadline, after the wait for it; "-": there is no deadline.
  std::string tick() {
    const Instant deadline = machine_.next_deadline();
    if (deadline == kNever) return "-";
    const auto waited = std::chrono::duration_cast<milliseconds>(deadline - now_);
    now_ = deadline;
    return fmt::format("{} ms: {}", waited.count(), hear(Ending::Tick{}));
  }

 private:
  Instant now_{};
  Ending machine_;
};

EndingAgent ended_job() {
  EndingAgent job;
  job.hear(Ending::WorkersOver{});
  job.hear(Ending::Ended{});
  return job;
}

TEST(Ending, LeavesOnceItsOutputIsWritten) {
  EndingAgent job = ended_job();
  EXPECT_EQ(job.hear(Ending::FilesWritten{}), "");
  EXPECT_EQ(job.hear(Ending::Parted{}), "finish output");
  EXPECT_EQ(job.hear(Ending::OutputFinished{}), "leave");
  EXPECT_EQ(job.tick(), "-");
  EXPECT_EQ(job.hear(Ending::Signalled{}), "") << "it has left";
}

TEST(Ending, LetsTheNodeThatPrintsTheVerdictGoFirst) {
  EndingAgent job;
  job.hear(Ending::Ended{.waits_for_teller = true});
  EXPECT_EQ(job.hear(Ending::Parted{}), "");
  EXPECT_EQ(job.tick(), "500 ms: finish output");
}

TEST(Ending, ReportsThatItsOutputIsUnread) {
  EndingAgent job = ended_job();
  job.hear(Ending::FilesWritten{});
  job.hear(Ending::Parted{});
  EXPECT_EQ(job.tick(), "3000 ms: output is unread");
  EXPECT_EQ(job.hear(Ending::Signalled{}), "");
  EXPECT_EQ(job.tick(), "300 ms: leave the output");
}

TEST(Ending, ReportsUnreadOutputAfterALateDiskToo) {
  EndingAgent job = ended_job();
  job.hear(Ending::Parted{});
  EXPECT_EQ(job.tick(), "3000 ms: disk is silent");
  EXPECT_EQ(job.hear(Ending::FilesWritten{}), "");
  EXPECT_EQ(job.tick(), "3000 ms: output is unread");
}

TEST(Ending, AKillAfterTheFilesWereLostDoesNotWaitForOtherNodes) {
  EndingAgent job = ended_job();
  job.tick();
  EXPECT_EQ(job.tick(), "5000 ms: files are lost");
  EXPECT_EQ(job.hear(Ending::Killed{}), "");
  EXPECT_EQ(job.tick(), "300 ms: leave the output");
}

TEST(Ending, ASignalledJobEndsOnceItsFilesAreGivenUp) {
  EndingAgent job = ended_job();
  EXPECT_EQ(job.hear(Ending::Signalled{}), "");
  EXPECT_EQ(job.tick(), "300 ms: files are missing");
  EXPECT_EQ(job.tick(), "2700 ms: disk is silent");
  EXPECT_EQ(job.tick(), "5000 ms: files are lost, leave the output");
}

TEST(Ending, GivesUpASilentDisk) {
  EndingAgent job = ended_job();
  job.hear(Ending::Parted{});
  EXPECT_EQ(job.tick(), "3000 ms: disk is silent");
  EXPECT_EQ(job.tick(), "5000 ms: files are lost");
  EXPECT_EQ(job.tick(), "300 ms: leave the output");
}

TEST(Ending, GivesUpASilentDiskWhileWorkerOutputIsStillRead) {
  EndingAgent job;
  job.hear(Ending::WorkersOver{});
  EXPECT_EQ(job.tick(), "3000 ms: disk is silent");
  EXPECT_EQ(job.tick(), "5000 ms: cut drain");
  EXPECT_EQ(job.hear(Ending::Ended{}), "files are lost");
  EXPECT_EQ(job.hear(Ending::FilesWritten{}), "") << "too late";
  EXPECT_EQ(job.hear(Ending::Parted{}), "");
  EXPECT_EQ(job.tick(), "300 ms: leave the output");
}

TEST(Ending, WaitsForItsFilesAfterASignalButNotAfterAKill) {
  EndingAgent job = ended_job();
  EXPECT_EQ(job.hear(Ending::Signalled{}), "");
  EXPECT_EQ(job.tick(), "300 ms: files are missing");
  EXPECT_EQ(job.hear(Ending::Killed{}), "leave the output");

  EndingAgent patient = ended_job();
  patient.hear(Ending::Signalled{});
  patient.tick();
  EXPECT_EQ(patient.hear(Ending::Signalled{}), "");
  EXPECT_EQ(patient.hear(Ending::FilesWritten{}), "leave the output");
}

TEST(Ending, AKillWaitsOnlyForTheConsole) {
  EndingAgent job;
  EXPECT_EQ(job.hear(Ending::Killed{}), "");
  EXPECT_EQ(job.hear(Ending::WorkersOver{}), "");
  EXPECT_EQ(job.tick(), "300 ms: cut drain");
  EXPECT_EQ(job.hear(Ending::Ended{}), "");
  EXPECT_EQ(job.tick(), "300 ms: leave the output");

  EndingAgent late;
  late.hear(Ending::WorkersOver{});
  EXPECT_EQ(late.hear(Ending::Killed{}), "cut drain");
}

}  // namespace
}  // namespace muster
