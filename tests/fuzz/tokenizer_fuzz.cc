// Any bytes as tokenizer.json, of the user or next to weights from elsewhere.
#include <string>

#include "daemon/data/tokenizer.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_parts.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzTokenizer(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const auto [first, second] = SplitParts<2>(data, size);
  const Status same = CompareTokenizers("a.json", first, "a.json", first);
  const Status status = CompareTokenizers("a.json", first, "b.json", second);
  for (const Status& one : {same, status}) {
    if (one.ok()) continue;
    FuzzCheck(one.kind() == ErrorKind::kData, "the kind of a refusal is data");
    FuzzCheck(one.message().find("a.json") != std::string::npos ||
                  one.message().find("b.json") != std::string::npos,
              "it names the file");
  }
  FuzzCheck(status.ok() == CompareTokenizers("b.json", second, "a.json", first).ok(),
            "the order of the files does not matter");
  return 0;
}
