#include "daemon/train/replica_check.h"

#include <utility>

#include "collectives/base/hex.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/same_on_all.h"

namespace gaccd {

Result<std::string> ReplicaCheck::Compare(Engine& engine, std::int64_t step, bool* differ) const {
  if (!Due(step)) return std::string();
  GACCD_ASSIGN_OR_RETURN(const std::uint64_t digest, engine.Digest());
  std::string text = Hex(digest);
  Status same = CheckSameOnAllRanks(*comm_, "the digest of the parameters", text);
  if (!same.ok() && same.kind() == ErrorKind::kConfig) {
    *differ = true;
    same = {ErrorKind::kInternal, same.message()};
  }
  GACCD_RETURN_IF_ERROR(std::move(same).WithContext(StrCat("after update ", step)));
  return text;
}

}  // namespace gaccd
