// Streams and events. Work is done when it is submitted, so nothing is ever pending.
#include "driver/boundary.h"
#include "driver/graph.h"

using namespace linnet::vgpu;
using namespace linnet::vgpu::driver;

VGPU_API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return guarded_context("cuStreamCreateWithPriority", [&](State& state) {
    auto* created = new Stream;
    created->flags = flags;
    created->priority = priority;
    created->id = state.next_id++;
    created->context = &state.current();
    state.streams.insert(created);
    required(stream, "stream") = created;
  });
}

VGPU_API CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

VGPU_API CUresult cuStreamDestroy_v2(CUstream stream) {
  return guarded_context("cuStreamDestroy", [&](State& state) {
    checked(state.streams, stream, "stream");
    state.streams.erase(stream);
    delete stream;
  });
}

VGPU_API CUresult cuStreamSynchronize(CUstream stream) {
  return guarded_context("cuStreamSynchronize", [&](State& state) {
    if (state.stream(stream).capture)
      throw DriverError(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "synchronising a captured stream");
    state.check_failure();
  });
}

VGPU_API CUresult cuStreamQuery(CUstream stream) { return cuStreamSynchronize(stream); }

VGPU_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return guarded_context("cuStreamWaitEvent", [&](State& state) {
    wait_event(state.stream(stream), checked(state.events, event, "event"));
  });
}

VGPU_API CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return guarded_context("cuStreamGetFlags", [&](State& state) {
    required(flags, "flags") = state.stream(stream).flags;
  });
}

VGPU_API CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return guarded_context("cuStreamGetPriority", [&](State& state) {
    required(priority, "priority") = state.stream(stream).priority;
  });
}

VGPU_API CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return guarded_context("cuStreamGetId",
                         [&](State& state) { required(id, "id") = state.stream(stream).id; });
}

VGPU_API CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return guarded_context("cuStreamGetCtx", [&](State& state) {
    Context* owner = state.stream(stream).context;
    required(context, "context") = owner ? owner : &state.current();
  });
}

VGPU_API CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return guarded_context("cuStreamGetDevice", [&](State& state) {
    state.stream(stream);
    required(device, "device") = 0;
  });
}

VGPU_API CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return guarded_context("cuLaunchHostFunc", [&](State& state) {
    if (!function) invalid_value("function is null");
    state.submit(stream, NodeKind::Host, [function, data] { function(data); });
  });
}

VGPU_API CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                                      unsigned) {
  return guarded_context("cuStreamAddCallback", [&](State& state) {
    if (!callback) invalid_value("callback is null");
    if (state.stream(stream).capture)
      throw DriverError(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "callbacks during capture");
    callback(stream, state.failure, data);
  });
}

VGPU_API CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return guarded_context("cuEventCreate", [&](State& state) {
    auto* created = new Event;
    created->flags = flags;
    state.events.insert(created);
    required(event, "event") = created;
  });
}

VGPU_API CUresult cuEventDestroy_v2(CUevent event) {
  return guarded_context("cuEventDestroy", [&](State& state) {
    checked(state.events, event, "event");
    state.events.erase(event);
    delete event;
  });
}

VGPU_API CUresult cuEventRecord(CUevent event, CUstream stream) {
  return guarded_context("cuEventRecord", [&](State& state) {
    record_event(checked(state.events, event, "event"), state.stream(stream));
  });
}

VGPU_API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) {
  return cuEventRecord(event, stream);
}

VGPU_API CUresult cuEventQuery(CUevent event) {
  return guarded_context("cuEventQuery", [&](State& state) {
    checked(state.events, event, "event");
    state.check_failure();
  });
}

VGPU_API CUresult cuEventSynchronize(CUevent event) { return cuEventQuery(event); }

// The time the simulation took on the host: a real duration, but not the modelled device's.
VGPU_API CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  return guarded_context("cuEventElapsedTime", [&](State& state) {
    const Event& first = checked(state.events, start, "event");
    const Event& last = checked(state.events, end, "event");
    if (!first.recorded || !last.recorded)
      throw DriverError(CUDA_ERROR_INVALID_HANDLE, "an event has not been recorded");
    if ((first.flags | last.flags) & 2)
      throw DriverError(CUDA_ERROR_INVALID_HANDLE, "an event was created without timing");
    required(milliseconds, "milliseconds") =
        std::chrono::duration<float, std::milli>(last.time - first.time).count();
  });
}

VGPU_API CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
