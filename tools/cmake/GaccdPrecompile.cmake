# Half of a compilation here is reading the headers of the standard library and of GoogleTest. They are
# compiled once, for libraries and for programs, and every target of ours reuses that.
set(GACCD_STANDARD_HEADERS
  <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <condition_variable> <filesystem> <fstream>
  <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view>
  <thread> <unordered_map> <utility> <variant> <vector>)

# gaccd_precompile(NAME HEADERS header... [OPTIONS flag...] [LIBS target...]): a target of which others may
# reuse the precompiled headers.
function(gaccd_precompile name)
  cmake_parse_arguments(arg "" "" "HEADERS;OPTIONS;LIBS" ${ARGN})
  file(TOUCH "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  add_library(${name} OBJECT "${CMAKE_CURRENT_BINARY_DIR}/${name}.cc")
  target_link_libraries(${name} PRIVATE gaccd_options ${arg_LIBS})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${arg_HEADERS})
endfunction()

# g++ 12 takes -O1 or -fno-math-errno from the precompiled headers and not from the command: sources of the
# target with such options of their own do without.
function(gaccd_compile_headers_again target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}")
    get_source_file_property(options "${source}" TARGET_DIRECTORY ${target} COMPILE_OPTIONS)
    if(options MATCHES "(^|;|:)-[fmO]")
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# gaccd_reuse_precompiled(FOLDER NAME LIBRARY type...): the targets of these types below FOLDER, as
# STATIC_LIBRARY, that link LIBRARY. Those of gaccd_hot() take headers that were compiled with their options.
function(gaccd_reuse_precompiled folder name library)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    get_target_property(options ${target} COMPILE_OPTIONS)
    get_target_property(hot ${target} GACCD_HOT)
    if(type IN_LIST ARGN AND "${library}" IN_LIST libraries AND (hot OR NOT options MATCHES "(^|;)-f"))
      if(hot)
        target_precompile_headers(${target} REUSE_FROM gaccd_hot_headers)
      else()
        target_precompile_headers(${target} REUSE_FROM ${name})
      endif()
      gaccd_compile_headers_again(${target})
      # g++ 12 forgets which precompiled headers are the system's, and warns of its own std::string.
      target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-stringop-overflow>)
    endif()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner ${folders})
    gaccd_reuse_precompiled("${inner}" ${name} ${library} ${ARGN})
  endforeach()
endfunction()

gaccd_precompile(gaccd_library_headers HEADERS ${GACCD_STANDARD_HEADERS})
gaccd_precompile(gaccd_hot_headers HEADERS ${GACCD_STANDARD_HEADERS} OPTIONS ${GACCD_HOT_OPTIONS})
foreach(folder collectives slurm daemon)
  gaccd_reuse_precompiled("${PROJECT_SOURCE_DIR}/${folder}" gaccd_library_headers gaccd_options
    STATIC_LIBRARY OBJECT_LIBRARY)
endforeach()
if(GACCD_BUILD_TESTS)
  gaccd_precompile(gaccd_test_headers HEADERS ${GACCD_STANDARD_HEADERS} <gmock/gmock.h> <gtest/gtest.h>
    LIBS GTest::gmock OPTIONS -fPIE ${GACCD_TEST_OPTIONS})  # as programs are
  set_target_properties(gaccd_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF GACCD_TEST_CODE ON)
  gaccd_reuse_precompiled("${PROJECT_SOURCE_DIR}/tests" gaccd_test_headers gaccd_testing EXECUTABLE)
  gaccd_reuse_precompiled("${PROJECT_SOURCE_DIR}/tests" gaccd_library_headers gaccd_options
    STATIC_LIBRARY OBJECT_LIBRARY)
endif()
