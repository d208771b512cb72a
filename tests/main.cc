// main() of the test programs.
#include <gtest/gtest.h>

#include "tests/sources.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!gaccd::tests::KeepSources(argc, argv)) return 64;
  return RUN_ALL_TESTS();
}
