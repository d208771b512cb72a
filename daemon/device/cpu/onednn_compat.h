// What oneDNN 2 and oneDNN 3 name differently.
#pragma once

#include <dnnl.hpp>
#include <string_view>

namespace gaccd {

// Operation: dnnl::matmul or another one. arguments: those that describe it, in oneDNN's order.
// Throws dnnl::error.
template <typename Operation, typename... Arguments>
typename Operation::primitive_desc DescribeOperation(const dnnl::engine& engine,
                                                     const dnnl::primitive_attr& attributes,
                                                     const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, arguments..., attributes};
#else
  return {typename Operation::desc(arguments...), attributes, engine};
#endif
}

// The same with the first implementation whose name starts with `preferred`; oneDNN's own choice if
// there is none.
template <typename Operation, typename... Arguments>
typename Operation::primitive_desc DescribePreferred(const dnnl::engine& engine,
                                                     const dnnl::primitive_attr& attributes,
                                                     std::string_view preferred,
                                                     const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  typename Operation::primitive_desc description(engine, arguments..., attributes);
#else
  const typename Operation::desc operation(arguments...);  // read by next_impl()
  typename Operation::primitive_desc description(operation, attributes, engine);
#endif
  do {
    if (std::string_view(description.impl_info_str()).starts_with(preferred)) return description;
  } while (description.next_impl());
  return DescribeOperation<Operation>(engine, attributes, arguments...);
}

// The same for a gradient of the operation that `forward` describes.
template <typename Operation, typename Forward, typename... Arguments>
typename Operation::primitive_desc DescribeGradient(const dnnl::engine& engine,
                                                    const dnnl::primitive_attr& attributes,
                                                    const Forward& forward,
                                                    const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, arguments..., forward, attributes};
#else
  return {typename Operation::desc(arguments...), attributes, engine, forward};
#endif
}

inline dnnl::memory::dims Dimensions(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  return desc.get_dims();
#else
  return desc.dims();
#endif
}

}  // namespace gaccd
