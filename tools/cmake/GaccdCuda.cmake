# CUDA Toolkit, cuDNN and NCCL, if they are here: GACCD_CUDA_FOUND. The CUDA runtime is linked
# statically; cuBLASLt, cuDNN and NCCL are only loaded at run time (their headers are used here), so
# that one binary also runs where there is no GPU, driver or library.
#
# Library code that calls the CUDA runtime or launches kernels leaves these symbols open; an
# executable links one of
#   gaccd_gpu           the CUDA runtime and the kernels
#   gaccd_gpu_standin   stand-ins that run on the CPU (tests/standin), for tests without a GPU
# gaccd_gpu exists in every build, and is empty without CUDA.
set(GACCD_CUDA_FOUND OFF)
add_library(gaccd_gpu INTERFACE)
if(NOT GACCD_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  mark_as_advanced(NCCL_INCLUDE_DIR CUDNN_INCLUDE_DIR CUBLASLT_INCLUDE_DIR)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static
     AND NCCL_INCLUDE_DIR AND CUDNN_INCLUDE_DIR AND CUBLASLT_INCLUDE_DIR)
    set(GACCD_CUDA_FOUND ON)
  elseif(GACCD_WITH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "GACCD_WITH_CUDA=ON but not all of it was found: "
      "toolkit '${CUDAToolkit_VERSION}', nvcc '${CUDAToolkit_NVCC_EXECUTABLE}', nccl.h '${NCCL_INCLUDE_DIR}', "
      "cudnn.h '${CUDNN_INCLUDE_DIR}', cublasLt.h '${CUBLASLT_INCLUDE_DIR}'")
  endif()
endif()

# The preset release sets it again whenever it configures: what tools/test leaves never reaches a GPU. A
# package of it does, so installing says what is in it.
option(GACCD_OPTIMISE_KERNELS "OFF where there is no GPU: nvcc then only checks them, in two thirds of the time" ON)
# cudnn-frontend, headers only, describes attention to cuDNN. tools/dev/cudnn_frontend fetches it; without
# it attention in bf16 and fp16 is computed by a kernel of gaccd's own, and a job says so.
option(GACCD_WITH_CUDNN_FRONTEND "Describe attention to cuDNN, if cudnn-frontend is found" ON)
set(GACCD_CUDNN_FRONTEND_FOUND OFF)
if(GACCD_CUDA_FOUND AND GACCD_WITH_CUDNN_FRONTEND)
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/tools/dev/cudnn_frontend" --folder
    OUTPUT_VARIABLE fetched OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
    HINTS "${fetched}/include" ${CUDAToolkit_INCLUDE_DIRS} "${CUDNN_INCLUDE_DIR}")
  mark_as_advanced(CUDNN_FRONTEND_INCLUDE_DIR)
  if(CUDNN_FRONTEND_INCLUDE_DIR)
    set(GACCD_CUDNN_FRONTEND_FOUND ON)
  endif()
endif()

if(GACCD_CUDA_FOUND)
  # A100, H100/H200 and B200 as machine code; PTX for whatever comes later. Without machine code each
  # process compiles the PTX when it starts. Where no kernel runs one architecture is enough to see that
  # they compile. Not in the cache: it would outlive a change of GACCD_OPTIMISE_KERNELS.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real)
    if(GACCD_OPTIMISE_KERNELS)
      list(APPEND CMAKE_CUDA_ARCHITECTURES 90)
      if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
        list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real)
      endif()
    endif()
  endif()
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}" CACHE FILEPATH "")
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # the linker of an executable chooses one
  if(GACCD_OPTIMISE_KERNELS)
    set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O3 -lineinfo")
  else()
    set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O0 -Xcicc -O0 -Xptxas -O0")
  endif()
  if(CCACHE_PROGRAM)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  endif()
  # The headers of the toolkit, cuDNN, NCCL: no library.
  add_library(gaccd_cuda_headers INTERFACE)
  target_include_directories(gaccd_cuda_headers SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} "${NCCL_INCLUDE_DIR}" "${CUDNN_INCLUDE_DIR}" "${CUBLASLT_INCLUDE_DIR}")
  target_link_libraries(gaccd_gpu INTERFACE CUDA::cudart_static)
endif()

set(GACCD_KERNELS_OF "" CACHE PATH "Link the kernels that nvcc made in this build folder: sanitizers do not change them")

# Sets `result` to files that include `batch` of the sources each: CMake's unity builds do so for .cu
# files only since 3.31.
function(gaccd_unity_sources result name batch)
  set(sources ${ARGN})
  set(files "")
  while(sources)
    list(LENGTH files number)
    set(includes "")
    foreach(unused RANGE 1 ${batch})
      if(sources)
        list(POP_FRONT sources source)
        string(APPEND includes "#include \"${source}\"\n")
      endif()
    endforeach()
    set(file "${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cu")
    file(CONFIGURE OUTPUT "${file}" CONTENT "${includes}")
    list(APPEND files "${file}")
  endwhile()
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# gaccd_cuda_kernels(NAME SOURCES file.cu... [BATCH n] [LIBS target...])
# The kernels of one folder, n files at once (nvcc reads the headers of each anew), compiled twice: by nvcc
# for gaccd_gpu, and as plain C++ over the emulation in tests/standin for gaccd_gpu_standin (there as target
# NAME_standin).
function(gaccd_cuda_kernels name)
  cmake_parse_arguments(arg "" "BATCH" "SOURCES;LIBS" ${ARGN})
  if(NOT GACCD_CUDA_FOUND)
    return()
  endif()
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  if(arg_BATCH)
    gaccd_unity_sources(arg_SOURCES ${name} ${arg_BATCH} ${arg_SOURCES})
  endif()
  if(GACCD_KERNELS_OF)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE "${GACCD_KERNELS_OF}/${folder}/lib${name}.a" gaccd_cuda_headers ${arg_LIBS})
  else()
    add_library(${name} STATIC ${arg_SOURCES})
    target_compile_options(${name} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${GACCD_WERROR}>>:-Werror=all-warnings>)
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name} PUBLIC gaccd_cuda_headers ${arg_LIBS})
  endif()
  target_link_libraries(gaccd_gpu INTERFACE ${name})
  set_property(GLOBAL APPEND PROPERTY GACCD_CUDA_KERNELS ${name})
  set_property(GLOBAL PROPERTY GACCD_SOURCES_OF_${name} ${arg_SOURCES})
  set_property(GLOBAL PROPERTY GACCD_LIBS_OF_${name} ${arg_LIBS})
endfunction()
