// Overloaded: one call for each alternative of a variant.
//   std::visit(Overloaded{[](const A&) { ... }, [](const B&) { ... }}, variant);
// An alternative that has none does not compile.
#pragma once

namespace gaccd {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace gaccd
