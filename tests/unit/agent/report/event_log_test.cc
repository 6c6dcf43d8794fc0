#include "agent/report/event_log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

JobEvent sample_event(JobEventKind kind) {
  JobEvent event;
  event.time = sample_time();
  event.kind = kind;
  return event;
}

TEST(EventLine, HasOnlyKnownFields) {
  EXPECT_EQ(event_line(sample_event(JobEventKind::suspended)),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"suspended\"}\n");
}

TEST(EventLine, NamesAStartedWorker) {
  JobEvent event = sample_event(JobEventKind::worker_started);
  event.attempt = 0;
  event.rank = 5;
  event.local_rank = 1;
  event.pid = 4711;
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"worker_started\",\"attempt\":0,"
            "\"rank\":5,\"local_rank\":1,\"pid\":4711}\n");
}

TEST(EventLine, HasTheCodeOfAnExit) {
  JobEvent event = sample_event(JobEventKind::worker_exited);
  event.status = ExitStatus::exited(3);
  event.seconds = 1.5;
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"worker_exited\",\"exit_code\":3,"
            "\"seconds\":1.5}\n");
}

TEST(EventLine, HasTheSignalOfACrash) {
  JobEvent event = sample_event(JobEventKind::worker_exited);
  event.status = ExitStatus::signaled(SIGSEGV, true);
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"worker_exited\","
            "\"signal\":\"SIGSEGV\",\"core_dumped\":true}\n");
}

TEST(EventLine, NamesAForwardedSignal) {
  JobEvent event = sample_event(JobEventKind::signal_forwarded);
  event.signal = SIGUSR1;
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"signal_forwarded\","
            "\"signal\":\"SIGUSR1\"}\n");
}

TEST(EventLine, HasTheLaunchersExitCodeAtTheEnd) {
  JobEvent event = sample_event(JobEventKind::job_ended);
  event.exit_code = 42;
  event.text = "failed";
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"job_ended\",\"exit_code\":42,"
            "\"text\":\"failed\"}\n");
}

TEST(EventLine, NamesTheNodeOfAFailureElsewhere) {
  JobEvent event = sample_event(JobEventKind::attempt_failed);
  event.rank = 5;
  event.local_rank = 1;
  event.host = "node-b";
  event.node_rank = 1;
  event.text = "exited with 3";
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"attempt_failed\",\"rank\":5,"
            "\"local_rank\":1,\"host\":\"node-b\",\"node_rank\":1,\"text\":\"exited with 3\"}\n");
}

TEST(EventLine, HasTheFieldsOfAHang) {
  JobEvent event = sample_event(JobEventKind::hang);
  event.attempt = 0;
  event.hang = sample_hang();
  EXPECT_EQ(event_line(event),
            "{\"time\":\"2026-11-20T22:56:48.123Z\",\"event\":\"hang\",\"attempt\":0,"
            "\"ranks\":[5],\"class\":\"never_entered\",\"by\":\"time\",\"group\":\"world\","
            "\"operation\":\"all_reduce (sum) of 8 float32\",\"ordinal\":1042,"
            "\"waiting\":[0,1,2],\"seconds\":12.4,\"confidence\":\"high\","
            "\"text\":\"rank 5 never entered all_reduce #1042\"}\n");
}

TEST(EventLine, HasNoOrdinalForAWaitForAGroup) {
  JobEvent event = sample_event(JobEventKind::waiting);
  event.hang = sample_hang();
  event.hang->ordinal = 0;
  EXPECT_FALSE(nlohmann::json::parse(event_line(event)).contains("ordinal"));
}

TEST(EventLine, StaysOneLineOfValidJsonWhateverTheText) {
  JobEvent event = sample_event(JobEventKind::note);
  event.text = "two\nlines \"quoted\" \xff \x1b[31m";
  const std::string line = event_line(event);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json.at("text"), "two\nlines \"quoted\" \xEF\xBF\xBD \x1b[31m");
}

TEST(EventLine, KnowsANameForEveryKind) {
  std::string names;
  for (int i = 0; i <= static_cast<int>(JobEventKind::job_ended); ++i) {
    const std::string line = event_line(sample_event(static_cast<JobEventKind>(i)));
    names += nlohmann::json::parse(line).at("event").get<std::string>() + " ";
  }
  EXPECT_EQ(names,
            "job_started round_ready worker_started worker_exited attempt_failed restarting "
            "stopping killing stopped leftovers signal_received signal_forwarded suspended resumed "
            "timer_expired waiting hang mismatch withdrawn membership_changed straggler note "
            "job_ended ");
}

}  // namespace
}  // namespace muster
