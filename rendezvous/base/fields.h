// For codecs that list the fields of a message once, in a function template that both their writer
// and their reader run:
//
//   void fields(auto& archive, Like<Message> auto& message);
#pragma once

#include <concepts>
#include <type_traits>

namespace muster {

// T is one of these types, const or not.
template <typename T, typename... Types>
concept Like = (std::same_as<std::remove_const_t<T>, Types> || ...);

}  // namespace muster
