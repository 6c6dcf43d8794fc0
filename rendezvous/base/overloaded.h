// A visitor of a std::variant made of one lambda per alternative, as in std::visit's documentation.
// A variant with an alternative that no lambda takes does not compile.
#pragma once

namespace muster {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace muster
