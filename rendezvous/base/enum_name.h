// Looks up the name of an enum's value in a list in the enum's order. The compiler checks that the
// list is as long as the enum, whose last value is the template argument:
//
//   return name_in<Fruit::plum>({"apple", "pear", "plum"}, fruit);
#pragma once

#include <cstddef>

#include "rendezvous/base/error.h"

namespace muster {

template <auto last, size_t n>
constexpr const char* name_in(const char* const (&names)[n], decltype(last) value) {
  static_assert(n == static_cast<size_t>(last) + 1, "one name for each value");
  const auto i = static_cast<size_t>(value);
  CHECK(i < n);
  return names[i];
}

}  // namespace muster
