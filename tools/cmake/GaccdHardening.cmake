# What makes an error in our code harder to use against the user who runs it. For everything that is
# built here; tests/unit/dev/hardening_test.py looks at the program.
#
#   position-independent executable      addresses differ from run to run
#   full RELRO, bound at the start       the table of library functions is read-only
#   no executable stack
#   stack protector                      a buffer that overflows ends the process before it returns
#   _FORTIFY_SOURCE=3                    copies with a known size of target are checked (optimised
#                                        builds only; sanitizers check the same, and better)
#   _GLIBCXX_ASSERTIONS                  vector[i], span[i], *optional are checked
#
# nvcc's own code gets the stack protector; device code knows none of the others.
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fstack-protector-strong>)
add_compile_definitions($<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
if(NOT GACCD_SANITIZE)
  add_compile_options(
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=3>)
endif()
