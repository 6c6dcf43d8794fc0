#include "launcher/musterctl.h"

int main(int argc, char** argv) {
  return muster::run_musterctl(argc, argv);
}
