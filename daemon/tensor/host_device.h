// GACCD_HOST_DEVICE before a function: it is compiled for the CPU and for the GPU, so that a
// formula is written once and the tests on the CPU cover both. Such functions call no std::
// mathematics, only the C functions that both have (expf, sqrtf, ...).
#pragma once

#if defined(__CUDACC__)
#define GACCD_HOST_DEVICE __host__ __device__
#else
#define GACCD_HOST_DEVICE
#endif
