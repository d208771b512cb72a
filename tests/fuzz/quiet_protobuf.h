// Included once by a fuzz target that parses messages: libprotobuf says nothing, as in main.cc. A
// line for every string that is no UTF-8 would fill the disk.
#pragma once

#include <google/protobuf/stubs/logging.h>

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}
