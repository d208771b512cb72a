# Writes the source file OUTPUT with the definitions of revision.h. Runs at every build; the file only
# changes when the revision does.
execute_process(
  COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(revision "unknown revision")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#include "daemon/config/revision.h"

namespace gaccd {
const char* GaccdVersion() { return "@VERSION@"; }
const char* GaccdRevision() { return "@revision@"; }
const char* GflagsVersion() { return "@GFLAGS_VERSION@"; }
}  // namespace gaccd
]])
