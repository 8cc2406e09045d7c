# Puts the libraries, the headers and the CMake package into the Python package: into the source tree
# for a development build (an incremental build is then all that a change needs), into the wheel when
# scikit-build-core drives the build.

if(DEFINED SKBUILD)
  set(package_dir "${CMAKE_BINARY_DIR}/package")
  set(TORCH_DIR_HINT "") # a wheel names no folder of the machine that built it
else()
  set(package_dir "${CMAKE_SOURCE_DIR}/torch_webgpu")
  set(TORCH_DIR_HINT "${TORCH_DIR}")
endif()
set_target_properties(torch_webgpu PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package_dir}/lib")
set_target_properties(_C PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${package_dir}")

set(cmake_dir "share/cmake/TorchWebGPU")
configure_file("${CMAKE_SOURCE_DIR}/cmake/TorchWebGPUConfig.cmake.in"
               "${package_dir}/${cmake_dir}/TorchWebGPUConfig.cmake" @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file("${package_dir}/${cmake_dir}/TorchWebGPUConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
configure_file("${CMAKE_SOURCE_DIR}/cmake/TorchLibraries.cmake"
               "${package_dir}/${cmake_dir}/TorchLibraries.cmake" COPYONLY)

# The file by which Vulkan's loader finds the layer in the library: csrc/runtime/vulkan_order.h.
configure_file("${CMAKE_SOURCE_DIR}/cmake/torch_webgpu_layer.json"
               "${package_dir}/share/vulkan/torch_webgpu_layer.json" COPYONLY)

# What Python and other players of the kernels read.
set(package_data_files)
foreach(name IN ITEMS kernels tables library)
  set(package_data_file "${package_dir}/share/wgsl/${name}.json")
  add_custom_command(
    OUTPUT "${package_data_file}"
    COMMAND "${CMAKE_COMMAND}" -E copy_if_different "${GENERATED_DIR}/${name}.json"
            "${package_data_file}"
    DEPENDS "${GENERATED_DIR}/${name}.json"
    VERBATIM)
  list(APPEND package_data_files "${package_data_file}")
endforeach()
add_custom_target(package_data ALL DEPENDS ${package_data_files})
add_dependencies(_C package_data)

if(DEFINED SKBUILD)
  install(TARGETS torch_webgpu LIBRARY DESTINATION torch_webgpu/lib)
  install(TARGETS _C LIBRARY DESTINATION torch_webgpu)
  install(DIRECTORY "${package_dir}/share" DESTINATION torch_webgpu)
  foreach(room IN ITEMS runtime backend)
    install(
      DIRECTORY "${CMAKE_SOURCE_DIR}/csrc/${room}"
      DESTINATION torch_webgpu/include/torch_webgpu
      FILES_MATCHING
      PATTERN "*.h")
  endforeach()
  install(FILES "${WebGPUHeader_INCLUDE_DIR}/webgpu.h" DESTINATION torch_webgpu/include)
else()
  file(MAKE_DIRECTORY "${package_dir}/include")
  file(CREATE_LINK "${CMAKE_SOURCE_DIR}/csrc" "${package_dir}/include/torch_webgpu" SYMBOLIC)
  file(CREATE_LINK "${WebGPUHeader_INCLUDE_DIR}/webgpu.h" "${package_dir}/include/webgpu.h"
       SYMBOLIC)
endif()
