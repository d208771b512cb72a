// .owner and .epoch-000007 in a folder that others write to.
#include <string>

#include "daemon/checkpoint/lease.h"
#include "daemon/rundir/folder_owner.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_parts.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

constexpr OwnerPatience kNone{std::chrono::milliseconds(0), std::chrono::milliseconds(0)};

void TakeFolder(std::string_view owner, const OwnerName& me) {
  const FuzzFolder folder;
  folder.Write(".owner", owner);
  {
    const auto taken = FolderOwner::Acquire(folder.path(), me, kNone);
    if (!taken.ok()) {
      const ErrorKind kind = taken.status().kind();
      FuzzCheck(kind == ErrorKind::kConfig || kind == ErrorKind::kTempFail,
                "the kind of a refusal is config or tempfail");
      return;
    }
    FuzzCheck(!FolderOwner::Acquire(folder.path(), me, kNone).ok(), "it has one owner");
  }
  FuzzCheck(FolderOwner::Acquire(folder.path(), me, kNone).ok(),
            "an owner that left leaves it free");
}

void AcquireLease(std::string_view name, std::string_view claim, const OwnerName& me) {
  const FuzzFolder folder;
  const bool is_name = !name.empty() && name.size() < 100 &&
                       name.find_first_of(std::string_view("/\n\0", 3)) == std::string_view::npos;
  if (is_name) folder.Write(".epoch-" + std::string(name), claim);
  const auto lease = WriterLease::Acquire(folder.path(), me);
  if (!lease.ok()) {
    FuzzCheck(lease.status().kind() == ErrorKind::kData, "only a used up epoch is refused");
    return;
  }
  FuzzCheck(lease->epoch() >= 1, "epochs are counted from 1");
  FuzzCheck(lease->job_since() >= 1 && lease->job_since() <= lease->epoch(),
            "a job began with one of them");
  FuzzCheck(lease->Check().ok(), "the newest epoch holds");
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzOwner(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  const auto [owner, name, claim] = SplitParts<3>(data, size);
  const OwnerName me = MakeOwnerName("812", 3, 0);
  TakeFolder(owner, me);
  AcquireLease(name, claim, me);
  return 0;
}
