# Writes revision.h with the revision of the sources. Runs at every build, so that the version a
# program prints is its own; the file only changes when the revision does.
execute_process(
  COMMAND git -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(revision "unknown revision")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[
#pragma once

namespace gaccd {
inline constexpr char kVersion[] = "@VERSION@";
inline constexpr char kRevision[] = "@revision@";
inline constexpr char kGflagsVersion[] = "@GFLAGS_VERSION@";
}  // namespace gaccd
]])
