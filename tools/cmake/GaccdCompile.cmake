# gaccd_options: how our own code is compiled. Linked privately by every target of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -g1")

# Presets that build all of it (release, asan, tsan) compile this many files of a target as one, in half
# of the time; -DCMAKE_UNITY_BUILD=OFF, as preset debug, suits who changes one file and compiles again.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Precompiled headers may be reused from the cache, too: GaccdPrecompile.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

add_library(gaccd_options INTERFACE)
target_include_directories(gaccd_options INTERFACE "${PROJECT_SOURCE_DIR}")
# Designated initialisers leave members at their defaults on purpose; g++ 12 warns all the same. And it
# takes "text" + string for an overlapping copy (GCC bug 105651). clang's -Wconversion is wider than g++'s.
target_compile_options(gaccd_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Werror -Wno-missing-field-initializers>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict;-Wno-subobject-linkage>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-sign-conversion>)

if(GACCD_SANITIZE)
  if("address" IN_LIST GACCD_SANITIZE AND "thread" IN_LIST GACCD_SANITIZE)
    message(FATAL_ERROR "GACCD_SANITIZE: address and thread exclude each other, found '${GACCD_SANITIZE}'")
  endif()
  list(JOIN GACCD_SANITIZE "," sanitizers)
  target_compile_options(gaccd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizers};-fno-omit-frame-pointer>)
  target_link_options(gaccd_options INTERFACE -fsanitize=${sanitizers})
  target_compile_definitions(gaccd_options INTERFACE GACCD_SANITIZED=1)
endif()
