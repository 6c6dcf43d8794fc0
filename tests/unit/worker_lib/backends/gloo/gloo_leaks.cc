// Suppresses a leak in the tests of the gloo backend: Debian's libgloo.so keeps 64 bytes of its own
// after its last context is gone. Leaks of ours have no frame in it.
extern "C" const char* __lsan_default_suppressions();

extern "C" const char* __lsan_default_suppressions() {
  return "leak:libgloo.so\n";
}
