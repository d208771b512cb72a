// The NPY format of NumPy, versions 1.0, 2.0 and 3.0.
//
//   bytes 0..5  0x93 "NUMPY"
//   bytes 6..7  major and minor version
//   then        header length, u16 (version 1) or u32, little endian
//   then        the header: a Python dictionary with the keys descr, fortran_order and shape, in
//               any order, then spaces and a line end
//   then        the elements; the file ends with them
// Taken: C order, little endian, integers of 8 to 64 bits, '<f4' (f32), '<f8' (f64). Everything
// else is refused with its name.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/base/result.h"
#include "daemon/data/array.h"

namespace gaccd {

// The array in `file`, as a view with no owner. Errors: kData with `name`, the expected and the
// found value.
Result<Array> DecodeNpy(const std::string& name, std::span<const std::byte> file);

// The same of a file, which stays mapped as long as the array lives. Errors: also kIo.
Result<Array> LoadNpy(const std::string& path);

}  // namespace gaccd
