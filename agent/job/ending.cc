#include "agent/job/ending.h"

#include <algorithm>
#include <utility>

namespace muster {

//                 running   draining    parting     closing     left
// WorkersOver     draining  -           -           -           -
// Ended           parting   parting     -           -           -
// FilesWritten    -         -           written [1] written [1] -
// Parted          -         -           closing [2] -           -
// OutputFinished  -         -           -           left        -
// Signalled       -         -           soon [3]    soon [3]    -
// Killed          noted     cut drain   soon [3]    soon [3]    -
// Tick, files     -         say, lose   say, lose   say, lose   -
//
// [1] Leaves if [3] waits for them. [2] Once the teller has printed; if the files are lost, leaves
// in kLastOutput. [3] Leaves after kLastOutput, once the files are written or lost; if killed,
// without them.
void Ending::step(Instant now, const Event& event, std::vector<Effect>& out) {
  if (stage_ == Stage::left) return;
  out_ = &out;
  std::visit([&](const auto& one) { on(now, one); }, event);
  out_ = nullptr;
}

Instant Ending::next_deadline() const {
  return stage_ == Stage::left ? kNever : std::min(files_at_, due_at_);
}

void Ending::set_due(Due due, Instant at) {
  due_ = due;
  due_at_ = at;
}

void Ending::on(Instant now, const WorkersOver&) {
  if (stage_ != Stage::running) return;
  stage_ = Stage::draining;
  limit_files(now);
  if (killed_) set_due(Due::cut_drain, instant_after(now, kLastOutput));
}

void Ending::on(Instant now, const Ended& event) {
  if (stage_ > Stage::draining) return;
  stage_ = Stage::parting;
  waits_for_teller_ = event.waits_for_teller;
  set_due(Due::nothing, kNever);
  if (killed_) leave_soon(now);
  if (files_ == Files::lost) say(Notice::files_are_lost);
  limit_files(now);
}

void Ending::on(Instant now, const FilesWritten&) {
  if (files_ == Files::lost) return;
  files_ = Files::written;
  files_at_ = kNever;
  if (console_time_is_over_) return leave();
  if (stage_ == Stage::closing && due_ == Due::nothing && !abandoned_)
    set_due(Due::silence, instant_after(now, kSilence));
}

void Ending::on(Instant now, const Parted&) {
  if (stage_ != Stage::parting) return;
  stage_ = Stage::closing;
  if (!waits_for_teller_ || abandoned_) return close(now);
  set_due(Due::teller_has_printed, instant_after(now, kTellerPrints));
}

void Ending::on(Instant, const OutputFinished&) {
  if (stage_ == Stage::closing) leave();
}

void Ending::on(Instant now, const Signalled&) {
  if (stage_ >= Stage::parting) leave_soon(now);
}

void Ending::on(Instant now, const Killed&) {
  killed_ = true;
  if (stage_ == Stage::draining) out_->push_back(CutDrain{});
  if (stage_ >= Stage::parting) leave_soon(now);
}

void Ending::on(Instant now, const Tick&) {
  if (now >= files_at_) files_are_late(now);
  if (stage_ == Stage::left || now < due_at_) return;
  const Due due = due_;
  set_due(Due::nothing, kNever);
  switch (due) {
    case Due::nothing:
      return;
    case Due::cut_drain:
      return out_->push_back(CutDrain{});
    case Due::teller_has_printed:
      return close(now);
    case Due::silence:
      if (files_ == Files::written) say(Notice::output_is_unread);
      return;
    case Due::leave_late:
      console_time_is_over_ = true;
      if (killed_ || files_ == Files::written || files_ == Files::lost) return leave();
      return say(Notice::files_are_missing);
    case Due::leave_lost:
      return leave();
  }
}

// Starts the time limit of the files, at the end of the workers.
void Ending::limit_files(Instant now) {
  if (files_ != Files::pending) return;
  files_ = Files::limited;
  files_at_ = instant_after(now, kSilence);
}

void Ending::files_are_late(Instant now) {
  if (files_ == Files::limited) {
    files_ = Files::silent;
    files_at_ = instant_after(now, kFilesPatience);
    return say(Notice::disk_is_silent);
  }
  files_ = Files::lost;
  files_at_ = kNever;
  abandoned_ = true;
  if (stage_ >= Stage::parting) say(Notice::files_are_lost);
  if (console_time_is_over_) return leave();
  if (stage_ == Stage::draining) out_->push_back(CutDrain{});
  if (stage_ == Stage::closing) close(now);
}

void Ending::close(Instant now) {
  if (files_ == Files::lost && !leaves_for_signal_)
    return set_due(Due::leave_lost, instant_after(now, kLastOutput));
  if (files_ == Files::lost) return;
  out_->push_back(FinishOutput{});
  if (!abandoned_) set_due(Due::silence, instant_after(now, kSilence));
}

void Ending::leave_soon(Instant now) {
  if (console_time_is_over_ && killed_) return leave();
  abandoned_ = true;
  if (std::exchange(leaves_for_signal_, true)) return;
  set_due(Due::leave_late, instant_after(now, kLastOutput));
}

void Ending::leave() {
  stage_ = Stage::left;
  out_->push_back(Leave{abandoned_});
}

}  // namespace muster
