// The NPY format of NumPy, versions 1.0, 2.0 and 3.0.
//
//   bytes 0..5  0x93 "NUMPY"
//   bytes 6..7  major and minor version
//   then        header length, u16 (version 1) or u32, little endian
//   then        the header: a Python dictionary with the keys descr, fortran_order and shape, in
//               any order, then spaces and a line end
//   then        the elements; the file ends with them
// Supported: C order, little endian, integers of 8 to 64 bits, '<f4' (f32), '<f8' (f64). Errors
// name any other type.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "collectives/base/result.h"
#include "daemon/data/formats/array.h"

namespace gaccd {

// The array in `file`, as a view without owner. kData with `name`, expected and found value.
Result<Array> DecodeNpy(const std::string& name, std::span<const std::byte> file);

// The same for a file, which remains mapped as long as the array exists. Errors: also kIo.
Result<Array> LoadNpy(const std::string& path);

}  // namespace gaccd
