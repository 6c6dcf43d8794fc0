// What LeakSanitizer need not say of the tests of the gloo backend: Debian's libgloo.so keeps 64
// bytes of its own after the last of its contexts is gone. Leaks of ours have no frame in it.
extern "C" const char* __lsan_default_suppressions();

extern "C" const char* __lsan_default_suppressions() {
  return "leak:libgloo.so\n";
}
