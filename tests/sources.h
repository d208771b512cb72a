// Many files of tests are linked into one program; every CTest entry runs some of them in a process
// of its own.
#pragma once

namespace gaccd::tests {

// `--sources=unit/data/npy_test.cc,...`: only the tests of these files, relative to tests/, and of
// them only those that --gtest_filter lets through. Without it all tests run. Call it after
// InitGoogleTest(). False, with the reason on stderr: another argument, or a file without tests.
[[nodiscard]] bool KeepSources(int argc, char** argv);

}  // namespace gaccd::tests
