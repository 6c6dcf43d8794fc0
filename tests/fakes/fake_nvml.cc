// A replacement for libnvidia-ml.so.1 on machines without a GPU. Its devices are described in the
// text file named by the environment variable FAKE_NVML, one fact per line:
//   gpu PCI UUID NAME…                    a GPU; numbered in this order
//   mig GPU_NUMBER UUID                   the GPU is in MIG mode, with this slice ("-": with none)
//   process GPU_NUMBER PID BYTES [SLICE]  a process that uses its memory
//   lost GPU_NUMBER                       getting its handle fails
//   init_error CODE                       the result of nvmlInit_v2
//   hang FUNCTION                         that function sleeps for ever
//   noise TEXT                            nvmlInit_v2 prints this on stdout, without a newline
//   log PATH                              nvmlInit_v2 adds a line to this file
// Without the variable there are no GPUs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

struct FakeProcess {
  unsigned pid;
  unsigned long long used_bytes;
};

struct FakeDevice {
  std::string pci;
  std::string uuid;
  std::string name;
  bool mig_enabled = false;
  bool lost = false;
  std::vector<FakeProcess> processes;
  std::vector<FakeDevice> slices;
};

struct FakeMachine {
  std::vector<FakeDevice> gpus;
  int init_error = 0;
  std::string hang;
  std::string noise;
  std::string log;
};

void read_fact(FakeMachine& machine, std::istringstream& line) {
  std::string kind;
  line >> kind;
  size_t number = 0;
  if (kind == "gpu") {
    FakeDevice gpu;
    line >> gpu.pci >> gpu.uuid >> std::ws;
    std::getline(line, gpu.name);
    machine.gpus.push_back(gpu);
  } else if (kind == "hang") {
    line >> machine.hang;
  } else if (kind == "init_error") {
    line >> machine.init_error;
  } else if (kind == "noise") {
    std::getline(line >> std::ws, machine.noise);
  } else if (kind == "log") {
    line >> machine.log;
  } else if (line >> number) {
    FakeDevice& gpu = machine.gpus.at(number);
    if (kind == "lost") gpu.lost = true;
    if (kind == "mig") {
      std::string uuid;
      line >> uuid;
      gpu.mig_enabled = true;
      if (uuid != "-") gpu.slices.push_back({{}, uuid, {}, false, false, {}, {}});
    }
    if (kind == "process") {
      FakeProcess process{};
      size_t slice = 0;
      line >> process.pid >> process.used_bytes;
      (line >> slice ? gpu.slices.at(slice) : gpu).processes.push_back(process);
    }
  }
}

FakeMachine& machine() {
  static FakeMachine instance = [] {
    FakeMachine read;
    const char* path = std::getenv("FAKE_NVML");
    std::ifstream in(path == nullptr ? "/dev/null" : path);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      read_fact(read, words);
    }
    return read;
  }();
  return instance;
}

void maybe_hang(const char* function) {
  while (machine().hang == function)
    pause();
}

int copy_text(const std::string& text, char* out, unsigned size) {
  if (text.size() + 1 > size) return 7;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return 0;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned numbers[5];
  char bus_id[32];
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  std::fputs(machine().noise.c_str(), stdout);
  if (!machine().log.empty()) std::ofstream(machine().log, std::ios::app) << "asked\n";
  maybe_hang("nvmlInit_v2");
  return machine().init_error;
}

int nvmlShutdown() {
  return 0;
}

const char* nvmlErrorString(int result) {
  return result == 18 ? "Driver/library version mismatch" : "GPU is lost";
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  maybe_hang("nvmlDeviceGetCount_v2");
  *count = static_cast<unsigned>(machine().gpus.size());
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, FakeDevice** device) {
  if (index >= machine().gpus.size()) return 2;
  *device = &machine().gpus[index];
  return (*device)->lost ? 15 : 0;
}

int nvmlDeviceGetUUID(FakeDevice* device, char* text, unsigned size) {
  return copy_text(device->uuid, text, size);
}

int nvmlDeviceGetName(FakeDevice* device, char* text, unsigned size) {
  return copy_text(device->name, text, size);
}

int nvmlDeviceGetPciInfo_v3(FakeDevice* device, PciInfo* info) {
  return copy_text(device->pci, info->bus_id, sizeof info->bus_id);
}

int nvmlDeviceGetMigMode(FakeDevice* device, unsigned* current, unsigned* pending) {
  *current = *pending = device->mig_enabled ? 1 : 0;
  return 0;
}

// As with the real library, the maximum number of slices is higher than the actual one.
int nvmlDeviceGetMaxMigDeviceCount(FakeDevice*, unsigned* count) {
  *count = 7;
  return 0;
}

int nvmlDeviceGetMigDeviceHandleByIndex(FakeDevice* device, unsigned index, FakeDevice** slice) {
  if (index >= device->slices.size()) return 6;
  *slice = &device->slices[index];
  return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(FakeDevice* device, unsigned* count,
                                            ProcessInfo* infos) {
  maybe_hang("nvmlDeviceGetComputeRunningProcesses_v3");
  const unsigned room = *count;
  *count = static_cast<unsigned>(device->processes.size());
  if (*count > room) return 7;
  for (size_t i = 0; i < device->processes.size(); ++i) {
    infos[i] = {device->processes[i].pid, device->processes[i].used_bytes, ~0u, ~0u};
  }
  return 0;
}

}  // extern "C"
