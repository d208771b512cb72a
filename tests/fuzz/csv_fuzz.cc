// A table of numbers; the reader takes a file, so each input becomes one, in memory.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "daemon/data/sources.h"
#include "tests/fuzz/fuzz_array.h"
#include "tests/fuzz/fuzz_targets.h"

int gaccd::FuzzCsv(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const std::string path = "/dev/shm/gaccd-fuzz-" + std::to_string(::getpid()) + ".csv";
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  FuzzCheck(file != nullptr && std::fwrite(data, 1, size, file) == size && std::fclose(file) == 0,
            "the input is written");
  const NormalizeSpec normalize;
  const BadRecordRules rules;
  const std::string folder;
  for (const CsvSpec& source : {CsvSpec{path, 1, 10}, CsvSpec{path, 2, 0}}) {
    std::vector<std::string> column_names;
    const OpenContext opening{normalize, rules, nullptr, folder, &column_names};
    const OpenedDataset dataset = OpenSource(source, opening);
    if (dataset.ok()) {
      ReadEnds(**dataset);
      continue;
    }
    const ErrorKind kind = dataset.status().kind();
    FuzzCheck(kind == ErrorKind::kData || kind == ErrorKind::kIo,
              "the kind of a refusal is data or io");
  }
  ::unlink(path.c_str());
  return 0;
}
