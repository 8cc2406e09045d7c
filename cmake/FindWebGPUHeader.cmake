# Finds the standard webgpu.h.
#
# WEBGPU_HEADER_DIR names the folder; without it the `wgpu` package of the build's Python is asked,
# whose wheel carries the header. Only the header is used: the runtime itself is opened at run time.
#
# Defines the imported target WebGPUHeader::WebGPUHeader and WEBGPU_HEADER_DIR.

set(WEBGPU_HEADER_DIR "" CACHE PATH "Folder that holds webgpu.h (default: the wgpu package's)")

if(WEBGPU_HEADER_DIR)
  set(_webgpu_header_dir "${WEBGPU_HEADER_DIR}")
else()
  torch_webgpu_python_package_dir(wgpu _webgpu_header_dir)
  string(APPEND _webgpu_header_dir "/resources")
endif()
if(EXISTS "${_webgpu_header_dir}/webgpu.h")
  set(WebGPUHeader_FILE "${_webgpu_header_dir}/webgpu.h")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  WebGPUHeader
  REQUIRED_VARS WebGPUHeader_FILE
  REASON_FAILURE_MESSAGE
    "webgpu.h not found: `pip install wgpu==0.32.0`, or pass -DWEBGPU_HEADER_DIR=<folder of webgpu.h>.")

if(WebGPUHeader_FOUND AND NOT TARGET WebGPUHeader::WebGPUHeader)
  # The header is copied to a folder of its own, because its first home holds other headers too.
  set(WebGPUHeader_INCLUDE_DIR "${CMAKE_BINARY_DIR}/webgpu_header")
  configure_file("${WebGPUHeader_FILE}" "${WebGPUHeader_INCLUDE_DIR}/webgpu.h" COPYONLY)
  add_library(WebGPUHeader::WebGPUHeader INTERFACE IMPORTED)
  target_include_directories(WebGPUHeader::WebGPUHeader SYSTEM
                             INTERFACE "${WebGPUHeader_INCLUDE_DIR}")
endif()
