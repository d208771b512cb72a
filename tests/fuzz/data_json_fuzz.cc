// Any bytes as the data.json next to an array: they belong together, or the refusal names both.
#include <string_view>

#include "daemon/data/prepared.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzDataJson(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const gaccd::Array array{.name = "out/x.npy", .type = gaccd::StoredType::kU16, .shape = {3, 2}};
  const gaccd::Status status = gaccd::CheckDataJson("out/data.json", text, array, 100, nullptr);
  for (const std::string& name : gaccd::PreparedClasses(text, array.name)) {
    FuzzCheck(text.size() > name.size(), "names are in the text");
  }
  if (status.ok()) return 0;
  FuzzCheck(status.kind() == ErrorKind::kData, "the kind of a refusal is data");
  FuzzCheck(status.message().find("out/data.json") != std::string_view::npos, "it names the file");
  return 0;
}
