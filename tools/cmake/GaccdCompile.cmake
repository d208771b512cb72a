# gaccd_options: how our own code is compiled. Linked privately by every target of ours.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# Most of the code runs once an update or less: -Og compiles it in less than two thirds of the time of -O3.
# gaccd_hot(TARGET) is for the rest. AVX2 has no arithmetic under a mask: a loop with a branch becomes vector code
# only if the other side may be computed too, as no trap is taken.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1")
set(GACCD_HOT_OPTIONS "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:RelWithDebInfo>>:-O3;-fno-trapping-math>")
if(GACCD_SANITIZE)  # clang -O1 makes no vector code, and warns of loops that ask for it
  set(GACCD_HOT_OPTIONS "$<$<COMPILE_LANGUAGE:CXX>:-O1;-Wno-pass-failed>")
endif()

# Presets that build everything (release, asan, tsan) compile all files of a target as one, in a third of
# the time. The preset debug does not: it suits a developer who changes one file and compiles again.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 0)

# gaccd_as_one(RESULT NAME source...): sources with options of their own, which CMake compiles one by one, as one
# file NAME.cc where others of a target are compiled as one. To be given the options, and to the target.
function(gaccd_as_one result name)
  set(sources ${ARGN})
  if(CMAKE_UNITY_BUILD)
    list(TRANSFORM sources REPLACE "(.+)" "#include \"${CMAKE_CURRENT_SOURCE_DIR}/\\1\"\n")
    list(JOIN sources "" includes)
    set(sources "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
    file(CONFIGURE OUTPUT "${sources}" CONTENT "${includes}")
  endif()
  set(${result} ${sources} PARENT_SCOPE)
endfunction()

# g++ collects garbage from 128 MB on, which costs a tenth of the time; 1 GB is enough for any file here.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param=ggc-min-expand=200 --param=ggc-min-heapsize=1048576>")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Precompiled headers may be reused from the cache, too: GaccdPrecompile.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND}" -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

find_program(MOLD_PROGRAM mold)  # links in a tenth of the time of GNU ld
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

option(GACCD_WERROR "Warnings are errors; OFF for compilers that gaccd is not developed with" ON)
add_library(gaccd_options INTERFACE)
target_include_directories(gaccd_options INTERFACE "${PROJECT_SOURCE_DIR}")
# Designated initialisers leave members at their defaults on purpose; g++ 12 warns all the same. And it
# takes "text" + string for an overlapping copy (GCC bug 105651). clang's -Wconversion and -Wshadow are wider than g++'s.
# Property GACCD_TEST_CODE of a target: its files, which are compiled as one, hide local names of each other; and
# under sanitizers, without debug information and checks of undefined behaviour of its own, it compiles in two thirds of the time.
target_compile_options(gaccd_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra $<$<NOT:$<BOOL:$<TARGET_PROPERTY:GACCD_TEST_CODE>>>:-Wshadow>
    -Wconversion -Wno-missing-field-initializers>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${GACCD_WERROR}>>:-Werror>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict;-Wno-subobject-linkage>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-sign-conversion;-Wno-shadow>)

# gaccd_hot(TARGET): code that handles every sample, gradient or byte of a log, and is optimised in full.
function(gaccd_hot target)
  target_compile_options(${target} PRIVATE ${GACCD_HOT_OPTIONS})
  set_target_properties(${target} PROPERTIES GACCD_HOT ON)
endfunction()

if(GACCD_SANITIZE)
  if("address" IN_LIST GACCD_SANITIZE AND "thread" IN_LIST GACCD_SANITIZE)
    message(FATAL_ERROR "GACCD_SANITIZE: address and thread exclude each other, found '${GACCD_SANITIZE}'")
  endif()
  list(JOIN GACCD_SANITIZE "," sanitizers)
  # Undefined behaviour ends a test.
  set(with_address "")
  if("thread" IN_LIST GACCD_SANITIZE)
    set(GACCD_SANITIZE_THREAD ON)
  endif()
  if("address" IN_LIST GACCD_SANITIZE)
    # ASan finds what a wrong pointer reads or writes; these two cost half of the time of compiling kernels.
    set(with_address -fno-sanitize-recover=undefined -fno-sanitize=vptr,pointer-overflow,object-size)
  endif()
  target_compile_options(gaccd_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizers};-fno-omit-frame-pointer;${with_address}>
    $<$<BOOL:$<TARGET_PROPERTY:GACCD_TEST_CODE>>:-g0;-fno-sanitize=undefined>)
  target_link_options(gaccd_options INTERFACE -fsanitize=${sanitizers})
  # Of their own: clang 16 does not define __SANITIZE_THREAD__.
  target_compile_definitions(gaccd_options INTERFACE GACCD_SANITIZED=1
    $<$<BOOL:${GACCD_SANITIZE_THREAD}>:GACCD_SANITIZE_THREAD=1>)
endif()
