# Imported targets for the PyTorch in a given folder. Used by this build and by TorchWebGPUConfig.cmake.
#
# find_package(Torch) is not used: on a CUDA wheel it demands an installed CUDA toolkit, and it links
# every library of torch. This backend needs torch_cpu and c10 alone, whatever else the wheel holds.
#
#   torch_webgpu_import_torch(<dir of the torch package>)
# defines TorchWebGPU::torch (C++ API) and, where the library exists, TorchWebGPU::torch_python.

function(torch_webgpu_import_torch torch_dir)
  if(NOT TARGET TorchWebGPU::torch)
    set(suffix "${CMAKE_SHARED_LIBRARY_SUFFIX}")
    set(prefix "${CMAKE_SHARED_LIBRARY_PREFIX}")
    foreach(lib IN ITEMS c10 torch_cpu torch_python)
      set(path "${torch_dir}/lib/${prefix}${lib}${suffix}")
      if(EXISTS "${path}")
        add_library(TorchWebGPU::${lib} SHARED IMPORTED GLOBAL)
        set_target_properties(
          TorchWebGPU::${lib} PROPERTIES IMPORTED_LOCATION "${path}" IMPORTED_IMPLIB
                                         "${torch_dir}/lib/${lib}.lib") # Windows
      elseif(NOT lib STREQUAL "torch_python")
        message(FATAL_ERROR "${path} does not exist: ${torch_dir} holds no PyTorch library.")
      endif()
    endforeach()
    add_library(TorchWebGPU::torch INTERFACE IMPORTED GLOBAL)
    target_include_directories(
      TorchWebGPU::torch SYSTEM INTERFACE "${torch_dir}/include"
                                          "${torch_dir}/include/torch/csrc/api/include")
    # Wheels from 2.7 on are built with the new ABI, whatever the compiler's own default.
    target_compile_definitions(TorchWebGPU::torch INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
    target_link_libraries(TorchWebGPU::torch INTERFACE TorchWebGPU::torch_cpu TorchWebGPU::c10)
  endif()
endfunction()

function(torch_webgpu_torch_version torch_dir out_var)
  set(header "${torch_dir}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${header}")
    set(header "${torch_dir}/include/torch/csrc/api/include/torch/version.h")
  endif()
  file(STRINGS "${header}" lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
  list(JOIN numbers "." version)
  set(${out_var} "${version}" PARENT_SCOPE)
endfunction()
