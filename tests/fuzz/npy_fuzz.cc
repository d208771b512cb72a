#include "daemon/data/formats/array.h"
#include "tests/fuzz/fuzz_array.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzNpy(const std::uint8_t* data, std::size_t size) {
  const auto array = gaccd::DecodeNpy("input", std::as_bytes(std::span(data, size)));
  if (array.ok()) gaccd::UseArray(*array);
  return 0;
}
