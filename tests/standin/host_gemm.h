// A matrix product on the CPU with cuBLASLt's meaning: column-major matrices, f32 sums.
#pragma once

#include <cstdint>

namespace gaccd::standin {

enum class ValueType { kF32, kBf16, kFp16 };

// A stored matrix: element (row, column) at data[column * ld + row].
struct ConstMatrix {
  const void* data = nullptr;
  ValueType type = ValueType::kF32;
  std::int64_t ld = 0;
  bool transposed = false;  // read as if rows and columns were exchanged
};
struct Matrix {
  void* data = nullptr;
  ValueType type = ValueType::kF32;
  std::int64_t ld = 0;
};

enum class Epilogue { kNone, kRelu, kSumsOfA, kSumsOfB, kGelu, kGeluGradient };

// How a product that is split along k adds up its two parts.
enum class Split { kNone, kInOrder, kInAnyOrder };

struct Product {
  std::int64_t m = 0;  // D is [m, n]
  std::int64_t n = 0;
  std::int64_t k = 0;
  ConstMatrix a;
  ConstMatrix b;
  ConstMatrix c;  // not read when beta is 0
  Matrix d;
  float alpha = 1;
  float beta = 0;
  bool tf32 = false;  // f32 inputs are rounded to 10 bits of mantissa first
  Epilogue epilogue = Epilogue::kNone;
  bool adds_bias = false;  // before RELU or GELU
  // In: m values, one a row of D. Out: sums over k of op(A), m values, or of op(B), n values.
  // Always of D's type.
  void* bias = nullptr;
  // The input of GELU, [m, n] as D: written by kGelu where it is there, read by kGeluGradient.
  Matrix aux;
  Split split = Split::kNone;
  float* workspace = nullptr;  // m * n values when the product is split
};

// D = epilogue(alpha op(A) op(B) + beta C). D may be C. GELU is the one with tanh.
void Multiply(const Product& product);

[[nodiscard]] float RoundToTf32(float value);
[[nodiscard]] float RoundToBf16(float value);

}  // namespace gaccd::standin
