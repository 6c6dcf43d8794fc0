// The launcher's two hidden device commands as a separate program, so that the tests of the device
// query need no other part of the launcher.
#include <cstring>

#include "agent/placement/nvml.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--internal-devices") == 0) {
    return muster::devices_child_main();
  }
  if (argc == 2 && std::strcmp(argv[1], "--internal-device-users") == 0) {
    return muster::device_users_child_main();
  }
  return 2;
}
