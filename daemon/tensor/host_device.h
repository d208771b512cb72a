// GACCD_HOST_DEVICE before a function compiles it for the CPU and the GPU, so that a formula is
// written once and CPU tests cover both. Such functions call no std:: mathematics, only C functions
// that both have (expf, sqrtf, ...).
#pragma once

#if defined(__CUDACC__)
#define GACCD_HOST_DEVICE __host__ __device__
#else
#define GACCD_HOST_DEVICE
#endif
