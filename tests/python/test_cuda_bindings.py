"""NVIDIA's own Python bindings as a client of the virtual GPU.

Runs in a child process, because the loader's search path must be set before the bindings look for
libcuda.so.1.
"""

import glob
import os
import pathlib
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]

CLIENT = textwrap.dedent(
    """
    import ctypes
    import numpy as np
    from cuda.bindings import driver, nvrtc

    def ok(result):
        assert result[0].value == 0, result
        return result[1] if len(result) == 2 else result[1:]

    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    assert b"Linnet Virtual" in ok(driver.cuDeviceGetName(64, device))
    major = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    assert ok(driver.cuDeviceGetAttribute(major, device)) == 9
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))

    source = b'''extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i < n) y[i] = a * x[i] + y[i];
    }'''
    program = ok(nvrtc.nvrtcCreateProgram(source, b"saxpy.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_90"]))
    ptx = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, ptx))
    module = ok(driver.cuModuleLoadData(ptx))
    saxpy = ok(driver.cuModuleGetFunction(module, b"saxpy"))

    n = 1000
    x = np.random.rand(n).astype(np.float32)
    y = np.random.rand(n).astype(np.float32)
    expected = np.float32(2) * x + y
    dx, dy = ok(driver.cuMemAlloc(4 * n)), ok(driver.cuMemAlloc(4 * n))
    ok(driver.cuMemcpyHtoD(dx, x.ctypes.data, 4 * n))
    ok(driver.cuMemcpyHtoD(dy, y.ctypes.data, 4 * n))
    stream = ok(driver.cuStreamCreate(0))
    start, end = ok(driver.cuEventCreate(0)), ok(driver.cuEventCreate(0))
    ok(driver.cuEventRecord(start, stream))
    arguments = ((2.0, dx, dy, n), (ctypes.c_float, None, None, ctypes.c_int))
    ok(driver.cuLaunchKernel(saxpy, 4, 1, 1, 256, 1, 1, 0, stream, arguments, 0))
    ok(driver.cuEventRecord(end, stream))
    ok(driver.cuStreamSynchronize(stream))
    assert ok(driver.cuEventElapsedTime(start, end)) >= 0
    ok(driver.cuMemcpyDtoH(y.ctypes.data, dy, 4 * n))
    assert np.allclose(y, expected, rtol=1e-6)
    """
)


def test_cuda_bindings_run_a_kernel_on_the_virtual_gpu():
    nvrtc = [os.path.dirname(p) for path in sys.path for p in glob.glob(f"{path}/nvidia/*/lib/libnvrtc.so.*")]
    assert nvrtc, "NVRTC is not in the environment: run ./setup.sh"
    environment = dict(os.environ, LINNET_VIRTUAL_ARCH="sm_90")
    environment["LD_LIBRARY_PATH"] = f"{ROOT / 'build/lib/virtual'}:{nvrtc[0]}"
    result = subprocess.run(
        [sys.executable, "-c", CLIENT], env=environment, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
