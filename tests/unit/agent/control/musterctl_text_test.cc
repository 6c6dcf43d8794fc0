#include "agent/control/musterctl_text.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using Jobs = std::vector<JobEntry>;

JobEntry job(pid_t pid, const std::string& id) {
  return {pid, id, "train.py", 1000, "/run/" + std::to_string(pid) + ".sock"};
}

std::string pick_complaint(const Jobs& jobs, const std::string& name, ExitCode code) {
  const Result<JobEntry> picked = pick_job(jobs, name);
  if (picked) return "no complaint";
  EXPECT_EQ(picked.error().code, code);
  return picked.error().message;
}

TEST(PickJob, TakesTheOnlyJobIfNoneIsNamed) {
  EXPECT_EQ(pick_job(Jobs{job(7, "a")}, ""), Result<JobEntry>(job(7, "a")));
}

TEST(PickJob, FindsAJobByIdOrPid) {
  const Jobs jobs{job(7, "a"), job(8, "b"), job(9, "8x")};
  EXPECT_EQ(pick_job(jobs, "b"), Result<JobEntry>(job(8, "b")));
  EXPECT_EQ(pick_job(jobs, "8"), Result<JobEntry>(job(8, "b")));
  EXPECT_EQ(pick_job(jobs, "8x"), Result<JobEntry>(job(9, "8x")));
}

TEST(PickJob, ListsTheRunningJobsInItsErrors) {
  EXPECT_EQ(pick_complaint({}, "", ExitCode::not_found),
            "no job of yours is running on this machine");
  EXPECT_EQ(pick_complaint({}, "a", ExitCode::not_found),
            "no job of yours is running on this machine");
  EXPECT_EQ(pick_complaint({job(7, "a")}, "b\n", ExitCode::not_found),
            "no running job of yours on this machine matches b?; running: a (pid 7)");
  EXPECT_EQ(pick_complaint({job(7, "a"), job(8, "b")}, "", ExitCode::usage),
            "several jobs are running: a (pid 7), b (pid 8); name one by its id or pid");
  EXPECT_EQ(pick_complaint({job(7, "a"), job(8, "a"), job(9, "b")}, "a", ExitCode::usage),
            "several jobs are running: a (pid 7), a (pid 8); name one by its pid");
  const Jobs many{job(1, "a"), job(2, "a"), job(3, "a"), job(4, "a"), job(5, "a"), job(6, "a")};
  EXPECT_EQ(pick_complaint(many, "", ExitCode::usage),
            "several jobs are running: a (pid 1), a (pid 2), a (pid 3), a (pid 4), a (pid 5), ...; "
            "name one by its id or pid");
}

TEST(ListText, IsATable) {
  EXPECT_EQ(list_text(Jobs{job(7, "a"), job(4711, "long-\x1b[31mname")}, 1062),
            "PID   JOB             UP          PROGRAM\n"
            "7     a               1 min 02 s  train.py\n"
            "4711  long-?[31mname  1 min 02 s  train.py\n");
  EXPECT_EQ(list_text(Jobs{}, 0), "no job of yours is running on this machine\n");
}

TEST(ListJson, HoldsWhatTheTableHolds) {
  const auto object = nlohmann::json::parse(control::encode(Jobs{job(7, "a\xff")}));
  EXPECT_EQ(object,
            nlohmann::json::parse(R"({"version":1,"ok":true,"jobs":[{"pid":7,"id":"a\ufffd",)"
                                  R"("program":"train.py","started":1000.0}]})"));
  EXPECT_EQ(control::encode(Jobs{}), "{\"jobs\":[],\"ok\":true,\"version\":1}\n");
}

