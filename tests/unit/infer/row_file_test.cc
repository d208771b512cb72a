#include "daemon/infer/row_file.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/comm/threads.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

// Row i holds 3 i + 1.
std::vector<std::int32_t> RowsFrom(std::int64_t first, std::int64_t count) {
  std::vector<std::int32_t> rows;
  for (std::int64_t i = first; i < first + count; ++i) {
    rows.push_back(static_cast<std::int32_t>(3 * i + 1));
  }
  return rows;
}

// More than is read back at once; each rank writes a half.
TEST(RowFileTest, ReturnsAllRowsInOrder) {
  constexpr std::int64_t kRows = 300'000;
  const TempFolder folder;
  std::vector<std::int32_t> found;
  const Status status = RunThreadRanks(2, {}, [&](Communicator& comm) -> Status {
    RowFile file;
    GACCD_RETURN_IF_ERROR(
        file.Open(comm, {.path = folder.Path("rows"), .shape = {kRows}, .dtype = DType::kI32})
            .status);
    const std::vector<std::int32_t> mine = RowsFrom(comm.rank() * kRows / 2, kRows / 2);
    GACCD_RETURN_IF_ERROR(file.Write(comm.rank() * kRows / 2, std::as_bytes(std::span(mine))));
    GACCD_RETURN_IF_ERROR(file.Finish());
    GACCD_RETURN_IF_ERROR(comm.Barrier());
    if (comm.rank() != 0) return Status::Ok();
    return file.ReadBack([&](std::int64_t first, std::span<const std::byte> bytes) {
      EXPECT_EQ(first, std::ssize(found));
      const auto* rows = reinterpret_cast<const std::int32_t*>(bytes.data());
      found.insert(found.end(), rows, rows + bytes.size() / sizeof(std::int32_t));
      return Status::Ok();
    });
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(found, RowsFrom(0, kRows));
}

}  // namespace
}  // namespace gaccd
