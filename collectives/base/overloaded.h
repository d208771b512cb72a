// Overloaded: a visitor built from lambdas.
//   std::visit(Overloaded{[](const A&) { ... }, [](const B&) { ... }}, variant);
// Does not compile if an alternative is not handled.
#pragma once

namespace gaccd {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace gaccd