TEST(StatusText, ShowsJobAndNodes) {
  control::JobStatus status;
  status.job_id = "job7";
  status.pid = 4711;
  status.program = "train.py";
  status.phase = "running, 3 of 3 workers alive";
  status.epoch = 2;
  status.world_size = 9;
  status.nodes = {{0, "node-a", 0, 8, "running"},
                  {1, "b\x07", 8, 1, "silent for 1.2 s"},
                  {-1, "node-c", 0, 0, "spare"}};
  status.restarts_used = 1;
  status.max_restarts = 3;
  status.uptime_s = 3725;
  status.log_dir = "/tmp/logs";
  EXPECT_EQ(status_text(status),
            "job       job7 (pid 4711)\n"
            "program   train.py\n"
            "state     running, 3 of 3 workers alive\n"
            "workers   9 in round 2\n"
            "restarts  1 of 3 used\n"
            "up        1 h 02 min\n"
            "logs      /tmp/logs\n"
            "\n"
            "NODE  HOST    RANKS  STATE\n"
            "0     node-a  0-7    running\n"
            "1     b?      8      silent for 1.2 s\n"
            "-     node-c  -      spare\n");
}

TEST(StatusText, NamesTheBudgetOfMembershipChanges) {
  const auto restarts_line = [](const control::JobStatus& status) {
    const std::string text = status_text(status);
    const std::size_t at = text.find("restarts  ");
    return text.substr(at + 10, text.find('\n', at) - at - 10);
  };
  control::JobStatus status;
  EXPECT_EQ(restarts_line(status), "0 of 0 used");
  status.membership_changes = 4;
  EXPECT_EQ(restarts_line(status), "0 of 0 used; membership changes: 4");
  status.max_membership_changes = 5;
  EXPECT_EQ(restarts_line(status), "0 of 0 used; membership changes: 4 of 5");
}

TEST(ElapsedText, HasTwoUnitsAtMost) {
  EXPECT_EQ(elapsed_text(0), "0 s");
  EXPECT_EQ(elapsed_text(59.9), "59 s");
  EXPECT_EQ(elapsed_text(60), "1 min 00 s");
  EXPECT_EQ(elapsed_text(3599), "59 min 59 s");
  EXPECT_EQ(elapsed_text(3600), "1 h 00 min");
  EXPECT_EQ(elapsed_text(86399), "23 h 59 min");
  EXPECT_EQ(elapsed_text(90000), "1 d 01 h");
  EXPECT_EQ(elapsed_text(-5), "0 s");
  EXPECT_EQ(elapsed_text(std::numeric_limits<double>::quiet_NaN()), "0 s");
  EXPECT_EQ(elapsed_text(std::numeric_limits<double>::infinity()), "0 s");
}

// What a printer prints for these answers in turn.
std::string printed_logs(bool prefixed, const std::vector<std::vector<control::LogText>>& answers) {
  std::string text;
  LogPrinter printer(prefixed, [&](std::string_view piece) { text += piece; });
  for (const auto& logs : answers)
    printer.add(logs);
  printer.finish();
  return text;
}

TEST(LogPrinter, PutsTheRankInFrontOfEveryLine) {
  EXPECT_EQ(printed_logs(true, {{{0, "a\nb\n", 4}, {12, "c\n", 2}}}), "[0] a\n[0] b\n[12] c\n");
  EXPECT_EQ(printed_logs(true, {{{0, "\n\n", 2}}}), "[0] \n[0] \n");
}

TEST(LogPrinter, WaitsForTheEndOfALine) {
  EXPECT_EQ(printed_logs(true, {{{0, "ab", 2}, {1, "x\n", 2}}, {{0, "c\nd", 5}}}),
            "[1] x\n[0] abc\n[0] d\n");
}

TEST(LogPrinter, BreaksALineThatDoesNotEnd) {
  const std::string half(40000, 'x');
  const std::string text =
      printed_logs(true, {{{0, half, 0}}, {{0, half + half, 0}}, {{0, "\n", 0}}});
  std::size_t count = 0;
  for (const char c : text)
    count += c == 'x';
  EXPECT_EQ(count, 120000u);
  EXPECT_TRUE(text.ends_with("x\n"));
}

TEST(LogPrinter, PrintsASingleRankUnchanged) {
  EXPECT_EQ(printed_logs(false, {{{3, "a\nb", 3}}, {{3, "\x1b[0m", 7}}}), "a\nb\x1b[0m");
}

}  // namespace
}  // namespace muster
