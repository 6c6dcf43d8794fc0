// Random scripts of feeds, closes and waits, checked against what a console must never show.
#include <algorithm>
#include <map>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "agent/output/line_mux.h"

namespace muster {

namespace {

constexpr int kStreams = 4;

struct MuxStep {
  int stream;
  int wait_ms;  // Time before the text.
  std::string text;
};

// Each stream has a letter of its own, so that a byte on the console shows its origin.
std::string random_text(int stream, bool bars) {
  const auto length = *rc::gen::inRange(0, 12);
  std::string text;
  for (int i = 0; i < length; i++) {
    const auto kind = *rc::gen::inRange(0, 8);
    if (kind == 0) {
      text += '\n';
    } else if (kind == 1 && bars) {
      text += '\r';
    } else {
      text += static_cast<char>('a' + stream);
    }
  }
  return text;
}

std::vector<MuxStep> random_script(bool bars) {
  std::vector<MuxStep> steps;
  const auto count = *rc::gen::inRange(1, 40);
  for (int i = 0; i < count; i++) {
    const auto stream = *rc::gen::inRange(0, kStreams);
    const auto wait = *rc::gen::element(0, 0, 1, 30, 99, 100, 300, 999, 1000, 2500);
    steps.push_back({stream, wait, random_text(stream, bars)});
  }
  return steps;
}

struct MuxRun {
  std::string shown;
  std::map<int, std::string> fed;
};

// Ticks at each deadline that passes and closes all streams at the end, as the output thread does.
MuxRun run_script(const std::vector<MuxStep>& steps) {
  LineMux mux;
  LineMux::Pieces pieces;
  MuxRun run;
  const auto flush = [&] {
    for (const auto piece : pieces)
      run.shown += piece;
    pieces.clear();
  };
  for (int i = 0; i < kStreams; i++)
    mux.open();
  Instant now{};
  for (const MuxStep& step : steps) {
    const Instant until = now + std::chrono::milliseconds(step.wait_ms);
    while (mux.next_deadline() <= until) {
      now = std::max(now, mux.next_deadline());
      mux.tick(now, pieces);
      flush();
      RC_ASSERT(mux.next_deadline() > now);
    }
    now = until;
    mux.feed(step.stream, step.text, now, pieces);
    flush();
    run.fed[step.stream] += step.text;
  }
  for (int i = 0; i < kStreams; i++) {
    mux.close(i, now, pieces);
    flush();
  }
  RC_ASSERT(mux.next_deadline() == kNever);
  return run;
}

std::string only(std::string_view text, char letter) {
  std::string result;
  std::copy_if(text.begin(), text.end(), std::back_inserter(result),
               [&](char c) { return c == letter; });
  return result;
}

// Counts the streams that have a letter in this line.
int speakers(std::string_view line) {
  int count = 0;
  for (int i = 0; i < kStreams; i++) {
    count += line.find(static_cast<char>('a' + i)) != std::string_view::npos;
  }
  return count;
}

RC_GTEST_PROP(LineMuxProperty, EveryByteIsShownOnceAndInOrder, ()) {
  const MuxRun run = run_script(random_script(true));
  size_t said_newlines = 0;
  for (const auto& [stream, text] : run.fed) {
    const char letter = static_cast<char>('a' + stream);
    RC_ASSERT(only(run.shown, letter) == only(text, letter));
    said_newlines += only(text, '\n').size();
  }
  RC_ASSERT(only(run.shown, '\n').size() >= said_newlines);
}

RC_GTEST_PROP(LineMuxProperty, NoLineMixesTwoStreams, ()) {
  const MuxRun run = run_script(random_script(false));
  std::string_view rest = run.shown;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    RC_ASSERT(speakers(rest.substr(0, end)) <= 1);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

RC_GTEST_PROP(LineMuxProperty, LinesWithoutPausesAreShownAsTheyWereWritten, ()) {
  // Without pauses no partial line is shown before its end.
  std::vector<MuxStep> steps = random_script(false);
  for (MuxStep& step : steps) {
    step.wait_ms = 0;
    step.text += '\n';
  }
  const MuxRun run = run_script(steps);
  std::string expected;
  for (const MuxStep& step : steps)
    expected += step.text;
  RC_ASSERT(run.shown == expected);
}

}  // namespace

}  // namespace muster
