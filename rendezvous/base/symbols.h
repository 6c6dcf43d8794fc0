// Looks up functions of a library opened at run time as a table of pointers is initialised:
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

  // Converts to a pointer to a function of any type.
  struct Symbol {
    template <typename Function>
    operator Function*() const {  // NOLINT: converts on purpose.
      return reinterpret_cast<Function*>(address);
    }
    void* address;
  };

  // Null if there is no such function.
  Symbol find(const char* name) const { return {::dlsym(library_, name)}; }
  // The same for a required function: missing() reports it.
  Symbol operator[](const char* name) {
    const Symbol found = find(name);
    if (found.address == nullptr && missing_.empty()) missing_ = name;
    return found;
  }
  // The first required function that is missing; empty if none is.
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace muster
