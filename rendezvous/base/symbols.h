// The functions of a shared library that is opened at run time, looked up by their names where a
// table of them is initialised:
//
//   struct Api {
//     Symbols symbols;
//     int (*init)() = symbols["nvmlInit_v2"];
//     int (*added_later)() = symbols.find("nvmlAddedLater");  // Null in old versions.
//   };
#pragma once

#include <string>

#include <dlfcn.h>

namespace muster {

class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  // Becomes a pointer to a function of any type.
  struct Symbol {
    template <typename Function>
    operator Function*() const {  // NOLINT: converts on purpose.
      return reinterpret_cast<Function*>(address);
    }
    void* address;
  };

  // Null: it has no such function.
  Symbol find(const char* name) const { return {::dlsym(library_, name)}; }
  // The same for a function without which the library cannot be used.
  Symbol operator[](const char* name) {
    const Symbol found = find(name);
    if (found.address == nullptr && missing_.empty()) missing_ = name;
    return found;
  }
  // The first of those that it has not; empty: it has all.
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace muster
