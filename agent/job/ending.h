// The end of an agent after that of its workers: its last files are written, its output is read,
// the other nodes get its goodbye, and no wait for these lasts for ever. A pure machine; EndPart
// performs its effects.
//
//   running ─WorkersOver─▶ draining ─Ended─▶ parting ─Parted─▶ closing ─OutputFinished─▶ left
//
// A disk that does not answer is reported after kSilence and given up kFilesPatience later: 10 s
// after the workers' end, including the time that the front takes to leave an agent with a thread
// stuck in the kernel. After a signal, the console gets kLastOutput to take the last output, and
// the files are waited for, since they tell how the job ended; after a kill, both get kLastOutput.
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
  // How long a node waits for the one that prints the verdict for all: srun and mpirun may kill all
  // other processes once one has failed.
  static constexpr auto kTellerPrints = std::chrono::milliseconds(500);

  struct WorkersOver {};
  // The job has its verdict, and its last files are on their way to the disk.
  struct Ended {
    bool waits_for_teller = false;
  };
  struct FilesWritten {};
  // Neither the other nodes nor the engine wait for this node any more.
  struct Parted {};
  struct OutputFinished {};
  // A signal that would stop the job. Killed: the user wants it to end now.
  struct Signalled {};
  struct Killed {};
  struct Tick {};
  using Event = std::variant<WorkersOver, Ended, FilesWritten, Parted, OutputFinished, Signalled,
                             Killed, Tick>;

  // Give up the rest of the workers' output.
  struct CutDrain {};
  enum class Notice { disk_is_silent, files_are_lost, output_is_unread, files_are_missing };
  // Print this past the output thread, which may be stuck.
  struct Say {
    Notice what;
    friend bool operator==(const Say&, const Say&) = default;
  };
  // Write the output to its end; answered by OutputFinished.
  struct FinishOutput {};
  struct Leave {
    bool abandons_output = false;  // A write of the output thread may still hang.
    friend bool operator==(const Leave&, const Leave&) = default;
  };
  using Effect = std::variant<CutDrain, Say, FinishOutput, Leave>;

  // Emits nothing after a Leave.
  void step(Instant now, const Event& event, std::vector<Effect>& out);
  Instant next_deadline() const;
  bool is_killed() const { return killed_; }

 private:
  enum class Stage { running, draining, parting, closing, left };
  enum class Files { pending, limited, silent, lost, written };
  // What is due next, apart from the files.
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
  bool leaves_for_signal_ = false;
  bool console_time_is_over_ = false;   // That since this signal.
  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
