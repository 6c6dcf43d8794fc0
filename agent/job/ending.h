// How an agent ends once its workers have: its last files are written, its output is read, the
// other nodes have heard its goodbye, and none of them keeps it for ever. A pure machine; EndPart
// performs its effects.
//
//   running ─WorkersOver─▶ draining ─Ended─▶ parting ─Parted─▶ closing ─OutputFinished─▶ left
//
// A disk that does not answer is named after kSilence, and given up kFilesPatience later: 10 s
// after the workers' end, with what the front takes to leave an agent behind whose thread is stuck
// in the kernel. A signal gives the console kLastOutput to take the last output, and waits for the
// files, since they tell how the job ended; a kill waits no longer for them than for the console.
#pragma once

#include <chrono>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"

namespace muster {

class Ending {
 public:
  static constexpr auto kSilence = std::chrono::seconds(3);
  static constexpr auto kFilesPatience = std::chrono::seconds(5);
  static constexpr auto kLastOutput = std::chrono::milliseconds(300);
  // So long a node that leaves the verdict to another one lets that print it: srun and mpirun may
  // kill all that is left once one process has failed.
  static constexpr auto kTellerPrints = std::chrono::milliseconds(500);

  // The group of workers has finished.
  struct WorkersOver {};
  // The job has its verdict, and its last files are on their way to the disk.
  struct Ended {
    bool waits_for_teller = false;
  };
  struct FilesWritten {};
  // The other nodes, and the engine, have nothing to wait for.
  struct Parted {};
  struct OutputFinished {};
  // A signal that would stop the job. Killed: its user wants it to end now.
  struct Signalled {};
  struct Killed {};
  struct Tick {};
  using Event = std::variant<WorkersOver, Ended, FilesWritten, Parted, OutputFinished, Signalled,
                             Killed, Tick>;

  // What is still to be read of the workers' output is given up.
  struct CutDrain {};
  enum class Notice { disk_is_silent, files_are_lost, output_is_unread, files_are_missing };
  // Past the output thread, which may be what is waited for.
  struct Say {
    Notice what;
    friend bool operator==(const Say&, const Say&) = default;
  };
  // Have the output written to its end; OutputFinished answers.
  struct FinishOutput {};
  struct Leave {
    bool abandons_output = false;  // A write of it may still hang.
    friend bool operator==(const Leave&, const Leave&) = default;
  };
  using Effect = std::variant<CutDrain, Say, FinishOutput, Leave>;

  // Nothing follows a Leave.
  void step(Instant now, const Event& event, std::vector<Effect>& out);
  Instant next_deadline() const;
  bool is_killed() const { return killed_; }

 private:
  enum class Stage { running, draining, parting, closing, left };
  enum class Files { pending, limited, silent, lost, written };
  // What is due next, beside the files.
  enum class Due { nothing, cut_drain, teller_has_printed, silence, leave_late, leave_lost };

  void on(Instant now, const WorkersOver& event);
  void on(Instant now, const Ended& event);
  void on(Instant now, const FilesWritten& event);
  void on(Instant now, const Parted& event);
  void on(Instant now, const OutputFinished& event);
  void on(Instant now, const Signalled& event);
  void on(Instant now, const Killed& event);
  void on(Instant now, const Tick& event);

  void set_due(Due due, Instant at);
  void limit_files(Instant now);
  void files_are_late(Instant now);
  void close(Instant now);
  void leave_soon(Instant now);
  void leave();
  void say(Notice what) { out_->push_back(Say{what}); }

  Stage stage_ = Stage::running;
  Files files_ = Files::pending;
  Instant files_at_ = kNever;
  Due due_ = Due::nothing;
  Instant due_at_ = kNever;
  bool waits_for_teller_ = false;
  bool killed_ = false;
  bool abandoned_ = false;  // The user does not wait for the last output, or it cannot be written.
  bool soon_ = false;       // It leaves for a signal.
  bool late_ = false;       // After that: the console had its time.
  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
