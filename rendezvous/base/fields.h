// A concept for codecs that list the fields of a message once, in a function template that both
// writer and reader run:
//
//   void fields(auto& archive, Like<Message> auto& message);
#pragma once

#include <concepts>
#include <type_traits>

namespace muster {

// True if T is one of these types, const or not.
template <typename T, typename... Types>
concept Like = (std::same_as<std::remove_const_t<T>, Types> || ...);

}  // namespace muster
