#include "muster/section.h"

#include "worker_lib/recorder/recorder.h"

namespace muster {

Section::Section(std::string_view name) : is_recorded_(worker::process_recorder() != nullptr) {
  if (is_recorded_) worker::process_recorder()->enter_section(name);
}

Section::~Section() {
  if (!is_recorded_) return;
  if (worker::Recorder* const recorder = worker::process_recorder()) recorder->leave_section();
}

}  // namespace muster
