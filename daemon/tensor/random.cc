#include "daemon/tensor/random.h"

#include <cmath>
#include <initializer_list>

namespace gaccd {
namespace {

double Polynomial(double x, std::initializer_list<double> falling) {
  double sum = 0;
  for (const double coefficient : falling) sum = sum * x + coefficient;
  return sum;
}

}  // namespace

// The probability is the midpoint of one of 2^53 equal parts of (0, 1), so it is never 0 or 1.
double StandardNormal(std::uint64_t key, std::uint64_t j) {
  const auto part = static_cast<double>(StreamValue(key, j) >> 11);
  return NormalQuantile((part + 0.5) * 0x1p-53);
}

double NormalQuantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(r, {59.109374720, 159.29113202, 50.434271938, 3.3871327179}) /
           Polynomial(r, {67.187563600, 78.757757664, 17.895169469, 1.0});
  }
  const double r = std::sqrt(-std::log(q < 0 ? p : 1 - p));
  const double size =
      r <= 5 ? Polynomial(r - 1.6, {0.17023821103, 1.3067284816, 2.7568153900, 1.4234372777}) /
                   Polynomial(r - 1.6, {0.12021132975, 0.73700164250, 1.0})
             : Polynomial(r - 5, {0.017337203997, 0.42868294337, 3.0812263860, 6.6579051150}) /
                   Polynomial(r - 5, {0.012258202635, 0.24197894225, 1.0});
  return q < 0 ? -size : size;
}

}  // namespace gaccd
