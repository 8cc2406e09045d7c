# Runs tools/kernels.py on the kernel files. It writes a file only when the text changed, and Ninja's
# restat then skips what depends on an unchanged one: a change within a kernel compiles kernels.cpp.
# Sets KERNEL_SOURCES.

set(kernels_py "${CMAKE_SOURCE_DIR}/tools/kernels.py")
file(GLOB kernels_scripts CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tools/contract/*.py"
     "${CMAKE_SOURCE_DIR}/tools/contract/*.j2")
list(APPEND kernels_scripts "${kernels_py}")
file(GLOB_RECURSE kernel_files CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/csrc/ops/*.wgsl")
set(kernels_args --root "${CMAKE_SOURCE_DIR}/csrc/ops" --out "${GENERATED_DIR}")
# There is a header for each kernel, so the outputs change with the files.
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${kernels_py}" ${kernels_args} --list
  OUTPUT_VARIABLE kernel_outputs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" kernel_outputs "${kernel_outputs}")
add_custom_command(
  OUTPUT ${kernel_outputs}
  COMMAND "${Python_EXECUTABLE}" "${kernels_py}" ${kernels_args}
  DEPENDS ${kernels_scripts} ${kernel_files}
  COMMENT "Generating kernel contracts"
  VERBATIM)
set(KERNEL_SOURCES ${kernel_outputs})
list(FILTER KERNEL_SOURCES INCLUDE REGEX "\\.(cpp|h)$")
