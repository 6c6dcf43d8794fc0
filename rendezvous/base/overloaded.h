// One visitor of a std::variant from a lambda for each of its alternatives: a variant with an
// alternative that none of them takes does not compile. The idiom of std::visit's documentation.
#pragma once

namespace muster {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

}  // namespace muster
